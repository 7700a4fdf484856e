//! The standard pipeline on an unrolled kernel of about 3000 ops: the budget is about 1 ms.
#![allow(missing_docs, reason = "criterion's macros make functions without documentation")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tilewright_ir::{Module, parse};
use tilewright_passes::{Options, Pass, Pipeline};

/// A loop with `copies` unrolled rounds of what kernels do: addresses, guarded loads, arithmetic, stores.
fn kernel(copies: u32) -> Module {
    let mut text = String::from(
        "func @k threads(256,1,1) (%x: ptr<global> align(16), %y: ptr<global> align(16), %n: u32, %a: f32) {
  %tid = special reg(tid.x) : u32
  %zero = const value(0) : u32
  %step = const value(4) : u32
  %init = const value(0.0) : f32
  %sum = for %zero, %n, %step, %init : f32 do {
    (%i: u32, %s0: f32)
",
    );
    for c in 0..copies {
        let d = c + 1;
        let _ = write!(
            text,
            "    %four{c} = const value(4) : u32
    %scaled{c} = mul %tid, %four{c} : u32
    %index{c} = add %scaled{c}, %i : u32
    %offset{c} = mul_wide %index{c}, %four{c} : u64
    %base{c} = ptr_add %x, %offset{c} : ptr<global>
    %shift{c} = const value({}) : u64
    %p{c} = ptr_add %base{c}, %shift{c} : ptr<global>
    %v{c} = load %p{c} : f32
    %w{c} = mul %v{c}, %a : f32
    %t{c} = fma %w{c}, %v{c}, %s{c} : f32
    %ok{c} = cmp %index{c}, %n cmp(lt) : bool
    %ten{c} = const value(10) : u32
    %q{c} = div %index{c}, %ten{c} : u32
    %s{d} = if %ok{c} : f32 then {{
      yield %t{c}
    }} else {{
      yield %s{c}
    }}
    %to{c} = mul_wide %q{c}, %four{c} : u64
    %out{c} = ptr_add %y, %to{c} : ptr<global>
    store %out{c}, %s{d}
",
            4 * (c % 16)
        );
    }
    let _ = write!(text, "    yield %s{copies}\n  }}\n  store %y, %sum\n}}\n");
    parse(&text).unwrap_or_default()
}

fn pipeline(c: &mut Criterion) {
    let module = kernel(150);
    let ops = module.funcs.first().map_or(0, |func| func.walk().len());
    let options = Options { verify: false, dump: false };
    let mut run = |name: &str, pipeline: Pipeline| {
        c.bench_function(&format!("{name} ({ops} ops)"), |b| {
            b.iter_batched_ref(
                || module.clone(),
                |module| black_box(pipeline.run(module)),
                BatchSize::LargeInput,
            );
        });
    };
    run("standard", Pipeline::standard().with(options));
    for pass in Pass::ALL {
        run(pass.name(), Pipeline::of(&[pass]).with(options));
    }
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
