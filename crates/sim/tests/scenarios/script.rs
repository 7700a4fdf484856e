//! The language of the scenario files: PTX with comments that say how it is launched, what it must compute, and how it can be broken.
//!
//! ```text
//! //! launch grid=2 block=64 cluster=2 shared=0     blocks, threads of a block, blocks of a cluster, dynamic bytes
//! //! buffer x u32 64 = 2*i+1                       an argument: contents before
//! //! buffer y f32 64 -> 3                          an argument: nobody has written it; contents after
//! //! hidden z u32 64 = i                           a buffer that is no argument
//! //! map m of z 8x8 box 8x4                        an argument: tensor map, innermost extent first
//! //! value 64                                      an argument: u32
//! //! broken a: race at x                           variant `a` must be found out: kind, and name of the memory
//! //! broken b: race at x, sometimes                  the same; `sometimes`: not under every seed
//! //! broken d: race or deadlock                    one of the two
//! //! broken c: deadlock, "barrier 1, where"        the message contains the text
//! //! budget 100000                                 warp instructions
//! st.shared.u32 [%r1], %r2;   //-a,b                left out of variants a and b
//! st.shared.u32 [%r1], %r3;   //+a                  only in variant a
//! bar.sync 0;                 //1 a                 the finding of a names this line first (the later access)
//! ld.shared.u32 %r1, [%r2];   //2 a                 and this one second (the earlier access)
//! ```
//!
//! Lines are left out by making them empty, so that line numbers stay those of the file.

use tilewright_sim::FindingKind;

/// Type of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    U32,
    U64,
    F32,
    Bf16,
}

/// `scale * i + offset` for element `i`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    pub(crate) scale: u32,
    pub(crate) offset: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) element: Element,
    pub(crate) count: usize,
    pub(crate) before: Option<Ramp>,
    pub(crate) after: Option<Ramp>,
    pub(crate) passed: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Memory(Memory),
    Map { of: String, extents: Vec<u32>, tile: Vec<u32> },
    Value(u32),
}

/// A way to break the kernel, and what must be said about it.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) kinds: Vec<FindingKind>,
    pub(crate) memory: Option<String>,
    pub(crate) contains: Option<String>,
    pub(crate) sometimes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: String,
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) cluster: Option<u32>,
    pub(crate) shared: u32,
    pub(crate) budget: u64,
    pub(crate) inputs: Vec<Input>,
    pub(crate) variants: Vec<Variant>,
}

/// A mark behind a line: `//-a,b`, `//+a`, `//1 a`, `//2 a`.
struct Mark<'a> {
    sign: char,
    names: Vec<&'a str>,
}

fn marks(line: &str) -> Vec<Mark<'_>> {
    line.split("//")
        .skip(1)
        .filter_map(|piece| {
            let sign = piece.chars().next().filter(|sign| "-+12".contains(*sign))?;
            let names = piece[1..].split(',').map(str::trim).collect();
            Some(Mark { sign, names })
        })
        .collect()
}

impl Script {
    pub(crate) fn parse(text: &str) -> Script {
        let mut script = Script {
            text: text.to_owned(),
            grid: 1,
            block: 32,
            cluster: None,
            shared: 0,
            budget: 1_000_000,
            inputs: Vec::new(),
            variants: Vec::new(),
        };
        for line in text.lines() {
            if let Some(directive) = line.strip_prefix("//! ") {
                script.directive(directive);
            }
        }
        let known = |name: &&str| script.variants.iter().any(|variant| variant.name == **name);
        for (number, line) in text.lines().enumerate() {
            for mark in marks(line) {
                assert!(
                    mark.names.iter().all(known),
                    "line {}: {:?} are not all variants",
                    number + 1,
                    mark.names
                );
            }
        }
        script
    }

