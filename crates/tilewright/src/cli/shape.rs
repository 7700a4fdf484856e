//! Shapes of products: as users write them, and the sets that have a name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A product's extents. As text: `MxNxK`, then `*BATCH` for a strided batch, then `+PAD` for so many elements between the lines of every
/// matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Shape {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    pub(super) batch: u32,
    pub(super) pad: u32,
}

impl Shape {
    const fn new(m: u32, n: u32, k: u32) -> Shape {
        Shape { m, n, k, batch: 1, pad: 0 }
    }

    const fn batched(self, batch: u32) -> Shape {
        Shape { batch, ..self }
    }

    const fn padded(self, pad: u32) -> Shape {
        Shape { pad, ..self }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)?;
        if self.batch != 1 {
            write!(f, "*{}", self.batch)?;
        }
        if self.pad != 0 {
            write!(f, "+{}", self.pad)?;
        }
        Ok(())
    }
}

impl From<Shape> for String {
    fn from(shape: Shape) -> String {
        shape.to_string()
    }
}

impl TryFrom<String> for Shape {
    type Error = String;

    fn try_from(text: String) -> Result<Shape, String> {
        text.parse()
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let wrong = || {
            format!(
                "found `{text}`, expected MxNxK with extents below 2^31, such as 4096x4096x1024, 512x512x64*8 or 100x100x100+1"
            )
        };
        let (rest, pad) = text.trim().split_once('+').map_or((text.trim(), "0"), |parts| parts);
        let (rest, batch) = rest.split_once('*').unwrap_or((rest, "1"));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let extents = rest.split(['x', 'X']).map(number).collect::<Result<Vec<_>, _>>()?;
        let [m, n, k] = extents[..] else { return Err(wrong()) };
        let batch = number(batch)?;
        if batch == 0 {
            return Err(format!("found a batch of none in `{text}`, expected at least one"));
        }
        Ok(Shape { m, n, k, batch, pad: number(pad)? })
    }
}

/// The shapes of a file: one a line, or several with commas; `#` starts a comment.
pub(super) fn parse_file(text: &str) -> Result<Vec<Shape>, String> {
    let mut shapes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            shapes.push(word.parse().map_err(|error| format!("line {number}: {error}"))?);
        }
    }
    Ok(shapes)
}

/// Shapes that have a name.
pub(super) struct Set {
    pub(super) name: &'static str,
    /// What is in it, for the help.
    pub(super) what: &'static str,
    shapes: fn() -> Vec<Shape>,
}

/// Every set; the command line, its help and its errors read this table.
pub(super) const SETS: [Set; 5] = [
    Set { name: "squares", what: "m = n = k from 1024 to 16384", shapes: squares },
    Set { name: "llama", what: "the layers of Llama 3 8B and 70B, for 1 to 8192 tokens", shapes: llama },
    Set {
        name: "odd",
        what: "primes, multiples of 1000, shallow products, unaligned leading dimensions",
        shapes: odd,
    },
    Set { name: "batched", what: "many products of the same shape, as in attention", shapes: batched },
    Set { name: "small", what: "products so small that latency decides", shapes: small },
];

/// The set of that name.
pub(super) fn set(name: &str) -> Result<Vec<Shape>, String> {
    let found = SETS.iter().find(|set| set.name == name);
    found.map(|set| (set.shapes)()).ok_or_else(|| {
        let known: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        format!("found the set `{name}`, expected one of {}", known.join(", "))
    })
}

/// The first set that has this shape, by name.
pub(super) fn set_of(shape: &Shape) -> Option<&'static str> {
    SETS.iter().find(|set| (set.shapes)().contains(shape)).map(|set| set.name)
}

fn squares() -> Vec<Shape> {
    [1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384].map(|n| Shape::new(n, n, n)).to_vec()
}

/// (N, K) of query-key-value, output, gate and up, and down: of 8 billion parameters, then of 70.
const LLAMA_LAYERS: [(u32, u32); 7] =
    [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (57344, 8192), (8192, 28672)];
const LLAMA_TOKENS: [u32; 8] = [1, 16, 64, 128, 256, 512, 2048, 8192];

fn llama() -> Vec<Shape> {
    let layer = |(n, k): &(u32, u32)| LLAMA_TOKENS.map(|m| Shape::new(m, *n, *k));
    LLAMA_LAYERS.iter().flat_map(layer).collect()
}

fn odd() -> Vec<Shape> {
    vec![
        Shape::new(1000, 1000, 1000),
        Shape::new(2000, 3000, 5000),
        Shape::new(4097, 4097, 4097),
        Shape::new(4095, 4096, 4096),
        Shape::new(4096, 4095, 4096),
        Shape::new(4096, 4096, 4095),
        Shape::new(4099, 4111, 4093),
        Shape::new(1021, 1031, 1033),
        Shape::new(8191, 127, 8191),
        Shape::new(127, 8191, 8191),
        Shape::new(17, 31, 65537),
        Shape::new(4096, 4096, 8),
        Shape::new(4096, 4096, 16),
        Shape::new(8192, 8192, 64),
        Shape::new(3, 50257, 768),
        Shape::new(4096, 4096, 4096).padded(1),
        Shape::new(4096, 4096, 4096).padded(2),
        Shape::new(4096, 4096, 4096).padded(8),
        Shape::new(1000, 1000, 1000).padded(3),
    ]
}

fn batched() -> Vec<Shape> {
    vec![
        Shape::new(2048, 2048, 128).batched(32),
        Shape::new(2048, 128, 2048).batched(32),
        Shape::new(512, 512, 512).batched(64),
        Shape::new(128, 128, 128).batched(512),
        Shape::new(1, 4096, 128).batched(64),
        Shape::new(100, 100, 100).batched(100),
    ]
}

fn small() -> Vec<Shape> {
    [64, 128, 256, 512, 768].map(|n| Shape::new(n, n, n)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_written() {
        for text in ["4096x4096x1024", "1x2x3*4", "1x2x3+5", "1x2x3*4+5", "0x2x0"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        assert_eq!(" 1X2x 3 ".parse::<Shape>().unwrap(), Shape::new(1, 2, 3));
        for text in ["", "1x2", "1x2x3x4", "1x2x-3", "axbxc", "1x2x3*", "1x2x3*0", "99999999999x1x1"] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn files_have_comments_and_their_errors_a_line() {
        let text = "# all of them\n1x2x3, 4x5x6 # two\n\n7x8x9*2\r\n";
        let shapes: Vec<String> = parse_file(text).unwrap().iter().map(Shape::to_string).collect();
        assert_eq!(shapes, ["1x2x3", "4x5x6", "7x8x9*2"]);
        assert!(parse_file("1x2x3\n1x2\n").unwrap_err().starts_with("line 2: found `1x2`"));
    }

    #[test]
    fn sets_are_found_by_name_and_repeat_nothing() {
        for known in &SETS {
            let shapes = set(known.name).unwrap();
            assert!(!shapes.is_empty() && !known.what.is_empty());
            let different: std::collections::HashSet<_> = shapes.iter().collect();
            assert_eq!(different.len(), shapes.len(), "{}", known.name);
        }
        assert_eq!(llama().len(), 56);
        assert_eq!(
            set("round").unwrap_err(),
            "found the set `round`, expected one of squares, llama, odd, batched, small"
        );
    }
}
