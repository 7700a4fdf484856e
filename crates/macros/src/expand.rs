//! From an annotated function to what replaces it. Everything here works on `proc_macro2` tokens, so that tests can run it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::visit_mut::VisitMut;
use syn::{Attribute, Block, Expr, ItemFn, ReturnType, Stmt};

use crate::attr::{self, Launch, Options, Root};
use crate::emit::Emit;
use crate::refuse::Refusals;
use crate::{rewrite, signature};

/// `#[kernel(attr)] item`.
pub(crate) fn kernel(attr: TokenStream, item: &TokenStream) -> TokenStream {
    expand(attr, item, try_kernel)
}

/// `#[device(attr)] item`.
pub(crate) fn device(attr: TokenStream, item: &TokenStream) -> TokenStream {
    expand(attr, item, try_device)
}

/// On errors, the function goes out with them: editors keep completing in it, and its callers find it. It is the rewritten one, since
/// in the other rustc would complain of every condition and range; but for errors in the signature, which may not fit what we add.
fn expand(
    attr: TokenStream,
    item: &TokenStream,
    rewrite: impl FnOnce(TokenStream, ItemFn, &mut Refusals) -> TokenStream,
) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#item #error);
        }
    };
    let mut refusals = Refusals::default();
    let expanded = rewrite(attr, function, &mut refusals);
    let errors = refusals.to_compile_errors();
    quote!(#expanded #errors)
}

pub(crate) fn try_kernel(attr: TokenStream, mut function: ItemFn, refusals: &mut Refusals) -> TokenStream {
    let options = Options::kernel(attr, refusals);
    let original = function.clone();
    let parameters = signature::parameters(&mut function.sig, refusals);
    let fits = refusals.is_empty();
    rewrite::body(&options.root, &function.sig, &mut function.block, refusals);
    if !fits {
        return stripped(original);
    }
    refusals.place_in(&mut function.block);
    let launch = options.launch.iter().map(|option| launch(&options.root, option));
    function.block.stmts.splice(..0, launch);
    let stage = signature::stage_type(&function, &parameters, &options);
    quote! {
        #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
        #function
        #stage
    }
}

fn launch(root: &Root, Launch { name, arguments }: &Launch) -> Stmt {
    let call = Emit::new(root, name.span()).call(&quote!(launch::#name), &quote!(#(#arguments),*));
    Stmt::Expr(Expr::Verbatim(call), Some(syn::token::Semi(name.span())))
}

/// The body of a device function goes in a closure: in a `#[track_caller]` function itself every location would be the
/// caller's, while in a closure it is that of the operation. The helper makes the closure a `FnOnce`, which may return
/// what it captured.
pub(crate) fn try_device(attr: TokenStream, mut function: ItemFn, refusals: &mut Refusals) -> TokenStream {
    let options = Options::device(attr, refusals);
    let original = function.clone();
    signature::check(&function.sig, refusals);
    let fits = refusals.is_empty();
    rewrite::body(&options.root, &function.sig, &mut function.block, refusals);
    if !fits {
        return stripped(original);
    }
    refusals.place_in(&mut function.block);

    let (name, body) = (function.sig.ident.unraw().to_string(), &function.block);
    let emit = Emit::new(&options.root, function.sig.ident.span());
    let frame = emit.call(&quote!(frame), &quote!(#name));
    let guard = emit.local("__frame");
    let output = match &function.sig.output {
        ReturnType::Type(_, ty) if signature::impl_trait(ty).is_none() => Some(&function.sig.output),
        _ => None,
    };
    let run = match output {
        Some(output) => quote_spanned!(emit.quiet()=> __once(move || #output #body)),
        None => quote_spanned!(emit.quiet()=> __once(move || #body)),
    };
    let code = quote_spanned! {emit.quiet()=>
        fn __once<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        let #guard = #frame;
        #run
    };
    let brace_token = function.block.brace_token;
    *function.block = Block { brace_token, stmts: vec![Stmt::Expr(Expr::Verbatim(code), None)] };
    let caller = quote_spanned!(emit.quiet()=> #[track_caller]);
    quote!(#caller #function)
}

/// The function without the attributes that only we understand.
fn stripped(mut function: ItemFn) -> TokenStream {
    struct Strip;
    impl VisitMut for Strip {
        fn visit_attributes_mut(&mut self, attrs: &mut Vec<Attribute>) {
            for name in [attr::HOST, attr::RUNTIME, attr::CONSTANT] {
                attr::take(attrs, name);
            }
        }
    }
    Strip.visit_item_fn_mut(&mut function);
    function.into_token_stream()
}
