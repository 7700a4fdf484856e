//! Where values live and how control flows: checked in the text, and by running the code of small integer functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod machine;

use machine::run;
use tilewright_codegen::{CodegenError, Compiled, Options, compile};
use tilewright_hardware::Arch;
use tilewright_ir::{parse, verify};
use tilewright_ptx::Note;

fn build_for(arch: Arch, text: &str) -> Compiled {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(verify(&module), [], "{text}");
    compile(&module.funcs[0], &Options::new(arch)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn build(text: &str) -> Compiled {
    build_for(Arch::SM_90A, text)
}

fn refused(text: &str) -> CodegenError {
    let module = parse(text).unwrap();
    compile(&module.funcs[0], &Options::new(Arch::SM_90A)).unwrap_err()
}

/// How many lines contain a text.
fn count(compiled: &Compiled, opcode: &str) -> usize {
    compiled.text.lines().filter(|line| line.contains(opcode)).count()
}

#[test]
fn carried_values_change_places() {
    let swap = "func @k (%g: ptr<global>, %n: u32, %a: u32, %b: u32, %c: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %x, %y, %w = for %z, %n, %o, %a, %b, %c : u32, u32, u32 do {
          (%i: u32, %p: u32, %q: u32, %r: u32)
          yield %q, %r, %p
        }
        store %g, %x
        store %g, %y
        store %g, %w
      }";
    let compiled = build(swap);
    for n in 0..5_u64 {
        let mut expected = vec![10, 20, 30];
        expected.rotate_left((n % 3) as usize);
        assert_eq!(run(&compiled, &[0, n, 10, 20, 30]), expected, "{n} rounds\n{}", compiled.text);
    }
    // A rotation of three needs one register aside.
    let body = compiled.text.split("$L0:").nth(1).unwrap().split("bra").next().unwrap();
    assert_eq!(body.matches("mov.b32").count(), 4, "{}", compiled.text);
}

#[test]
fn a_value_read_after_its_successor_is_computed_is_not_overwritten() {
    let text = "func @k (%g: ptr<global>, %n: u32, %a: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %x, %y = for %z, %n, %o, %a, %a : u32, u32 do {
          (%i: u32, %p: u32, %q: u32)
          %next = add %p, %o : u32
          %old = add %p, %q : u32
          yield %next, %old
        }
        store %g, %x
        store %g, %y
      }";
    let compiled = build(text);
    let (mut p, mut q) = (7_u64, 7_u64);
    for n in 0..6 {
        assert_eq!(run(&compiled, &[0, n, 7]), [p, q], "{}", compiled.text);
        (p, q) = (p + 1, p + q);
    }
}

#[test]
fn elements_that_change_places_are_read_before_they_are_written() {
    let text = "func @k (%g: ptr<global>, %n: u32, %a: u32, %b: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %ones = pack %o, %z : 2xu32
        %v = pack %a, %b : 2xu32
        %w = for %z, %n, %o, %v : 2xu32 do {
          (%i: u32, %p: 2xu32)
          %x = extract %p index(0) : u32
          %y = extract %p index(1) : u32
          %swapped = pack %y, %x : 2xu32
          %next = add %swapped, %ones : 2xu32
          yield %next
        }
        %r = extract %w index(0) : u32
        %s = extract %w index(1) : u32
        store %g, %r
        store %g, %s
      }";
    let compiled = build(text);
    assert_eq!(run(&compiled, &[0, 3, 10, 20]), [22, 11], "{}", compiled.text);
}

#[test]
fn what_a_while_loop_passes_through_outlives_its_source() {
    let text = "func @k (%g: ptr<global>, %n: u32, %a: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %no = const value(0) : bool
        %last = for %z, %n, %o, %a : u32 do {
          (%i: u32, %p: u32)
          %r = while %z : u32 test {
            (%k: u32)
            condition %no, %p
          } do {
            (%q: u32)
            yield %q
          }
          %next = add %p, %o : u32
          store %g, %r
          yield %next
        }
        store %g, %last
      }";
    let compiled = build(text);
    assert_eq!(run(&compiled, &[0, 2, 5]), [5, 6, 7], "{}", compiled.text);
}

