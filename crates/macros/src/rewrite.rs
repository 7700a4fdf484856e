//! The rewriting of a body: one walk that keeps the scopes, refuses what cannot be staged, and replaces control flow,
//! comparisons, logic and ranges on the way up.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprAssign, ExprBinary, ExprClosure, ExprForLoop, ExprIf, ExprIndex,
    ExprMatch, ExprRange, ExprWhile, FnArg, Item, Label, Lifetime, Local, Macro, Pat, PointerMutability,
    RangeLimits, Signature, StmtMacro, Type,
};

use crate::attr::{self, Root};
use crate::emit::Emit;
use crate::guard;
use crate::refuse::{Refusal, Refusals};
use crate::scope::{Capture, Scopes, Target, borrows_mutably};

/// Rewrites the body of a function with this signature.
pub(crate) fn body(root: &Root, signature: &Signature, block: &mut Block, refusals: &mut Refusals) {
    guard::clauses(block);
    let mut scopes = Scopes::default();
    for input in &signature.inputs {
        match input {
            FnArg::Typed(input) if is_mutable_reference(&input.ty) => scopes.declare_reference(&input.pat),
            FnArg::Typed(input) => scopes.declare(&input.pat, true),
            FnArg::Receiver(receiver) => scopes.declare_receiver(receiver),
        }
    }
    Rewriter { root, scopes, refusals, mode: Mode::Staged, jumps: Vec::new() }.visit_block_mut(block);
}

/// How the code under the walk is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Rewritten.
    Staged,
    /// A condition that must be a plain `bool` because it contains `let` or guards an arm: left as it is, but under the
    /// same prohibitions.
    Condition,
    /// Under `#[host]`: left as it is; assignments still count for the regions around it.
    Host,
}

/// What `break` and `continue` in host code may aim at.
struct Jump {
    label: Option<Lifetime>,
    is_loop: bool,
}

struct Rewriter<'a> {
    root: &'a Root,
    scopes: Scopes,
    refusals: &'a mut Refusals,
    mode: Mode,
    jumps: Vec<Jump>,
}

impl VisitMut for Rewriter<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if host_attributes(expr).is_some_and(|attrs| attr::take(attrs, attr::HOST)) {
            return self.as_host(|this| this.visit_expr_mut(expr));
        }
        self.refuse_jump(expr);
        let replacement = match expr {
            Expr::If(node) => self.visit_if(node),
            Expr::While(node) => self.visit_while(node),
            Expr::ForLoop(node) => self.visit_for(node),
            Expr::Binary(node) => self.visit_binary(node),
            Expr::Range(node) => self.visit_range(node),
            _ => {
                self.visit_other(expr);
                None
            }
        };
        if let Some(replacement) = replacement {
            *expr = replacement;
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        self.scoped(|this| visit_mut::visit_block_mut(this, block));
    }

    fn visit_local_mut(&mut self, local: &mut Local) {
        if attr::take(&mut local.attrs, attr::HOST) {
            return self.as_host(|this| this.visit_local_mut(local));
        }
        self.visit_attributes_mut(&mut local.attrs);
        if let Some(init) = &mut local.init {
            self.visit_expr_mut(&mut init.expr);
            self.note_pattern(&local.pat, &init.expr);
            if let Some((_, diverge)) = &mut init.diverge {
                self.visit_expr_mut(diverge);
            }
        }
        if binds_mutable_reference(local) {
            self.scopes.declare_reference(&local.pat);
        } else {
            self.scopes.declare(&local.pat, local.init.is_some());
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        self.scoped(|this| {
            this.visit_attributes_mut(&mut arm.attrs);
            this.scopes.declare(&arm.pat, true);
            if let Pat::Guard(guarded) = &mut arm.pat {
                this.visit_condition(&mut guarded.guard);
            }
            this.visit_expr_mut(&mut arm.body);
        });
    }

    fn visit_stmt_macro_mut(&mut self, node: &mut StmtMacro) {
        // A macro call is host code with or without the attribute.
        attr::take(&mut node.attrs, attr::HOST);
    }

    fn visit_attribute_mut(&mut self, attribute: &mut Attribute) {
        if attribute.path().is_ident(attr::HOST) {
            self.refuse(attribute.pound_token.span, Refusal::HostPlace);
        }
    }

    // Not part of what runs when the body runs.
    fn visit_item_mut(&mut self, _: &mut Item) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_path_mut(&mut self, _: &mut syn::Path) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_macro_mut(&mut self, _: &mut Macro) {}
}

