//! Which outer variables a region assigns, found by name and lexical scope.
//!
//! The bindings in scope form one stack, innermost last. A region (an arm of `if`, the body of a loop) and a closure are
//! remembered by the height of the stack at which they begin: a variable below that height is an outer one. An assignment
//! is entered in every open region that the variable is outer to.
//!
//! What is carried is a *place*, not always a variable: when a name that is not `mut` is assigned through (`p.x = ..`,
//! `p[i] = ..`), it must be a `&mut` reference, and what changes is `*p`.
//!
//! A method may take `&mut self`, which a call does not show. Losing such a change would be silent, carrying a value that
//! did not change costs nothing that lasts, so a method called on something mutable counts as an assignment, but for a few
//! whose names say that they only read. For the same reason a `&mut` reference that is passed to a call counts.
//!
//! Limits: names inside macro calls are not seen. A method that changes what a closure captured, or what a reference
//! points at whose type is not written (`for v in xs.iter_mut()`), is not seen either.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, Ident, Pat, PatIdent, Receiver, ReceiverKind, Type, UnOp};

use crate::refuse::Refusal;

/// Methods of the standard library that take `&self`, by custom under any type.
const READS: &[&str] =
    &["as_slice", "clone", "contains", "first", "get", "is_empty", "iter", "last", "len", "to_vec"];

/// Something assignable, as written: a variable, what is reached through it, or what it points at.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The variable, with the span of this use.
    pub(crate) ident: Ident,
    derefs: usize,
    projected: bool,
    through_method: bool,
    /// False if it is only called, and what the call does is not known.
    certain: bool,
}

impl Target {
    /// The place that `expr` names, unless it begins with something else than a variable.
    pub(crate) fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Path(path) if path.qself.is_none() => Some(Self {
                ident: path.path.get_ident()?.clone(),
                derefs: 0,
                projected: false,
                through_method: false,
                certain: true,
            }),
            Expr::Paren(inner) => Self::of(&inner.expr),
            Expr::Group(inner) => Self::of(&inner.expr),
            Expr::Field(field) => Some(Self { projected: true, ..Self::of(&field.base)? }),
            Expr::Index(index) => Some(Self { projected: true, ..Self::of(&index.expr)? }),
            Expr::MethodCall(call) => {
                Some(Self { projected: true, through_method: true, ..Self::of(&call.receiver)? })
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => {
                let inner = Self::of(&unary.expr)?;
                let derefs = inner.derefs + usize::from(!inner.projected);
                Some(Self { derefs, ..inner })
            }
            _ => None,
        }
    }

    /// The place that a method call may change. In a chain of calls only the first one is made on a place.
    pub(crate) fn of_call(call: &ExprMethodCall) -> Option<Self> {
        let reads = READS.iter().any(|name| call.method == name);
        let receiver = Self::of(&call.receiver).filter(|receiver| !reads && !receiver.through_method)?;
        Some(Self { projected: true, through_method: true, certain: false, ..receiver })
    }
}

/// An outer place that a region assigns: a variable, or what it points at after `derefs` steps.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The variable, with the span of its first assignment in the region.
    pub(crate) ident: Ident,
    derefs: usize,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.ident == other.ident && self.derefs == other.derefs
    }
}

