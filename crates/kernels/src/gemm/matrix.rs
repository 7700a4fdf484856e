//! Matrices in global memory as a kernel sees them: their addresses, and their elements in the type that the kernel computes in.

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::problem::{Batching, Placement, Storage};
use super::recipe::{Binding, Operand};

/// Calls code with the Rust type of an element type that matrices have. Besides those named there are f32 and tf32, which is f32 in memory:
/// problems of other types do not pass their check.
macro_rules! with_element {
    ($element:expr, $T:ident => $code:expr) => {
        match $element {
            Element::F16 => {
                type $T = f16;
                $code
            }
            Element::BF16 => {
                type $T = bf16;
                $code
            }
            Element::F64 => {
                type $T = f64;
                $code
            }
            Element::I32 => {
                type $T = i32;
                $code
            }
            Element::I8 => {
                type $T = i8;
                $code
            }
            Element::U8 => {
                type $T = u8;
                $code
            }
            Element::E4M3 => {
                type $T = E4m3;
                $code
            }
            Element::E5M2 => {
                type $T = E5m2;
                $code
            }
            _ => {
                type $T = f32;
                $code
            }
        }
    };
}
pub(super) use with_element;

/// Where a thread is: the first of some neighbours in a row of the product.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Member of the batch.
    pub batch: Val<u32>,
    /// Row of the product.
    pub row: Val<u32>,
    /// Column of the product.
    pub column: Val<u32>,
    /// Rows and columns that exist, if places may lie outside; nothing is read or written there.
    pub bounds: Option<(Val<u32>, Val<u32>)>,
}

impl Place {
    /// Whether the neighbour so many columns further exists.
    #[must_use]
    #[track_caller]
    pub fn inside(&self, further: u32) -> Val<bool> {
        match self.bounds {
            None => val(true),
            Some((rows, columns)) => both_below(self.row, rows, self.column + further, columns),
        }
    }
}

#[device]
fn both_below(row: Val<u32>, rows: Val<u32>, column: Val<u32>, columns: Val<u32>) -> Val<bool> {
    (row < rows) & (column < columns)
}

/// A matrix in global memory whose type and storage are known while staging.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalMatrix {
    origin: Global<u8>,
    leading: Val<u64>,
    batch_stride: Val<u64>,
    storage: Storage,
    batching: Batching,
    element: Element,
}

impl GlobalMatrix {
    /// Declares the parameters `name`, `name_leading` and `name_batch`.
    #[track_caller]
    pub(super) fn declare(
        name: &str,
        placement: &Placement,
        element: Element,
        batching: Batching,
    ) -> GlobalMatrix {
        GlobalMatrix {
            origin: Argument::declare(name),
            leading: Argument::declare(&format!("{name}_leading")),
            batch_stride: Argument::declare(&format!("{name}_batch")),
            storage: placement.storage,
            batching,
            element,
        }
    }

    /// What those parameters get.
    pub(super) fn bindings(name: &str, operand: Operand, placement: &Placement) -> [(String, Binding); 3] {
        [
            (name.to_owned(), Binding::Pointer(operand, 0)),
            (format!("{name}_leading"), Binding::U64(placement.leading)),
            (format!("{name}_batch"), Binding::U64(placement.batch_stride)),
        ]
    }

    /// Elements from one row (or column) to the next.
    pub(super) fn leading(&self) -> Val<u64> {
        self.leading
    }

    /// The type of its elements.
    pub(super) fn element(&self) -> Element {
        self.element
    }

    /// The address of an element.
    #[track_caller]
    pub(super) fn at(&self, batch: Val<u32>, row: Val<u32>, column: Val<u32>) -> Global<u8> {
        let (slow, fast) = match self.storage {
            Storage::RowMajor => (row, column),
            Storage::ColumnMajor => (column, row),
        };
        let inner = slow.cast::<u64>() * self.leading + fast.cast::<u64>();
        let bytes = u64::from(self.element.bytes());
        match self.batching {
            Batching::Strided => {
                self.origin.byte_add((batch.cast::<u64>() * self.batch_stride + inner) * bytes)
            }
            Batching::Pointers => {
                let origin = self.origin.cast::<u64>().at(batch).load();
                Global::<u8>::from_address(origin).byte_add(inner * bytes)
            }
        }
    }

    /// Neighbours in a row, so many columns further, in one access: the matrix lies so that it can, and they are all inside or all
    /// outside, where they are zero as where a guard does not hold.
    #[track_caller]
    pub(super) fn load_run<R: Number>(
        &self,
        place: &Place,
        further: u32,
        count: u32,
        guard: Option<Val<bool>>,
    ) -> Vec<Val<R>> {
        let at = self.at(place.batch, place.row, place.column + further);
        let condition = both(place.bounds.map(|_| place.inside(further)), guard);
        load_converted(self.element, at, count, condition)
    }

