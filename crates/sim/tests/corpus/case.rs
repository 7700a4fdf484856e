//! A case: a kernel, its launch, its arguments in order, what its buffers must hold afterwards, and the verdict.

use tilewright_hardware::SwizzleMode;
use tilewright_sim::FindingKind;
use tilewright_sim::tensor::tensor_map::DataType;

use crate::numbers::Element;

/// Looks at a buffer's bytes after the launch.
pub(crate) type Check = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

pub(crate) enum Verdict {
    /// No finding, and every check passes.
    Clean,
    /// At least one finding of one of these kinds; results are not compared.
    Finds(Vec<FindingKind>),
}

impl Verdict {
    pub(crate) fn allows(&self, kind: FindingKind) -> bool {
        matches!(self, Verdict::Finds(kinds) if kinds.contains(&kind))
    }
}

pub(crate) enum Input {
    /// `initial: None`: allocated, never written by the host.
    Buffer {
        initial: Option<Vec<u8>>,
        bytes: usize,
        check: Option<Check>,
    },
    /// A buffer of pointers to the buffers of other inputs.
    Addresses(Vec<usize>),
    U32(u32),
    U64(u64),
    F32(f32),
    /// A struct by value.
    Bytes(Vec<u8>),
    /// A tensor map over the buffer of an earlier input; dims innermost first, strides in bytes without the innermost.
    Map {
        of: usize,
        element: DataType,
        dims: Vec<u64>,
        strides: Vec<u64>,
        tile: Vec<u32>,
        swizzle: SwizzleMode,
    },
}

pub(crate) struct Case {
    pub(crate) files: Vec<&'static str>,
    pub(crate) entry: String,
    pub(crate) name: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) shared: u32,
    /// In order, and whether it is an argument (or only the memory behind one).
    pub(crate) inputs: Vec<(Input, bool)>,
    pub(crate) verdict: Verdict,
    /// Lines of output, sorted.
    pub(crate) printed: Option<Vec<String>>,
}

