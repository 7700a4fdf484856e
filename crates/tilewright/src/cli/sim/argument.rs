//! What is written behind `--arg`, and how it becomes a parameter of the kernel.
//!
//! Files may have colons in their names: everything is split from the right.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tilewright::device::simulated_map;
use tilewright::hardware::{Element, SwizzleMode, TensorMapSpec};
use tilewright::lang::{nearest_bf16, nearest_f16};
use tilewright::sim::{Arg, Buffer, Parameter, Simulator, TensorMap};

use super::super::npy::{self, Array};

/// The forms, for help and errors.
pub(super) const FORMS: &str = "in:FILE.npy, out:FILE.npy:DTYPE:SHAPE, inout:IN.npy:OUT.npy, i32:7 (or u32, i64, u64, i16, u16, i8, u8, f32, \
    f64, f16, bf16), tmap:IN.npy:BOX:SWIZZLE[:TYPE], tmapout:OUT.npy:DTYPE:SHAPE:BOX:SWIZZLE[:TYPE]";

/// Most bytes of an array that a run may ask for. More is a slip of the pen, and would take the machine down with it.
const MOST_BYTES: u64 = 1 << 36;

/// One `--arg` as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Written {
    /// A number, as the bytes of its type.
    Scalar { ty: &'static str, bytes: Vec<u8> },
    /// The address of an array.
    Array(Source),
    /// A tensor map over an array.
    Map { source: Source, extents: Vec<u32>, swizzle: SwizzleMode, element: Option<Element> },
}

/// Where an array comes from, and where it goes after the run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    input: Option<PathBuf>,
    output: Option<PathBuf>,
    /// Of an array without input.
    fresh: Option<(Element, Vec<u64>)>,
}

impl FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Written, String> {
        let Some((form, rest)) = text.split_once(':') else {
            return Err(format!("found no colon, expected one of {FORMS}"));
        };
        match form {
            "in" => Ok(Written::Array(Source { input: Some(file(rest)?), output: None, fresh: None })),
            "inout" => {
                let [input, output] = parts(rest, "inout:IN.npy:OUT.npy")?;
                let (input, output) = (Some(file(input)?), Some(file(output)?));
                Ok(Written::Array(Source { input, output, fresh: None }))
            }
            "out" => {
                let [output, ty, extents] = parts(rest, "out:FILE.npy:DTYPE:SHAPE")?;
                Ok(Written::Array(Source::fresh(output, ty, extents)?))
            }
            "tmap" => {
                let (rest, element) = split_element(rest);
                let [input, extents, mode] = parts(rest, "tmap:IN.npy:BOX:SWIZZLE[:TYPE]")?;
                let source = Source { input: Some(file(input)?), output: None, fresh: None };
                Ok(Written::Map {
                    source,
                    extents: numbers(extents, "BOX")?,
                    swizzle: swizzle(mode)?,
                    element,
                })
            }
            "tmapout" => {
                let (rest, element) = split_element(rest);
                let [output, ty, shape, extents, mode] =
                    parts(rest, "tmapout:OUT.npy:DTYPE:SHAPE:BOX:SWIZZLE[:TYPE]")?;
                let source = Source::fresh(output, ty, shape)?;
                Ok(Written::Map {
                    source,
                    extents: numbers(extents, "BOX")?,
                    swizzle: swizzle(mode)?,
                    element,
                })
            }
            _ => scalar(form, rest),
        }
    }
}

impl Source {
    fn fresh(output: &str, ty: &str, extents: &str) -> Result<Source, String> {
        let element = npy::element(ty)
            .ok_or_else(|| format!("found DTYPE `{ty}`, expected {}", npy::element_names()))?;
        let fresh = Some((element, numbers(extents, "SHAPE")?));
        Ok(Source { input: None, output: Some(file(output)?), fresh })
    }
}