#[test]
fn pointers_with_offsets_survive_the_pointer_moving_on() {
    let text = "func @k (%g: ptr<global>, %n: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %step = const value(64) : u64
        %eight = const value(8) : u64
        %e = for %z, %n, %o, %g : ptr<global> do {
          (%i: u32, %p: ptr<global>)
          %field = ptr_add %p, %eight : ptr<global>
          %next = ptr_add %p, %step : ptr<global>
          %x = ptr_to_int %field : u64
          store %g, %x
          yield %next
        }
        %r = ptr_to_int %e : u64
        store %g, %r
      }";
    let compiled = build(text);
    assert_eq!(run(&compiled, &[1000, 2]), [1008, 1072, 1128], "{}", compiled.text);
    let simple = build(
        "func @k (%g: ptr<global>, %n: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %step = const value(64) : u64
        %e = for %z, %n, %o, %g : ptr<global> do {
          (%i: u32, %p: ptr<global>)
          %x = load %p : u32
          store %p, %x
          %next = ptr_add %p, %step : ptr<global>
          yield %next
        }
      }",
    );
    let body = simple.text.split("$L0:").nth(1).unwrap();
    assert!(!body.contains("mov"), "{}", simple.text);
}

#[test]
fn counting_is_right_at_the_ends_of_every_type() {
    let cases: [(&str, i128, i128); 8] = [
        ("u8", 0, 255),
        ("i8", -128, 127),
        ("u16", 0, 65535),
        ("i16", -32768, 32767),
        ("u32", 0, 4_294_967_295),
        ("i32", -2_147_483_648, 2_147_483_647),
        ("u64", 0, 18_446_744_073_709_551_615),
        ("i64", -9_223_372_036_854_775_808, 9_223_372_036_854_775_807),
    ];
    for (ty, min, max) in cases {
        let text = format!(
            "func @k (%g: ptr<global>, %lo: {ty}, %hi: {ty}, %st: {ty}) {{
               for %lo, %hi, %st do {{
                 (%i: {ty})
                 store %g, %i
               }}
             }}"
        );
        let dynamic = build(&text);
        let bits = if max > i128::from(u32::MAX) {
            64
        } else {
            8 * [255, 65535, u64::from(u32::MAX)]
                .iter()
                .position(|&m| max <= i128::from(m))
                .map_or(8, |i| 1 << i)
        };
        let encode = |value: i128| -> u64 {
            let mask = if bits == 64 { u128::from(u64::MAX) } else { (1_u128 << bits) - 1 };
            u64::try_from(value.cast_unsigned() & mask).unwrap()
        };
        let span = max - min;
        let triples = [
            (min, min + 3, 1),
            (max - 3, max, 1),
            (max - 3, max, 2),
            (max - 1, max, 100),
            (min, max, span / 3),
            (min, max, max),
            (max - 7, max - 1, 4),
            (min, min, 1),
            (max, max, 1),
            (max, min, 1),
            (min + 1, max, max),
            (max - 5, max, 5),
            (max - 5, max, 4),
        ];
        for (lo, hi, step) in triples {
            if step <= 0 || step > max {
                continue;
            }
            let mut expected = Vec::new();
            let mut i = lo;
            while i < hi {
                expected.push(encode(i));
                i += step;
            }
            let values = run(&dynamic, &[0, encode(lo), encode(hi), encode(step)]);
            assert_eq!(values, expected, "{ty}: {lo}..{hi} by {step}\n{}", dynamic.text);
            let fixed = build(&format!(
                "func @k (%g: ptr<global>, %lo: {ty}) {{
                   %hi = const value({hi}) : {ty}
                   %st = const value({step}) : {ty}
                   for %lo, %hi, %st do {{
                     (%i: {ty})
                     store %g, %i
                   }}
                 }}"
            ));
            assert_eq!(run(&fixed, &[0, encode(lo)]), expected, "{ty}: {lo}..{hi} by {step}\n{}", fixed.text);
            let known = build(&format!(
                "func @k (%g: ptr<global>) {{
                   %lo = const value({lo}) : {ty}
                   %hi = const value({hi}) : {ty}
                   %st = const value({step}) : {ty}
                   for %lo, %hi, %st do {{
                     (%i: {ty})
                     store %g, %i
                   }}
                 }}"
            ));
            assert_eq!(run(&known, &[0]), expected, "{ty}: {lo}..{hi} by {step}\n{}", known.text);
            // Between constants nothing is tested before the first round.
            assert!(count(&known, "setp") <= 1, "{}", known.text);
        }
    }
}