/// Control flow. The three that become regions return what replaces them.
impl Rewriter<'_> {
    fn visit_if(&mut self, node: &mut ExprIf) -> Option<Expr> {
        self.visit_attributes_mut(&mut node.attrs);
        if self.mode != Mode::Staged || has_let(&node.cond) {
            self.scoped(|this| {
                this.visit_condition(&mut node.cond);
                this.visit_block_mut(&mut node.then_branch);
            });
            if let Some((_, otherwise)) = &mut node.else_branch {
                self.visit_expr_mut(otherwise);
            }
            return None;
        }
        self.visit_expr_mut(&mut node.cond);
        self.scopes.open_region();
        self.visit_block_mut(&mut node.then_branch);
        if let Some((_, otherwise)) = &mut node.else_branch {
            self.visit_expr_mut(otherwise);
        }
        let places = self.scopes.close_region();
        Some(self.emit(node.if_token.span).branch(
            std::mem::take(&mut node.attrs),
            &node.cond,
            &node.then_branch,
            node.else_branch.as_ref().map(|(_, otherwise)| &**otherwise),
            &places,
        ))
    }

    fn visit_while(&mut self, node: &mut ExprWhile) -> Option<Expr> {
        self.visit_attributes_mut(&mut node.attrs);
        if self.mode != Mode::Staged || has_let(&node.cond) {
            self.scoped(|this| {
                this.in_loop(node.label.as_ref(), |this| {
                    this.visit_condition(&mut node.cond);
                    this.visit_block_mut(&mut node.body);
                });
            });
            return None;
        }
        self.scopes.open_region();
        self.visit_expr_mut(&mut node.cond);
        self.visit_block_mut(&mut node.body);
        let places = self.scopes.close_region();
        let attrs = std::mem::take(&mut node.attrs);
        Some(self.emit(node.while_token.span).looping(attrs, &node.cond, &node.body, &places))
    }

    fn visit_for(&mut self, node: &mut ExprForLoop) -> Option<Expr> {
        self.visit_attributes_mut(&mut node.attrs);
        self.visit_expr_mut(&mut node.expr);
        if self.mode != Mode::Staged {
            self.scoped(|this| {
                this.scopes.declare(&node.pat, true);
                this.in_loop(node.label.as_ref(), |this| this.visit_block_mut(&mut node.body));
            });
            return None;
        }
        self.scopes.open_region();
        self.scoped(|this| {
            this.scopes.declare(&node.pat, true);
            this.visit_block_mut(&mut node.body);
        });
        let places = self.scopes.close_region();
        let attrs = std::mem::take(&mut node.attrs);
        Some(self.emit(node.for_token.span).each_of(attrs, &node.pat, &node.expr, &node.body, &places))
    }

    /// A condition with `let` in it, or a guard. Its bindings stay in scope for what it guards.
    fn visit_condition(&mut self, condition: &mut Expr) {
        let mode = if self.mode == Mode::Host { Mode::Host } else { Mode::Condition };
        self.with_mode(mode, |this| this.visit_expr_mut(condition));
    }

    fn visit_closure(&mut self, node: &mut ExprClosure) {
        if let (Some(token), true) = (&node.asyncness, self.mode != Mode::Host) {
            self.refuse(token.span, Refusal::Async);
        }
        self.visit_attributes_mut(&mut node.attrs);
        self.scopes.open_capture(Capture::Closure);
        self.scoped(|this| {
            for input in &node.inputs {
                this.scopes.declare(input, true);
            }
            this.visit_expr_mut(&mut node.body);
        });
        self.scopes.close_capture();
    }

    fn visit_match(&mut self, node: &mut ExprMatch) {
        self.visit_attributes_mut(&mut node.attrs);
        self.visit_expr_mut(&mut node.expr);
        for arm in &mut node.arms {
            self.note_pattern(&arm.pat, &node.expr);
            self.visit_arm_mut(arm);
        }
    }

    fn visit_other(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Assign(node) => self.visit_assign(node),
            Expr::Closure(node) => self.visit_closure(node),
            Expr::Match(node) => self.visit_match(node),
            Expr::Index(node) => self.visit_index(node),
            Expr::Reference(node) => {
                self.visit_expr_mut(&mut node.expr);
                if node.mutability.is_some() {
                    self.note_assigned(&node.expr);
                }
            }
            Expr::RawAddr(node) => {
                self.visit_expr_mut(&mut node.expr);
                if matches!(node.mutability, PointerMutability::Mut(_)) {
                    self.note_assigned(&node.expr);
                }
            }
            Expr::Call(node) => {
                visit_mut::visit_expr_call_mut(self, node);
                self.note_passed(&node.args);
            }
            Expr::MethodCall(node) => {
                visit_mut::visit_expr_method_call_mut(self, node);
                self.note(Target::of_call(node));
                self.note_passed(&node.args);
            }
            Expr::Let(node) => {
                self.visit_expr_mut(&mut node.expr);
                self.note_pattern(&node.pat, &node.expr);
                self.scopes.declare(&node.pat, true);
            }
            Expr::Loop(node) => {
                self.visit_attributes_mut(&mut node.attrs);
                self.in_loop(node.label.as_ref(), |this| this.visit_block_mut(&mut node.body));
            }
            Expr::Block(node) => {
                self.visit_attributes_mut(&mut node.attrs);
                self.jumps.push(Jump {
                    label: node.label.as_ref().map(|label| label.name.clone()),
                    is_loop: false,
                });
                self.visit_block_mut(&mut node.block);
                self.jumps.pop();
            }
            // The length is a constant expression, and so is all of a `const` block.
            Expr::Repeat(node) => self.visit_expr_mut(&mut node.expr),
            Expr::Const(_) | Expr::Async(_) => {}
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }
}

