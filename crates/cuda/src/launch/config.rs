//! The shape of a launch.

/// Extents along x, y and z; `4` and `(4, 2)` stand for `(4, 1, 1)` and `(4, 2, 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3(pub [u32; 3]);

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Dim3 {
        Dim3([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Dim3 {
        Dim3([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(extents: [u32; 3]) -> Dim3 {
        Dim3(extents)
    }
}

/// How a kernel is launched.
///
/// ```
/// use tilewright_cuda::LaunchConfig;
/// let config = LaunchConfig::new((16, 2), 256).shared(100 << 10).cluster(2);
/// assert_eq!(config.grid_extents(), [16, 2, 1]);
/// assert_eq!(LaunchConfig::cover(1000, 256), LaunchConfig::new(4, 256));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: Option<[u32; 3]>,
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
    pub(crate) programmatic: bool,
    pub(crate) priority: Option<i32>,
}

impl LaunchConfig {
    /// So many blocks of so many threads.
    #[must_use]
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> LaunchConfig {
        LaunchConfig { block: Some(block.into().0), ..LaunchConfig::grid(grid) }
    }

    /// So many blocks, of the threads that the kernel was compiled for.
    #[must_use]
    pub fn grid(grid: impl Into<Dim3>) -> LaunchConfig {
        LaunchConfig {
            grid: grid.into().0,
            block: None,
            cluster: None,
            shared: 0,
            cooperative: false,
            programmatic: false,
            priority: None,
        }
    }

    /// As many blocks of so many threads as it takes to have a thread for every element.
    #[must_use]
    pub fn cover(elements: u32, block: u32) -> LaunchConfig {
        LaunchConfig::new(elements.div_ceil(block.max(1)), block)
    }

    /// With so many threads in a block.
    #[must_use]
    pub fn block(self, block: impl Into<Dim3>) -> LaunchConfig {
        LaunchConfig { block: Some(block.into().0), ..self }
    }

    /// With clusters of so many blocks.
    #[must_use]
    pub fn cluster(self, cluster: impl Into<Dim3>) -> LaunchConfig {
        LaunchConfig { cluster: Some(cluster.into().0), ..self }
    }

    /// With so many bytes of dynamic shared memory; more than the device gives without asking is asked for.
    #[must_use]
    pub fn shared(self, bytes: u32) -> LaunchConfig {
        LaunchConfig { shared: bytes, ..self }
    }

    /// With all blocks running at once, so that they can wait for each other.
    #[must_use]
    pub fn cooperative(self) -> LaunchConfig {
        LaunchConfig { cooperative: true, ..self }
    }

    /// Allowed to begin before the kernel before it in the stream has ended (programmatic dependent launch): the kernel waits itself,
    /// with `griddepcontrol.wait`, before it touches what that one writes.
    #[must_use]
    pub fn programmatic(self) -> LaunchConfig {
        LaunchConfig { programmatic: true, ..self }
    }

    /// With another priority than its stream's.
    #[must_use]
    pub fn priority(self, priority: i32) -> LaunchConfig {
        LaunchConfig { priority: Some(priority), ..self }
    }

    /// Blocks along x, y and z.
    #[must_use]
    pub fn grid_extents(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a block along x, y and z, if given.
    #[must_use]
    pub fn block_extents(&self) -> Option<[u32; 3]> {
        self.block
    }

    /// Whether the other launch has the same attributes: all but grid, block and shared memory.
    pub(crate) fn differs_in_size_only(&self, other: &LaunchConfig) -> bool {
        let LaunchConfig { grid, block, shared, .. } = *self;
        *self == LaunchConfig { grid, block, shared, ..*other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_from_attributes() {
        let config = LaunchConfig::new(4, 32).shared(16);
        assert!(config.differs_in_size_only(&LaunchConfig::new((8, 2), 64)));
        assert!(!config.differs_in_size_only(&config.cluster(2)));
        assert!(!config.differs_in_size_only(&config.priority(-1)));
        assert!(!config.differs_in_size_only(&config.cooperative()));
        assert!(!config.differs_in_size_only(&config.programmatic()));
    }
}