#[test]
fn nested_loops_carry_without_copies() {
    let text = "func @k (%g: ptr<global>, %n: u32, %m: u32) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %s = for %z, %n, %o, %z : u32 do {
          (%i: u32, %a: u32)
          %t = for %z, %m, %o, %a : u32 do {
            (%j: u32, %b: u32)
            %p = mul %i, %j : u32
            %c = add %b, %p : u32
            %d = add %c, %o : u32
            yield %d
          }
          yield %t
        }
        store %g, %s
      }";
    let compiled = build(text);
    for (n, m) in [(0, 3), (3, 0), (4, 5)] {
        let expected: u64 = (0..n).flat_map(|i| (0..m).map(move |j| i * j + 1)).sum();
        assert_eq!(run(&compiled, &[0, n, m]), [expected], "{}", compiled.text);
    }
    // Both counters and the sum are set once each; nothing else is copied.
    assert_eq!(count(&compiled, "mov.b32"), 3, "{}", compiled.text);
}

#[test]
fn branches_hand_over_and_while_loops_pass_on() {
    let text = "func @k (%g: ptr<global>, %a: u32, %b: u32) {
        %o = const value(1) : u32
        %z = const value(0) : u32
        %x, %y, %rounds = while %a, %b, %z : u32, u32, u32 test {
          (%p: u32, %q: u32, %k: u32)
          %go = cmp %q, %z cmp(ne) : bool
          condition %go, %p, %q, %k
        } do {
          (%p2: u32, %q2: u32, %k2: u32)
          %r = rem %p2, %q2 : u32
          %k3 = add %k2, %o : u32
          yield %q2, %r, %k3
        }
        %big = cmp %x, %o cmp(gt) : bool
        %u, %v = if %big : u32, u32 then {
          %d = add %x, %x : u32
          yield %d, %rounds
        } else {
          yield %rounds, %x
        }
        store %g, %x
        store %g, %u
        store %g, %v
      }";
    let compiled = build(text);
    assert_eq!(run(&compiled, &[0, 48, 36]), [12, 24, 2], "{}", compiled.text);
    assert_eq!(run(&compiled, &[0, 17, 5]), [1, 3, 1], "{}", compiled.text);
    assert_eq!(run(&compiled, &[0, 9, 0]), [9, 18, 0], "{}", compiled.text);
}

#[test]
fn truth_values_are_carried_and_compared() {
    let text = "func @k (%g: ptr<global>, %n: u32, %p: bool, %q: bool) {
        %z = const value(0) : u32
        %o = const value(1) : u32
        %a, %b = for %z, %n, %o, %p, %q : bool, bool do {
          (%i: u32, %x: bool, %y: bool)
          yield %y, %x
        }
        %s = select %a, %o, %z : u32
        store %g, %s
        %le = cmp %a, %b cmp(le) : bool
        %t = select %le, %o, %z : u32
        store %g, %t
        %pick = select %p, %a, %b : bool
        %w = select %pick, %o, %z : u32
        store %g, %w
      }";
    let compiled = build(text);
    for (n, p, q) in [(0_u64, 1_u64, 0_u64), (1, 1, 0), (2, 0, 1), (3, 0, 1), (1, 1, 1)] {
        let (a, b) = if n % 2 == 0 { (p, q) } else { (q, p) };
        let expected = [a, u64::from(a <= b), if p == 1 { a } else { b }];
        assert_eq!(run(&compiled, &[0, n, p, q]), expected, "{}", compiled.text);
    }
}

