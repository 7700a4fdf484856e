//! The runtime on a real GPU. Ignored, visibly, where there is none; `TILEWRIGHT_REQUIRE_GPU=1` makes that a failure.

mod driver;
mod foreign;
mod graph;
mod interop;
mod launch;
mod memory;
mod stream;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cuda::Driver;

fn main() {
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_GPU").is_some_and(|value| value == "1");
    let ignored = Driver::load().is_err() && !required;
    let trials: Vec<Trial> = [
        driver::trials(),
        foreign::trials(),
        graph::trials(),
        interop::trials(),
        launch::trials(),
        memory::trials(),
        stream::trials(),
    ]
    .into_iter()
    .flatten()
    .map(|trial| if ignored { trial.with_ignored_flag(true) } else { trial })
    .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Held by trials that change the cache of the context, which all share.
static CACHE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// An error with this text unless the condition holds.
fn ensure(condition: bool, what: impl std::fmt::Display) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(what.to_string().into()) }
}