/// So many pieces between colons, the first being a file that may have colons itself.
fn parts<'a, const N: usize>(text: &'a str, form: &str) -> Result<[&'a str; N], String> {
    let mut pieces: Vec<&str> = text.rsplitn(N, ':').collect();
    pieces.reverse();
    pieces.try_into().map_err(|_| format!("found too few parts, expected {form}"))
}

fn file(name: &str) -> Result<PathBuf, String> {
    if name.is_empty() { Err("found no file name, expected FILE.npy".into()) } else { Ok(name.into()) }
}

/// The type at the end of a tensor map, if one is there: no swizzle has such a name.
fn split_element(text: &str) -> (&str, Option<Element>) {
    match text.rsplit_once(':').map(|(rest, name)| (rest, npy::element(name))) {
        Some((rest, Some(element))) => (rest, Some(element)),
        _ => (text, None),
    }
}

/// `64x32`
fn numbers<T: FromStr>(text: &str, what: &str) -> Result<Vec<T>, String> {
    let parsed: Result<Vec<T>, _> = text.split('x').map(str::parse).collect();
    parsed.map_err(|_| format!("found {what} `{text}`, expected numbers such as 64x32"))
}

fn swizzle(text: &str) -> Result<SwizzleMode, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => Ok(SwizzleMode::None),
        "32b" => Ok(SwizzleMode::B32),
        "64b" => Ok(SwizzleMode::B64),
        "128b" => Ok(SwizzleMode::B128),
        _ => Err(format!("found SWIZZLE `{text}`, expected none, 32B, 64B or 128B")),
    }
}

/// A number of a type. In hexadecimal, a float is given by its bits.
fn scalar(ty: &str, text: &str) -> Result<Written, String> {
    let error = || format!("found `{text}`, expected a number of type {ty}");
    let (magnitude, negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
    let hexadecimal = magnitude.strip_prefix("0x").or(magnitude.strip_prefix("0X"));
    let integer = || {
        let value = match hexadecimal {
            Some(digits) if !digits.starts_with(['+', '-']) => {
                i128::from(u64::from_str_radix(digits, 16).ok()?)
            }
            Some(_) => return None,
            None => i128::from(magnitude.parse::<u64>().ok()?),
        };
        Some(if negative { -value } else { value })
    };
    let float = || text.parse::<f64>().ok();
    /// The bytes of a number, if it is in the range of its type.
    macro_rules! bytes {
        ($ty:ty) => {
            integer().and_then(|value| <$ty>::try_from(value).ok()).map(|value| value.to_le_bytes().to_vec())
        };
    }
    let is_bits = hexadecimal.is_some() && !negative;
    let (ty, bytes) = match ty {
        "i8" => ("i8", bytes!(i8)),
        "u8" => ("u8", bytes!(u8)),
        "i16" => ("i16", bytes!(i16)),
        "u16" => ("u16", bytes!(u16)),
        "i32" => ("i32", bytes!(i32)),
        "u32" => ("u32", bytes!(u32)),
        "i64" => ("i64", bytes!(i64)),
        "u64" => ("u64", bytes!(u64)),
        "f16" if is_bits => ("f16", bytes!(u16)),
        "bf16" if is_bits => ("bf16", bytes!(u16)),
        "f32" if is_bits => ("f32", bytes!(u32)),
        "f64" if is_bits => ("f64", bytes!(u64)),
        "f16" => ("f16", float().map(|value| nearest_f16(value).to_le_bytes().to_vec())),
        "bf16" => ("bf16", float().map(|value| nearest_bf16(value).to_le_bytes().to_vec())),
        "f32" => ("f32", text.parse::<f32>().ok().map(|value| value.to_le_bytes().to_vec())),
        "f64" => ("f64", float().map(|value| value.to_le_bytes().to_vec())),
        _ => return Err(format!("found `{ty}:`, expected one of {FORMS}")),
    };
    Ok(Written::Scalar { ty, bytes: bytes.ok_or_else(error)? })
}

/// An argument with its file read and checked against the parameter: ready for any number of runs.
#[derive(Debug)]
pub(super) enum Ready {
    Scalar(Vec<u8>),
    Array(Data),
    Map { data: Data, spec: TensorMapSpec },
}

/// The array of an argument.
#[derive(Debug)]
pub(super) struct Data {
    /// The name of the parameter, which reports use.
    name: String,
    element: Element,
    shape: Vec<u64>,
    /// The contents, if they come from a file.
    contents: Option<Vec<u8>>,
    bytes: usize,
    /// Where it goes.
    output: Option<PathBuf>,
}

impl Written {
    /// Checks the argument against its parameter and reads its file.
    pub(super) fn prepare(&self, parameter: &Parameter) -> Result<Ready, String> {
        let (found, bytes) = match self {
            Written::Scalar { ty, bytes } => (format!("{ty}, {} bytes", bytes.len()), bytes.len()),
            Written::Array(_) => ("the address of an array, 8 bytes".to_owned(), 8),
            Written::Map { .. } => ("a tensor map, 128 bytes".to_owned(), 128),
        };
        let wanted = parameter.bytes;
        if bytes as u64 != wanted as u64 {
            return Err(format!("found {found}, expected {wanted} bytes{}", hint(wanted as u64)));
        }
        match self {
            Written::Scalar { bytes, .. } => Ok(Ready::Scalar(bytes.clone())),
            Written::Array(source) => Ok(Ready::Array(Data::load(source, &parameter.name)?)),
            Written::Map { source, extents, swizzle, element } => {
                let data = Data::load(source, &parameter.name)?;
                let element = element.unwrap_or(data.element);
                if element.bytes() != data.element.bytes() {
                    let (found, held) = (element.name(), data.element.name());
                    return Err(format!(
                        "found TYPE {found}, expected one of the size of the array's {held}"
                    ));
                }
                let spec =
                    TensorMapSpec::new(element, extents, *swizzle).map_err(|error| error.to_string())?;
                Ok(Ready::Map { data, spec })
            }
        }
    }
}

/// What to write for a parameter of this size.
fn hint(bytes: u64) -> &'static str {
    match bytes {
        1 => ": i8 or u8",
        2 => ": i16, u16, f16 or bf16",
        4 => ": i32, u32 or f32",
        8 => ": i64, u64, f64, in, out or inout",
        128 => ": tmap or tmapout",
        _ => ", which no argument has",
    }
}