#[test]
fn small_arms_run_under_a_guard() {
    let text = |arm: &str| {
        format!(
            "func @k (%g: ptr<global>, %c: bool, %n: u32) {{\nif %c then {{\n{arm}\n}} else {{\n}}\nif %c then {{\n}} else {{\n{arm}\n}}\n}}"
        )
    };
    let one = build(&text("store %g, %n"));
    assert_eq!(
        (count(&one, "bra"), count(&one, "@%p0 st"), count(&one, "@!%p0 st")),
        (0, 1, 1),
        "{}",
        one.text
    );
    let four = build(&text("store %g, %n\nstore %g, %n\nstore %g, %n\nstore %g, %n"));
    assert_eq!(count(&four, "bra"), 2, "{}", four.text);
    let offset = build(
        "func @k (%g: ptr<global>, %c: bool, %n: u32) {\nif %c then {\n%e = const value(8) : u64\n%p = ptr_add %g, %e : ptr<global>\nstore %p, %n\n} else {\n}\n}",
    );
    assert!(offset.text.contains("@%p0 st.global.b32 [%q0+8], %r0;"), "{}", offset.text);
    let store_if = build("func @k (%g: ptr<global>, %c: bool, %n: u32) {\nstore_if %g, %n, %c\n}");
    assert!(store_if.text.contains("@%p0 st.global.b32 [%q0], %r0;"), "{}", store_if.text);
}

#[test]
fn constants_and_offsets_are_folded() {
    let compiled = build(
        "func @k (%g: ptr<global>, %n: u32, %f: f32) {
          %a = const value(5) : u32
          %b = const value(1.5) : f32
          %o = const value(-16) : i64
          %x = add %n, %a : u32
          %y = fma %f, %b, %b : f32
          %p = ptr_add %g, %o : ptr<global>
          %q = ptr_add %p, %o : ptr<global>
          store %q, %x
          store %p, %y
          store %g, %b
        }",
    );
    for line in [
        "add.u32 %r2, %r0, 5;",
        "fma.rn.f32 %r3, %r1, 0f3FC00000, 0f3FC00000;",
        "[%q0+-32], %r2;",
        "[%q0+-16], %r3;",
    ] {
        assert!(compiled.text.replace("%q0-", "%q0+-").contains(line), "{line}\n{}", compiled.text);
    }
    assert_eq!(count(&compiled, "mov"), 0, "{}", compiled.text);
}

/// A pipeline of multiplications on two accumulators, carried through a loop, with roles and register budgets.
const PIPELINE: &str = "func @k threads(384,1,1) (%g: ptr<global>, %n: u32) {
    %z = const value(0) : u32
    %o = const value(1) : u32
    %tile = shared bytes(65536) align(1024) : ptr<shared>
    %bar = shared bytes(64) align(8) : ptr<shared>
    role text(\"load\") warps(0..4) registers(24) do {
      for %z, %n, %o do {
        (%j: u32)
        mbar_wait %bar, %z
      }
    }
    role text(\"multiply\") warps(4..12) registers(240) do {
      %no = const value(0) : bool
      %yes = const value(1) : bool
      %acc = accumulator : acc<64xf32>
      %d = descriptor %tile bits(4611686293305294848) : u64
      %last = for %z, %n, %o, %no : bool do {
        (%i: u32, %add: bool)
        wgmma_fence
        wgmma %acc, %d, %d, %add mma(m64n128k16.f32.bf16.bf16)
        wgmma %acc, %d, %d, %yes mma(m64n128k16.f32.bf16.bf16)
        wgmma_commit
        wgmma_wait count(1)
        yield %yes
      }
      wgmma_wait count(0)
      %r = acc_read %acc : 64xf32
      %h = cvt %r : 64xbf16
      store %g, %h
    }
  }";

