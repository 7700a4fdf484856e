//! The table of tensor-core instructions against the real assembler: every row is accepted on the architecture and the
//! PTX version that it names, and refused on older ones. Ignored, visibly, where there is no assembler.

use std::collections::BTreeMap;
use std::fmt::Write;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_hardware::{Arch, Element, Group, Mma, Operand, mma};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let trials = [
        Trial::test("every_row_assembles_where_it_says", every_row_assembles_where_it_says),
        Trial::test("older_chips_and_versions_refuse", older_chips_and_versions_refuse),
        Trial::test("wgmma_has_no_other_columns", wgmma_has_no_other_columns),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn name(element: Element) -> String {
    // PTX calls signed integers s, not i.
    element.name().replacen('i', "s", 1)
}

/// `{prefix0,prefix1,...}` and the declaration of those registers.
fn registers(text: &mut String, mma: &Mma, operand: Operand, prefix: &str) -> String {
    let element = mma.element(operand);
    let wide = if element == Element::F64 { 2 } else { 1 };
    let class = match element {
        Element::F64 => "f64",
        Element::F32 => "f32",
        _ => "b32",
    };
    let count = mma.registers(operand).unwrap_or(0) / wide;
    let _ = writeln!(text, ".reg .{class} {prefix}<{count}>;");
    let list: Vec<String> = (0..count).map(|i| format!("{prefix}{i}")).collect();
    format!("{{{}}}", list.join(","))
}

/// The instruction in a scope of its own.
fn instruction(mma: &Mma, columns: u32) -> String {
    let mut text = String::from("{\n");
    let (a, b, c) = (name(mma.a), name(mma.b), name(mma.c));
    let d = registers(&mut text, mma, Operand::C, "%d");
    let fragment = registers(&mut text, mma, Operand::A, "%a");
    let (m, k) = (mma.shape.m, mma.shape.k);
    match mma.group {
        Group::Warp => {
            let right = registers(&mut text, mma, Operand::B, "%b");
            let _ = writeln!(
                text,
                "mma.sync.aligned.m{m}n{columns}k{k}.row.col.{c}.{a}.{b}.{c} {d}, {fragment}, {right}, {d};"
            );
        }
        _ => {
            let scales = if mma.a.is_int() { "" } else { ", 1, 1" };
            for (left, shared) in [("%x", true), (fragment.as_str(), false)] {
                let transpose = match (mma.transposable(Operand::B), shared) {
                    (false, _) => "",
                    (true, true) => ", 1, 1",
                    (true, false) => ", 1",
                };
                let _ = writeln!(
                    text,
                    "wgmma.mma_async.sync.aligned.m{m}n{columns}k{k}.{c}.{a}.{b} {d}, {left}, %x, 1{scales}{transpose};"
                );
            }
        }
    }
    text + "}\n"
}

fn module(body: &str, arch: Arch, (major, minor): (u32, u32)) -> String {
    format!(
        ".version {major}.{minor}\n.target {arch}\n.address_size 64\n.visible .entry k() {{\n.reg .b64 %x;\n{body}ret;\n}}\n"
    )
}

fn accepted(assembler: &Assembler, body: &str, arch: Arch, ptx: (u32, u32)) -> Result<(), Failed> {
    match assembler.assemble(&module(body, arch, ptx), &arch.to_string()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{arch}, PTX {ptx:?}: {error}\n{body}").into()),
    }
}

fn every_row_assembles_where_it_says() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let mut modules: BTreeMap<(Arch, (u32, u32)), String> = BTreeMap::new();
    for mma in mma::all() {
        // A sample of the columns of wgmma: the narrow ones, where integers differ, and the widest.
        if mma.group == Group::Warp || matches!(mma.shape.n, 8 | 24 | 32 | 48 | 136 | 144 | 256) {
            modules.entry((mma.needs, mma.ptx)).or_default().push_str(&instruction(mma, mma.shape.n));
        }
    }
    modules.iter().try_for_each(|((arch, ptx), body)| accepted(&assembler, body, *arch, *ptx))
}

fn older_chips_and_versions_refuse() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    for mma in mma::all().filter(|mma| mma.shape.n == 8) {
        let body = instruction(mma, 8);
        let older_arch = match mma.needs {
            Arch::SM_90A => Some(Arch::SM_90),
            Arch::SM_90 => Some(Arch::SM_89),
            Arch::SM_89 => Some(Arch::SM_86),
            _ => None,
        };
        if older_arch.is_some_and(|arch| accepted(&assembler, &body, arch, (8, 8)).is_ok()) {
            return Err(format!("{mma} needs {}, but an older chip takes it", mma.needs).into());
        }
        // The version that a chip itself needs is not the instruction's: use one that has it for certain.
        let arch = if mma.group == Group::Warpgroup { mma.needs } else { Arch::SM_90 };
        let older_version = match mma.ptx {
            (8, 7) => Some((8, 6)),
            (8, 4) => Some((8, 3)),
            _ => None,
        };
        if older_version.is_some_and(|ptx| accepted(&assembler, &body, arch, ptx).is_ok()) {
            return Err(format!("{mma} needs PTX {:?}, but an older one has it", mma.ptx).into());
        }
    }
    Ok(())
}

fn wgmma_has_no_other_columns() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let all: Vec<&Mma> = mma::all().filter(|mma| mma.group == Group::Warpgroup).collect();
    for (element, columns) in [(Element::BF16, 12), (Element::I8, 40), (Element::I8, 56), (Element::E4M3, 4)]
    {
        let Some(like) = all.iter().find(|mma| mma.a == element && mma.shape.n > columns) else {
            return Err(format!("no wgmma of {element} has more than {columns} columns").into());
        };
        // As many registers as that many columns would take.
        let body = instruction(like, columns);
        let (keep, drop) = (columns / 2, like.shape.n / 2);
        let surplus: String = (keep..drop).map(|i| format!(",%d{i}")).collect();
        let text = module(&body.replace(&surplus, ""), like.needs, (8, 4));
        match assembler.assemble(&text, &like.needs.to_string()) {
            Err(error) if error.to_string().contains(&format!("m64n{columns}k")) => {}
            other => {
                return Err(format!("{element} with {columns} columns, expected a refusal: {other:?}").into());
            }
        }
    }
    Ok(())
}