    /// Stores neighbours in a row, so many columns further, in one access, if they lie in the matrix.
    #[track_caller]
    pub(super) fn store_run<R: Number>(&self, place: &Place, further: u32, values: &[Val<R>]) {
        let at = self.at(place.batch, place.row, place.column + further);
        let inside = place.bounds.map(|_| place.inside(further));
        with_element!(self.element, T => {
            let values = Vector::new(values.iter().map(|&value| narrow::<R, T>(value)));
            match inside {
                None => at.cast::<T>().store_vector(values),
                Some(inside) => at.cast::<T>().store_vector_if(inside, values),
            }
        });
    }

    /// Stores an element at a place, if it lies in the matrix.
    #[track_caller]
    pub(super) fn store<R: Number>(&self, place: &Place, further: u32, value: Val<R>) {
        let at = self.at(place.batch, place.row, place.column + further);
        let inside = place.bounds.map(|_| place.inside(further));
        with_element!(self.element, T => store_converted::<T, R>(at, inside, value));
    }
}

/// Whether all conditions hold that there are.
#[track_caller]
pub(super) fn both(first: Option<Val<bool>>, second: Option<Val<bool>>) -> Option<Val<bool>> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first & second),
        (first, second) => first.or(second),
    }
}

/// Neighbours in memory in one access, converted; zeros where a condition does not hold.
#[track_caller]
pub(super) fn load_converted<R: Number>(
    element: Element,
    at: Global<u8>,
    count: u32,
    condition: Option<Val<bool>>,
) -> Vec<Val<R>> {
    with_element!(element, T => {
        let at = at.cast::<T>();
        match condition {
            None if count == 1 => vec![at.load().cast()],
            None => at.load_vector(count).cast().elements(),
            Some(condition) if count == 1 => vec![at.load_if(condition, zero::<T>()).cast()],
            Some(condition) => {
                at.load_vector_if(condition, Vector::splat(zero::<T>(), count)).cast().elements()
            }
        }
    })
}

#[track_caller]
fn store_converted<T: LangElement, R: Number>(at: Global<u8>, inside: Option<Val<bool>>, value: Val<R>) {
    let value = narrow::<R, T>(value);
    match inside {
        None => at.cast::<T>().store(value),
        Some(inside) => at.cast::<T>().store_if(inside, value),
    }
}

#[track_caller]
fn zero<T: LangElement>() -> Val<T> {
    val(0.0f32).cast()
}

/// Zero instead of NaN, which alone differs from itself.
#[device]
fn number_or_zero<R: Number>(value: Val<R>) -> Val<R> {
    let itself = value;
    select(value == itself, value, zero::<R>())
}

/// Converts a result: to nearest, ties to even, and to the largest number instead of beyond it where the type has no infinity.
#[track_caller]
pub(super) fn narrow<R: Number, T: LangElement>(value: Val<R>) -> Val<T> {
    match T::ELEMENT {
        Element::I8 | Element::U8 | Element::I32 if R::ELEMENT == Element::F64 => {
            // NaN of f64 would be the least integer, where that of f32 is zero.
            number_or_zero(value).cast_rounded(Round::Nearest)
        }
        Element::I8 | Element::U8 | Element::I32 if R::ELEMENT.is_float() => {
            value.cast_rounded(Round::Nearest)
        }
        Element::I8 | Element::U8 => value.cast_saturating(),
        _ => value.cast(),
    }
}

#[cfg(test)]
mod tests {
    use tilewright_compiler::Compiler;
    use tilewright_hardware::Arch;
    use tilewright_sim::{Arg, Launch, Module, Options, Simulator};

    use super::*;

    #[kernel(threads = 32)]
    fn convert<R: Number, T: LangElement>(x: Global<R>, out: Global<T>, n: Val<u32>) {
        let i = block_id(0) * 32 + lane_id();
        if i < n {
            out.at(i).store(narrow::<R, T>(x.at(i).load()));
        }
    }

    #[kernel(threads = 32)]
    fn widen<T: LangElement>(x: Global<T>, out: Global<f32>, n: Val<u32>) {
        let i = block_id(0) * 32 + lane_id();
        if i < n {
            out.at(i).store(x.at(i).load().cast::<f32>());
        }
    }

    /// The bytes that a kernel for an old or a new chip makes of some numbers.
    fn converted<R: Number, T: LangElement>(
        arch: Arch,
        upload: impl Fn(&mut Simulator) -> Arg,
        n: u32,
    ) -> Vec<u8> {
        run(&convert::stage::<R, T>().unwrap(), arch, upload, n, T::ELEMENT)
    }

    fn run(
        kernel: &Kernel,
        arch: Arch,
        upload: impl Fn(&mut Simulator) -> Arg,
        n: u32,
        result: Element,
    ) -> Vec<u8> {
        let code = Compiler::new(arch).compile(kernel.func()).unwrap().code;
        let module = Module::parse(&code.text).unwrap();
        let mut sim = Simulator::new(Options::default());
        let (x, out) = (upload(&mut sim), sim.alloc_named("out", (n * result.bytes()) as usize));
        let launch = Launch::new(n.div_ceil(32), 32);
        let arguments = [x, Arg::Buffer(out), Arg::U32(n)];
        sim.launch(&module, module.entries()[0], &launch, &arguments).unwrap();
        sim.download::<u8>(out).unwrap()
    }

