//! [`OpClass`]: which kind of work an instruction is.

use serde::Serialize;

/// The kind of work of an instruction, by the part of the multiprocessor that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpClass {
    /// Arithmetic of f32, f16 and bf16.
    Float,
    /// Arithmetic of f64.
    Double,
    /// Functions of the special unit: reciprocals, roots, sines, exponentials.
    Special,
    /// Integer arithmetic, logic and comparisons.
    Integer,
    /// Conversions between types.
    Convert,
    /// Moves and selections.
    Move,
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Atomics and reductions in memory.
    Atomic,
    /// Asynchronous copies into shared memory.
    CopyIn,
    /// Asynchronous copies out of shared memory.
    CopyOut,
    /// Tensor cores, and moves of their operands.
    Tensor,
    /// Exchange between the lanes of a warp.
    Warp,
    /// Barriers, fences and waiting.
    Barrier,
    /// Branches, calls and returns.
    Control,
    /// Anything else.
    Other,
}

impl OpClass {
    /// The class of an instruction in PTX, with or without its guard.
    ///
    /// ```
    /// use tilewright_sim::count::OpClass;
    /// assert_eq!(OpClass::of("fma.rn.f32 %f1, %f2, %f3, %f4;"), OpClass::Float);
    /// assert_eq!(OpClass::of("@!%p1 st.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};"), OpClass::Store);
    /// ```
    pub fn of(text: &str) -> OpClass {
        let text = text.trim_start();
        let text = match text.strip_prefix('@') {
            Some(guarded) => {
                guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start())
            }
            None => text,
        };
        let name = text.split(|c: char| c.is_whitespace() || c == ';').next().unwrap_or("");
        let mut words = name.split('.');
        let opcode = words.next().unwrap_or("");
        let modifiers: Vec<&str> = words.collect();
        let has = |word: &str| modifiers.contains(&word);
        match opcode {
            "ld" | "ldu" | "tex" | "tld4" | "suld" | "prefetch" | "prefetchu" => OpClass::Load,
            "st" | "sust" | "discard" => OpClass::Store,
            "atom" | "red" | "multimem" | "sured" => OpClass::Atomic,
            "cp" if has("commit_group") || has("wait_group") || has("wait_all") || has("mbarrier") => {
                OpClass::Barrier
            }
            "cp" => match modifiers.iter().find(|word| **word == "global" || word.starts_with("shared")) {
                // The destination is named first.
                Some(&"global") => OpClass::CopyOut,
                _ => OpClass::CopyIn,
            },
            "wgmma" if has("fence") || has("commit_group") || has("wait_group") => OpClass::Barrier,
            "mma" | "wgmma" | "wmma" | "ldmatrix" | "stmatrix" | "movmatrix" | "tcgen05" => OpClass::Tensor,
            "bar" | "barrier" | "mbarrier" | "fence" | "membar" | "griddepcontrol" | "nanosleep" => {
                OpClass::Barrier
            }
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => OpClass::Warp,
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" => OpClass::Control,
            "mov" | "selp" | "slct" | "cvta" | "mapa" | "getctarank" | "isspacep" => OpClass::Move,
            "cvt" => OpClass::Convert,
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" if !has("f64") => {
                OpClass::Special
            }
            _ => OpClass::by_type(opcode, &modifiers),
        }
    }

    /// Arithmetic goes where its operands' type says; `set` has two types and the second is theirs.
    fn by_type(opcode: &str, modifiers: &[&str]) -> OpClass {
        const ARITHMETIC: [&str; 44] = [
            "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot", "copysign",
            "div", "dp2a", "dp4a", "fma", "fns", "lop3", "mad", "mad24", "madc", "max", "min", "mul",
            "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "set", "setp", "shf",
            "shl", "shr", "sqrt", "sub", "subc", "testp", "xor",
        ];
        if !ARITHMETIC.contains(&opcode) && !opcode.starts_with("vabs") && !opcode.starts_with("vadd") {
            return OpClass::Other;
        }
        let ty = modifiers.iter().rev().find(|word| word.len() >= 2 && word.as_bytes()[1].is_ascii_digit());
        match ty.copied().unwrap_or("") {
            "f64" => OpClass::Double,
            ty if ty.starts_with('f') => OpClass::Float,
            _ if modifiers.iter().any(|word| word.starts_with("bf16")) => OpClass::Float,
            _ => OpClass::Integer,
        }
    }

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            OpClass::Float => "float",
            OpClass::Double => "double",
            OpClass::Special => "special function",
            OpClass::Integer => "integer",
            OpClass::Convert => "conversion",
            OpClass::Move => "move",
            OpClass::Load => "load",
            OpClass::Store => "store",
            OpClass::Atomic => "atomic",
            OpClass::CopyIn => "copy in",
            OpClass::CopyOut => "copy out",
            OpClass::Tensor => "tensor",
            OpClass::Warp => "warp exchange",
            OpClass::Barrier => "barrier, fence",
            OpClass::Control => "control",
            OpClass::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_instructions() {
        for (text, class) in [
            ("add.f32 %f1, %f2, %f3;", OpClass::Float),
            ("fma.rn.bf16x2 %r1, %r2, %r3, %r4;", OpClass::Float),
            ("setp.lt.f16 %p1, %h1, %h2;", OpClass::Float),
            ("add.rn.f64 %d1, %d2, %d3;", OpClass::Double),
            ("rcp.approx.ftz.f32 %f1, %f2;", OpClass::Special),
            ("rcp.rn.f64 %d1, %d2;", OpClass::Double),
            ("set.eq.u32.f32 %r1, %f1, %f2;", OpClass::Float),
            ("mad.lo.s32 %r1, %r2, %r3, %r4;", OpClass::Integer),
            ("and.pred %p1, %p2, %p3;", OpClass::Integer),
            ("  @%p bra.uni $L;", OpClass::Control),
            ("ret;", OpClass::Control),
            (
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
                OpClass::CopyIn,
            ),
            (
                "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r2, %r3}], [%r4];",
                OpClass::CopyOut,
            ),
            (
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r4], 16;",
                OpClass::CopyOut,
            ),
            ("cp.async.cg.shared.global [%r1], [%rd1], 16;", OpClass::CopyIn),
            ("cp.async.wait_group 0;", OpClass::Barrier),
            ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", OpClass::Barrier),
            ("wgmma.fence.sync.aligned;", OpClass::Barrier),
            (
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
                OpClass::Tensor,
            ),
            ("bar.sync 0;", OpClass::Barrier),
            ("shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;", OpClass::Warp),
            ("setmaxnreg.inc.sync.aligned.u32 240;", OpClass::Other),
            ("", OpClass::Other),
            ("@", OpClass::Other),
            ("@%p", OpClass::Other),
        ] {
            assert_eq!(OpClass::of(text), class, "{text}");
        }
    }
}
