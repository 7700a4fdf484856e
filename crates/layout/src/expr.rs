//! Expressions over layouts as text: `compose((4,3):(3,1), 6:2)`.
//!
//! [`evaluate`] reads an expression in CuTe's notation (see the grammar in `parse.rs`) and returns a [`Value`] that
//! prints in the same notation. The functions are the rows of [`FUNCTIONS`]; help texts are made from that table.
//!
//! Where a function rearranges the domain of a layout it also takes composed layouts and acts on the inner part.

use std::fmt;

use crate::analysis::{self, Access};
use crate::composed::{Composed, Map};
use crate::error::{Result, argument};
use crate::int_tuple::{Coord, Index, IntTuple};
use crate::layout::Layout;
use crate::parse::{self, Ast, Kind};
use crate::swizzle::Swizzle;
use crate::tiler::Tiler;
use crate::tree::Tree;
use crate::tv::{TiledCopy, TvLayout};

/// What an expression evaluates to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An integer or a nested tuple of integers.
    Ints(IntTuple),
    /// A coordinate with underscores.
    Coord(Coord),
    /// A layout.
    Layout(Layout),
    /// Swizzles, offsets and layouts one after the other.
    Composed(Composed),
    /// A swizzle alone.
    Swizzle(Swizzle),
    /// A by-mode tiler.
    Tiler(Tiler),
    /// A thread-value layout with its tile.
    Tv(TvLayout),
    /// A yes or a no.
    Bool(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Ints(value) => value.fmt(f),
            Value::Coord(value) => value.fmt(f),
            Value::Layout(value) => value.fmt(f),
            Value::Composed(value) => value.fmt(f),
            Value::Swizzle(value) => value.fmt(f),
            Value::Tiler(value) => value.fmt(f),
            Value::Tv(value) => value.fmt(f),
            Value::Bool(value) => value.fmt(f),
        }
    }
}

impl Value {
    /// What kind of value this is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Ints(Tree::Leaf(_)) => "integer",
            Value::Ints(Tree::Tuple(_)) => "tuple",
            Value::Coord(_) => "coordinate",
            Value::Layout(_) => "layout",
            Value::Composed(_) => "composed layout",
            Value::Swizzle(_) => "swizzle",
            Value::Tiler(_) => "tiler",
            Value::Tv(_) => "thread-value layout",
            Value::Bool(_) => "truth value",
        }
    }
}

/// A function that expressions can call.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its parameters; those in brackets may be left out.
    pub parameters: &'static str,
    /// What it returns, in one line.
    pub summary: &'static str,
    /// Number of arguments: least and most.
    arity: (usize, usize),
    run: fn(&Args<'_>) -> Result<Value>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name, self.parameters)
    }
}

/// Evaluates an expression.
///
/// ```
/// use tilewright_layout::expr::evaluate;
/// assert_eq!(evaluate("compose((4,3):(3,1), 6:2)")?.to_string(), "(2,3):(6,1)");
/// assert_eq!(evaluate("size(complement(4:2, 24))")?.to_string(), "6");
/// assert!(evaluate("compose((6,2):(1,7), (3,2):(2,3))").is_err());
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn evaluate(text: &str) -> Result<Value> {
    value_of(text, &parse::parse(text)?)
}

fn value_of(text: &str, ast: &Ast) -> Result<Value> {
    match &ast.kind {
        Kind::Layout(layout) => Ok(Value::Layout(layout.clone())),
        Kind::Swizzle(swizzle) => Ok(Value::Swizzle(*swizzle)),
        Kind::Tuple(tuple) => match (parse::int_tuple(tuple), parse::coord(tuple)) {
            (Some(ints), _) => Ok(Value::Ints(ints)),
            (None, Some(coord)) => Ok(Value::Coord(coord)),
            (None, None) => Err(parse::error_at(
                text,
                ast.column,
                "a stride alone is not a value; write `shape:stride`".into(),
            )),
        },
        Kind::Tiler(modes) => {
            let modes = modes.iter().map(|mode| {
                let value = value_of(text, mode)?;
                tiler_of(&value).transpose()?.ok_or_else(|| {
                    let reason = format!("a {} cannot tile a mode, expected a layout", value.kind());
                    parse::error_at(text, mode.column, reason)
                })
            });
            Ok(Value::Tiler(Tiler::Modes(modes.collect::<Result<_>>()?)))
        }
        Kind::Chain(parts) => parse::composed(text, parts, &mut |text, part| match value_of(text, part)? {
            Value::Layout(layout) => Ok(layout.into()),
            Value::Swizzle(swizzle) => Ok(swizzle.into()),
            other => {
                let reason = format!("found a {}, expected a layout or a swizzle", other.kind());
                Err(parse::error_at(text, part.column, reason))
            }
        })
        .map(Value::Composed),
        Kind::Call(name, arguments) => {
            let Some(function) = FUNCTIONS.iter().find(|function| function.name == name) else {
                let names: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
                let reason = format!("unknown function `{name}`, expected one of {}", names.join(" "));
                return Err(parse::error_at(text, ast.column, reason));
            };
            let (least, most) = function.arity;
            if !(least..=most).contains(&arguments.len()) {
                let reason =
                    format!("{function:?} takes {least} to {most} arguments, found {}", arguments.len());
                return Err(parse::error_at(text, ast.column, reason));
            }
            let values =
                arguments.iter().map(|argument| value_of(text, argument)).collect::<Result<Vec<_>>>()?;
            (function.run)(&Args { op: function.name, values: &values })
        }
    }
}