    #[test]
    fn results_are_rounded_to_nearest_and_clamped() {
        let floats = [0.5f32, 1.5, 2.5, -0.5, -1.5, 126.6, 127.5, 300.0, -128.5, -300.0, 3e9, f32::NAN];
        let n = 12;
        for arch in [Arch::SM_80, Arch::SM_90A] {
            let to_i8 = converted::<f32, i8>(arch, |sim| Arg::Buffer(sim.upload(&floats)), n);
            let expected = [0i8, 2, 2, 0, -2, 127, 127, 127, -128, -128, 127, 0];
            assert_eq!(to_i8, expected.map(i8::cast_unsigned));
            let to_u8 = converted::<f32, u8>(arch, |sim| Arg::Buffer(sim.upload(&floats)), n);
            assert_eq!(to_u8, [0, 2, 2, 0, 0, 127, 128, 255, 0, 0, 255, 0]);
            let to_i32 = converted::<f32, i32>(arch, |sim| Arg::Buffer(sim.upload(&floats)), n);
            let expected = [0, 2, 2, 0, -2, 127, 128, 300, -128, -300, i32::MAX, 0i32];
            assert_eq!(to_i32, expected.map(i32::to_le_bytes).as_flattened());
            let doubles = floats.map(f64::from);
            let to_i32 = converted::<f64, i32>(arch, |sim| Arg::Buffer(sim.upload(&doubles)), n);
            assert_eq!(to_i32, expected.map(i32::to_le_bytes).as_flattened());
            let whole = [0i32, -1, 127, 128, -128, -129, i32::MAX, i32::MIN];
            let to_i8 = converted::<i32, i8>(arch, |sim| Arg::Buffer(sim.upload(&whole)), 8);
            assert_eq!(to_i8, [0i8, -1, 127, 127, -128, -128, 127, -128].map(i8::cast_unsigned));
        }
    }

    #[test]
    fn eight_bit_floats_are_converted_as_on_the_host() {
        // Every number of the types, what lies halfway between two, and what lies just beside that.
        let halfway = |values: [f32; 256]| {
            let mut all = Vec::new();
            for pair in values.windows(2) {
                let middle = f32::midpoint(pair[0], pair[1]);
                all.extend([pair[0], middle, middle.next_up(), middle.next_down()]);
            }
            all
        };
        let mut floats = halfway(std::array::from_fn(|bits| E4m3(u8::try_from(bits).unwrap_or(0)).to_f32()));
        floats.extend(halfway(std::array::from_fn(|bits| E5m2(u8::try_from(bits).unwrap_or(0)).to_f32())));
        floats.extend([
            0.0009,
            447.0,
            465.0,
            -1e9,
            60000.0,
            f32::MAX,
            f32::INFINITY,
            f32::MIN_POSITIVE,
            1e-40,
        ]);
        let n = u32::try_from(floats.len()).unwrap_or(0);
        let doubles: Vec<f64> = floats.iter().map(|&x| f64::from(x) * (1.0 + f64::EPSILON)).collect();
        // Chips before sm_89 have no instruction for this.
        for arch in [Arch::SM_80, Arch::SM_89, Arch::SM_90A] {
            let upload = |sim: &mut Simulator| Arg::Buffer(sim.upload(&floats));
            let expected: Vec<u8> = floats.iter().map(|&x| E4m3::from_f32(x).0).collect();
            assert_eq!(converted::<f32, E4m3>(arch, upload, n), expected);
            let expected: Vec<u8> = floats.iter().map(|&x| E5m2::from_f32(x).0).collect();
            assert_eq!(converted::<f32, E5m2>(arch, upload, n), expected);
            // Rounded once, not to f32 first.
            let upload = |sim: &mut Simulator| Arg::Buffer(sim.upload(&doubles));
            let expected: Vec<u8> = doubles.iter().map(|&x| E4m3::from_f64(x).0).collect();
            assert_eq!(converted::<f64, E4m3>(arch, upload, n), expected);
        }
    }

    #[test]
    fn eight_bit_floats_are_read_as_on_the_host() {
        let bytes: [u8; 256] = std::array::from_fn(|bits| u8::try_from(bits).unwrap_or(0));
        let read = |bytes: Vec<u8>| -> Vec<f32> {
            let words = bytes.chunks_exact(4).map(|word| word.try_into().unwrap_or_default());
            words.map(f32::from_le_bytes).collect()
        };
        let same = |found: Vec<f32>, expected: [f32; 256]| {
            let equal = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
            assert!(found.iter().zip(&expected).all(equal), "{found:?}");
        };
        for arch in [Arch::SM_80, Arch::SM_89, Arch::SM_90A] {
            let upload = |sim: &mut Simulator| Arg::Buffer(sim.upload(&bytes));
            let widened = |kernel: &Kernel| read(run(kernel, arch, upload, 256, Element::F32));
            same(widened(&widen::stage::<E4m3>().unwrap()), bytes.map(|bits| E4m3(bits).to_f32()));
            same(widened(&widen::stage::<E5m2>().unwrap()), bytes.map(|bits| E5m2(bits).to_f32()));
        }
    }
}
