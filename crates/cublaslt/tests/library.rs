//! The real library, where there is one; it describes products without a GPU. Ignored, visibly, where there is none.

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cublaslt::{Activation, Compute, Description, Library, Matrix, Order, Scaling};
use tilewright_hardware::Element;

fn main() {
    let ignored = Library::load().is_err();
    let trials = [
        Trial::test("every_type_is_described", every_type_is_described),
        Trial::test("every_attribute_is_known", every_attribute_is_known),
        Trial::test("the_version_is_one_that_is_supported", the_version_is_one_that_is_supported),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn product(factors: Element, result: Element, compute: Compute) -> Description {
    let matrix = |element, rows, columns| Matrix::dense(element, rows, columns);
    Description::new(matrix(factors, 64, 32), matrix(factors, 64, 16), matrix(result, 32, 16), compute)
        .transpose_a()
}

fn every_type_is_described() -> Result<(), Failed> {
    let library = Library::load()?;
    for (factors, result, compute) in [
        (Element::BF16, Element::BF16, Compute::F32),
        (Element::F16, Element::F16, Compute::F32),
        (Element::TF32, Element::F32, Compute::Tf32),
        (Element::F32, Element::F32, Compute::F32),
        (Element::F64, Element::F64, Compute::F64),
        (Element::I8, Element::I32, Compute::I32),
        (Element::E4M3, Element::BF16, Compute::F32),
        (Element::E5M2, Element::BF16, Compute::F32),
        (Element::E4M3, Element::E4M3, Compute::F32),
    ] {
        library.describe(&product(factors, result, compute))?;
    }
    Ok(())
}

fn every_attribute_is_known() -> Result<(), Failed> {
    let library = Library::load()?;
    let plain = product(Element::E4M3, Element::BF16, Compute::F32);
    for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
        for scaling in [Scaling::Tensor, Scaling::OuterVector] {
            library.describe(&Description {
                bias: true,
                activation,
                scale_a: Some(scaling),
                scale_b: Some(scaling),
                scale_d: true,
                fast_accumulation: true,
                batch: 3,
                ..plain.clone()
            })?;
        }
    }
    let rows = Matrix { order: Order::Rows, leading: 16, ..plain.d };
    library.describe(&Description { c: rows, d: rows, ..plain })?;
    Ok(())
}

fn the_version_is_one_that_is_supported() -> Result<(), Failed> {
    let version = Library::load()?.version();
    if version.starts_with("12.") || version.starts_with("13.") { Ok(()) } else { Err(version.into()) }
}
