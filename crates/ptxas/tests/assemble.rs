//! The real assembler, where there is one. Ignored, visibly, where there is none; `TILEWRIGHT_REQUIRE_PTXAS=1` makes
//! that a failure.

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_ptxas::{Assembler, AssemblerError, REQUIRE_VARIABLE};

const DOUBLE: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry double_it(.param .u64 data) {
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  .reg .f32 %f<3>;
  ld.param.u64 %rd1, [data];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
  ld.global.f32 %f1, [%rd2];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd2], %f2;
  ret;
}
";

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let trials = [
        Trial::test("a_kernel_assembles_for_every_architecture", a_kernel_assembles_for_every_architecture),
        Trial::test("wrong_ptx_is_refused_with_its_line", wrong_ptx_is_refused_with_its_line),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn a_kernel_assembles_for_every_architecture() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    for arch in ["sm_80", "sm_89", "sm_90a"] {
        let report = assembler.assemble(DOUBLE, arch)?;
        let [entry] = &report.entries[..] else { return Err(format!("{:?}", report.entries).into()) };
        if entry.name != "double_it" || entry.registers == 0 || entry.spill_store_bytes != 0 {
            return Err(format!("{entry:?}").into());
        }
        if !report.cubin.starts_with(b"\x7fELF") {
            return Err("the cubin is not an ELF file".into());
        }
    }
    Ok(())
}

fn wrong_ptx_is_refused_with_its_line() -> Result<(), Failed> {
    match Assembler::find()?.assemble(&DOUBLE.replace("add.f32", "add.f33"), "sm_90a") {
        Err(AssemblerError::Refused { message, .. }) if message.contains("kernel.ptx, line 14") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
