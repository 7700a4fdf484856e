//! `#[derive(Carry)]`: structs that run-time regions can hand on.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Index, Member, parse_quote};

use crate::attr::{HOST, Root, take};

/// The implementation of `Carry`, field by field; fields marked `#[host]` stay as they are.
pub(crate) fn derive(item: TokenStream) -> TokenStream {
    match syn::parse2::<DeriveInput>(item).and_then(implement) {
        Ok(tokens) => tokens,
        Err(error) => error.to_compile_error(),
    }
}

fn implement(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let Data::Struct(data) = &mut input.data else {
        let reason = "only structs can be carried: which variant an enum is must be known while staging";
        return Err(Error::new_spanned(&input.ident, reason));
    };
    let carried = fields(&mut data.fields);
    let root = Root::default().at(Span::call_site());
    let stage = quote!(#root::stage);
    let mut generics = input.generics.clone();
    let bounds = generics.make_where_clause();
    for (_, ty) in &carried {
        bounds.predicates.push(parse_quote!(#ty: #stage::Carry));
    }
    let name = &input.ident;
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let values = carried
        .iter()
        .map(|(member, ty)| quote_spanned!(ty.span()=> #stage::Carry::values(&self.#member, __out);));
    let replace = carried
        .iter()
        .map(|(member, ty)| quote_spanned!(ty.span()=> #stage::Carry::replace(&mut self.#member, __from);));
    Ok(quote! {
        #[automatically_derived]
        #[diagnostic::do_not_recommend]
        impl #impl_generics #stage::Carry for #name #type_generics #where_clause {
            fn values(&self, __out: &mut ::std::vec::Vec<#stage::Value>) {
                #(#values)*
            }
            fn replace(&mut self, __from: &mut dyn ::core::iter::Iterator<Item = #stage::Value>) {
                #(#replace)*
            }
        }
    })
}

/// The fields that are carried, with their types.
fn fields(fields: &mut Fields) -> Vec<(Member, syn::Type)> {
    let member = |(i, field): (usize, &mut syn::Field)| {
        let host = take(&mut field.attrs, HOST);
        let member = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(Index::from(i)),
        };
        (!host).then(|| (member, field.ty.clone()))
    };
    fields.iter_mut().enumerate().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_carried_but_host_ones() {
        let text = derive(quote!(
            struct Slot<T> {
                index: Val<T>,
                #[host]
                stages: u32,
            }
        ))
        .to_string();
        assert!(text.contains("Carry for Slot < T >"), "{text}");
        assert!(text.contains("& self . index") && !text.contains("stages"), "{text}");
        let text = derive(quote!(
            struct Pair(Val<u32>, #[host] u8, Val<f32>);
        ))
        .to_string();
        assert!(
            text.contains("self . 0") && text.contains("self . 2") && !text.contains("self . 1"),
            "{text}"
        );
    }

    #[test]
    fn enums_are_refused() {
        assert!(
            derive(quote!(
                enum E {
                    A(Val<u32>),
                }
            ))
            .to_string()
            .contains("known while staging")
        );
    }
}
