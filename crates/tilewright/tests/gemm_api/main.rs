//! Matrix products by their public names, on every device of this machine: results, messages, caches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod epilogues;
mod plans;
mod products;
mod refusals;

use tilewright::device::{Device, DeviceKind, DynBuffer, Item, Options, available};
use tilewright::gemm::{Arguments, Error, Gemm, Planner, Workspace};
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::gemm::epilogue::{Epilogue, Expr, ExtraOperand, How, Shape};
use tilewright::kernels::gemm::{Algorithm, Placement, Storage, Types};
use tilewright::lang::{E4m3, E5m2, Tf32, bf16, f16};

/// Small whole numbers, exact in every type.
fn number(i: usize) -> f64 {
    f64::from(u32::try_from(i.wrapping_mul(2_654_435_761) >> 7 & 7).unwrap()) - 3.0
}

fn numbers<T>(len: usize, salt: usize, convert: impl Fn(f64) -> T) -> Vec<T> {
    (0..len).map(|i| convert(number(i + 1000 * salt))).collect()
}

/// Where an element lies.
fn at(storage: Storage, leading: usize, row: usize, column: usize) -> usize {
    match storage {
        Storage::RowMajor => row * leading + column,
        Storage::ColumnMajor => column * leading + row,
    }
}

/// Types that convert from and to f64.
trait Sample: Item + Default + std::fmt::Debug {
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! samples {
    ($($ty:ty, |$x:ident| $of:expr, |$y:ident| $value:expr;)*) => {$(
        impl Sample for $ty {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn of($x: f64) -> $ty { $of }
            fn value(self) -> f64 { let $y = self; $value }
        }
    )*};
}

samples! {
    f32, |x| x as f32, |y| f64::from(y);
    f64, |x| x, |y| y;
    f16, |x| f16::from_f64(x), |y| y.to_f64();
    bf16, |x| bf16::from_f64(x), |y| y.to_f64();
    Tf32, |x| Tf32(x as f32), |y| f64::from(y.0);
    i8, |x| x as i8, |y| f64::from(y);
    u8, |x| x.abs() as u8, |y| f64::from(y);
    i32, |x| x as i32, |y| f64::from(y);
}

/// What a product refuses, by its message.
fn refusal(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.expect_err("should be refused").to_string()
}