impl Data {
    fn load(source: &Source, name: &str) -> Result<Data, String> {
        let (element, shape, contents) = match (&source.input, &source.fresh) {
            (Some(path), _) => {
                let array = Array::read(path).map_err(|error| error.to_string())?;
                (array.element, array.shape, Some(array.bytes))
            }
            (None, Some((element, shape))) => (*element, shape.clone(), None),
            (None, None) => return Err("found neither a file nor a shape".into()),
        };
        let bytes = npy::size(element, &shape).filter(|bytes| *bytes <= MOST_BYTES);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let bytes =
            bytes.ok_or_else(|| format!("found an array of shape {shape:?}, expected at most 64 GiB"))?;
        Ok(Data { name: name.into(), element, shape, contents, bytes, output: source.output.clone() })
    }

    /// A buffer of its own for one run.
    fn place(&self, sim: &mut Simulator) -> Buffer {
        match &self.contents {
            Some(contents) => sim.upload_bytes(&self.name, contents),
            None => sim.alloc_named(&self.name, self.bytes),
        }
    }
}

/// An array that is kept after the run.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) array: Array,
}

/// An array that will be kept after the run.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    data: &'a Data,
    buffer: Buffer,
}

impl Pending<'_> {
    /// Its contents now; nothing if no file wants it.
    pub(super) fn read(&self, sim: &Simulator) -> Option<Kept> {
        let path = self.data.output.clone()?;
        let (element, shape) = (self.data.element, self.data.shape.clone());
        let bytes = sim.read(self.buffer).ok()?;
        Some(Kept { path, array: Array { element, shape, bytes } })
    }
}