/// Operators, ranges and assignments.
impl Rewriter<'_> {
    fn visit_binary(&mut self, node: &mut ExprBinary) -> Option<Expr> {
        self.visit_attributes_mut(&mut node.attrs);
        let Some((at, operator)) = operator(&node.op) else {
            self.visit_expr_mut(&mut node.left);
            self.visit_expr_mut(&mut node.right);
            if is_compound_assignment(&node.op) {
                self.note_assigned(&node.left);
            }
            return None;
        };
        let staged = self.mode == Mode::Staged;
        let literals = is_literal(&node.left) && is_literal(&node.right);
        self.visit_expr_mut(&mut node.left);
        match operator {
            Operator::Compare(method) => {
                self.visit_expr_mut(&mut node.right);
                (staged && !literals).then(|| self.emit(at).compare(&method, &node.left, &node.right))
            }
            Operator::Logic(method) if staged => {
                self.scopes.open_capture(Capture::Operand);
                self.visit_expr_mut(&mut node.right);
                self.scopes.close_capture();
                Some(self.emit(at).logic(&method, &node.left, &node.right))
            }
            Operator::Logic(_) => {
                self.visit_expr_mut(&mut node.right);
                None
            }
        }
    }

    fn visit_range(&mut self, node: &mut ExprRange) -> Option<Expr> {
        self.visit_attributes_mut(&mut node.attrs);
        let ends = [&node.start, &node.end];
        let literals = ends.into_iter().flatten().all(|end| is_literal(end));
        self.visit_range_ends(node);
        let (ExprRange { start: Some(start), end: Some(end), limits, .. }, Mode::Staged, false) =
            (node, self.mode, literals)
        else {
            return None;
        };
        let (at, function) = match limits {
            RangeLimits::HalfOpen(token) => (token.spans[0], quote!(range)),
            RangeLimits::Closed(token) => (token.spans[0], quote!(range_inclusive)),
        };
        Some(self.emit(at).range(&function, start, end))
    }

    fn visit_range_ends(&mut self, node: &mut ExprRange) {
        for end in [&mut node.start, &mut node.end].into_iter().flatten() {
            self.visit_expr_mut(end);
        }
    }

    /// A range that indexes selects part of a host slice and stays one.
    fn visit_index(&mut self, node: &mut ExprIndex) {
        self.visit_attributes_mut(&mut node.attrs);
        self.visit_expr_mut(&mut node.expr);
        let mut index = &mut *node.index;
        while let Expr::Paren(inner) = index {
            index = &mut inner.expr;
        }
        match index {
            Expr::Range(range) => self.visit_range_ends(range),
            index => self.visit_expr_mut(index),
        }
    }

    fn visit_assign(&mut self, node: &mut ExprAssign) {
        self.visit_attributes_mut(&mut node.attrs);
        self.visit_expr_mut(&mut node.right);
        self.visit_assignee(&mut node.left);
    }

    /// The left side of `=`, which may be a pattern written as an expression.
    fn visit_assignee(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Tuple(node) => node.elems.iter_mut().for_each(|elem| self.visit_assignee(elem)),
            Expr::Array(node) => node.elems.iter_mut().for_each(|elem| self.visit_assignee(elem)),
            Expr::Struct(node) => {
                node.fields.iter_mut().for_each(|field| self.visit_assignee(&mut field.expr));
            }
            Expr::Call(node) => node.args.iter_mut().for_each(|arg| self.visit_assignee(arg)),
            Expr::Paren(node) => self.visit_assignee(&mut node.expr),
            place => {
                self.visit_expr_mut(place);
                self.note_assigned(place);
            }
        }
    }

    fn note_assigned(&mut self, expr: &Expr) {
        self.note(Target::of(expr));
    }

    fn note(&mut self, target: Option<Target>) {
        let Some(target) = target else { return };
        if let Err(why) = self.scopes.assign(&target, self.mode == Mode::Host) {
            self.refuse(target.ident.span(), why);
        }
    }

    /// A `&mut` reference among arguments lends what it points at.
    fn note_passed<'a>(&mut self, arguments: impl IntoIterator<Item = &'a Expr>) {
        for argument in arguments {
            let lent = Target::of(argument).and_then(|target| self.scopes.lent(target));
            self.note(lent);
        }
    }

    /// A pattern with `ref mut` borrows what it matches.
    fn note_pattern(&mut self, pat: &Pat, matched: &Expr) {
        if borrows_mutably(pat) {
            self.note_assigned(matched);
        }
    }
}

