//! [`Planner`]: keeps plans, for programs that compute many products.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tilewright_kernels::gemm::{Algorithm, Problem, ShapeClass};

use super::{Arguments, Error, Gemm, Plan, Workspace};
use crate::device::Device;

/// Plans that are kept. A model has a few dozen shapes; whoever has more pays for planning again.
const KEPT: usize = 1024;

/// Keeps plans and the algorithms that were chosen, and has one workspace for all: what other libraries call a handle.
///
/// A product with the extents, types and alignment of an earlier one finds its plan. One that is merely of the same
/// [class](ShapeClass) takes over the algorithm. Alignment is that of the buffers that are given.
///
/// ```
/// use tilewright::gemm::{Arguments, Gemm, Planner};
/// use tilewright::prelude::*;
///
/// let device = Device::best();
/// let planner = Planner::new(&device);
/// let weights = device.upload(&[1.0f32; 6])?;
/// for tokens in [2, 1, 2] {
///     let x = device.upload(&vec![2.0f32; tokens * 3])?;
///     let y = device.alloc::<f32>(tokens * 2)?;
///     planner.run(&Gemm::new(tokens, 2, 3), &Arguments::new(&x, &weights, &y))?;
///     assert_eq!(y.to_vec()?, vec![6.0; tokens * 2]);
/// }
/// assert_eq!(planner.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Planner {
    device: Device,
    workspace: Workspace,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    plans: HashMap<Problem, Plan>,
    algorithms: HashMap<ShapeClass, Algorithm>,
}

impl Planner {
    /// One for a device.
    #[must_use]
    pub fn new(device: &Device) -> Planner {
        Planner { device: device.clone(), workspace: Workspace::new(device), known: Mutex::default() }
    }

    /// The same with scratch memory of the caller. If that is of a [size that stays](Workspace::with_bytes), only algorithms that get by
    /// with it are chosen.
    ///
    /// ```
    /// use tilewright::gemm::{Gemm, Planner, Workspace};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// let planner = Planner::new(&device).with_workspace(&Workspace::with_bytes(&device, 1024)?);
    /// assert!(planner.plan(&Gemm::new(32, 64, 1024).element::<f32>())?.workspace_bytes() <= 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_workspace(self, workspace: &Workspace) -> Planner {
        // Plans know their scratch memory.
        self.lock().plans.clear();
        Planner { workspace: workspace.clone(), ..self }
    }

    /// Where its products run.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Plans that it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().plans.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Whatever was kept when somebody panicked is whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan for a product, made if there is none yet. Products with an algorithm of the caller's are planned every time.
    ///
    /// # Errors
    /// As [`Gemm::plan`].
    pub fn plan(&self, gemm: &Gemm) -> Result<Plan, Error> {
        if !gemm.is_free() {
            return gemm.plan_sharing(&self.device, &self.workspace, None);
        }
        let problem = gemm.problem()?;
        if let Some(plan) = self.lock().plans.get(&problem) {
            return Ok(plan.clone());
        }
        let class = ShapeClass::of(&problem);
        let chip = self.device.chip();
        let preferred = self.lock().algorithms.get(&class).copied();
        // What suits the class may still be illegal for these very extents.
        let known = preferred.filter(|algorithm| algorithm.check(&problem, &chip).is_ok());
        // Not under the lock: other products need not wait.
        let plan = gemm.plan_sharing(&self.device, &self.workspace, known)?;
        let mut all = self.lock();
        // Somebody has decided otherwise in the meantime.
        if all.algorithms.get(&class).copied() != preferred {
            return Ok(plan);
        }
        if let Some(algorithm) = plan.algorithm() {
            all.algorithms.entry(class).or_insert(algorithm);
        }
        if all.plans.len() >= KEPT {
            all.plans.clear();
        }
        all.plans.insert(problem, plan.clone());
        Ok(plan)
    }

    /// Computes a product. Types, if none were given, and alignment are those of the arguments.
    ///
    /// # Errors
    /// As [`Gemm::plan`] and [`Plan::run`].
    pub fn run(&self, gemm: &Gemm, arguments: &Arguments) -> Result<(), Error> {
        self.plan(&gemm.typed_by(&arguments.a, &arguments.b).aligned_to(arguments))?.run(arguments)
    }

    /// Uses an algorithm for all products of a class from now on, such as one that was measured to be best.
    ///
    /// ```
    /// use tilewright::gemm::{Gemm, Planner};
    /// use tilewright::prelude::*;
    ///
    /// let planner = Planner::new(&Device::simulator());
    /// let gemm = Gemm::new(64, 256, 512).element::<f32>();
    /// let plan = planner.plan(&gemm)?;
    /// // The second best by prediction, say, is the fastest by measurement.
    /// let other = plan.candidates()[1].algorithm;
    /// planner.prefer(&gemm, other)?;
    /// assert_eq!(planner.plan(&gemm)?.algorithm(), Some(other));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the algorithm does not compute this member of the class.
    pub fn prefer(&self, gemm: &Gemm, algorithm: Algorithm) -> Result<(), Error> {
        let problem = gemm.problem()?;
        algorithm.check(&problem, &self.device.chip())?;
        let class = ShapeClass::of(&problem);
        let mut known = self.lock();
        known.plans.retain(|other, _| ShapeClass::of(other) != class);
        known.algorithms.insert(class, algorithm);
        Ok(())
    }
}
