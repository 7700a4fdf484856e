//! Snippets of IR that together contain every op, in every combination of types and attributes that lowers differently.

use tilewright_hardware::Arch;
use tilewright_hardware::mma::{self, Group, Operand};

/// A function body and the architectures that it must compile for.
pub(crate) struct Snippet {
    /// What is tried.
    pub(crate) name: String,
    /// Where it must compile.
    pub(crate) archs: &'static [Arch],
    /// A module of one function.
    pub(crate) text: String,
}

/// Everything since Ampere.
pub(crate) const ALL: &[Arch] = &[Arch::SM_80, Arch::SM_89, Arch::SM_90A, Arch::SM_100A, Arch::SM_120A];
const ADA: &[Arch] = &[Arch::SM_89, Arch::SM_90A, Arch::SM_100A, Arch::SM_120A];
const HOPPER: &[Arch] = &[Arch::SM_90A, Arch::SM_100A, Arch::SM_120A];
const HOPPER_ONLY: &[Arch] = &[Arch::SM_90A];
const BLACKWELL: &[Arch] = &[Arch::SM_100A, Arch::SM_120A];

const INTS: &[&str] = &["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"];
const FLOATS: &[&str] = &["f16", "bf16", "f32", "f64"];

struct Table(Vec<Snippet>);

impl Table {
    fn add(&mut self, archs: &'static [Arch], name: &str, body: &str) {
        self.with_launch(archs, name, "threads(128,1,1)", body);
    }

    fn with_launch(&mut self, archs: &'static [Arch], name: &str, launch: &str, body: &str) {
        let number = self.0.len();
        let text = format!(
            "func @k{number} {launch} (%g: ptr<global> align(16), %map: tensor_map, %n: u32, %m: u32, %i: i32, %c: bool, %d: bool, \
             %l: u64, %f: f32, %v: 4xf16, %b: i8, %e: bf16, %s: ptr<generic>, %w: 3xi8) {{\n{body}\n}}"
        );
        self.0.push(Snippet { name: name.to_owned(), archs, text });
    }

    /// An op on values of one type, loaded from memory; the result is stored.
    fn compute(
        &mut self,
        archs: &'static [Arch],
        op: &str,
        operands: usize,
        attrs: &str,
        ty: &str,
        result: &str,
    ) {
        let names = ["%a0", "%a1", "%a2", "%a3"];
        let loads: String = (0..operands).map(|i| format!("{} = load %g : {ty}\n", names[i])).collect();
        let list = names[..operands].join(", ");
        let name = format!("{op} {ty} {attrs}");
        self.add(archs, &name, &format!("{loads}%r = {op} {list} {attrs} : {result}\nstore %g, %r"));
    }
}

/// All snippets.
pub(crate) fn all() -> Vec<Snippet> {
    let mut table = Table(Vec::new());
    arithmetic(&mut table);
    bits(&mut table);
    conversions(&mut table);
    values(&mut table);
    memory(&mut table);
    warps(&mut table);
    barriers(&mut table);
    copies(&mut table);
    matrices(&mut table);
    control(&mut table);
    rest(&mut table);
    table.0
}