/// A value as a tiler: layouts, integers, shapes, `_` and tilers proper.
fn tiler_of(value: &Value) -> Option<Result<Tiler>> {
    match value {
        Value::Tiler(tiler) => Some(Ok(tiler.clone())),
        Value::Layout(layout) => Some(Ok(layout.into())),
        Value::Ints(shape) => Some(Tiler::shape(shape)),
        Value::Coord(Tree::Leaf(Index::All)) => Some(Ok(Tiler::Keep)),
        _ => None,
    }
}

/// The arguments of a call, with conversions that name the function and the position when they fail.
struct Args<'a> {
    op: &'static str,
    values: &'a [Value],
}

impl Args<'_> {
    fn get(&self, i: usize) -> Option<&Value> {
        self.values.get(i)
    }

    fn wrong<T>(&self, i: usize, expected: &str) -> Result<T> {
        let found = self.get(i).map_or("nothing", Value::kind);
        Err(argument(self.op, format!("argument {} is a {found}, expected {expected}", i + 1)))
    }

    fn layout(&self, i: usize) -> Result<&Layout> {
        match self.get(i) {
            Some(Value::Layout(layout)) => Ok(layout),
            Some(Value::Tv(tv)) => Ok(tv.layout()),
            _ => self.wrong(i, "a layout"),
        }
    }

    fn tiler(&self, i: usize) -> Result<Tiler> {
        self.get(i).and_then(tiler_of).unwrap_or_else(|| self.wrong(i, "a layout, a shape or a tiler"))
    }

    fn ints(&self, i: usize) -> Result<&IntTuple> {
        match self.get(i) {
            Some(Value::Ints(ints)) => Ok(ints),
            _ => self.wrong(i, "an integer or a tuple"),
        }
    }

    fn int(&self, i: usize) -> Result<i64> {
        match self.get(i) {
            Some(Value::Ints(Tree::Leaf(value))) => Ok(*value),
            _ => self.wrong(i, "an integer"),
        }
    }

    fn coord(&self, i: usize) -> Result<Coord> {
        match self.get(i) {
            Some(Value::Ints(ints)) => Ok(ints.into()),
            Some(Value::Coord(coord)) => Ok(coord.clone()),
            _ => self.wrong(i, "a coordinate"),
        }
    }

    fn indices(&self, i: usize) -> Result<Vec<usize>> {
        let ints = self.ints(i)?;
        let index = |mode: &IntTuple| match mode {
            Tree::Leaf(value) => usize::try_from(*value).ok(),
            Tree::Tuple(_) => None,
        };
        match ints.modes().iter().map(index).collect() {
            Some(indices) => Ok(indices),
            None => self.wrong(i, "a tuple of mode numbers"),
        }
    }

    /// Applies `f` to a layout, or to the inner part of a composed one.
    fn inner(&self, f: impl Fn(&Layout) -> Result<Layout>) -> Result<Value> {
        match self.get(0) {
            Some(Value::Composed(composed)) => composed.map_inner(self.op, f).map(Value::Composed),
            _ => f(self.layout(0)?).map(Value::Layout),
        }
    }

    /// Applies an analysis to a layout or a composed one.
    fn analyse<T>(
        &self,
        layout: impl Fn(&Layout) -> Result<T>,
        composed: impl Fn(&Composed) -> Result<T>,
    ) -> Result<T> {
        match self.get(0) {
            Some(Value::Composed(value)) => composed(value),
            _ => layout(self.layout(0)?),
        }
    }

    fn divide(&self, f: impl Fn(&Layout, &Tiler) -> Result<Layout>) -> Result<Value> {
        let tiler = self.tiler(1)?;
        self.inner(|layout| f(layout, &tiler))
    }

    fn product(&self, f: impl Fn(&Layout, &Layout) -> Result<Layout>) -> Result<Value> {
        match self.tiler(1)? {
            Tiler::Layout(tiler) => self.inner(|block| f(block, &tiler)),
            _ => self.wrong(1, "a layout"),
        }
    }

    fn access(&self, i: usize) -> Result<Access> {
        let access_bytes = self.int(i)?;
        let element_bytes = if self.get(i + 1).is_some() { self.int(i + 1)? } else { access_bytes };
        Ok(Access { element_bytes, access_bytes })
    }
}

