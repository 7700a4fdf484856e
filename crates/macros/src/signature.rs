//! The signature of a kernel: which parameters the launch passes and which staging is given, and the type that stages it.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    FnArg, GenericParam, Ident, ItemFn, Pat, PatType, ReturnType, Safety, Signature, Type, TypeImplTrait,
};

use crate::attr::{self, Options};
use crate::refuse::{Refusal, Refusals};

/// The language's parameter types, by the last segment of their path: what the launch passes. Other types take
/// `#[runtime]`.
const RUNTIME_TYPES: &[&str] = &["Val", "Global", "TensorMap", "View"];

/// One parameter of a kernel.
pub(crate) struct Parameter {
    ident: Ident,
    ty: Type,
    runtime: bool,
}

/// Refuses the qualifiers that no staged function can have.
pub(crate) fn check(signature: &Signature, refusals: &mut Refusals) {
    if let Some(token) = &signature.constness {
        refusals.add(token.span, Refusal::ConstFn);
    }
    if let Some(token) = &signature.asyncness {
        refusals.add(token.span, Refusal::AsyncFn);
    }
    if let Some(abi) = &signature.abi {
        refusals.add(abi.extern_token.span, Refusal::ExternFn);
    }
    if let Some(variadic) = &signature.variadic {
        refusals.add(variadic.dots.spans[0], Refusal::Variadic);
    }
}

/// Reads the parameters of a kernel, and removes the attributes that sort them.
pub(crate) fn parameters(signature: &mut Signature, refusals: &mut Refusals) -> Vec<Parameter> {
    check(signature, refusals);
    if let Safety::Unsafe(token) = &signature.safety {
        refusals.add(token.span, Refusal::UnsafeFn);
    }
    if let ReturnType::Type(_, ty) = &signature.output {
        let unit = matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty());
        if !unit {
            refusals.add(ty.span(), Refusal::Returns);
        }
    }
    let kernel = signature.ident.clone();
    let inputs = signature.inputs.iter_mut();
    inputs.filter_map(|input| parameter(input, &kernel, refusals)).collect()
}

fn parameter(input: &mut FnArg, kernel: &Ident, refusals: &mut Refusals) -> Option<Parameter> {
    let input = match input {
        FnArg::Typed(input) => input,
        FnArg::Receiver(receiver) => {
            refusals.add(receiver.self_token.span, Refusal::Receiver);
            return None;
        }
    };
    let runtime = is_runtime(input, refusals);
    if let Some(at) = impl_trait(&input.ty) {
        refusals.add(at, Refusal::ImplTrait);
    }
    match &*input.pat {
        Pat::Ident(pat) if pat.by_ref.is_none() && pat.subpat.is_none() => {
            if pat.ident == *kernel {
                refusals.add(pat.ident.span(), Refusal::ParameterName);
            }
            Some(Parameter { ident: pat.ident.clone(), ty: (*input.ty).clone(), runtime })
        }
        pat => {
            refusals.add(pat.span(), Refusal::ParameterPattern);
            None
        }
    }
}

fn is_runtime(input: &mut PatType, refusals: &mut Refusals) -> bool {
    let at = input.attrs.first().map_or_else(Span::call_site, |attr| attr.pound_token.span);
    let runtime = attr::take(&mut input.attrs, attr::RUNTIME);
    let constant = attr::take(&mut input.attrs, attr::CONSTANT);
    if runtime && constant {
        refusals.add(at, Refusal::ParameterKind);
    }
    runtime || !constant && has_runtime_type(&input.ty)
}

fn has_runtime_type(ty: &Type) -> bool {
    match ty {
        Type::Group(inner) => has_runtime_type(&inner.elem),
        Type::Paren(inner) => has_runtime_type(&inner.elem),
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| RUNTIME_TYPES.iter().any(|name| last.ident == name))
        }
        _ => false,
    }
}

/// Where `impl Trait` stands in the type, if it does.
pub(crate) fn impl_trait(ty: &Type) -> Option<Span> {
    struct Find(Option<Span>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, node: &'ast TypeImplTrait) {
            self.0.get_or_insert(node.impl_token.span);
            visit::visit_type_impl_trait(self, node);
        }
    }
    let mut find = Find(None);
    find.visit_type(ty);
    find.0
}

/// The type with the kernel's name and its function `stage`, which takes the constants and returns the staged kernel.
pub(crate) fn stage_type(function: &ItemFn, parameters: &[Parameter], options: &Options) -> TokenStream {
    let ItemFn { attrs, vis, sig, .. } = function;
    let kernel = &sig.ident;
    let at = kernel.span();
    let quiet = Span::mixed_site().located_at(at);
    let root = options.root.at(at);
    let name = options.name.as_ref().map_or_else(|| kernel.unraw().to_string(), syn::LitStr::value);
    let conditions: Vec<_> = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();

    let constants = parameters.iter().filter(|parameter| !parameter.runtime);
    let inputs = constants.clone().map(|Parameter { ident, ty, .. }| quote!(#ident: #ty));
    let checks = constants.map(|Parameter { ty, .. }| {
        let (at, root) = (ty.span(), options.root.at(ty.span()));
        quote_spanned!(at=> #root::stage::assert_constant::<#ty>();)
    });
    let runtime = parameters.iter().filter(|parameter| parameter.runtime);
    let arguments = runtime.map(|Parameter { ident, ty, .. }| {
        let (at, root, text) = (ty.span(), options.root.at(ty.span()), ident.unraw().to_string());
        quote_spanned!(at=> let #ident = #root::stage::argument::<#ty>(#text);)
    });
    let names = parameters.iter().map(|parameter| &parameter.ident);
    let generics = sig.generics.params.iter().filter_map(|param| match param {
        GenericParam::Lifetime(_) => None,
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
    });
    let turbofish = quote!(::<#(#generics),*>);
    let (impl_generics, _, where_clause) = sig.generics.split_for_impl();

    let about = format!(" The kernel [`{kernel}`](fn@{kernel}) as something to stage.");
    let stage = quote_spanned!(at=> #root::stage::kernel);
    // `stage` repeats the signature; what lints say about that, they say about the function.
    quote_spanned! {quiet=>
        #(#conditions)*
        #[doc = #about]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #kernel {}

        #(#conditions)*
        impl #kernel {
            /// Stages the kernel for these constants.
            ///
            /// # Errors
            ///
            /// What staging refused, with its place in the source of the kernel.
            #[track_caller]
            #[allow(
                dead_code,
                non_snake_case,
                clippy::too_many_arguments,
                clippy::type_complexity,
                clippy::extra_unused_lifetimes,
                clippy::extra_unused_type_parameters
            )]
            #vis fn stage #impl_generics (#(#inputs),*) -> ::core::result::Result<#root::Kernel, #root::Error>
            #where_clause
            {
                #(#checks)*
                #stage(#name, move || {
                    #(#arguments)*
                    #kernel #turbofish (#(#names),*);
                })
            }
        }
    }
}
