//! `tilewright doctor`.

use std::io::Write;

use clap::Args;

use super::machine::{Gpu, Machine};
use super::{Failure, bytes, table};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let machine = Machine::look();
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &machine)?;
        return Ok(writeln!(out)?);
    }
    write(&machine, out)
}

fn write(machine: &Machine, out: &mut dyn Write) -> Result<(), Failure> {
    let driver = machine.driver.as_ref();
    let mut rows = vec![
        ("tilewright", machine.tilewright.to_string()),
        ("system", machine.system.clone()),
        ("processor", machine.processor.describe()),
        ("driver", driver.map_or("none".into(), |driver| format!("CUDA {}", driver.cuda))),
        (
            "PTX",
            driver
                .and_then(|driver| driver.ptx.clone())
                .map_or("none".into(), |ptx| format!("up to .version {ptx}")),
        ),
    ];
    rows.push((
        "GPUs",
        match machine.gpus.len() {
            0 => "none: work runs on the CPU".into(),
            count => count.to_string(),
        },
    ));
    rows.push((
        "assembler",
        machine
            .assembler
            .as_ref()
            .map_or("none".into(), |found| format!("ptxas {}, {}", found.version, found.path)),
    ));
    rows.push((
        "cache",
        machine.cache.as_ref().map_or("off".into(), |cache| {
            let (used, cap) = (bytes(cache.bytes), bytes(cache.cap_bytes));
            format!(
                "{}: {} kernels, {} files, {used} of at most {cap}",
                cache.path, cache.entries, cache.files
            )
        }),
    ));
    rows.push((
        "packs",
        match machine.assembler {
            Some(_) => "`compile --pack` writes PTX and machine code".into(),
            None => {
                "`compile --pack` writes PTX, which the driver compiles; machine code needs the assembler"
                    .into()
            }
        },
    ));
    let mut facts = table(&["part", "found"]);
    for (part, found) in rows {
        facts.add_row([part, &found]);
    }
    writeln!(out, "{facts}")?;
    if !machine.gpus.is_empty() {
        writeln!(out, "{}", gpus(&machine.gpus))?;
    }

    if machine.problems.is_empty() {
        return Ok(writeln!(out, "\nno problems")?);
    }
    writeln!(out)?;
    for problem in &machine.problems {
        writeln!(out, "{}: {}\n  remedy: {}", problem.part, problem.found, problem.remedy)?;
    }
    Ok(())
}

fn gpus(gpus: &[Gpu]) -> comfy_table::Table {
    let mut rows =
        table(&["GPU", "name", "compute", "SMs", "clock", "memory", "L2", "shared/block", "cubin"]);
    for gpu in gpus {
        rows.add_row([
            gpu.ordinal.to_string(),
            gpu.name.clone(),
            format!("{} {}", gpu.compute_capability, gpu.architecture),
            gpu.multiprocessors.to_string(),
            format!("{} MHz", gpu.clock_mhz),
            bytes(gpu.memory_bytes),
            bytes(gpu.l2_bytes),
            bytes(gpu.shared_bytes_per_block),
            gpu.cubin.clone(),
        ]);
    }
    rows
}