/// Prohibitions and bookkeeping.
impl Rewriter<'_> {
    fn refuse_jump(&mut self, expr: &Expr) {
        let (at, why) = match expr {
            Expr::Break(node) => (node.break_token.span, Refusal::Break),
            Expr::Continue(node) => (node.continue_token.span, Refusal::Continue),
            Expr::Return(node) => (node.return_token.span, Refusal::Return),
            Expr::Try(node) => (node.question_token.span, Refusal::Try),
            Expr::Await(node) => (node.await_token.span, Refusal::Await),
            Expr::Async(node) => (node.async_token.span, Refusal::Async),
            Expr::Loop(node) => (node.loop_token.span, Refusal::Loop),
            _ => return,
        };
        if self.mode != Mode::Host {
            return self.refuse(at, why);
        }
        let label = match expr {
            Expr::Break(node) => &node.label,
            Expr::Continue(node) => &node.label,
            _ => return,
        };
        let inside = self.jumps.iter().any(|jump| match label {
            Some(label) => jump.label.as_ref() == Some(label),
            None => jump.is_loop,
        });
        if !inside {
            self.refuse(at, Refusal::HostJump);
        }
    }

    fn refuse(&mut self, at: Span, why: Refusal) {
        self.refusals.add(at, why);
    }

    fn emit(&self, at: Span) -> Emit<'_> {
        Emit::new(self.root, at)
    }

    fn scoped(&mut self, walk: impl FnOnce(&mut Self)) {
        let mark = self.scopes.mark();
        walk(self);
        self.scopes.release(mark);
    }

    fn with_mode(&mut self, mode: Mode, walk: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.mode, mode);
        walk(self);
        self.mode = before;
    }

    /// Host code begins: jumps may not aim at what is around it, unless that is host code too.
    fn as_host(&mut self, walk: impl FnOnce(&mut Self)) {
        if self.mode == Mode::Host {
            return walk(self);
        }
        let around = std::mem::take(&mut self.jumps);
        self.with_mode(Mode::Host, walk);
        self.jumps = around;
    }

    fn in_loop(&mut self, label: Option<&Label>, walk: impl FnOnce(&mut Self)) {
        self.jumps.push(Jump { label: label.map(|label| label.name.clone()), is_loop: true });
        walk(self);
        self.jumps.pop();
    }
}