fn int(value: i64) -> Value {
    Value::Ints(Tree::Leaf(value))
}

fn compose(args: &Args<'_>) -> Result<Value> {
    match (args.get(0), args.get(1)) {
        (Some(Value::Swizzle(swizzle)), Some(Value::Layout(b))) if swizzle.is_identity() => {
            Ok(Value::Layout(b.clone()))
        }
        (Some(Value::Swizzle(swizzle)), Some(Value::Layout(b))) => {
            Composed::new(*swizzle, 0, b.clone()).map(Value::Composed)
        }
        (Some(Value::Swizzle(swizzle)), Some(Value::Composed(b))) => {
            b.clone().after(*swizzle, 0).map(Value::Composed)
        }
        (Some(Value::Layout(a)), Some(Value::Swizzle(b))) => {
            Composed::new(a.clone(), 0, *b).map(Value::Composed)
        }
        (Some(Value::Layout(a)), Some(Value::Composed(b))) => {
            b.clone().after(a.clone(), 0).map(Value::Composed)
        }
        (Some(Value::Composed(a)), Some(Value::Composed(b))) => {
            // Maps of `a` from the inside out, around `b`.
            let inner = a
                .layout()
                .cloned()
                .map(Map::Layout)
                .ok_or_else(|| argument("compose", format!("the inner part of {a} is not a layout")))?;
            let mut composed = b.clone().after(inner, 0)?;
            let outer: Vec<_> = a.outer().collect();
            for (map, offset) in outer.into_iter().rev() {
                composed = composed.after(map.clone(), offset)?;
            }
            Ok(Value::Composed(composed))
        }
        (Some(Value::Composed(a)), Some(_)) => a.compose_tiler(&args.tiler(1)?).map(Value::Composed),
        _ => args.layout(0)?.compose_tiler(&args.tiler(1)?).map(Value::Layout),
    }
}

fn eval(args: &Args<'_>) -> Result<Value> {
    let coord = args.coord(1)?;
    match args.get(0) {
        Some(Value::Swizzle(swizzle)) => swizzle.apply(args.int(1)?).map(int),
        Some(Value::Composed(composed)) => composed.eval(&coord).map(Value::Ints),
        _ => args.layout(0)?.eval(&coord).map(Value::Ints),
    }
}

fn complement(args: &Args<'_>) -> Result<Value> {
    let codomain = match args.get(1) {
        None => {
            return args.analyse(Layout::complement, |composed| composed.complement_in(1)).map(Value::Layout);
        }
        Some(Value::Layout(layout)) => Tree::Leaf(layout.cosize()?),
        Some(_) => args.ints(1)?.clone(),
    };
    args.analyse(|layout| layout.complement_in(&codomain), |composed| composed.complement_in(&codomain))
        .map(Value::Layout)
}

fn size(args: &Args<'_>) -> Result<Value> {
    match args.get(0) {
        Some(Value::Ints(ints)) => ints.product().map(int),
        _ => args.analyse(|layout| Ok(layout.size()), Composed::size).map(int),
    }
}

fn inverse(
    args: &Args<'_>,
    layout: fn(&Layout) -> Result<Layout>,
    composed: fn(&Composed) -> Result<Composed>,
) -> Result<Value> {
    match args.get(0) {
        Some(Value::Swizzle(swizzle)) => Ok(Value::Swizzle(*swizzle)),
        Some(Value::Composed(value)) => composed(value).map(Value::Composed),
        _ => layout(args.layout(0)?).map(Value::Layout),
    }
}