#[test]
fn accumulators_stay_where_they_are() {
    let compiled = build(PIPELINE);
    let text = &compiled.text;
    assert_eq!(count(&compiled, "mov.b32 %r"), 2, "only the counters are moved\n{text}");
    let lists: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("wgmma.mma_async"))
        .map(|line| line.split('{').nth(1).unwrap().split('}').next().unwrap())
        .collect();
    assert_eq!(lists.len(), 2);
    assert_eq!(lists[0], lists[1]);
    assert!(text.contains("%p") && text.contains(", 1, 1, 1, 0, 0;"), "{text}");
    let first = lists[0].split(',').next().unwrap();
    let converted = text.lines().find(|line| line.contains("cvt.rn.bf16x2.f32")).unwrap();
    assert!(converted.ends_with(&format!("{first};")), "{converted} reads {first}");
}

#[test]
fn what_is_read_from_an_accumulator_is_copied_only_if_it_changes_meanwhile() {
    let text = |tail: &str| {
        format!(
            "func @k threads(128,1,1) (%g: ptr<global>, %d: u64) {{
               %no = const value(0) : bool
               %acc = accumulator : acc<4xf32>
               wgmma %acc, %d, %d, %no mma(m64n8k16.f32.bf16.bf16)
               %r = acc_read %acc : 4xf32
               {tail}
             }}"
        )
    };
    let before = build(&text("store %g, %r\nwgmma %acc, %d, %d, %no mma(m64n8k16.f32.bf16.bf16)"));
    assert_eq!(count(&before, "mov"), 0, "{}", before.text);
    let after = build(&text("wgmma %acc, %d, %d, %no mma(m64n8k16.f32.bf16.bf16)\nstore %g, %r"));
    assert_eq!(count(&after, "mov"), 4, "{}", after.text);
    let inside = build(&text(
        "%z = const value(0) : u32\n%n = const value(4) : u32\n%o = const value(1) : u32\nfor %z, %n, %o do {\n(%i: u32)\nstore %g, %r\nwgmma %acc, %d, %d, %no mma(m64n8k16.f32.bf16.bf16)\n}",
    ));
    assert_eq!(count(&inside, "mov.b32"), 4 + 1, "the next round reads again\n{}", inside.text);
    let part = build(&text(
        "%s = slice %r index(1) : 2xf32\nwgmma %acc, %d, %d, %no mma(m64n8k16.f32.bf16.bf16)\nstore %g, %s",
    ));
    assert_eq!(count(&part, "mov"), 4, "{}", part.text);
}

#[test]
fn roles_divide_the_block_and_its_registers() {
    let compiled = build(PIPELINE);
    for line in [
        ".reqntid 384, 1, 1",
        ".minnctapersm 1",
        "setmaxnreg.dec.sync.aligned.u32 24;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
    ] {
        assert!(compiled.text.contains(line), "{line}\n{}", compiled.text);
    }
    assert_eq!(
        count(&compiled, "setp.ge.u32 %p0, "),
        1,
        "the last role takes what is left\n{}",
        compiled.text
    );
    assert_eq!(compiled.shared.dynamic, 65536 + 64);
    // 384 threads start with 168 registers each: asking for as many takes no instruction.
    let same = build(
        &PIPELINE.replace("registers(24)", "registers(168)").replace("registers(240)", "registers(168)"),
    );
    assert_eq!(count(&same, "setmaxnreg"), 0, "{}", same.text);
    let open = parse(&PIPELINE.replace("threads(384,1,1)", "")).unwrap();
    let error = compile(&open.funcs[0], &Options::new(Arch::SM_90A)).unwrap_err().to_string();
    assert!(
        error.contains("`role` with registers(...) needs a kernel with a fixed number of threads"),
        "{error}"
    );
}