fn arithmetic(t: &mut Table) {
    let all_types = || INTS.iter().chain(FLOATS);
    for ty in all_types() {
        let wide = [format!("2x{ty}"), format!("4x{ty}"), format!("3x{ty}")];
        for ty in [(*ty).to_owned()].iter().chain(&wide) {
            for op in ["add", "sub", "mul", "min", "max", "div"] {
                t.compute(ALL, op, 2, "", ty, ty);
            }
            t.compute(ALL, "fma", 3, "", ty, ty);
            for op in ["neg", "abs"] {
                t.compute(ALL, op, 1, "", ty, ty);
            }
        }
    }
    for round in ["rz", "rm", "rp"] {
        for ty in ["f32", "f64"] {
            for op in ["add", "sub", "mul", "div"] {
                t.compute(ALL, op, 2, &format!("round({round})"), ty, ty);
            }
            t.compute(ALL, "fma", 3, &format!("round({round})"), ty, ty);
            t.compute(ALL, "rcp", 1, &format!("round({round})"), ty, ty);
            t.compute(ALL, "sqrt", 1, &format!("round({round})"), ty, ty);
        }
    }
    for ty in ["f16", "f32", "2xf16"] {
        for flags in ["ftz", "sat", "ftz sat"] {
            for op in ["add", "mul", "sub"] {
                t.compute(ALL, op, 2, &format!("flags({flags})"), ty, ty);
            }
            t.compute(ALL, "fma", 3, &format!("flags({flags})"), ty, ty);
        }
        t.compute(ALL, "neg", 1, "flags(ftz)", ty, ty);
        t.compute(ALL, "abs", 1, "flags(ftz)", ty, ty);
        t.compute(ALL, "min", 2, "flags(ftz nan)", ty, ty);
    }
    for ty in ["f16", "bf16", "4xbf16", "2xf16"] {
        t.compute(ALL, "fma", 3, "flags(relu)", ty, ty);
        t.compute(ALL, "max", 2, "flags(nan)", ty, ty);
        t.compute(ADA, "max", 2, "flags(nan xorsign_abs)", ty, ty);
    }
    t.compute(ADA, "max", 2, "flags(nan xorsign_abs)", "f32", "f32");
    for ty in ["f64", "2xf64"] {
        t.compute(ALL, "min", 2, "flags(nan)", ty, ty);
        t.compute(ALL, "max", 2, "flags(nan)", ty, ty);
    }
    t.compute(ALL, "add", 2, "flags(sat)", "i32", "i32");
    t.compute(ALL, "sub", 2, "flags(sat)", "i32", "i32");
    for ty in INTS {
        t.compute(ALL, "mul_hi", 2, "", ty, ty);
        t.compute(ALL, "rem", 2, "", ty, ty);
        t.compute(ALL, "rem", 2, "", &format!("4x{ty}"), &format!("4x{ty}"));
    }
    for (from, to) in
        [("i8", "i16"), ("u8", "u16"), ("i16", "i32"), ("u16", "u32"), ("i32", "i64"), ("u32", "u64")]
    {
        t.compute(ALL, "mul_wide", 2, "", from, to);
        t.compute(ALL, "mul_wide", 2, "", &format!("2x{from}"), &format!("2x{to}"));
    }
    for ty in FLOATS.iter().copied().chain(["2xf16", "2xbf16", "3xf16", "2xf32"]) {
        t.compute(ALL, "copysign", 2, "", ty, ty);
        for round in ["rn", "rz", "rm", "rp", "rna"] {
            t.compute(ALL, "round_int", 1, &format!("round({round})"), ty, ty);
        }
        for op in ["rcp", "sqrt"] {
            t.compute(ALL, op, 1, "", ty, ty);
            if ty != "f64" || op == "rcp" {
                t.compute(ALL, op, 1, "flags(approx)", ty, ty);
            }
        }
        t.compute(ALL, "rsqrt", 1, "", ty, ty);
        if ty != "f64" {
            for op in ["sin", "cos", "ex2", "lg2", "tanh"] {
                t.compute(ALL, op, 1, "", ty, ty);
            }
            t.compute(ALL, "div", 2, "flags(approx)", ty, ty);
            t.compute(ALL, "div", 2, "flags(full)", ty, ty);
        }
    }
    for op in ["rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2"] {
        t.compute(
            ALL,
            op,
            1,
            if matches!(op, "rcp" | "sqrt") { "flags(approx ftz)" } else { "flags(ftz)" },
            "f32",
            "f32",
        );
    }
    t.compute(ALL, "round_int", 1, "round(rn) flags(ftz)", "f32", "f32");
    for cmp in ["eq", "ne", "lt", "le", "gt", "ge"] {
        for ty in INTS.iter().chain(FLOATS).chain(&["bool", "tf32"]) {
            t.compute(ALL, "cmp", 2, &format!("cmp({cmp})"), ty, "bool");
        }
        t.compute(ALL, "cmp", 2, &format!("cmp({cmp}) flags(ftz)"), "f32", "bool");
    }
    for ty in
        ["i8", "u16", "f32", "i64", "bf16", "4xf16", "8xe4m3", "3xf64", "ptr<global>", "ptr<shared>", "bool"]
    {
        let body = format!(
            "%a = load %g : {ty}\n%b0 = load %g : {ty}\n%r = select %c, %a, %b0 : {ty}\nstore %g, %r"
        );
        t.add(ALL, &format!("select {ty}"), &body);
    }
}

fn bits(t: &mut Table) {
    for ty in INTS.iter().copied().chain(["4xi8", "3xu16", "2xi32", "bool"]) {
        for op in ["and", "or", "xor"] {
            t.compute(ALL, op, 2, "", ty, ty);
        }
        t.compute(ALL, "not", 1, "", ty, ty);
    }
    for ty in INTS.iter().copied().chain(["4xi8", "2xu16", "2xi64"]) {
        for op in ["shl", "shr"] {
            t.add(ALL, op, &format!("%a = load %g : {ty}\n%r = {op} %a, %n : {ty}\nstore %g, %r"));
        }
        t.compute(ALL, "brev", 1, "", ty, ty);
    }
    for ty in INTS {
        for op in ["popc", "clz", "bfind"] {
            t.compute(ALL, op, 1, "", ty, "u32");
        }
        t.compute(ALL, "bfind", 1, "flags(shiftamt)", ty, "u32");
        t.add(ALL, "bfe", &format!("%a = load %g : {ty}\n%r = bfe %a, %n, %m : {ty}\nstore %g, %r"));
        t.add(ALL, "bfi", &format!("%a = load %g : {ty}\n%r = bfi %a, %a, %n, %m : {ty}\nstore %g, %r"));
    }
    for funnel in ["l.wrap", "l.clamp", "r.wrap", "r.clamp"] {
        t.compute(ALL, "funnel_shift", 3, &format!("funnel({funnel})"), "u32", "u32");
    }
    for permute in
        ["", "permute(f4e)", "permute(b4e)", "permute(rc8)", "permute(ecl)", "permute(ecr)", "permute(rc16)"]
    {
        t.compute(ALL, "prmt", 3, permute, "u32", "u32");
    }
    t.compute(ALL, "lop3", 3, "lut(232)", "u32", "u32");
    for (a, b) in [("u32", "u32"), ("i32", "u32"), ("u32", "i32"), ("i32", "i32")] {
        let loads = format!("%a = load %g : {a}\n%b0 = load %g : {b}\n");
        t.add(ALL, "dp4a", &format!("{loads}%r = dp4a %a, %b0, %a : {a}\nstore %g, %r"));
        for half in ["lo", "hi"] {
            t.add(ALL, "dp2a", &format!("{loads}%r = dp2a %a, %b0, %a half({half}) : {a}\nstore %g, %r"));
        }
    }
}