impl ToTokens for Place {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let ident = &self.ident;
        let stars = (0..self.derefs).map(|_| quote_spanned!(ident.span()=> *));
        tokens.extend(quote!(#(#stars)* #ident));
    }
}

/// A name that a pattern binds.
struct Binding {
    name: Ident,
    mutable: bool,
    /// Known to be a `&mut` reference.
    reference: bool,
    initialised: bool,
}

/// What captures variables: a closure as written, or the right side of `&&` and `||`, which becomes one.
#[derive(Clone, Copy)]
pub(crate) enum Capture {
    Closure,
    Operand,
}

/// The height of the stack of bindings, to return to.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Mark(usize);

struct Region {
    start: usize,
    places: Vec<Place>,
}

/// The variables in scope, and the regions and closures that are open.
#[derive(Default)]
pub(crate) struct Scopes {
    bindings: Vec<Binding>,
    regions: Vec<Region>,
    captures: Vec<(usize, Capture)>,
}

impl Scopes {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.bindings.len())
    }

    pub(crate) fn release(&mut self, mark: Mark) {
        self.bindings.truncate(mark.0);
    }

    /// Brings the names of a pattern into scope.
    pub(crate) fn declare(&mut self, pat: &Pat, initialised: bool) {
        let mut found = Bound::default();
        found.visit_pat(pat);
        self.bindings.extend(found.0.into_iter().map(|pat| Binding {
            name: pat.ident.clone(),
            mutable: pat.mutability.is_some() && pat.by_ref.is_none(),
            reference: pat.mutability.is_some() && pat.by_ref.is_some(),
            initialised,
        }));
    }

    /// Brings the name of a pattern into scope that is known to be bound to a `&mut` reference.
    pub(crate) fn declare_reference(&mut self, pat: &Pat) {
        let mark = self.mark();
        self.declare(pat, true);
        self.bindings[mark.0..].iter_mut().for_each(|binding| binding.reference = true);
    }

    /// Brings `self` into scope.
    pub(crate) fn declare_receiver(&mut self, receiver: &Receiver) {
        let by_reference = matches!(receiver.kind, ReceiverKind::Reference(_, _, Some(_)));
        self.bindings.push(Binding {
            name: receiver.self_token.into(),
            mutable: receiver.mutability.is_some() && matches!(receiver.kind, ReceiverKind::Value),
            reference: by_reference,
            initialised: true,
        });
    }

    pub(crate) fn open_region(&mut self) {
        self.regions.push(Region { start: self.bindings.len(), places: Vec::new() });
    }

    /// Ends the innermost region; its outer places, in order of first assignment.
    pub(crate) fn close_region(&mut self) -> Vec<Place> {
        self.regions.pop().map(|region| region.places).unwrap_or_default()
    }

    pub(crate) fn open_capture(&mut self, by: Capture) {
        self.captures.push((self.bindings.len(), by));
    }

    pub(crate) fn close_capture(&mut self) {
        self.captures.pop();
    }

    /// What passing this place on lends: what it points at, if it is a variable that is known to be a `&mut` reference.
    pub(crate) fn lent(&self, target: Target) -> Option<Target> {
        let binding = self.bindings.iter().rfind(|binding| binding.name == target.ident)?;
        let whole = target.derefs == 0 && !target.projected;
        (whole && binding.reference).then_some(Target { derefs: 1, certain: false, ..target })
    }

    /// Notes an assignment. `host` code may assign what it captures: it runs as written.
    pub(crate) fn assign(&mut self, target: &Target, host: bool) -> Result<(), Refusal> {
        let Some(at) = self.bindings.iter().rposition(|binding| binding.name == target.ident) else {
            return Ok(());
        };
        let binding = &mut self.bindings[at];
        if target.through_method && !binding.mutable && !binding.reference {
            return Ok(());
        }
        if let (false, Some((_, by))) = (host, self.captures.iter().rfind(|(start, _)| at < *start)) {
            if !target.certain {
                return Ok(());
            }
            return Err(match by {
                Capture::Closure => Refusal::Captured,
                Capture::Operand => Refusal::CapturedByOperand,
            });
        }
        let whole = target.derefs == 0 && !target.projected;
        let carried_by = self.regions.iter_mut().filter(|region| at < region.start);
        if whole && !binding.initialised {
            if carried_by.count() > 0 {
                return Err(Refusal::Uninitialised);
            }
            binding.initialised = true;
            return Ok(());
        }
        let reference = target.projected && (binding.reference || !binding.mutable);
        let place = Place { ident: target.ident.clone(), derefs: target.derefs.max(usize::from(reference)) };
        for region in carried_by {
            if !region.places.contains(&place) {
                region.places.push(place.clone());
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Bound<'ast>(Vec<&'ast PatIdent>);

impl<'ast> Visit<'ast> for Bound<'ast> {
    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.0.push(pat);
        visit::visit_pat_ident(self, pat);
    }
    // Expressions and types in patterns are constants; they bind nothing that outlives them.
    fn visit_expr(&mut self, _: &'ast Expr) {}
    fn visit_type(&mut self, _: &'ast Type) {}
}

/// True if the pattern borrows mutably what it matches.
pub(crate) fn borrows_mutably(pat: &Pat) -> bool {
    let mut found = Bound::default();
    found.visit_pat(pat);
    found.0.iter().any(|pat| pat.by_ref.is_some() && pat.mutability.is_some())
}