#[test]
fn shared_memory_is_laid_out_by_alignment() {
    let text = |bytes: u32| {
        format!(
            "func @k (%g: ptr<global>) {{\n%a = shared bytes(8) align(8) : ptr<shared>\n%b = shared bytes({bytes}) align(1024) : ptr<shared>\n%c = shared bytes(4) align(4) : ptr<shared>\n%x = load %a : u32\nstore %b, %x\nstore %c, %x\n}}"
        )
    };
    let small = build(&text(2048));
    assert_eq!((small.shared.fixed, small.shared.dynamic, small.shared.align), (2060, 0, 1024));
    for line in [".shared .align 1024 .b8 smem[2060];", "[%r0+2048]", "st.shared.b32 [%r0], ", "[%r0+2056]"] {
        assert!(small.text.contains(line), "{line}\n{}", small.text);
    }
    let large = build(&text(100_000));
    assert_eq!((large.shared.fixed, large.shared.dynamic), (0, 100_012));
    assert!(large.text.contains(".extern .shared .align 1024 .b8 smem[];"), "{}", large.text);
    let error = refused(&text(300_000)).to_string();
    assert!(error.contains("232448 bytes of sm_90a"), "{error}");
}

#[test]
fn the_signature_is_how_parameters_lie_in_memory() {
    let compiled = build(
        "func @k (%a: u8, %p: ptr<global> align(16), %b: bool, %h: bf16, %v: 4xf32, %map: tensor_map, %n: i64) {\n}",
    );
    let places: Vec<(u32, u32, u32)> =
        compiled.signature.iter().map(|p| (p.offset, p.bytes, p.align)).collect();
    assert_eq!(
        places,
        [(0, 1, 1), (8, 8, 8), (16, 1, 1), (18, 2, 2), (32, 16, 16), (64, 128, 64), (192, 8, 8)]
    );
    assert!(compiled.text.contains(".param .u64 .ptr .global .align 16 p,"), "{}", compiled.text);
    assert_eq!(count(&compiled, "ld.param"), 0, "nothing is loaded that is not used");
}

#[test]
fn lines_lead_back_to_the_source() {
    let text = "func @k (%g: ptr<global>, %n: u32) {\n  %a = add %n, %n : u32 loc(\"src/lib.rs\":3:5)\n  store %g, %a loc(\"src/lib.rs\":4:9)\n}";
    let module = parse(text).unwrap();
    let options = Options { line_info: true, ..Options::new(Arch::SM_80) };
    let compiled = compile(&module.funcs[0], &options).unwrap();
    for line in [".file 1 \"src/lib.rs\"", ".loc 1 3 5", ".loc 1 4 9"] {
        assert!(compiled.text.contains(line), "{line}\n{}", compiled.text);
    }
    let line = compiled.text.lines().position(|line| line.contains("st.global")).unwrap() + 1;
    let origin = compiled.origin(u32::try_from(line).unwrap()).unwrap();
    assert_eq!(module.funcs[0].locations.get(origin.loc).unwrap().line, 4);
    assert!(compiled.origin(1).is_none());
}

#[test]
fn version_and_target_are_the_lowest_unless_asked() {
    let text = "func @k (%g: ptr<global>, %n: u32) {\nstore %g, %n\n}";
    let module = parse(text).unwrap();
    let plain = compile(&module.funcs[0], &Options::new(Arch::SM_90A)).unwrap();
    let exact =
        compile(&module.funcs[0], &Options { exact_target: true, ..Options::new(Arch::SM_90A) }).unwrap();
    assert!(
        !plain.text.contains("sm_90") && exact.text.contains(".version 8.0\n.target sm_90a\n"),
        "{}\n{}",
        plain.text,
        exact.text
    );
    let error = parse("func @k () {\n  bulk_commit loc(\"src/lib.rs\":7:3)\n}")
        .map(|m| compile(&m.funcs[0], &Options::new(Arch::SM_80)))
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "src/lib.rs:7:3: `cp.async.bulk.commit_group;` needs sm_90, the kernel is compiled for sm_80; compile for sm_90 or avoid the operation"
    );
}