fn recast(
    args: &Args<'_>,
    layout: fn(&Layout, i64) -> Result<Layout>,
    composed: fn(&Composed, i64) -> Result<Composed>,
    swizzle: fn(&Swizzle, i64) -> Result<Swizzle>,
) -> Result<Value> {
    let n = args.int(1)?;
    match args.get(0) {
        Some(Value::Swizzle(value)) => swizzle(value, n).map(Value::Swizzle),
        Some(Value::Composed(value)) => composed(value, n).map(Value::Composed),
        _ => layout(args.layout(0)?, n).map(Value::Layout),
    }
}

fn ldmatrix(args: &Args<'_>) -> Result<Value> {
    let bytes = args.int(1)?;
    let extents = |shape: IntTuple| match shape.modes() {
        [rows, columns] => Ok((rows.product()?, columns.product()?)),
        _ => Err(argument("ldmatrix", format!("the tile {shape} has rank {}, expected 2", shape.rank()))),
    };
    args.analyse(
        |layout| analysis::ldmatrix_conflicts(layout, extents(layout.shape())?, bytes),
        |composed| analysis::ldmatrix_conflicts(composed, extents(composed.shape()?)?, bytes),
    )
    .map(int)
}

fn tv(args: &Args<'_>) -> Result<Value> {
    match args.get(1) {
        Some(Value::Ints(tile)) => TvLayout::new(args.layout(0)?.clone(), tile).map(Value::Tv),
        _ => TiledCopy::new(args.layout(0)?, args.layout(1)?, 1).map(|copy| Value::Tv(copy.tv().clone())),
    }
}

fn partition(args: &Args<'_>) -> Result<Value> {
    let Some(Value::Tv(tv)) = args.get(1) else {
        return args.wrong(1, "a thread-value layout, see `tv`");
    };
    match args.get(0) {
        Some(Value::Composed(memory)) => tv.partition_composed(memory).map(Value::Composed),
        _ => tv.partition(args.layout(0)?).map(Value::Layout),
    }
}

fn owner(args: &Args<'_>) -> Result<Value> {
    let Some(Value::Tv(tv)) = args.get(0) else {
        return args.wrong(0, "a thread-value layout, see `tv`");
    };
    match tv.owner(args.ints(1)?)? {
        Some((thread, value)) => Ok(Value::Ints((thread, value).into())),
        None => Err(argument("owner", format!("no thread holds {}", args.ints(1)?))),
    }
}

fn same(args: &Args<'_>) -> Result<Value> {
    let same = match (args.get(0), args.get(1)) {
        (Some(Value::Composed(a)), Some(Value::Composed(b))) => analysis::same_function(a, b),
        (Some(Value::Composed(a)), _) => analysis::same_function(a, args.layout(1)?),
        (_, Some(Value::Composed(b))) => analysis::same_function(args.layout(0)?, b),
        _ => analysis::same_function(args.layout(0)?, args.layout(1)?),
    };
    same.map(Value::Bool)
}