/// Says before a long run what would keep its results from being written: two with the same name, a folder that does not exist.
/// And whether the arrays fit into memory at all.
pub(super) fn outputs(arguments: &[Ready], json: Option<&Path>) -> Result<(), String> {
    let arrays = || arguments.iter().filter_map(Ready::data);
    let json = json.filter(|path| path.as_os_str() != "-");
    let paths: Vec<&Path> = arrays().filter_map(|data| data.output.as_deref()).chain(json).collect();
    for (i, path) in paths.iter().enumerate() {
        if paths[..i].contains(path) {
            return Err(format!("found {} twice as output, expected a file for each", path.display()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("writing {}: found no folder {}", path.display(), folder.display()));
        }
    }
    let bytes = arrays().try_fold(0_usize, |sum, data| sum.checked_add(data.bytes));
    match bytes.map(|bytes| (bytes, Vec::<u8>::new().try_reserve_exact(bytes))) {
        Some((_, Ok(()))) => Ok(()),
        Some((bytes, Err(_))) => {
            Err(format!("found arrays of {bytes} bytes, expected what fits into memory"))
        }
        None => Err("found arrays of more than 2^64 bytes, expected what fits into memory".into()),
    }
}

impl Ready {
    fn data(&self) -> Option<&Data> {
        match self {
            Ready::Scalar(_) => None,
            Ready::Array(data) | Ready::Map { data, .. } => Some(data),
        }
    }

    /// The argument for one run, and the array behind it.
    pub(super) fn bind(&self, sim: &mut Simulator) -> Result<(Arg, Option<Pending<'_>>), String> {
        match self {
            Ready::Scalar(bytes) => Ok((Arg::Bytes(bytes.clone()), None)),
            Ready::Array(data) => {
                let buffer = data.place(sim);
                Ok((Arg::Buffer(buffer), Some(Pending { data, buffer })))
            }
            Ready::Map { data, spec } => {
                let buffer = data.place(sim);
                let map = tensor_map(spec, buffer.address(), &data.shape)?;
                Ok((Arg::TensorMap(map), Some(Pending { data, buffer })))
            }
        }
    }
}

/// The map of a whole array in C order: its dimensions from the innermost, one right behind the other.
fn tensor_map(spec: &TensorMapSpec, address: u64, shape: &[u64]) -> Result<TensorMap, String> {
    let dims: Vec<u64> = shape.iter().rev().copied().collect();
    simulated_map(spec, address, &dims).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        match text.parse() {
            Ok(Written::Scalar { bytes, .. }) => bytes,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn refused(text: &str) -> String {
        text.parse::<Written>().unwrap_err()
    }

    #[test]
    fn numbers_of_every_type() {
        assert_eq!(bytes("i32:-7"), (-7_i32).to_le_bytes());
        assert_eq!(bytes("i32:-0x10"), (-16_i32).to_le_bytes());
        assert_eq!(bytes("u32:0xFFFFFFFF"), [0xff; 4]);
        assert_eq!(bytes("u64:18446744073709551615"), [0xff; 8]);
        assert_eq!(bytes("i64:-9223372036854775808"), i64::MIN.to_le_bytes());
        assert_eq!(bytes("u8:255"), [255]);
        assert_eq!(bytes("i16:-1"), [0xff; 2]);
        assert_eq!(bytes("f32:0.5"), 0.5_f32.to_le_bytes());
        assert_eq!(bytes("f32:-inf"), f32::NEG_INFINITY.to_le_bytes());
        assert_eq!(bytes("f32:0x3f800000"), 1.0_f32.to_le_bytes());
        assert_eq!(bytes("f64:1e300"), 1e300_f64.to_le_bytes());
        assert_eq!((bytes("f16:1.5"), bytes("bf16:1.5")), (vec![0, 0x3e], vec![0xc0, 0x3f]));
        let nan = f64::from_le_bytes(bytes("f64:nan").try_into().unwrap());
        assert!(nan.is_nan());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for text in [
            "i32:2147483648",
            "u32:-1",
            "u8:256",
            "i32:",
            "i32:1.5",
            "u32:0x",
            "u32:0x+1",
            "i32:--1",
            "f32:x",
            "f32:-0x1",
            "u64:-0x1",
            "u64:18446744073709551616",
            "f32:0x100000000",
        ] {
            assert!(refused(text).contains("expected a number"), "{text}");
        }
    }

    #[test]
    fn arrays_and_maps() {
        let fresh: Written = "out:a:b.npy:bf16:64x32".parse().unwrap();
        let source = Source {
            input: None,
            output: Some("a:b.npy".into()),
            fresh: Some((Element::BF16, vec![64, 32])),
        };
        assert_eq!(fresh, Written::Array(source.clone()));
        let map: Written = "tmapout:a:b.npy:bf16:64x32:32x8:64b".parse().unwrap();
        assert_eq!(
            map,
            Written::Map { source, extents: vec![32, 8], swizzle: SwizzleMode::B64, element: None }
        );
        let typed: Written = "tmap:x.npy:64x128:none:f16".parse().unwrap();
        let Written::Map { source, element, .. } = typed else { panic!("{typed:?}") };
        assert_eq!((source.input, element), (Some("x.npy".into()), Some(Element::F16)));
        let both: Written = "inout:a:b.npy:c.npy".parse().unwrap();
        let Written::Array(source) = both else { panic!("{both:?}") };
        assert_eq!((source.input, source.output), (Some("a:b.npy".into()), Some("c.npy".into())));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("7", "no colon"),
            ("x:7", "expected one of in:FILE"),
            ("in:", "file name"),
            ("inout:x.npy", "inout:IN.npy:OUT.npy"),
            ("out:x.npy:f32", "too few parts"),
            ("out:x.npy:f31:4", "DTYPE `f31`"),
            ("out:x.npy:e4m3:4", "DTYPE `e4m3`"),
            ("out:x.npy:f32:4x", "SHAPE `4x`"),
            ("out:x.npy:f32:-4", "SHAPE `-4`"),
            ("tmap:x.npy:64x128:96B", "SWIZZLE `96B`"),
            ("tmap:x.npy:64y128:none", "BOX `64y128`"),
            ("tmapout:x.npy:f32:4:none", "too few parts"),
        ] {
            assert!(refused(text).contains(part), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn sizes_are_checked_against_the_parameter() {
        let check = |text: &str, bytes| {
            let parameter = Parameter { name: "n".into(), bytes, align: 4 };
            text.parse::<Written>().unwrap().prepare(&parameter)
        };
        assert!(matches!(check("i32:7", 4), Ok(Ready::Scalar(_))));
        assert!(check("i32:7", 8).unwrap_err().contains("found i32, 4 bytes, expected 8 bytes: i64, u64"));
        assert!(check("out:x.npy:f32:4", 4).unwrap_err().contains("expected 4 bytes"));
        assert!(check("tmapout:x.npy:f32:4:4:none", 8).unwrap_err().contains("tensor map"));
        assert!(check("out:x.npy:f32:99999999x99999999x99999999", 8).unwrap_err().contains("64 GiB"));
        assert!(check("in:no/such.npy", 8).unwrap_err().contains("no/such.npy"));
        assert!(check("tmapout:x.npy:f32:8x8:8x8:none:f64", 128).unwrap_err().contains("TYPE f64"));
        assert!(check("tmapout:x.npy:f32:8x8:3x8:none", 128).unwrap_err().contains("multiple of 16"));
    }

    #[test]
    fn maps_cover_the_array() {
        let spec = TensorMapSpec::new(Element::F32, &[8, 4], SwizzleMode::None).unwrap();
        assert!(tensor_map(&spec, 0x1000, &[6, 8]).is_ok());
        assert!(tensor_map(&spec, 0x1000, &[6, 7]).unwrap_err().contains("stride"));
        assert!(tensor_map(&spec, 0x1000, &[8]).unwrap_err().contains("extents"));
        assert!(tensor_map(&spec, 0x1000, &[]).is_err());
    }
}
