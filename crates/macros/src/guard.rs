//! Guard clauses, before anything else is rewritten: `if c { ..; return; } rest` is `if c { .. } else { rest }`, and so is `continue` in a loop.
//!
//! That holds where the end of the `if` is the end of the body: of the function, a closure or a loop, or of an arm of an `if` that ends one. A jump
//! from anywhere else stays, and is refused by the walk that follows. Code under `#[host]` stays as it is.

use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprBlock, ExprIf, Item, Local, Stmt, token};

use crate::attr;
use crate::rewrite::host_attributes;

/// Writes the guard clauses of a function's body as `if` with `else`.
pub(crate) fn clauses(body: &mut Block) {
    Guards.visit_block_mut(body);
    leave(body, Jump::Return);
}

/// What leaves a body early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jump {
    /// A function or a closure.
    Return,
    /// One round of a loop.
    Continue,
}

impl Jump {
    fn is(self, expr: &Expr) -> bool {
        match expr {
            Expr::Return(_) => self == Jump::Return,
            Expr::Continue(node) => self == Jump::Continue && node.label.is_none(),
            _ => false,
        }
    }

    fn ends(self, block: &Block) -> bool {
        matches!(block.stmts.last(), Some(Stmt::Expr(expr, _)) if self.is(expr))
    }
}

/// The bodies of loops and closures, from the inside out.
struct Guards;

impl VisitMut for Guards {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        if host_attributes(expr).is_some_and(|attrs| attr::has(attrs, attr::HOST)) {
            return;
        }
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::ForLoop(node) => leave(&mut node.body, Jump::Continue),
            Expr::While(node) => leave(&mut node.body, Jump::Continue),
            Expr::Closure(node) => {
                if let Expr::Block(ExprBlock { block, label: None, .. }) = &mut *node.body {
                    leave(block, Jump::Return);
                }
            }
            _ => {}
        }
    }

    fn visit_local_mut(&mut self, local: &mut Local) {
        if !attr::has(&local.attrs, attr::HOST) {
            visit_mut::visit_local_mut(self, local);
        }
    }

    // Not part of what runs when the body runs.
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// Takes the jumps out of a block at whose end they would arrive.
fn leave(block: &mut Block, jump: Jump) {
    let Some(at) = block.stmts.iter().position(|stmt| is_guard(stmt, jump)) else {
        return leave_at_end(block, jump);
    };
    let stmts = block.stmts.split_off(at + 1);
    let Some(Stmt::Expr(Expr::If(node), semicolon)) = block.stmts.last_mut() else { return };
    *semicolon = None;
    if !stmts.is_empty() {
        let rest = Block { brace_token: block.brace_token, stmts };
        let rest = Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block: rest });
        node.else_branch = Some((token::Else(node.if_token.span), Box::new(rest)));
    }
    leave_arms(node, jump);
}

/// An `if` without `else` that ends in a jump.
fn is_guard(stmt: &Stmt, jump: Jump) -> bool {
    match stmt {
        Stmt::Expr(Expr::If(node), _) => {
            node.else_branch.is_none() && jump.ends(&node.then_branch) && !attr::has(&node.attrs, attr::HOST)
        }
        _ => false,
    }
}

/// The last statement: the jump itself, which becomes its value, or an `if`.
fn leave_at_end(block: &mut Block, jump: Jump) {
    match block.stmts.last_mut() {
        Some(Stmt::Expr(Expr::If(node), _)) if !attr::has(&node.attrs, attr::HOST) => leave_arms(node, jump),
        Some(Stmt::Expr(expr, _)) if jump.is(expr) => {
            let value = match block.stmts.pop() {
                Some(Stmt::Expr(Expr::Return(node), _)) => node.expr,
                _ => None,
            };
            block.stmts.extend(value.map(|value| Stmt::Expr(*value, None)));
        }
        _ => {}
    }
}

fn leave_arms(node: &mut ExprIf, jump: Jump) {
    leave(&mut node.then_branch, jump);
    match node.else_branch.as_mut().map(|(_, otherwise)| &mut **otherwise) {
        Some(Expr::If(otherwise)) => leave_arms(otherwise, jump),
        Some(Expr::Block(otherwise)) if otherwise.label.is_none() => leave(&mut otherwise.block, jump),
        _ => {}
    }
}
