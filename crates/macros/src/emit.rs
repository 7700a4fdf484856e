//! The code that stands for control flow and operators: calls into `stage`.
//!
//! Two kinds of spans serve two readers. Every call, from its path or method name to its closing parenthesis, carries the
//! span of the user's token as it is, because `#[track_caller]` reports the place of a call and looks through macro
//! expansions otherwise. Everything else is *quiet*: located at the same token but marked as expanded, so that generated
//! variables cannot clash with the user's and lints do not judge code that nobody wrote.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Block, Expr, ExprBlock, Ident, Pat, Stmt, UnOp, token};

use crate::attr::Root;
use crate::scope::Place;

/// Writes the code that stands for one token of the user.
pub(crate) struct Emit<'a> {
    root: &'a Root,
    at: Span,
}

impl<'a> Emit<'a> {
    pub(crate) fn new(root: &'a Root, at: Span) -> Self {
        Self { root, at }
    }

    /// `stage::NAME(ARGUMENTS)`.
    pub(crate) fn call(&self, name: &TokenStream, arguments: &TokenStream) -> TokenStream {
        let (at, root) = (self.at, self.root.at(self.at));
        let name = respan(name, at);
        quote_spanned!(at=> #root::stage::#name(#arguments))
    }

    /// `if condition { .. } else { .. }`.
    pub(crate) fn branch(
        &self,
        attrs: Vec<Attribute>,
        condition: &Expr,
        then: &Block,
        otherwise: Option<&Expr>,
        places: &[Place],
    ) -> Expr {
        let quiet = self.quiet();
        let (state, arm) = (self.local("__s"), self.local("__arm"));
        // Located as the user's, so that a value that cannot be handed on is reported at its `if`.
        let value = Ident::new("__value_of_if", self.at);
        let open = self.call(&quote!(branch), &bare(condition).to_token_stream());
        let save = self.carry(&state, "save", None, places);
        let next = self.method(&state, "arm", &TokenStream::new());
        let otherwise = otherwise.map(|expr| quote_spanned!(quiet=> else #expr));
        let put = self.method(&state, "put", &value.to_token_stream());
        let leave = self.leave(&state, places);
        let join = self.join(&state, places);
        let finish = self.method(&state, "finish", &TokenStream::new());
        let code = quote_spanned! {quiet=>
            let mut #state = #open;
            #save
            while let ::core::option::Option::Some(#arm) = #next {
                let #value = if #arm #then #otherwise;
                #put;
                #leave
            }
            #join
            #finish
        };
        self.block(attrs, code)
    }

    /// `while condition { .. }`.
    pub(crate) fn looping(
        &self,
        attrs: Vec<Attribute>,
        condition: &Expr,
        body: &Block,
        places: &[Place],
    ) -> Expr {
        let quiet = self.quiet();
        let state = self.local("__s");
        let condition = bare(condition);
        let of_condition = Emit::new(self.root, condition.span());
        let witness = of_condition.call(&quote!(type_of), &quote_spanned!(quiet=> || #condition));
        let open = self.call(&quote!(looping), &witness);
        let enter = self.enter(&state, places);
        let next = self.method(&state, "next", &TokenStream::new());
        let holds = self.local("__c");
        let hold = self.carry(&state, "hold", Some(token::Mut::default()), places);
        let test = self.method(&state, "test", &holds.to_token_stream());
        // The body is a region of its own: it receives the variables anew.
        let pass = self.carry(&state, "pass", Some(token::Mut::default()), places);
        let leave = self.leave(&state, places);
        let join = self.join(&state, places);
        let code = quote_spanned! {quiet=>
            let mut #state = #open;
            #enter
            while #next {
                let #holds = #condition;
                #hold
                if !#test { break; }
                #pass
                #body
                #leave
            }
            #join
        };
        self.block(attrs, code)
    }

    /// `for pat in items { .. }`.
    pub(crate) fn each_of(
        &self,
        attrs: Vec<Attribute>,
        pat: &Pat,
        items: &Expr,
        body: &Block,
        places: &[Place],
    ) -> Expr {
        let quiet = self.quiet();
        let (state, item) = (self.local("__s"), self.local("__i"));
        let open = self.call(&quote!(each), &bare(items).to_token_stream());
        let enter = self.enter(&state, places);
        let next = self.method(&state, "next", &TokenStream::new());
        let leave = self.leave(&state, places);
        let join = self.join(&state, places);
        let code = quote_spanned! {quiet=>
            let mut #state = #open;
            #enter
            while let ::core::option::Option::Some(#item) = #next {
                let #pat = #item;
                #body
                #leave
            }
            #join
        };
        self.block(attrs, code)
    }

    /// A comparison: both operands are borrowed, as the operators do.
    pub(crate) fn compare(&self, method: &TokenStream, left: &Expr, right: &Expr) -> Expr {
        let (left, right) = (borrow(left), borrow(right));
        Expr::Verbatim(self.call(method, &quote_spanned!(self.quiet()=> #left, #right)))
    }

    /// `&&` or `||`: the right operand is evaluated only where the left one asks for it.
    pub(crate) fn logic(&self, method: &TokenStream, left: &Expr, right: &Expr) -> Expr {
        let (left, right) = (bare(left), bare(right));
        Expr::Verbatim(self.call(method, &quote_spanned!(self.quiet()=> #left, || #right)))
    }

    /// `start..end` or `start..=end`.
    pub(crate) fn range(&self, function: &TokenStream, start: &Expr, end: &Expr) -> Expr {
        let (start, end) = (bare(start), bare(end));
        Expr::Verbatim(self.call(function, &quote_spanned!(self.quiet()=> #start, #end)))
    }

    /// The same place, marked as expanded.
    pub(crate) fn quiet(&self) -> Span {
        Span::mixed_site().located_at(self.at)
    }

    /// A variable that the user's code can neither see nor shadow.
    pub(crate) fn local(&self, name: &str) -> Ident {
        Ident::new(name, self.quiet())
    }

    fn enter(&self, state: &Ident, places: &[Place]) -> TokenStream {
        self.carry(state, "enter", Some(token::Mut::default()), places)
    }

    fn leave(&self, state: &Ident, places: &[Place]) -> TokenStream {
        self.carry(state, "leave", Some(token::Mut::default()), places)
    }

    fn join(&self, state: &Ident, places: &[Place]) -> TokenStream {
        self.carry(state, "join", Some(token::Mut::default()), places)
    }

    /// One call of a method of the state for each place. The borrow stands where the place is assigned, so that a
    /// variable that cannot be carried is reported there.
    fn carry(
        &self,
        state: &Ident,
        method: &str,
        mutable: Option<token::Mut>,
        places: &[Place],
    ) -> TokenStream {
        let calls = places.iter().map(|place| {
            let borrow = quote_spanned!(place.ident.span()=> & #mutable #place);
            self.method(state, method, &borrow)
        });
        quote_spanned!(self.quiet()=> #(#calls;)*)
    }

    fn method(&self, state: &Ident, name: &str, arguments: &TokenStream) -> TokenStream {
        let name = Ident::new(name, self.at);
        let call = quote_spanned!(self.at=> .#name(#arguments));
        quote!(#state #call)
    }

    fn block(&self, attrs: Vec<Attribute>, code: TokenStream) -> Expr {
        Expr::Block(ExprBlock {
            attrs,
            label: None,
            block: Block {
                brace_token: token::Brace(self.quiet()),
                stmts: vec![Stmt::Expr(Expr::Verbatim(code), None)],
            },
        })
    }
}

fn respan(tokens: &TokenStream, at: Span) -> TokenStream {
    let relocated = tokens.clone().into_iter().map(|mut token| {
        token.set_span(at);
        token
    });
    relocated.collect()
}

/// The expression without its parentheses, which rustc finds superfluous around an argument.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(inner) if inner.attrs.is_empty() => bare(&inner.expr),
        _ => expr,
    }
}

/// `&expr`, located at the expression, where rustc reports an operand of the wrong type.
fn borrow(expr: &Expr) -> TokenStream {
    let expr = bare(expr);
    let at = expr.span();
    match expr {
        Expr::Path(_)
        | Expr::Lit(_)
        | Expr::Call(_)
        | Expr::MethodCall(_)
        | Expr::Field(_)
        | Expr::Index(_)
        | Expr::Tuple(_)
        | Expr::Array(_)
        | Expr::Macro(_)
        | Expr::Verbatim(_) => quote_spanned!(at=> &#expr),
        // A borrow of a dereference is what lints call superfluous.
        Expr::Unary(node) if matches!(node.op, UnOp::Deref(_)) => {
            quote_spanned!(Span::mixed_site().located_at(at)=> &#expr)
        }
        _ => quote_spanned!(at=> &(#expr)),
    }
}