/// All functions, in the order in which help shows them.
pub static FUNCTIONS: &[Function] = &[
    Function {
        name: "coalesce",
        parameters: "L[, profile]",
        summary: "the same function with as few modes as possible",
        arity: (1, 2),
        run: |args| match args.get(1) {
            None => args.inner(|layout| Ok(layout.coalesce())),
            Some(_) => {
                let profile = args.ints(1)?;
                args.inner(|layout| layout.coalesce_by(profile))
            }
        },
    },
    Function {
        name: "compose",
        parameters: "A, B",
        summary: "A o B, where B may be a by-mode tiler",
        arity: (2, 2),
        run: compose,
    },
    Function {
        name: "complement",
        parameters: "L[, n]",
        summary: "the layout of what L leaves out of n",
        arity: (1, 2),
        run: complement,
    },
    Function {
        name: "left_inverse",
        parameters: "L",
        summary: "from values to indices, holes filled",
        arity: (1, 1),
        run: |args| inverse(args, Layout::left_inverse, Composed::left_inverse),
    },
    Function {
        name: "right_inverse",
        parameters: "L",
        summary: "from values to indices, as far as they are contiguous",
        arity: (1, 1),
        run: |args| inverse(args, Layout::right_inverse, Composed::right_inverse),
    },
    Function {
        name: "logical_divide",
        parameters: "L, tiler",
        summary: "cut into tiles: (tile, rest), or so in each mode",
        arity: (2, 2),
        run: |args| args.divide(Layout::logical_divide),
    },
    Function {
        name: "zipped_divide",
        parameters: "L, tiler",
        summary: "cut into tiles: (tile, rest)",
        arity: (2, 2),
        run: |args| args.divide(Layout::zipped_divide),
    },
    Function {
        name: "tiled_divide",
        parameters: "L, tiler",
        summary: "cut into tiles: (tile, rest, rest, ...)",
        arity: (2, 2),
        run: |args| args.divide(Layout::tiled_divide),
    },
    Function {
        name: "flat_divide",
        parameters: "L, tiler",
        summary: "cut into tiles: (tile, tile, ..., rest, rest, ...)",
        arity: (2, 2),
        run: |args| args.divide(Layout::flat_divide),
    },
    Function {
        name: "logical_product",
        parameters: "L, tiler",
        summary: "repeat: (block, copies), or so in each mode",
        arity: (2, 2),
        run: |args| args.divide(Layout::logical_product),
    },
    Function {
        name: "zipped_product",
        parameters: "L, tiler",
        summary: "repeat: (block, copies)",
        arity: (2, 2),
        run: |args| args.divide(Layout::zipped_product),
    },
    Function {
        name: "tiled_product",
        parameters: "L, tiler",
        summary: "repeat: (block, copies, copies, ...)",
        arity: (2, 2),
        run: |args| args.divide(Layout::tiled_product),
    },
    Function {
        name: "flat_product",
        parameters: "L, tiler",
        summary: "repeat: (block, block, ..., copies, copies, ...)",
        arity: (2, 2),
        run: |args| args.divide(Layout::flat_product),
    },
    Function {
        name: "blocked_product",
        parameters: "L, tiler",
        summary: "repeat mode by mode, blocks kept together",
        arity: (2, 2),
        run: |args| args.product(Layout::blocked_product),
    },
    Function {
        name: "raked_product",
        parameters: "L, tiler",
        summary: "repeat mode by mode, blocks interleaved",
        arity: (2, 2),
        run: |args| args.product(Layout::raked_product),
    },
    Function {
        name: "tile_to_shape",
        parameters: "L, shape[, order]",
        summary: "repeat until the shape is covered",
        arity: (2, 3),
        run: |args| {
            let shape = args.ints(1)?;
            let order = args.get(2).map(|_| args.indices(2)).transpose()?;
            args.inner(|layout| layout.tile_to_shape(shape, order.as_deref()))
        },
    },
    Function { name: "size", parameters: "L", summary: "number of coordinates", arity: (1, 1), run: size },
    Function {
        name: "cosize",
        parameters: "L",
        summary: "extent of the codomain",
        arity: (1, 1),
        run: |args| args.analyse(Layout::cosize, Composed::cosize).map(int),
    },
    Function {
        name: "eval",
        parameters: "L, coord",
        summary: "the value at an index or a coordinate",
        arity: (2, 2),
        run: eval,
    },
    Function {
        name: "flatten",
        parameters: "L",
        summary: "all modes in one tuple",
        arity: (1, 1),
        run: |args| args.inner(|layout| Ok(layout.flatten())),
    },
    Function {
        name: "group",
        parameters: "L, begin, end",
        summary: "top-level modes begin..end as one",
        arity: (3, 3),
        run: |args| {
            let bounds = (usize::try_from(args.int(1)?), usize::try_from(args.int(2)?));
            let (Ok(begin), Ok(end)) = bounds else {
                return args.wrong(1, "a mode number that is not negative");
            };
            args.inner(|layout| layout.group(begin..end))
        },
    },
    Function {
        name: "select",
        parameters: "L, modes",
        summary: "the given top-level modes, in that order",
        arity: (2, 2),
        run: |args| {
            let modes = args.indices(1)?;
            args.inner(|layout| layout.select(&modes))
        },
    },
    Function {
        name: "slice",
        parameters: "L, coord",
        summary: "the modes under `_` in the coordinate",
        arity: (2, 2),
        run: |args| {
            let coord = args.coord(1)?;
            match args.get(0) {
                Some(Value::Composed(composed)) => composed.slice(&coord).map(Value::Composed),
                _ => args.layout(0)?.slice(&coord).map(Value::Layout),
            }
        },
    },
    Function {
        name: "dice",
        parameters: "L, coord",
        summary: "the modes that are not under `_` in the coordinate",
        arity: (2, 2),
        run: |args| {
            let coord = args.coord(1)?;
            args.inner(|layout| layout.dice(&coord))
        },
    },
    Function {
        name: "with_shape",
        parameters: "L, shape",
        summary: "the same function on the coordinates of a shape",
        arity: (2, 2),
        run: |args| {
            let shape = args.ints(1)?;
            args.inner(|layout| layout.with_shape(shape))
        },
    },
    Function {
        name: "filter",
        parameters: "L",
        summary: "without modes of stride 0 and extent 1",
        arity: (1, 1),
        run: |args| args.inner(|layout| Ok(layout.filter())),
    },
    Function {
        name: "nullspace",
        parameters: "L",
        summary: "the indices that L maps to 0 because of stride 0",
        arity: (1, 1),
        run: |args| args.layout(0)?.nullspace().map(Value::Layout),
    },
    Function {
        name: "distribute",
        parameters: "L, n",
        summary: "up to n indices spread evenly over the domain of L",
        arity: (2, 2),
        run: |args| args.layout(0)?.distribute(args.int(1)?).map(Value::Layout),
    },
    Function {
        name: "upcast",
        parameters: "L, n",
        summary: "in units of n elements",
        arity: (2, 2),
        run: |args| recast(args, Layout::upcast, Composed::upcast, Swizzle::upcast),
    },
    Function {
        name: "downcast",
        parameters: "L, n",
        summary: "in units of 1/n element",
        arity: (2, 2),
        run: |args| recast(args, Layout::downcast, Composed::downcast, Swizzle::downcast),
    },
    Function {
        name: "tv",
        parameters: "threads, values | L, tile",
        summary: "thread-value layout of a tiled copy, or L on a tile",
        arity: (2, 2),
        run: tv,
    },
    Function {
        name: "partition",
        parameters: "L, tv",
        summary: "a tile in memory as (thread, value)",
        arity: (2, 2),
        run: partition,
    },
    Function {
        name: "owner",
        parameters: "tv, coord",
        summary: "(thread, value) that holds an element",
        arity: (2, 2),
        run: owner,
    },
    Function {
        name: "banks",
        parameters: "L, bytes[, element bytes]",
        summary: "worst shared-memory bank conflict, lane by lane; 1 is none",
        arity: (2, 3),
        run: |args| {
            let access = args.access(1)?;
            args.analyse(
                |layout| analysis::bank_conflicts(layout, access),
                |composed| analysis::bank_conflicts(composed, access),
            )
            .map(int)
        },
    },
    Function {
        name: "ldmatrix",
        parameters: "L, element bytes",
        summary: "worst bank conflict of ldmatrix on a (row,column) tile",
        arity: (2, 2),
        run: ldmatrix,
    },
    Function {
        name: "sectors",
        parameters: "L, bytes[, element bytes]",
        summary: "32-byte sectors that warps touch, lane by lane",
        arity: (2, 3),
        run: |args| {
            let access = args.access(1)?;
            let sectors = args.analyse(
                |layout| analysis::sectors(layout, access),
                |composed| analysis::sectors(composed, access),
            )?;
            Ok(int(sectors.touched))
        },
    },
    Function {
        name: "vector",
        parameters: "L[, limit]",
        summary: "widest vector access in elements",
        arity: (1, 2),
        run: |args| {
            let limit = if args.get(1).is_some() { args.int(1)? } else { i64::MAX / 2 };
            args.analyse(
                |layout| analysis::max_vector_width(layout, limit),
                |composed| analysis::max_vector_width(composed, limit),
            )
            .map(int)
        },
    },
    Function {
        name: "injective",
        parameters: "L",
        summary: "whether no value is taken twice",
        arity: (1, 1),
        run: |args| args.analyse(analysis::is_injective, analysis::is_injective).map(Value::Bool),
    },
    Function {
        name: "surjective",
        parameters: "L, n",
        summary: "whether all of 0..n is taken",
        arity: (2, 2),
        run: |args| {
            let onto = args.int(1)?;
            args.analyse(
                |layout| analysis::is_surjective(layout, onto),
                |composed| analysis::is_surjective(composed, onto),
            )
            .map(Value::Bool)
        },
    },
    Function {
        name: "same",
        parameters: "A, B",
        summary: "whether both are the same function on indices",
        arity: (2, 2),
        run: same,
    },
];