    fn directive(&mut self, directive: &str) {
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        match word {
            "launch" => {
                for pair in rest.split_whitespace() {
                    let (key, value) = pair.split_once('=').unwrap();
                    let value: u32 = value.parse().unwrap();
                    match key {
                        "grid" => self.grid = value,
                        "block" => self.block = value,
                        "cluster" => self.cluster = Some(value),
                        "shared" => self.shared = value,
                        _ => panic!("launch has no `{key}`"),
                    }
                }
            }
            "buffer" | "hidden" => self.inputs.push(Input::Memory(memory(rest, word == "buffer"))),
            "map" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let extents = |text: &str| text.split('x').map(|extent| extent.parse().unwrap()).collect();
                let [_, "of", of, dims, "box", tile] = words[..] else { panic!("not a map: {rest}") };
                self.inputs.push(Input::Map {
                    of: of.to_owned(),
                    extents: extents(dims),
                    tile: extents(tile),
                });
            }
            "value" => self.inputs.push(Input::Value(rest.parse().unwrap())),
            "budget" => self.budget = rest.parse().unwrap(),
            "broken" => self.variants.push(variant(rest)),
            _ => {}
        }
    }

    /// The text of a variant; of the right version if none is given.
    pub(crate) fn text(&self, variant: Option<&str>) -> String {
        let keep = |line: &str| {
            marks(line).iter().all(|mark| {
                let named = variant.is_some_and(|variant| mark.names.contains(&variant));
                match mark.sign {
                    '-' => !named,
                    '+' => named,
                    _ => true,
                }
            })
        };
        let lines: Vec<&str> = self.text.lines().map(|line| if keep(line) { line } else { "" }).collect();
        lines.join("\n")
    }

    /// The lines that a finding of a variant may name first (`'1'`) or second (`'2'`); empty if it does not matter.
    pub(crate) fn lines(&self, variant: &str, sign: char) -> Vec<u32> {
        let wanted =
            |line: &str| marks(line).iter().any(|mark| mark.sign == sign && mark.names.contains(&variant));
        (1..).zip(self.text.lines()).filter(|(_, line)| wanted(line)).map(|(number, _)| number).collect()
    }
}

fn ramp(text: &str) -> Ramp {
    let (scale, offset) = match text.split_once('+') {
        Some((scale, offset)) => (scale, offset.parse().unwrap()),
        None if text.contains('i') => (text, 0),
        None => ("0", text.parse().unwrap()),
    };
    let scale = match scale {
        "i" => 1,
        "0" => 0,
        scale => scale.strip_suffix("*i").unwrap().parse().unwrap(),
    };
    Ramp { scale, offset }
}

fn memory(text: &str, passed: bool) -> Memory {
    let words: Vec<&str> = text.split_whitespace().collect();
    let element = match words[1] {
        "u32" => Element::U32,
        "u64" => Element::U64,
        "f32" => Element::F32,
        "bf16" => Element::Bf16,
        other => panic!("no element type: {other}"),
    };
    let behind = |sign: &str| words.iter().position(|word| *word == sign).map(|at| ramp(words[at + 1]));
    Memory {
        name: words[0].to_owned(),
        element,
        count: words[2].parse().unwrap(),
        before: behind("="),
        after: behind("->"),
        passed,
    }
}

fn variant(text: &str) -> Variant {
    let (name, rest) = text.split_once(": ").unwrap();
    let (contains, rest) = match rest.split_once(", \"") {
        Some((rest, quoted)) => (Some(quoted.strip_suffix('"').unwrap().to_owned()), rest),
        None => (None, rest),
    };
    let (rest, sometimes) = rest.strip_suffix(", sometimes").map_or((rest, false), |rest| (rest, true));
    let (kind, memory) = match rest.split_once(" at ") {
        Some((kind, memory)) => (kind, Some(memory.to_owned())),
        None => (rest, None),
    };
    let known = |text: &str| FindingKind::ALL.iter().copied().find(|known| known.to_string() == text);
    let kinds =
        kind.split(" or ").map(|kind| known(kind).unwrap_or_else(|| panic!("no kind of finding: {kind}")));
    let kinds = kinds.collect();
    Variant { name: name.to_owned(), kinds, memory, contains, sometimes }
}