#[test]
fn notes_are_labels() {
    let compiled =
        build("func @k (%n: u32, %c: bool) {\ntrace %n text(\"n = {}\")\nassert %c text(\"in range\")\n}");
    let notes: Vec<Note> =
        compiled.text.lines().filter_map(|line| Note::from_label(line.trim().strip_suffix(':')?)).collect();
    assert_eq!(notes.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), ["n = {}", "in range"]);
    assert_eq!(notes[0].values[0].1, ["%r0"]);
    assert!(compiled.text.contains("@!%p0 trap;"), "{}", compiled.text);
}

#[test]
fn errors_say_what_to_do() {
    let cases = [
        ("func @k (%x: f64) {\n%a = ex2 %x : f64\n}", "`ex2` has no approximation for f64; convert to f32"),
        ("func @k () {\ncall text(\"f\")\n}", "inline calls first"),
        ("func @k (%x: u64) {\n%a = mul_wide %x, %x : 2xu64\n}", "use mul and mul_hi"),
        (
            "func @k (%x: e4m3) {\n%a = cmp %x, %x cmp(eq) : bool\n}",
            "`cmp` does not compare e4m3; convert to f32 first",
        ),
        ("func @k (%g: ptr<global>, %x: i8) {\nreduce %g, %x op(add)\n}", "op(add) does not exist for i8"),
        ("func @k (%g: ptr<global>, %x: i8) {\nstore %g, %x order(acquire)\n}", "cannot have order(acquire)"),
        ("func @k (%g: ptr<global>) {\n%a = cast_space %g : ptr<shared>\n}", "from global to shared"),
        (
            "func @k () {\n%z = const value(0) : u32\n%a = accumulator : acc<4xf32>\n%r = for %z, %z, %z, %a : acc<4xf32> do {\n(%i: u32, %b: acc<4xf32>)\nyield %b\n}\n}",
            "cannot carry an accumulator; make it outside and use it inside",
        ),
        (
            "func @k () -> u32 {\n%a = const value(1) : u32\nreturn %a\n}",
            "returns values, so it is no kernel",
        ),
    ];
    for (text, expected) in cases {
        let Ok(module) = parse(text) else { panic!("{:?}\n{text}", parse(text)) };
        let error = compile(&module.funcs[0], &Options::new(Arch::SM_90A)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn kernels_that_wait_for_those_before_them_may_start_early() {
    let body = "func @k (%g: ptr<global>) {
        grid_launch
        grid_wait
        %x = load %g : u32
        store %g, %x
    }";
    let hopper = build(body);
    assert!(hopper.overlaps && count(&hopper, "griddepcontrol.wait") == 1);
    // Older chips have no such instruction, and start nothing early.
    let ampere = build_for(Arch::SM_80, body);
    assert!(!ampere.overlaps && count(&ampere, "griddepcontrol") == 0);
    // A wait that only some threads come to says nothing about the others.
    let some = "func @k (%c: bool) {
        if %c then {
          grid_wait
          yield
        } else {
          yield
        }
    }";
    assert!(!build(some).overlaps);
}

#[test]
fn global_memory_belongs_to_the_kernels_before_until_they_are_waited_for() {
    let early = |before: &str| {
        let text =
            format!("func @k (%g: ptr<global>, %s: ptr<shared>, %c: bool) {{\n{before}\ngrid_wait\n}}");
        let module = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verify(&module).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(early("%x = load %s : u32\nstore %s, %x"), [""; 0]);
    for (before, op) in [
        ("%x = load %g : u32", "load"),
        ("if %c then {\n%x = load %g : u32\nyield\n} else {\nyield\n}", "load"),
        ("cp_async %s, %g bytes(16)", "cp_async"),
    ] {
        let problems = early(before);
        assert!(
            problems.len() == 1
                && problems[0].contains(&format!("`{op}` reaches global memory before `grid_wait`")),
            "{before}: {problems:?}"
        );
    }
}
