//! The options of `#[kernel(..)]` and `#[device(..)]`, and the attributes that stand inside a function.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Error, Expr, ExprTuple, Ident, LitStr, Path, Token};

use crate::refuse::Refusals;

/// Turns rewriting off for the expression or statement that it stands on.
pub(crate) const HOST: &str = "host";
/// Marks a parameter that the launch passes, whatever its type.
pub(crate) const RUNTIME: &str = "runtime";
/// Marks a parameter that staging is given, whatever its type.
pub(crate) const CONSTANT: &str = "constant";

/// Whether an attribute of this name is there.
pub(crate) fn has(attrs: &[Attribute], name: &str) -> bool {
    attrs.iter().any(|attr| attr.path().is_ident(name))
}

/// Removes attribute `name`; true if it was there.
pub(crate) fn take(attrs: &mut Vec<Attribute>, name: &str) -> bool {
    let before = attrs.len();
    attrs.retain(|attr| !attr.path().is_ident(name));
    attrs.len() < before
}

/// Where the generated code finds `stage`: the language crate, unless `crate = path` says otherwise.
#[derive(Default)]
pub(crate) struct Root(Option<Path>);

impl Root {
    /// The path, every token located at `at`: the location of a call is that of its first token.
    pub(crate) fn at(&self, at: Span) -> TokenStream {
        match &self.0 {
            None => language(at),
            Some(path) => relocate(path.to_token_stream(), at),
        }
    }
}

/// The language crate as the user's manifest names it: a dependency of its own, or a part of the front crate.
fn language(at: Span) -> TokenStream {
    let name = |name: String| Ident::new(&name, at);
    match (crate_name("tilewright-lang"), crate_name("tilewright")) {
        (Ok(FoundCrate::Name(lang)), _) => {
            let lang = name(lang);
            quote_spanned!(at=> ::#lang)
        }
        (Err(_), Ok(FoundCrate::Itself)) => quote_spanned!(at=> ::tilewright::lang),
        (Err(_), Ok(FoundCrate::Name(front))) => {
            let front = name(front);
            quote_spanned!(at=> ::#front::lang)
        }
        // The language crate itself, which knows itself under its own name; or nothing found, which rustc will say.
        _ => quote_spanned!(at=> ::tilewright_lang),
    }
}

/// Moves tokens to `at` but lets their names mean what they meant, which matters to `$crate`.
fn relocate(tokens: TokenStream, at: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut token| {
            if let TokenTree::Group(group) = &token {
                token = Group::new(group.delimiter(), relocate(group.stream(), at)).into();
            }
            token.set_span(at.resolved_at(token.span()));
            token
        })
        .collect()
}

/// One launch option: `stage::launch::NAME(ARGUMENTS)`.
pub(crate) struct Launch {
    pub(crate) name: Ident,
    pub(crate) arguments: Vec<Expr>,
}

/// What stood in the parentheses of the attribute.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) root: Root,
    pub(crate) name: Option<LitStr>,
    pub(crate) launch: Vec<Launch>,
}

const KERNEL_OPTIONS: &[&str] = &["threads", "min_blocks", "cluster", "max_registers", "name", "crate"];
const DEVICE_OPTIONS: &[&str] = &["crate"];

impl Options {
    pub(crate) fn kernel(attr: TokenStream, refusals: &mut Refusals) -> Self {
        Self::parse(attr, KERNEL_OPTIONS, refusals)
    }

    pub(crate) fn device(attr: TokenStream, refusals: &mut Refusals) -> Self {
        Self::parse(attr, DEVICE_OPTIONS, refusals)
    }

    fn parse(attr: TokenStream, known: &[&str], refusals: &mut Refusals) -> Self {
        let mut options = Self::default();
        let list = |input: ParseStream<'_>| {
            let mut given = Vec::new();
            while !input.is_empty() {
                given.push(Given::parse(input, known)?);
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(given)
        };
        let given = match list.parse2(attr) {
            Ok(given) => given,
            Err(error) => {
                refusals.error(error);
                return options;
            }
        };
        let mut seen: Vec<Ident> = Vec::new();
        for Given { name, value } in given {
            if seen.contains(&name) {
                refusals
                    .error(Error::new(name.span(), format!("option `{name}` is given twice; remove one")));
            }
            seen.push(name.clone());
            match value {
                Value::Root(path) => options.root = Root(Some(path)),
                Value::Name(text) => options.name = Some(text),
                Value::Launch(arguments) => options.launch.push(Launch { name, arguments }),
            }
        }
        options
    }
}

struct Given {
    name: Ident,
    value: Value,
}

enum Value {
    Root(Path),
    Name(LitStr),
    Launch(Vec<Expr>),
}

impl Given {
    fn parse(input: ParseStream<'_>, known: &[&str]) -> syn::Result<Self> {
        let name = input.call(Ident::parse_any)?;
        if !known.contains(&name.to_string().as_str()) {
            let known = known.join("`, `");
            return Err(Error::new(
                name.span(),
                format!("unknown option `{name}`; the options are `{known}`"),
            ));
        }
        input.parse::<Token![=]>()?;
        let value = match name.to_string().as_str() {
            "crate" => Value::Root(input.call(Path::parse_mod_style)?),
            "name" => Value::Name(input.parse()?),
            "cluster" => Value::Launch(triple(input)?),
            _ => Value::Launch(vec![input.parse()?]),
        };
        Ok(Self { name, value })
    }
}

fn triple(input: ParseStream<'_>) -> syn::Result<Vec<Expr>> {
    match Expr::parse(input)? {
        Expr::Tuple(ExprTuple { elems, .. }) if elems.len() == 3 => Ok(elems.into_iter().collect()),
        other => Err(Error::new_spanned(other, "a cluster has three extents; write `cluster = (x, y, z)`")),
    }
}