impl Case {
    pub(crate) fn new(files: &[&'static str], entry: &str) -> Case {
        Case {
            files: files.to_vec(),
            entry: entry.into(),
            name: entry.into(),
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: None,
            shared: 0,
            inputs: Vec::new(),
            verdict: Verdict::Clean,
            printed: None,
        }
    }

    /// Tells apart several cases of one kernel.
    pub(crate) fn named(mut self, suffix: &str) -> Case {
        self.name = format!("{}_{suffix}", self.entry);
        self
    }
    pub(crate) fn grid(mut self, x: u32, y: u32) -> Case {
        self.grid = [x, y, 1];
        self
    }
    pub(crate) fn block(mut self, x: u32, y: u32) -> Case {
        self.block = [x, y, 1];
        self
    }
    pub(crate) fn cluster(mut self, x: u32) -> Case {
        self.cluster = Some([x, 1, 1]);
        self
    }
    pub(crate) fn shared(mut self, bytes: u32) -> Case {
        self.shared = bytes;
        self
    }
    pub(crate) fn finds(mut self, kinds: &[FindingKind]) -> Case {
        self.verdict = Verdict::Finds(kinds.to_vec());
        self
    }
    pub(crate) fn prints(mut self, mut lines: Vec<String>) -> Case {
        lines.sort();
        self.printed = Some(lines);
        self
    }

    fn with(mut self, input: Input) -> Case {
        self.inputs.push((input, true));
        self
    }
    /// The input added last is no argument: a tensor map or a table of pointers refers to it.
    pub(crate) fn held(mut self) -> Case {
        self.inputs.last_mut().expect("an input").1 = false;
        self
    }

    pub(crate) fn u32(self, value: u32) -> Case {
        self.with(Input::U32(value))
    }
    pub(crate) fn u64(self, value: u64) -> Case {
        self.with(Input::U64(value))
    }
    pub(crate) fn f32(self, value: f32) -> Case {
        self.with(Input::F32(value))
    }
    pub(crate) fn bytes(self, bytes: Vec<u8>) -> Case {
        self.with(Input::Bytes(bytes))
    }
    pub(crate) fn addresses(self, of: &[usize]) -> Case {
        self.with(Input::Addresses(of.to_vec()))
    }
    /// A map of a matrix of `rows` rows of `columns` elements, `pitch` bytes apart.
    pub(crate) fn matrix_map(
        self,
        of: usize,
        element: DataType,
        [columns, rows]: [u64; 2],
        pitch: u64,
        tile: [u32; 2],
        swizzle: SwizzleMode,
    ) -> Case {
        self.map(of, element, &[columns, rows], &[pitch], &tile, swizzle)
    }
    pub(crate) fn map(
        self,
        of: usize,
        element: DataType,
        dims: &[u64],
        strides: &[u64],
        tile: &[u32],
        swizzle: SwizzleMode,
    ) -> Case {
        let (dims, strides, tile) = (dims.to_vec(), strides.to_vec(), tile.to_vec());
        self.with(Input::Map { of, element, dims, strides, tile, swizzle })
    }

    /// Read only: must hold the same afterwards.
    pub(crate) fn input<T: Element>(self, values: &[T]) -> Case {
        self.update(values, values)
    }
    /// Memory that nobody has written, and that is not looked at afterwards.
    pub(crate) fn poison(self, bytes: usize) -> Case {
        self.with(Input::Buffer { initial: None, bytes, check: None })
    }
    /// Initialised memory that is not looked at afterwards.
    pub(crate) fn scratch<T: Element>(self, values: &[T]) -> Case {
        let initial = T::bytes(values);
        self.with(Input::Buffer { bytes: initial.len(), initial: Some(initial), check: None })
    }
    /// Memory that nobody has written, and that must hold just these values afterwards.
    pub(crate) fn exact<T: Element>(self, expected: &[T]) -> Case {
        let check = exactly(expected.iter().copied().map(Some).collect());
        self.with(Input::Buffer { initial: None, bytes: expected.len() * T::SIZE, check: Some(check) })
    }
    /// The same with holes, where anything may stand.
    pub(crate) fn exact_where<T: Element>(self, expected: &[Option<T>]) -> Case {
        let check = exactly(expected.to_vec());
        self.with(Input::Buffer { initial: None, bytes: expected.len() * T::SIZE, check: Some(check) })
    }
    pub(crate) fn near<T: Element>(self, expected: &[f64], relative: f64, absolute: f64) -> Case {
        let check = nearly::<T>(expected.to_vec(), relative, absolute);
        self.with(Input::Buffer { initial: None, bytes: expected.len() * T::SIZE, check: Some(check) })
    }
    pub(crate) fn update<T: Element>(self, before: &[T], after: &[T]) -> Case {
        let initial = T::bytes(before);
        let check = exactly(after.iter().copied().map(Some).collect());
        self.with(Input::Buffer { bytes: initial.len(), initial: Some(initial), check: Some(check) })
    }
    pub(crate) fn update_near<T: Element>(
        self,
        before: &[T],
        after: &[f64],
        relative: f64,
        absolute: f64,
    ) -> Case {
        let initial = T::bytes(before);
        let check = nearly::<T>(after.to_vec(), relative, absolute);
        self.with(Input::Buffer { bytes: initial.len(), initial: Some(initial), check: Some(check) })
    }
    pub(crate) fn checked<T: Element>(
        self,
        count: usize,
        check: impl Fn(&[T]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Case {
        let check: Check = Box::new(move |bytes| check(&T::values(bytes)));
        self.with(Input::Buffer { initial: None, bytes: count * T::SIZE, check: Some(check) })
    }
}

fn exactly<T: Element>(expected: Vec<Option<T>>) -> Check {
    Box::new(move |bytes| {
        for (i, (got, expected)) in T::values(bytes).into_iter().zip(&expected).enumerate() {
            if let Some(expected) = expected {
                let (g, e) = (got.number(), expected.number());
                if got.bits() != expected.bits() && !(g.is_nan() && e.is_nan()) {
                    return Err(format!(
                        "element {i} is {g} ({:#x}), expected {e} ({:#x})",
                        got.bits(),
                        expected.bits()
                    ));
                }
            }
        }
        Ok(())
    })
}

fn nearly<T: Element>(expected: Vec<f64>, relative: f64, absolute: f64) -> Check {
    Box::new(move |bytes| {
        for (i, (got, &expected)) in T::values(bytes).into_iter().zip(&expected).enumerate() {
            let got = got.number();
            // Written so that a NaN fails.
            let close = (got - expected).abs() <= absolute + relative * expected.abs();
            if !close && got != expected {
                return Err(format!("element {i} is {got}, expected {expected}"));
            }
        }
        Ok(())
    })
}
