//! Arrays in files, in the format of NumPy (`.npy`).
//!
//! Versions 1.0 to 3.0, little-endian numbers and truth values, C order. Everything else is an error with the reason, and a header
//! that promises more than the file holds costs nothing: the file is read once, and its size is all that is ever allocated.
//! NumPy has no bf16; such arrays are written as `uint16`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tilewright::hardware::Element;

use super::whole;

/// An array in C order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    /// Type of the elements.
    pub(super) element: Element,
    /// Extents, outermost first.
    pub(super) shape: Vec<u64>,
    /// The elements, little-endian.
    pub(super) bytes: Vec<u8>,
}

/// Why a file is not an array that we can use, or could not be written.
#[derive(Debug, Error)]
pub(super) enum NpyError {
    #[error("{path}: {error}", path = .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: found {found}, expected {expected}", path = .path.display())]
    Content { path: PathBuf, found: String, expected: String },
}

/// What was found, and what was expected: an error that does not know its file yet.
#[derive(Debug, PartialEq)]
struct Wrong(String, String);

fn wrong<T>(found: impl Into<String>, expected: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong(found.into(), expected.into()))
}

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Data starts at a multiple of this.
const ALIGNMENT: usize = 64;
/// NumPy's type of each element; the first row of a type is what it reads as.
const TYPES: [(Element, &str); 13] = [
    (Element::Bool, "|b1"),
    (Element::I8, "|i1"),
    (Element::U8, "|u1"),
    (Element::I16, "<i2"),
    (Element::U16, "<u2"),
    (Element::I32, "<i4"),
    (Element::U32, "<u4"),
    (Element::I64, "<i8"),
    (Element::U64, "<u8"),
    (Element::F16, "<f2"),
    (Element::F32, "<f4"),
    (Element::F64, "<f8"),
    (Element::BF16, "<u2"),
];

/// The element type of that name, if arrays can have it.
pub(super) fn element(name: &str) -> Option<Element> {
    let element: Element = name.parse().ok()?;
    TYPES.iter().any(|row| row.0 == element).then_some(element)
}

/// Names of all element types that arrays can have.
pub(super) fn element_names() -> String {
    TYPES.map(|row| row.0.name()).join(", ")
}

/// Bytes of an array, or nothing if that is no number.
pub(super) fn size(element: Element, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(u64::from(element.bytes()), |bytes, extent| bytes.checked_mul(*extent))
}

impl Array {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Array, NpyError> {
        let failed = |error| NpyError::File { path: path.into(), error };
        // A device or a pipe may never end.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let bytes = fs::read(path).map_err(failed)?;
        Array::parse(bytes).map_err(|Wrong(found, expected)| NpyError::Content {
            path: path.into(),
            found,
            expected,
        })
    }

    /// Writes a file: all of it or nothing.
    pub(super) fn write(&self, path: &Path) -> Result<(), NpyError> {
        whole::replace(path, &[&self.head(), &self.bytes])
            .map_err(|error| NpyError::File { path: path.into(), error })
    }

