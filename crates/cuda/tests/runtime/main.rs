//! The runtime without a GPU: on a driver over host memory that does everything as late as it may and checks lifetimes.
//!
//! Each test runs itself again in a process that has that driver; see `tilewright_fake_driver`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod absent;
mod capture;
mod code;
mod errors;
mod launch;
mod lifetimes;
mod order;
mod peers;
mod steps;
mod threads;

use tilewright_cuda::{Code, Context, CudaError, DiskCache, Kernel, LaunchConfig, Module};
use tilewright_fake_driver::{Fake, Inspector};

/// Kernels that the driver knows how to do, and others that it only checks and records.
const PTX: &str = include_str!("kernels.ptx");

/// One thread; what the kernels do does not depend on it.
fn one() -> LaunchConfig {
    LaunchConfig::new(1, 1)
}

/// Runs the test whose closure this is under the driver.
fn under(fake: &Fake, body: impl FnOnce(Inspector)) {
    // `runtime::module::test::{{closure}}`: the name of the test is what is between.
    let name = std::any::type_name_of_val(&body);
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    fake.run(name.strip_suffix("::{{closure}}").unwrap_or(name), body);
}

/// A context that keeps nothing on disk.
fn context() -> Context {
    context_of(0)
}

fn context_of(ordinal: u32) -> Context {
    let context = Context::new(ordinal).unwrap();
    context.set_cache(DiskCache::off());
    context
}

/// Loads the kernels above.
#[allow(unsafe_code)]
fn load(context: &Context) -> Result<Module, CudaError> {
    // SAFETY: they reach no memory but their arguments'; `crash` is made to be noticed.
    unsafe { context.load(&Code::ptx(PTX)) }
}

fn kernel(context: &Context, name: &str) -> Kernel {
    load(context).unwrap().kernel(name).unwrap()
}

/// Nothing was used wrongly, and nothing is left.
#[track_caller]
fn clean(driver: Inspector) {
    assert_eq!(driver.faults(), [""; 0]);
    assert_eq!(driver.leaks(), [""; 0]);
}

/// Numbers that look random and are the same every time (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % end as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.below(1 << 32)).unwrap()
    }
}
