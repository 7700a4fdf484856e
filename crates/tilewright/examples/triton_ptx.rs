//! A kernel that Triton compiled ahead of time, in a Rust program without Python: on the GPU if there is one, else on this computer.
//!
//! `triton/kernel.py` made the PTX and what a launch must know of it. `cargo run --example triton_ptx`

use std::error::Error;

use serde::Deserialize;
use tilewright::device::{Buffer, Device, Kernel};

const PTX: &str = include_str!("triton/softmax.ptx");
const FACTS: &str = include_str!("triton/softmax.json");

/// What Triton's metadata says of a kernel.
#[derive(Deserialize)]
struct Facts {
    name: String,
    num_warps: u32,
    /// Bytes of shared memory that a launch asks for.
    shared: u32,
    /// Bytes for each block that the hidden parameters lead to.
    global_scratch_size: usize,
    profile_scratch_size: usize,
    /// The constant `BLOCK`: columns that a program takes at most.
    block: usize,
}

/// Softmax of rows, by Triton's kernel.
pub struct Softmax {
    kernel: Kernel,
    widest: usize,
}

impl Softmax {
    /// Loads it.
    ///
    /// # Errors
    /// If the device does not take the PTX, or the kernel needs scratch memory.
    pub fn load(device: &Device) -> Result<Softmax, Box<dyn Error>> {
        let facts: Facts = serde_json::from_str(FACTS)?;
        // The kernel has two parameters more than its author wrote. Without scratch memory its code does not look at them, so that launches
        // need not give them. A kernel with scratch memory gets a buffer of so many bytes for each block of the grid.
        if facts.global_scratch_size + facts.profile_scratch_size > 0 {
            return Err("scratch memory, which this kernel had not when it was compiled".into());
        }
        let kernel = device.load(PTX)?.kernel(&facts.name)?;
        let kernel = kernel.with_block(32 * facts.num_warps).with_shared(facts.shared);
        Ok(Softmax { kernel, widest: facts.block })
    }

    /// Computes the softmax of `scale * x`, rows of so many columns.
    ///
    /// # Errors
    /// If a row is longer than a program takes, or there are not as many elements as that.
    pub fn run(
        &self,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
        scale: f32,
        columns: usize,
    ) -> Result<(), Box<dyn Error>> {
        if columns == 0 || columns > self.widest || x.len() != out.len() || !x.len().is_multiple_of(columns) {
            let found = format!("{} and {} elements in rows of {columns}", x.len(), out.len());
            return Err(
                format!("found {found}, expected as many of each, in rows of 1 to {}", self.widest).into()
            );
        }
        let rows = u32::try_from(x.len() / columns)?;
        // One argument for each parameter that its author wrote, checked against what the PTX says.
        self.kernel.launch(rows, &[x, out, &scale, &u32::try_from(columns)?])?.expect_clean()?;
        Ok(())
    }
}

/// Runs it on some numbers and holds the results against exact ones; returns the largest difference.
///
/// # Errors
/// If a device fails.
pub fn compare(device: &Device) -> Result<f64, Box<dyn Error>> {
    let (rows, columns, scale) = (6, 781, 0.5);
    let numbers: Vec<f32> = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 16.0).collect();
    let x = device.upload(&numbers)?;
    let out = device.alloc::<f32>(numbers.len())?;
    Softmax::load(device)?.run(&x, &out, scale, columns)?;
    let exact = numbers.chunks(columns).flat_map(|row| {
        let powers = row.iter().map(|x| f64::from(x * scale).exp());
        let sum: f64 = powers.clone().sum();
        powers.map(move |power| power / sum)
    });
    Ok(out.to_vec()?.iter().zip(exact).map(|(y, exact)| (f64::from(*y) - exact).abs()).fold(0.0, f64::max))
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::best();
    let difference = compare(&device)?;
    println!("Triton's softmax on {}: at most {difference:.1e} from the exact results", device.name());
    if difference > 1e-7 { Err("that is too much".into()) } else { Ok(()) }
}
