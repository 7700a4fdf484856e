//! Versions: of CUDA as the driver reports it, and of PTX as it follows from that.

use std::fmt;

/// A CUDA version such as 12.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// The number before the point.
    pub major: u32,
    /// The number after the point.
    pub minor: u32,
}

impl CudaVersion {
    /// From the driver's form: 12080 is 12.8.
    ///
    /// ```
    /// assert_eq!(tilewright_cuda::CudaVersion::from_driver(12080).to_string(), "12.8");
    /// ```
    pub fn from_driver(version: i32) -> CudaVersion {
        let version = version.unsigned_abs();
        CudaVersion { major: version / 1000, minor: version % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A version of the PTX instruction set, as in `.version 8.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PtxVersion {
    /// The number before the point.
    pub major: u32,
    /// The number after the point.
    pub minor: u32,
}

/// The first CUDA version whose driver loads each PTX version, newest first (PTX ISA, release history).
const PTX_SINCE: &[([u32; 2], [u32; 2])] = &[
    ([13, 4], [9, 4]),
    ([13, 3], [9, 3]),
    ([13, 2], [9, 2]),
    ([13, 1], [9, 1]),
    ([13, 0], [9, 0]),
    ([12, 9], [8, 8]),
    ([12, 8], [8, 7]),
    ([12, 7], [8, 6]),
    ([12, 5], [8, 5]),
    ([12, 4], [8, 4]),
    ([12, 3], [8, 3]),
    ([12, 2], [8, 2]),
    ([12, 1], [8, 1]),
    ([12, 0], [8, 0]),
    ([11, 8], [7, 8]),
    ([11, 7], [7, 7]),
    ([11, 6], [7, 6]),
    ([11, 5], [7, 5]),
    ([11, 4], [7, 4]),
    ([11, 3], [7, 3]),
    ([11, 2], [7, 2]),
    ([11, 1], [7, 1]),
    ([11, 0], [7, 0]),
    ([10, 2], [6, 5]),
    ([10, 1], [6, 4]),
    ([10, 0], [6, 3]),
];

impl PtxVersion {
    /// The newest PTX that a driver of this CUDA version loads; `None` before CUDA 10.
    ///
    /// A driver newer than the table takes at least the newest entry.
    ///
    /// ```
    /// use tilewright_cuda::{CudaVersion, PtxVersion};
    /// let newest = PtxVersion::newest_for(CudaVersion { major: 12, minor: 6 });
    /// assert_eq!(newest, Some(PtxVersion { major: 8, minor: 5 }));
    /// ```
    pub fn newest_for(cuda: CudaVersion) -> Option<PtxVersion> {
        let (_, [major, minor]) = *PTX_SINCE.iter().find(|(since, _)| [cuda.major, cuda.minor] >= *since)?;
        Some(PtxVersion { major, minor })
    }
}

impl fmt::Display for PtxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_newest_first() {
        assert!(PTX_SINCE.windows(2).all(|pair| pair[0].0 > pair[1].0 && pair[0].1 > pair[1].1));
    }

    #[test]
    fn old_and_future_drivers() {
        let newest =
            |driver| PtxVersion::newest_for(CudaVersion::from_driver(driver)).map(|ptx| ptx.to_string());
        assert_eq!(newest(9020), None);
        assert_eq!(newest(11080).as_deref(), Some("7.8"));
        assert_eq!(newest(13000).as_deref(), Some("9.0"));
        assert_eq!(newest(14010).as_deref(), Some("9.4"));
    }
}