fn conversions(t: &mut Table) {
    let plain = || INTS.iter().chain(FLOATS).chain(&["bool", "tf32"]).copied();
    for from in plain() {
        for to in plain() {
            t.compute(ALL, "cvt", 1, "", from, to);
            if from != "bool" && to != "bool" {
                t.compute(ALL, "cvt", 1, "", &format!("4x{from}"), &format!("4x{to}"));
                t.compute(ALL, "cvt", 1, "", &format!("3x{from}"), &format!("3x{to}"));
            }
        }
        for small in ["e4m3", "e5m2"] {
            for lanes in ["", "2x", "4x", "8x", "3x"] {
                t.compute(ALL, "cvt", 1, "", &format!("{lanes}{small}"), &format!("{lanes}{from}"));
                if from != "bool" {
                    t.compute(ALL, "cvt", 1, "", &format!("{lanes}{from}"), &format!("{lanes}{small}"));
                }
                if from == "bool" {
                    break;
                }
            }
        }
    }
    for lanes in ["", "2x", "4x"] {
        t.compute(ALL, "cvt", 1, "", &format!("{lanes}e4m3"), &format!("{lanes}e5m2"));
        t.compute(ALL, "cvt", 1, "", &format!("{lanes}e5m2"), &format!("{lanes}e4m3"));
    }
    t.compute(ALL, "cvt", 1, "flags(relu)", "4xf32", "4xe4m3");
    t.compute(ALL, "cvt", 1, "flags(relu)", "4xf16", "4xe5m2");
    for lanes in ["2x", "4x", "8x"] {
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}f32"), &format!("{lanes}e2m1"));
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}e2m1"), &format!("{lanes}f32"));
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}e2m1"), &format!("{lanes}f16"));
    }
    t.compute(BLACKWELL, "cvt", 1, "", "4xe2m1", "4xe4m3");
    t.compute(BLACKWELL, "cvt", 1, "", "4xe5m2", "4xe2m1");
    t.compute(BLACKWELL, "cvt", 1, "", "2xue8m0", "2xe4m3");
    for lanes in ["", "2x", "4x"] {
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}f32"), &format!("{lanes}ue8m0"));
        t.compute(BLACKWELL, "cvt", 1, "round(rz)", &format!("{lanes}bf16"), &format!("{lanes}ue8m0"));
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}ue8m0"), &format!("{lanes}f32"));
        t.compute(BLACKWELL, "cvt", 1, "", &format!("{lanes}ue8m0"), &format!("{lanes}bf16"));
    }
    for (from, to) in [
        ("i32", "i8"),
        ("i64", "u32"),
        ("u32", "i32"),
        ("i16", "u8"),
        ("u8", "i8"),
        ("f32", "f32"),
        ("f32", "i32"),
        ("f32", "f16"),
    ] {
        t.compute(ALL, "cvt", 1, "flags(sat)", from, to);
        t.compute(ALL, "cvt", 1, "flags(sat)", &format!("4x{from}"), &format!("4x{to}"));
    }
    for round in ["rn", "rz", "rm", "rp"] {
        t.compute(ALL, "cvt", 1, &format!("round({round})"), "f32", "i32");
        t.compute(ALL, "cvt", 1, &format!("round({round})"), "f16", "u8");
        t.compute(ALL, "cvt", 1, &format!("round({round})"), "i64", "f32");
        t.compute(ALL, "cvt", 1, &format!("round({round})"), "f64", "f32");
    }
    for (from, to) in [("2xf32", "2xf16"), ("4xf32", "4xbf16"), ("f32", "bf16"), ("f32", "f16")] {
        t.compute(ALL, "cvt", 1, "round(rz)", from, to);
        t.compute(ALL, "cvt", 1, "flags(relu)", from, to);
    }
    t.compute(ALL, "cvt", 1, "flags(ftz)", "f32", "f16");
    t.compute(ALL, "cvt", 1, "flags(ftz)", "f16", "f32");
    t.compute(HOPPER, "cvt", 1, "round(rn)", "f32", "tf32");
    t.compute(HOPPER, "cvt", 1, "round(rn) flags(relu)", "2xf32", "2xtf32");
    t.compute(ALL, "cvt", 1, "round(rna)", "4xf32", "4xtf32");
    for (from, to) in [
        ("f32", "u32"),
        ("2xf16", "u32"),
        ("4xu8", "f32"),
        ("f64", "2xf32"),
        ("8xe4m3", "u64"),
        ("u64", "4xbf16"),
        ("i16", "f16"),
        ("2xi8", "u16"),
        ("4xi32", "2xi64"),
    ] {
        t.compute(ALL, "bitcast", 1, "", from, to);
    }
}

fn values(t: &mut Table) {
    for ty in ["i8", "f16", "i32", "f64", "e4m3"] {
        for lanes in [2, 3, 4, 8] {
            let names: Vec<String> = (0..lanes).map(|i| format!("%a{i}")).collect();
            let loads: String = names.iter().map(|name| format!("{name} = load %g : {ty}\n")).collect();
            let vector = format!("{lanes}x{ty}");
            let mut body = format!("{loads}%p = pack {} : {vector}\n", names.join(", "));
            for i in 0..lanes {
                body += &format!("%x{i} = extract %p index({i}) : {ty}\nstore %g, %x{i}\n");
            }
            body += &format!("%y = insert %p, %a0 index({}) : {vector}\nstore %g, %y\n", lanes - 1);
            body +=
                &format!("%z = slice %p index(1) : 1x{ty}\n%h = slice %p index(0) : {}x{ty}\n", lanes / 2);
            body += &format!(
                "store %g, %z\nstore %g, %h\n%q = concat %p, %h, %z : {}x{ty}\nstore %g, %q",
                lanes + lanes / 2 + 1
            );
            t.add(ALL, &format!("pack {vector}"), &body);
        }
    }
    t.add(ALL, "pack of constants", "%a = const value(0x3c00) : f16\n%p = pack %a, %a, %a, %a : 4xf16\n%r = mul %p, %v : 4xf16\nstore %g, %r");
    t.add(ALL, "nibbles", "%a = load %g : 8xe2m1\n%x = extract %a index(3) : e2m1\n%p = pack %x, %x : 2xe2m1\n%q = insert %a, %x index(6) : 8xe2m1\nstore %g, %p\nstore %g, %q");
    t.add(
        ALL,
        "poison",
        "%a = poison : 4xf32\nstore %g, %a\n%b0 = poison : bool\n%r = select %b0, %n, %m : u32\nstore %g, %r",
    );
    t.add(ALL, "constants", "%a = const value(-5) : i64\n%b0 = const value(18446744073709551615) : u64\n%r = add %a, %a : i64\nstore %g, %r\nstore %g, %b0\n%t = const value(1) : bool\nstore %g, %t\n%u = const value(-3) : i8\nstore %g, %u\n%x = const value(0.5) : f64\nstore %g, %x");
}