/// An operator that `std::ops` cannot overload for staged values.
enum Operator {
    Compare(TokenStream),
    Logic(TokenStream),
}

fn operator(op: &BinOp) -> Option<(Span, Operator)> {
    Some(match op {
        BinOp::Lt(token) => (token.spans[0], Operator::Compare(quote!(lt))),
        BinOp::Le(token) => (token.spans[0], Operator::Compare(quote!(le))),
        BinOp::Gt(token) => (token.spans[0], Operator::Compare(quote!(gt))),
        BinOp::Ge(token) => (token.spans[0], Operator::Compare(quote!(ge))),
        BinOp::Eq(token) => (token.spans[0], Operator::Compare(quote!(eq))),
        BinOp::Ne(token) => (token.spans[0], Operator::Compare(quote!(ne))),
        BinOp::And(token) => (token.spans[0], Operator::Logic(quote!(and))),
        BinOp::Or(token) => (token.spans[0], Operator::Logic(quote!(or))),
        _ => return None,
    })
}

fn is_compound_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) => true,
        Expr::Unary(node) => matches!(node.op, syn::UnOp::Neg(_)) && is_literal(&node.expr),
        Expr::Paren(node) => is_literal(&node.expr),
        Expr::Group(node) => is_literal(&node.expr),
        _ => false,
    }
}

fn is_mutable_reference(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if reference.mutability.is_some())
}

/// True for `let p = &mut ..` and `let p: &mut T`.
fn binds_mutable_reference(local: &Local) -> bool {
    match (&local.pat, &local.init) {
        (Pat::Type(typed), _) => is_mutable_reference(&typed.ty),
        (Pat::Ident(_), Some(init)) => {
            matches!(&*init.expr, Expr::Reference(node) if node.mutability.is_some())
        }
        _ => false,
    }
}

/// True for `let` and for chains of conditions with `let` among them.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(node) => {
            matches!(node.op, BinOp::And(_)) && (has_let(&node.left) || has_let(&node.right))
        }
        _ => false,
    }
}

/// The attributes of an expression that `#[host]` may stand on.
pub(crate) fn host_attributes(expr: &mut Expr) -> Option<&mut Vec<Attribute>> {
    Some(match expr {
        Expr::If(node) => &mut node.attrs,
        Expr::ForLoop(node) => &mut node.attrs,
        Expr::While(node) => &mut node.attrs,
        Expr::Loop(node) => &mut node.attrs,
        Expr::Match(node) => &mut node.attrs,
        Expr::Block(node) => &mut node.attrs,
        Expr::Unsafe(node) => &mut node.attrs,
        _ => return None,
    })
}