    fn parse(mut file: Vec<u8>) -> Result<Array, Wrong> {
        let Some(rest) = file.strip_prefix(MAGIC) else {
            return wrong("no NumPy array", "a file that starts with \\x93NUMPY; write it with numpy.save");
        };
        let (length, rest) = match rest {
            [1, 0, a, b, rest @ ..] => (u32::from(u16::from_le_bytes([*a, *b])), rest),
            [2 | 3, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
            [major, minor, ..] if !(1..=3).contains(major) || *minor != 0 => {
                return wrong(format!("version {major}.{minor}"), "1.0, 2.0 or 3.0");
            }
            _ => return wrong("the end of the file", "a header"),
        };
        let Some(header) = rest.get(..length as usize) else {
            return wrong(format!("a header of {length} bytes in {} bytes", rest.len()), "a whole file");
        };
        let start = file.len() - rest.len() + header.len();
        let Ok(text) = str::from_utf8(header) else { return wrong("a header that is no text", "UTF-8") };
        let header = Header::parse(text)?;
        let (found, expected) = (file.len() - start, size(header.element, &header.shape));
        if expected != Some(found as u64) {
            let expected = expected.map_or("less".to_owned(), |bytes| bytes.to_string());
            return wrong(
                format!("{found} bytes of data"),
                format!("{expected}, as its shape {:?} says", header.shape),
            );
        }
        file.drain(..start);
        Ok(Array { element: header.element, shape: header.shape, bytes: file })
    }

    /// Everything before the data.
    fn head(&self) -> Vec<u8> {
        let ty = TYPES.iter().find(|row| row.0 == self.element).map_or("|u1", |row| row.1);
        let extents: String = self.shape.iter().map(|extent| format!("{extent}, ")).collect();
        // A tuple of one needs its comma; more do not mind theirs.
        let shape = extents.trim_end();
        let mut text = format!("{{'descr': '{ty}', 'fortran_order': False, 'shape': ({shape}), }}");
        // Magic, version and length are 10 bytes in version 1.0 and 12 in later ones.
        let fits = |text: &str| u16::try_from((text.len() + 11).next_multiple_of(ALIGNMENT) - 10).ok();
        let mut head = MAGIC.to_vec();
        if let Some(length) = fits(&text) {
            text += &" ".repeat(usize::from(length) - text.len() - 1);
            head.extend([1, 0]);
            head.extend(length.to_le_bytes());
        } else {
            let length = (text.len() + 13).next_multiple_of(ALIGNMENT) - 12;
            text += &" ".repeat(length - text.len() - 1);
            head.extend([2, 0]);
            head.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        }
        head.extend(text.as_bytes());
        head.push(b'\n');
        head
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    element: Element,
    shape: Vec<u64>,
}

impl Header {
    /// The header is a Python dictionary with three keys, in any order.
    fn parse(text: &str) -> Result<Header, Wrong> {
        let mut reader = Reader { rest: text.trim() };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        reader.expect('{')?;
        while !reader.skip('}') {
            let key = reader.string()?;
            reader.expect(':')?;
            match key {
                "descr" => descr = Some(reader.string()?),
                "fortran_order" => fortran = Some(reader.truth()?),
                "shape" => shape = Some(reader.tuple()?),
                _ => return wrong(format!("the key `{key}`"), "descr, fortran_order and shape only"),
            }
            if !reader.skip(',') {
                reader.expect('}')?;
                break;
            }
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return wrong("an incomplete header", "descr, fortran_order and shape");
        };
        if !reader.rest.is_empty() {
            return wrong(format!("`{}` after the header", short(reader.rest)), "nothing");
        }
        // Without a second dimension both orders are the same.
        if fortran && shape.len() > 1 {
            return wrong("an array in Fortran order", "C order; use numpy.ascontiguousarray");
        }
        if descr.starts_with('>') {
            return wrong(
                format!("big-endian elements, `{}`", short(descr)),
                "little-endian; use array.astype('<f4')",
            );
        }
        // One byte has no order, whatever the file says.
        let plain = descr.trim_start_matches(['<', '|', '=']);
        let row = TYPES.iter().find(|row| {
            let (order, name) = row.1.split_at(1);
            name == plain && (order == "|" || !descr.starts_with('|')) && descr.len() <= name.len() + 1
        });
        match row {
            Some(row) => Ok(Header { element: row.0, shape }),
            None => wrong(format!("elements of type `{}`", short(descr)), element_names()),
        }
    }
}

/// As much of a text as fits into a message.
fn short(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The few things of Python that headers are made of.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Whether this comes next; if so it is taken.
    fn skip(&mut self, wanted: char) -> bool {
        let stripped = self.rest.trim_start().strip_prefix(wanted);
        if let Some(rest) = stripped {
            self.rest = rest.trim_start();
        }
        stripped.is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), Wrong> {
        if self.skip(wanted) {
            Ok(())
        } else {
            wrong(format!("`{}` in the header", short(self.rest)), format!("`{wanted}`"))
        }
    }

    fn string(&mut self) -> Result<&'a str, Wrong> {
        for quote in ['\'', '"'] {
            if let Some((text, rest)) = self.rest.strip_prefix(quote).and_then(|rest| rest.split_once(quote))
            {
                self.rest = rest.trim_start();
                return Ok(text);
            }
        }
        wrong(
            format!("`{}` in the header", short(self.rest)),
            "a name in quotes; arrays of records are not supported",
        )
    }

    /// Letters and digits.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn truth(&mut self) -> Result<bool, Wrong> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => wrong(format!("fortran_order `{}`", short(other)), "True or False"),
        }
    }

    fn tuple(&mut self) -> Result<Vec<u64>, Wrong> {
        /// More than any array of NumPy has.
        const MOST: usize = 64;
        self.expect('(')?;
        let mut extents = Vec::new();
        while !self.skip(')') {
            let word = self.word();
            // Python 2 wrote long integers as `3L`.
            let Ok(extent) = word.trim_end_matches('L').parse() else {
                return wrong(format!("the extent `{}`", short(word)), "a number");
            };
            extents.push(extent);
            if extents.len() > MOST {
                return wrong("a shape without end", format!("at most {MOST} dimensions"));
            }
            if !self.skip(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(version: [u8; 2], header: &str, data: &[u8]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(version);
        match version[0] {
            1 => file.extend(u16::try_from(header.len()).unwrap().to_le_bytes()),
            _ => file.extend(u32::try_from(header.len()).unwrap().to_le_bytes()),
        }
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    fn refused(header: &str, data: &[u8]) -> String {
        let Wrong(found, expected) = Array::parse(file([1, 0], header, data)).unwrap_err();
        format!("found {found}, expected {expected}")
    }

    #[test]
    fn what_numpy_writes() {
        // The bytes of numpy.save for numpy.arange(6, dtype='int16').reshape(2, 3).
        let header = format!("{:<117}\n", "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }");
        let data: Vec<u8> = (0..6_i16).flat_map(i16::to_le_bytes).collect();
        let array = Array::parse(file([1, 0], &header, &data)).unwrap();
        assert_eq!((array.element, array.shape.as_slice(), &array.bytes), (Element::I16, &[2, 3][..], &data));
        for version in [[2, 0], [3, 0]] {
            assert_eq!(Array::parse(file(version, &header, &data)).unwrap(), array);
        }
        // Any order of keys, either quote, a scalar, Fortran order of a line, and a byte with an order.
        let odd = "{\"shape\":(),'descr':\"|u1\",'fortran_order':True}";
        assert_eq!(Array::parse(file([1, 0], odd, &[7])).unwrap().bytes, [7]);
        let line = "{'descr': '<i1', 'fortran_order': True, 'shape': (3L,), }\n";
        assert_eq!(Array::parse(file([1, 0], line, &[1, 2, 3])).unwrap().shape, [3]);
        let empty = "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4), }";
        assert!(Array::parse(file([1, 0], empty, &[])).unwrap().bytes.is_empty());
    }

    #[test]
    fn every_type_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a:b.npy");
        for (element, _) in TYPES {
            for shape in [vec![], vec![5], vec![2, 3], vec![0, 7], vec![1; 9]] {
                let length = usize::try_from(size(element, &shape).unwrap()).unwrap();
                let array = Array { element, shape, bytes: (0..=255).cycle().take(length).collect() };
                array.write(&path).unwrap();
                assert_eq!(fs::read(&path).unwrap().len() % ALIGNMENT, length % ALIGNMENT);
                let read = Array::read(&path).unwrap();
                let expected = if element == Element::BF16 { Element::U16 } else { element };
                assert_eq!((read.element, read.shape, read.bytes), (expected, array.shape, array.bytes));
            }
        }
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let lost = Array { element: Element::U8, shape: vec![0], bytes: vec![] };
        assert!(lost.write(&folder.path().join("no/such/folder.npy")).is_err());
        assert!(lost.write(Path::new("/")).is_err());
        assert!(Array::read(folder.path()).unwrap_err().to_string().contains("regular file"));
    }

    #[test]
    fn a_header_beyond_version_1_is_version_2() {
        let array = Array { element: Element::U8, shape: vec![0; 40_000], bytes: vec![] };
        let head = array.head();
        assert_eq!((&head[6..8], head.len() % ALIGNMENT), (&[2, 0][..], 0));
    }

    #[test]
    fn errors_say_what_to_do() {
        let header = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}")
        };
        for (text, part) in [
            (header("'>f4'", "False", "(1,)"), "big-endian"),
            (header("'<f4'", "True", "(2, 2)"), "C order"),
            (header("'<c8'", "False", "(1,)"), "`<c8`"),
            (header("'|f4'", "False", "(1,)"), "`|f4`"),
            (header("[('a', '<f4')]", "False", "(1,)"), "records"),
            (header("'<f4'", "False", "(2,)"), "4 bytes of data, expected 8"),
            (header("'<f4'", "False", "(9223372036854775807, 16)"), "expected less"),
            (header("'<f4'", "False", "(99999999999999999999,)"), "the extent"),
            (header("'<f4'", "False", "(-1,)"), "the extent"),
            (header("'<f4'", "Maybe", "(1,)"), "True or False"),
            ("{'descr': '<f4'}".to_owned(), "incomplete"),
            ("{'colour': 'blue'}".to_owned(), "colour"),
            (header("'<f4'", "False", "(1,)") + "x", "after the header"),
            (String::new(), "`{`"),
        ] {
            let message = refused(&text, &[0; 4]);
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(Array::parse(b"PK\x03\x04".to_vec()).unwrap_err().1.contains("numpy.save"));
        assert!(Array::parse(b"\x93NUMPY\x04\x00\x00\x00".to_vec()).unwrap_err().0.contains("4.0"));
        // A header of 4 GiB that is not there.
        assert!(
            Array::parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec()).unwrap_err().0.contains("4294967295")
        );
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0_u8..5) {
            let _ = Array::parse(bytes.clone());
            let _ = Array::parse([MAGIC, &[version, 0][..], &bytes].concat());
        }

        #[test]
        fn damaged_headers_do_not_panic(at in 0_usize..70, byte: u8, cut in 0_usize..90) {
            let mut file = file([1, 0], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", &[0; 24]);
            file[at] = byte;
            file.truncate(file.len() - cut.min(file.len()));
            let _ = Array::parse(file);
        }
    }
}