fn memory(t: &mut Table) {
    let types = [
        "bool",
        "i8",
        "e4m3",
        "u16",
        "bf16",
        "f32",
        "i64",
        "f64",
        "2xi8",
        "3xi8",
        "4xi8",
        "16xe4m3",
        "3xf16",
        "8xbf16",
        "2xf32",
        "3xf32",
        "4xf32",
        "8xf32",
        "6xi32",
        "2xf64",
        "3xi64",
        "5xi16",
        "ptr<global>",
        "64xi8",
    ];
    for ty in types {
        t.add(
            ALL,
            &format!("load {ty}"),
            &format!(
                "%a = load %g : {ty}\nstore %g, %a\n%o = load_if %g, %c, %a : {ty}\nstore_if %g, %o, %c"
            ),
        );
    }
    t.add(ALL, "load_if const", "%z = const value(0.0) : f32\n%p = pack %z, %z, %z, %z : 4xf32\n%a = load_if %g, %c, %p : 4xf32\nstore %g, %a");
    for space in ["generic", "shared", "local", "global"] {
        let pointer = match space {
            "shared" => "%p = shared bytes(64) align(16) : ptr<shared>",
            "local" => "%p = local bytes(64) align(16) : ptr<local>",
            "generic" => "%p = cast_space %g : ptr<generic>",
            _ => "%o = const value(16) : u64\n%p = ptr_add %g, %o : ptr<global>",
        };
        t.add(ALL, &format!("space {space}"), &format!("{pointer}\n%a = load %p : 4xf32\nstore %p, %a"));
    }
    t.add(ALL, "constant space", "%p = int_to_ptr %l : ptr<constant>\n%a = load %p : f32\nstore %g, %a");
    for order in ["volatile", "relaxed", "acquire", "sc", "weak"] {
        t.add(ALL, order, &format!("%a = load %g order({order}) : u32\nstore %g, %a"));
    }
    for scope in ["cta", "gpu", "sys"] {
        t.add(
            ALL,
            scope,
            &format!(
                "%a = load %g order(acquire) scope({scope}) : u32\nstore %g, %a order(release) scope({scope})"
            ),
        );
    }
    t.add(
        HOPPER,
        "cluster scope",
        "%a = load %g order(relaxed) scope(cluster) : u32\nstore %g, %a order(release) scope(cluster)",
    );
    for order in ["volatile", "relaxed", "release", "sc"] {
        t.add(ALL, order, &format!("store %g, %n order({order})"));
    }
    for cache in ["ca", "cg", "cs", "lu", "cv", "nc"] {
        t.add(ALL, cache, &format!("%a = load %g cache({cache}) : 4xf32\nstore %g, %a"));
    }
    for cache in ["wb", "cg", "cs", "wt"] {
        t.add(ALL, cache, &format!("store %g, %n cache({cache})"));
    }
    for evict in ["evict_normal", "evict_first", "evict_last", "evict_unchanged", "no_allocate"] {
        t.add(ALL, evict, &format!("%a = load %g evict({evict}) : 4xf32\nstore %g, %a evict({evict})"));
    }
    for policy in ["evict_first", "evict_last", "evict_normal", "evict_unchanged"] {
        t.add(
            ALL,
            policy,
            &format!("%p = make_policy policy({policy}) : u64\n%a = load %g, %p : 4xf32\nstore %g, %a, %p"),
        );
    }
    t.add(ALL, "policy if", "%p = make_policy policy(evict_first) : u64\n%z = load %g : 4xf32\n%a = load_if %g, %c, %z, %p cache(nc) evict(no_allocate) prefetch(128) : 4xf32\nstore_if %g, %a, %c, %p");
    for size in ["64", "128", "256"] {
        t.add(ALL, size, &format!("%a = load %g prefetch({size}) : 4xf32\nstore %g, %a"));
    }
    for text in ["level(l1)", "level(l2)", "level(l2) evict(evict_last)", "level(l2) evict(evict_normal)"] {
        t.add(ALL, text, &format!("prefetch %g {text}"));
    }
    t.add(ALL, "prefetch generic", "prefetch %s level(l1)");
    for (op, types) in [
        ("add", &["i32", "u32", "i64", "u64", "f32", "f64", "f16", "2xf16"][..]),
        ("min", &["i32", "u32", "i64", "u64"]),
        ("max", &["i32", "u32", "i64", "u64"]),
        ("and", &["i32", "u64"]),
        ("or", &["u32", "i64"]),
        ("xor", &["u32", "u64"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
    ] {
        for ty in types {
            t.add(ALL, op, &format!("%a = load %g : {ty}\n%r = atomic %g, %a op({op}) : {ty}\nstore %g, %r\nreduce %g, %a op({op})"));
        }
    }
    for ty in ["i32", "f32", "u64", "f64", "2xf16"] {
        t.add(ALL, "exch", &format!("%a = load %g : {ty}\n%r = atomic %g, %a op(exch) : {ty}\nstore %g, %r"));
    }
    for ty in ["u16", "f16", "i32", "f32", "u64", "2xf16"] {
        t.add(ALL, "cas", &format!("%a = load %g : {ty}\n%r = atomic_cas %g, %a, %a : {ty}\nstore %g, %r"));
    }
    for order in ["relaxed", "acquire", "release", "acq_rel", "sc"] {
        for scope in ["cta", "gpu", "sys"] {
            t.add(
                ALL,
                order,
                &format!("%r = atomic %g, %n op(add) order({order}) scope({scope}) : u32\nstore %g, %r"),
            );
        }
    }
    t.add(
        ALL,
        "reduce order",
        "reduce %g, %n op(add) order(release) scope(sys)\nreduce %g, %n op(max) order(sc)",
    );
    t.add(ALL, "atomic shared", "%p = shared bytes(64) align(16) : ptr<shared>\n%r = atomic %p, %n op(add) : u32\nreduce %p, %r op(min)\n%q = atomic_cas %p, %n, %m : u32\nstore %g, %q");
    t.add(ALL, "vector atomics", "%a = load %g : 4xf32\nreduce %g, %a op(add)\n%b0 = load %g : 4xf16\nreduce %g, %b0 op(add)\n%c0 = load %g : 2xf32\n%r = atomic %g, %c0 op(add) : 2xf32\nstore %g, %r");
    t.add(HOPPER, "bf16 atomics", "%a = load %g : 8xbf16\nreduce %g, %a op(add)\n%b0 = load %g : 2xbf16\n%r = atomic %g, %b0 op(add) : 2xbf16\nstore %g, %r\n%x = load %g : bf16\nreduce %g, %x op(add)");
    t.add(HOPPER, "cluster memory", "%p = shared bytes(64) align(16) : ptr<shared>\n%q = map_cluster %p, %n : ptr<cluster>\n%a = load %q : 4xf32\nstore %q, %a\n%r = atomic %q, %n op(add) : u32\nstore %g, %r\n%t = cast_space %p : ptr<cluster>\nstore %t, %n\n%u = cast_space %q : ptr<generic>\nstore %u, %n");
    t.add(ALL, "casts", "%p = shared bytes(64) align(16) : ptr<shared>\n%a = cast_space %p : ptr<generic>\nstore %a, %n\n%b0 = cast_space %a : ptr<shared>\nstore %b0, %n\n%c0 = cast_space %s : ptr<global>\nstore %c0, %n\n%x = local bytes(64) align(8) : ptr<local>\n%y = cast_space %x : ptr<generic>\nstore %y, %n\n%z = ptr_to_int %g : u64\nstore %g, %z\n%q = ptr_to_int %p : u32\nstore %g, %q\n%h = int_to_ptr %q : ptr<shared>\nstore %h, %n");
    t.add(
        ALL,
        "params",
        "store %g, %v\nstore %g, %b\nstore %g, %e\nstore %g, %c\nstore %s, %w\nstore %g, %f\nstore %g, %i",
    );
    t.add(ALL, "static and dynamic", "%p = shared bytes(60000) align(128) : ptr<shared>\n%q = shared bytes(24) align(8) text(\"bars\") : ptr<shared>\nstore %q, %n\nstore %p, %n");
}

fn warps(t: &mut Table) {
    for ty in ["u32", "f32", "i8", "f16", "bool", "u64", "f64", "2xf16", "4xi8", "2xf32", "4xbf16", "2xi8"] {
        for mode in ["idx", "up", "down", "bfly"] {
            t.add(ALL, "shuffle", &format!("%a = load %g : {ty}\n%r, %ok = shuffle %a, %n, %m mode({mode}) : {ty}, bool\nstore %g, %r"));
        }
        t.add(ALL, "shuffle width", &format!("%a = load %g : {ty}\n%k = const value(4294967295) : u32\n%r, %ok = shuffle %a, %n, %k mode(up) width(8) : {ty}, bool\nstore_if %g, %r, %ok"));
        t.add(ALL, "match", &format!("%a = load %g : {ty}\n%r = match_any %a, %m : u32\nstore %g, %r\n%x, %y = match_all %a, %m : u32, bool\nstore_if %g, %x, %y\n%z, %w0 = match_all %a, %m : u32, bool\nstore %g, %z"));
    }
    for vote in ["all", "any", "uni"] {
        t.add(ALL, vote, &format!("%r = vote %c, %m vote({vote}) : bool\nstore %g, %r"));
    }
    t.add(ALL, "ballot", "%r = vote %c, %m vote(ballot) : u32\nstore %g, %r");
    for op in ["add", "min", "max"] {
        t.add(ALL, op, &format!("%r = redux %n, %m op({op}) : u32\n%q = redux %i, %m op({op}) : i32\nstore %g, %r\nstore %g, %q"));
    }
    for op in ["and", "or", "xor"] {
        t.add(ALL, op, &format!("%r = redux %n, %m op({op}) : u32\nstore %g, %r"));
    }
    t.add(HOPPER, "elect", "%r = elect %m : bool\nstore %g, %r");
    t.add(ALL, "active_mask", "%r = active_mask : u32\nstore %g, %r\nwarp_sync %m\nwarp_sync %r");
}

fn barriers(t: &mut Table) {
    for flags in ["", "flags(aligned)"] {
        t.add(ALL, "barrier", &format!("%z = const value(0) : u32\n%k = const value(64) : u32\nbarrier %z {flags}\nbarrier %z, %k {flags}\nbarrier %n, %m {flags}\nbarrier_arrive %z, %k {flags}"));
        for (op, ty) in [("and", "bool"), ("or", "bool"), ("popc", "u32")] {
            t.add(ALL, op, &format!("%z = const value(0) : u32\n%k = const value(64) : u32\n%r = barrier_reduce %c, %z op({op}) {flags} : {ty}\nstore %g, %r\n%q = barrier_reduce %c, %z, %k op({op}) {flags} : {ty}\nstore %g, %q"));
        }
        t.add(HOPPER, "cluster", &format!("cluster_arrive {flags}\ncluster_wait {flags}\ncluster_arrive order(relaxed) {flags}\ncluster_wait order(acquire) {flags}\ncluster_arrive order(release) {flags}\ncluster_wait {flags}"));
    }
    let object = "%p = shared bytes(16) align(8) : ptr<shared>\n%k = const value(128) : u32\n";
    t.add(ALL, "mbarrier", &format!("{object}mbar_init %p, %k\nmbar_arrive %p\nmbar_arrive_drop %p\n%r = mbar_test %p, %n : bool\nstore %g, %r\nmbar_wait %p, %n\nmbar_wait %p, %m\nmbar_invalidate %p"));
    t.add(HOPPER, "mbarrier tx", &format!("{object}mbar_init %p, %n\nfence_mbar_init\nmbar_expect %p, %k\nmbar_arrive %p, %n\nmbar_arrive_expect %p, %k\n%r = mbar_test %p, %n flags(try) : bool\nstore %g, %r\n%o = const value(8) : u32\n%q = ptr_add %p, %o : ptr<shared>\nmbar_wait %q, %n\nmbar_wait %p, %n order(acquire) scope(cluster)"));
    t.add(HOPPER, "mbarrier orders", &format!("{object}mbar_arrive %p order(release) scope(cta)\nmbar_arrive %p order(release) scope(cluster)\nmbar_arrive_expect %p, %k order(release) scope(cluster)\nmbar_expect %p, %k scope(cluster)\n%r = mbar_test %p, %n order(acquire) scope(cluster) : bool\nstore %g, %r"));
    t.add(HOPPER, "mbarrier remote", &format!("{object}%q = map_cluster %p, %n : ptr<cluster>\nmbar_arrive %q\nmbar_arrive %q, %n\nmbar_arrive_expect %q, %k\nmbar_arrive_drop %q\nmbar_expect %q, %k\nmbar_arrive %q order(release) scope(cluster)"));
    for order in ["acq_rel", "sc", "acquire", "release"] {
        for scope in ["cta", "gpu", "sys"] {
            t.add(ALL, "fence", &format!("fence order({order}) scope({scope})"));
        }
    }
    t.add(HOPPER, "fence cluster", "fence order(acq_rel) scope(cluster)");
    t.add(ALL, "fence alias", "fence_proxy proxy(alias)");
    for proxy in ["async", "async.global", "async.shared"] {
        t.add(HOPPER, proxy, &format!("fence_proxy proxy({proxy})"));
    }
}

fn copies(t: &mut Table) {
    let p = "%p = shared bytes(4096) align(128) : ptr<shared>\n%bar = shared bytes(8) align(8) : ptr<shared>\n%k = const value(1024) : u32\n%z = const value(0) : i32\n%mask = const value(3) : u16\n%pol = make_policy policy(evict_first) : u64\n";
    t.add(ALL, "cp_async", &format!("{p}cp_async %p, %g bytes(16)\ncp_async %p, %g bytes(4)\ncp_async %p, %g bytes(8)\ncp_async %p, %g, %n bytes(16) cache(cg) prefetch(128)\ncp_async %p, %g bytes(16) cache(ca)\ncp_async_commit\ncp_async_wait count(2)\ncp_async_arrive %bar\ncp_async_arrive %bar flags(noinc)"));
    t.add(HOPPER, "bulk", &format!("{p}bulk_load %p, %g, %k, %bar\nbulk_load %p, %g, %k, %bar, %pol flags(hint)\nbulk_store %g, %p, %k\nbulk_store %g, %p, %n, %pol flags(hint)\nbulk_prefetch %g, %k\nbulk_commit\nbulk_wait count(0)\nbulk_wait count(1) flags(read)"));
    t.add(HOPPER, "bulk multicast", &format!("{p}bulk_load %p, %g, %k, %bar, %mask flags(multicast)\nbulk_load %p, %g, %k, %bar, %mask, %pol flags(multicast hint)"));
    t.add(HOPPER, "bulk cluster", &format!("{p}%q = map_cluster %p, %n : ptr<cluster>\n%o = map_cluster %bar, %n : ptr<cluster>\nbulk_copy %q, %p, %k, %o\nstore_async %q, %k, %o\n%wide = const value(0) : f64\nstore_async %q, %wide, %o\n%four = pack %k, %k, %n, %n : 4xu32\nstore_async %q, %four, %o"));
    for (op, elements) in [
        ("add", &["f32", "f16", "bf16", "i32", "u32", "u64", "i64", "f64"][..]),
        ("min", &["i32", "u32", "f16", "bf16", "u64", "i64"]),
        ("max", &["i32", "u32", "f16", "bf16", "u64", "i64"]),
        ("and", &["u32", "u64"]),
        ("or", &["u32", "u64"]),
        ("xor", &["u32", "u64"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
    ] {
        for element in elements {
            t.add(HOPPER, "bulk_reduce", &format!("{p}bulk_reduce %g, %p, %k op({op}) element({element})\nbulk_reduce %g, %p, %k, %pol op({op}) element({element}) flags(hint)"));
        }
    }
    for rank in 1..=5 {
        let c = vec!["%z"; rank].join(", ");
        let i = ["%i"; 5][..rank].join(", ");
        t.add(HOPPER, "tma", &format!("{p}map_prefetch %map\ntma_load %p, %map, %bar, {c} rank({rank})\ntma_load %p, %map, %bar, {i}, %pol rank({rank}) flags(hint)\ntma_store %map, %p, {i} rank({rank})\ntma_store %map, %p, {i}, %pol rank({rank}) flags(hint)\ntma_prefetch %map, {i} rank({rank})\ntma_prefetch %map, {i}, %pol rank({rank}) flags(hint)"));
        t.add(HOPPER, "tma multicast", &format!("{p}tma_load %p, %map, %bar, {c}, %mask rank({rank}) flags(multicast)\ntma_load %p, %map, %bar, {i}, %mask, %pol rank({rank}) flags(multicast hint)"));
        for op in ["add", "min", "max", "and", "or", "xor", "inc", "dec"] {
            t.add(HOPPER, "tma_reduce", &format!("{p}tma_reduce %map, %p, {i} rank({rank}) op({op})\ntma_reduce %map, %p, {i}, %pol rank({rank}) op({op}) flags(hint)"));
        }
        if rank >= 3 {
            let offsets = vec!["%mask"; rank - 2].join(", ");
            t.add(HOPPER, "im2col", &format!("{p}tma_load %p, %map, %bar, {c}, {offsets} rank({rank}) flags(im2col)\ntma_load %p, %map, %bar, {c}, {offsets}, %mask, %pol rank({rank}) flags(im2col multicast hint)\ntma_store %map, %p, {c} rank({rank}) flags(im2col)\ntma_reduce %map, %p, {c} rank({rank}) op(add) flags(im2col)\ntma_prefetch %map, {c}, {offsets} rank({rank}) flags(im2col)"));
        }
    }
    t.add(
        HOPPER,
        "map in memory",
        &format!(
            "{p}tma_load %p, %g, %bar, %z, %z rank(2)\nmap_prefetch %g\ntma_load %p, %s, %bar, %z rank(1)"
        ),
    );
    for (space, q) in [("shared", "%p"), ("global", "%g"), ("generic", "%s")] {
        t.add(HOPPER, &format!("map_replace {space}"), &format!("{p}%e0 = const value(10) : u32\n%t = const value(1) : u32\nmap_replace {q}, %l field(global_address)\nmap_replace {q}, %n field(rank)\nmap_replace {q}, %n field(box_dim) index(0)\nmap_replace {q}, %n field(global_dim) index(1)\nmap_replace {q}, %l field(global_stride) index(0)\nmap_replace {q}, %n field(element_stride) index(1)\nmap_replace {q}, %e0 field(elemtype)\nmap_replace {q}, %t field(swizzle_mode)\nmap_replace {q}, %t field(interleave_layout)\nmap_replace {q}, %t field(fill_mode)"));
    }
    t.add(HOPPER, "map_publish", &format!("{p}map_publish %g, %p\nmap_acquire %g"));
}

fn matrices(t: &mut Table) {
    let p = "%p = shared bytes(4096) align(128) : ptr<shared>\n";
    for (count, ty) in [(1, "2xf16"), (2, "4xbf16"), (4, "8xf16"), (4, "4xu32"), (4, "16xe4m3")] {
        for flags in ["", "flags(trans)"] {
            t.add(
                ALL,
                "ldmatrix",
                &format!("{p}%a = ldmatrix %p count({count}) {flags} : {ty}\nstore %g, %a"),
            );
            t.add(
                HOPPER,
                "stmatrix",
                &format!("{p}%a = load %g : {ty}\nstmatrix %p, %a count({count}) {flags}"),
            );
        }
    }
    for atom in mma::all() {
        let values = |operand| atom.extents(operand).0 * atom.extents(operand).1 / atom.group.threads();
        let ty = |operand| format!("{}x{}", values(operand), atom.element(operand));
        let id = format!("{}.{}.{}.{}", atom.shape, atom.c, atom.a, atom.b);
        let archs: &'static [Arch] = match atom.needs {
            Arch::SM_90A => HOPPER_ONLY,
            Arch::SM_90 => HOPPER,
            Arch::SM_89 => ADA,
            Arch::SM_80 => ALL,
            needs => panic!("an instruction for {needs}: say here where it must compile"),
        };
        let integer = atom.c == tilewright_hardware::Element::I32;
        match atom.group {
            Group::Warp => {
                let (a, b, c) = (ty(Operand::A), ty(Operand::B), ty(Operand::C));
                let flags = if integer { "flags(satfinite)" } else { "" };
                let body = format!(
                    "%a0 = load %g : {a}\n%b0 = load %g : {b}\n%c0 = load %g : {c}\n%r = mma %a0, %b0, %c0 mma({id}) : {c}\n%q = mma %a0, %b0, %r mma({id}) {flags} : {c}\nstore %g, %q"
                );
                t.add(archs, &id, &body);
            }
            _ => {
                // Every n of one type pair would be hundreds of alike; the ends and a middle one say it.
                if ![8, 64, 256].contains(&atom.shape.n) {
                    continue;
                }
                let (a, n) = (ty(Operand::A), atom.shape.n / 2);
                let half = atom.a.bits() == 16;
                let flags = match (integer, half) {
                    (true, _) => "flags(satfinite)",
                    (false, true) => "flags(trans_a trans_b neg_a)",
                    (false, false) => "flags(neg_a neg_b)",
                };
                let body = format!(
                    "{p}%acc = accumulator : acc<{n}x{c}>\n%da = descriptor %p bits(4611686293305294848) : u64\n%f0 = const value(0) : bool\n%t = const value(1) : bool\n%a0 = load %g : {a}\nwgmma_fence\nwgmma %acc, %da, %da, %f0 mma({id})\nwgmma %acc, %da, %da, %c mma({id}) {flags}\nwgmma %acc, %a0, %da, %t mma({id})\nwgmma_commit\nwgmma_wait count(0)\n%r = acc_read %acc : {n}x{c}\nstore %g, %r",
                    c = atom.c
                );
                t.add(archs, &id, &body);
            }
        }
    }
    t.add(HOPPER_ONLY, "acc_write", &format!("{p}%acc = accumulator : acc<4xf32>\n%da = descriptor %p bits(0) : u64\n%x = load %g : 4xf32\nacc_write %acc, %x\nwgmma_fence\nwgmma %acc, %da, %da, %c mma(m64n8k16.f32.bf16.bf16)\nwgmma_commit\nwgmma_wait count(0)\n%r = acc_read %acc : 4xf32\n%z = const value(0.0) : f32\n%zs = pack %z, %z, %z, %z : 4xf32\nacc_write %acc, %zs\n%q = acc_read %acc : 4xf32\nstore %g, %r\nstore %g, %q"));
}

fn control(t: &mut Table) {
    for ty in INTS {
        for flags in ["", "flags(uniform)"] {
            t.add(ALL, "for", &format!("%lo = load %g : {ty}\n%hi = load %g : {ty}\n%st = load %g : {ty}\n%one = const value(1) : {ty}\n%r = for %lo, %hi, %st, %n {flags} : u32 do {{\n(%k: {ty}, %x: u32)\n%y = add %x, %x : u32\nyield %y\n}}\nstore %g, %r\nfor %lo, %hi, %one do {{\n(%j: {ty})\nstore %g, %j\n}}"));
        }
    }
    t.add(ALL, "for constants", "%z = const value(0) : u32\n%k = const value(10) : u32\n%one = const value(3) : u32\n%r = for %z, %k, %one, %f : f32 do {\n(%j: u32, %x: f32)\n%y = mul %x, %x : f32\nyield %y\n}\nstore %g, %r\n%q = for %k, %z, %one, %f : f32 do {\n(%j2: u32, %x2: f32)\n%y2 = mul %x2, %x2 : f32\nyield %y2\n}\nstore %g, %q");
    t.add(ALL, "while", "%r, %q = while %n, %m flags(uniform) : u32, u32 test {\n(%x: u32, %y: u32)\n%t = cmp %x, %m cmp(lt) : bool\n%s2 = add %x, %y : u32\ncondition %t, %x, %s2\n} do {\n(%u: u32, %z: u32)\n%one = const value(1) : u32\n%a = add %u, %one : u32\nyield %a, %z\n}\nstore %g, %r\nstore %g, %q");
    t.add(ALL, "if", "%r, %p = if %c flags(uniform) : f32, bool then {\n%x = add %f, %f : f32\nyield %x, %d\n} else {\n%y = const value(1.5) : f32\n%no = const value(0) : bool\nyield %y, %no\n}\nstore_if %g, %r, %p\nif %c then {\nstore %g, %f\n} else {\nstore %g, %n\n}\nif %c then {\n} else {\nstore %g, %n\nfence order(sc) scope(gpu)\n}\nif %d then {\ntrap\n} else {\n}\n%never = const value(0) : bool\nif %never then {\ntrap\n} else {\nstore %g, %n\n}");
    t.with_launch(HOPPER_ONLY, "roles", "threads(384,1,1)", "role text(\"load\") warps(0..4) registers(40) do {\nstore %g, %n\n}\nrole text(\"multiply\") warps(4..12) registers(232) do {\nstore %g, %m\n}\nstore %g, %f");
    t.with_launch(ALL, "roles in a plane", "threads(32,4,2)", "role text(\"b\") warps(4..5) do {\nstore %g, %n\n}\nrole text(\"a\") warps(0..2) do {\nstore %g, %m\n}");
    t.with_launch(ALL, "roles anyhow", "", "role text(\"b\") warps(0..1) do {\nstore %g, %n\n}\n");
    t.with_launch(ALL, "launch", "threads(64,2,1) min_blocks(2) registers(64)", "return");
    t.with_launch(HOPPER, "cluster", "threads(128,1,1) cluster(2,1,1)", "cluster_arrive\ncluster_wait");
}

fn rest(t: &mut Table) {
    let registers = [
        "tid.x",
        "tid.y",
        "tid.z",
        "ntid.x",
        "ntid.y",
        "ntid.z",
        "ctaid.x",
        "ctaid.y",
        "ctaid.z",
        "nctaid.x",
        "nctaid.y",
        "nctaid.z",
        "laneid",
        "warpid",
        "smid",
        "nsmid",
        "gridid",
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_gt",
        "lanemask_ge",
        "dynamic_smem_size",
        "total_smem_size",
    ];
    for register in registers {
        for ty in ["u32", "u64", "i32"] {
            t.add(ALL, register, &format!("%a = special reg({register}) : {ty}\nstore %g, %a"));
        }
    }
    for register in ["clusterid", "nclusterid", "cluster_ctaid"] {
        for axis in ["x", "y", "z"] {
            t.add(HOPPER, register, &format!("%a = special reg({register}.{axis}) : u32\nstore %g, %a"));
        }
    }
    t.add(HOPPER, "ranks", "%a = special reg(cluster_ctarank) : u32\nstore %g, %a\n%b0 = special reg(cluster_nctarank) : u32\nstore %g, %b0");
    for (register, ty) in [("clock", "u32"), ("clock64", "u64"), ("globaltimer", "u64")] {
        t.add(ALL, register, &format!("%a = clock reg({register}) : {ty}\nstore %g, %a"));
    }
    t.add(ALL, "grids", "grid_wait\ngrid_launch");
    t.add(ALL, "sleep", "sleep %n\n%k = const value(100) : u32\nsleep %k");
    t.add(ALL, "assert", "assert %c text(\"a \\\"message\\\" é\")\ntrace text(\"\")\n%k = const value(7) : u32\ntrace %n, %v, %c, %k text(\"n = {} {} {} {}\")");
}
