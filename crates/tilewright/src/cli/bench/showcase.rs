//! The handful of products that the program's main job shows: measured beside cuBLASLt and checked, as `bench gemm --check` does it.

use std::io::Write;

use serde::Serialize;
use tilewright::device::{Device, DeviceKind};
use tilewright::hardware::Element;

use super::super::product::Case;
use super::super::shape::Shape;
use super::super::{Failure, table};
use super::gemm::{Options, head, measure};
use super::results::{Results, Row};
use super::statistics::geometric_mean;

/// A product: its extents, the type of its factors, and what happens to the sums. B has k contiguous, as weights do.
type Shown = (&'static str, Element, &'static str);

/// On a GPU: squares from small to large, a layer with its activation, and one that generates a token for each of 16 users.
const ON_GPU: [Shown; 5] = [
    ("1024x1024x1024", Element::BF16, "none"),
    ("4096x4096x4096", Element::BF16, "none"),
    ("8192x8192x8192", Element::BF16, "none"),
    ("4096x4096x4096", Element::BF16, "bias+gelu"),
    ("16x8192x8192", Element::BF16, "none"),
];

/// On a processor: the same kinds, as large as can be waited for.
const ON_CPU: [Shown; 5] = [
    ("256x256x256", Element::BF16, "none"),
    ("512x512x512", Element::BF16, "none"),
    ("1024x1024x1024", Element::BF16, "none"),
    ("1024x1024x1024", Element::F32, "bias+gelu"),
    ("16x2048x2048", Element::BF16, "none"),
];

/// What came of them.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Showcase {
    #[serde(flatten)]
    results: Results,
}

impl Showcase {
    /// Measures and checks. What goes wrong with a product is in its row.
    pub(in crate::cli) fn measure(device: &Device) -> Result<Showcase, Failure> {
        let (shown, rounds) = if device.kind() == DeviceKind::Cuda { (ON_GPU, 15) } else { (ON_CPU, 5) };
        let options = Options::checked(rounds);
        let library = options.library(device)?;
        let mut results = head(device, library);
        for (shape, element, finish) in shown {
            let case = Case {
                shape: affordable(device, shape.parse().map_err(Failure::Input)?),
                element,
                layout: "tn".parse().map_err(Failure::Input)?,
                finish: finish.parse().map_err(Failure::Input)?,
            };
            results.entries.push(measure(&options, device, library, &case));
        }
        results.complete = true;
        Ok(Showcase { results })
    }

    /// Elements that were held against sums in f64.
    pub(in crate::cli) fn compared(&self) -> u64 {
        self.results.entries.iter().filter_map(|row| row.compared).map(|compared| compared as u64).sum()
    }

    /// The first product that failed, in words.
    pub(in crate::cli) fn failure(&self) -> Option<String> {
        let failed = self.results.entries.iter().find_map(|row| Some((row, row.failure.as_ref()?)));
        failed.map(|(row, failure)| format!("the product {} {}: {failure}", row.shape, row.dtype))
    }

    /// The table.
    pub(in crate::cli) fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let peer = self.results.cublaslt.is_some();
        // A processor is slower than a GPU by three digits.
        let slow = self.results.entries.iter().filter_map(|row| row.tflops).all(|rate| rate < 10.0);
        let (unit, factor) = if slow { ("GFLOP/s", 1e3) } else { ("TFLOP/s", 1.0) };
        let mut header = vec!["m x n x k", "type", "epilogue", "us", unit];
        if peer {
            header.extend(["cuBLASLt us", "ratio"]);
        }
        header.extend(["compared", "error", "by"]);
        let mut shown = table(&header);
        for row in &self.results.entries {
            shown.add_row(cells(row, factor, peer));
        }
        writeln!(out, "{shown}")?;
        if let Some(mean) = geometric_mean(self.results.entries.iter().filter_map(|row| row.ratio)) {
            let version = self.results.cublaslt.as_deref().unwrap_or_default();
            writeln!(
                out,
                "ratio: time of cuBLASLt {version} over ours, above 1 ours is faster; geometric mean {mean:.3}"
            )?;
        }
        writeln!(
            out,
            "error: the largest difference from sums in f64, as a part of what rounding explains; above 1 would be wrong"
        )?;
        Ok(())
    }
}

/// An unoptimised build multiplies a hundred times slower on a processor, and shows smaller products.
fn affordable(device: &Device, shape: Shape) -> Shape {
    if device.kind() == DeviceKind::Cuda || !cfg!(debug_assertions) {
        return shape;
    }
    let smaller = |extent: u32| if extent > 16 { extent / 8 } else { extent };
    Shape { m: smaller(shape.m), n: smaller(shape.n), k: smaller(shape.k), ..shape }
}

fn cells(row: &Row, factor: f64, peer: bool) -> Vec<String> {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let mut cells = vec![
        row.shape.to_string(),
        row.dtype.clone(),
        row.epilogue.clone(),
        number(row.ours_us, 1),
        number(row.tflops.map(|rate| rate * factor), 1),
    ];
    if peer {
        cells.extend([number(row.peer_us, 1), number(row.ratio, 3)]);
    }
    let failed = row.failure.as_ref().map(|failure| format!("failed: {failure}"));
    cells.extend([
        row.compared.map_or("-".to_owned(), |compared| compared.to_string()),
        number(row.error, 3),
        failed.or_else(|| row.algorithm.clone()).unwrap_or_default(),
    ]);
    cells
}
