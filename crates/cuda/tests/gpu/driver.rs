//! The driver and what it says about devices.

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{ComputeCapability, Driver, PtxVersion};

use crate::ensure;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("driver::driver_version_and_ptx", driver_version_and_ptx),
        Trial::test("driver::devices_are_described", devices_are_described),
        Trial::test("driver::loading_twice_and_from_threads", loading_twice_and_from_threads),
    ]
}

fn driver_version_and_ptx() -> Result<(), Failed> {
    let driver = Driver::load()?;
    ensure(driver.version().major >= 11, driver.version())?;
    let ptx = driver.ptx_version().ok_or("no PTX version")?;
    ensure(ptx >= PtxVersion { major: 7, minor: 0 }, ptx)
}

fn devices_are_described() -> Result<(), Failed> {
    let devices = Driver::load()?.devices()?;
    ensure(!devices.is_empty(), "no devices")?;
    for device in devices {
        ensure(!device.name.is_empty(), "no name")?;
        ensure(
            device.compute_capability >= ComputeCapability { major: 5, minor: 0 },
            device.compute_capability,
        )?;
        ensure(device.memory_bytes > 1 << 30, device.memory_bytes)?;
        ensure(device.multiprocessors > 0, "no multiprocessors")?;
        ensure(device.shared_bytes_per_block >= 48 << 10, device.shared_bytes_per_block)?;
        ensure(device.l2_bytes > 0 && device.clock_khz > 0, "no cache or clock")?;
    }
    Ok(())
}

fn loading_twice_and_from_threads() -> Result<(), Failed> {
    let names = || -> Result<Vec<String>, Failed> {
        Ok(Driver::load()?.devices()?.into_iter().map(|device| device.name).collect())
    };
    let first = names()?;
    let other =
        std::thread::scope(|scope| scope.spawn(names).join()).map_err(|_| "the thread panicked")??;
    ensure(first == other, "two threads saw different devices")
}
