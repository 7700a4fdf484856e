//! Packs of a device: where the code of a staged kernel is looked for before it is compiled.
//!
//! A packed kernel names its *source*, the hash of the staged kernel's text, which is the same wherever the code stood. A kernel on tiles
//! names the facts that it was compiled for as well: any launch of which all of them are true can run it. The more of its facts are used the
//! better, so among several the one with most is taken.
//!
//! Facts are the text that [`Variant`](super::Variant) prints. A tensor map is one line of words:
//!
//! ```text
//! a_map a bf16 box 64 128 steps 1 1 swizzle 3 fill 0 promotion 2 extents a_extent1 a_extent0 strides 1 a_stride0
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use tilewright_compiler::Build;
use tilewright_cuda::{ComputeCapability, Form, Key, Pack, PackedKernel, PackedKernelRef, PackedVariant};
use tilewright_hardware::{Arch, L2Promotion, OobFill, SwizzleMode, TensorMapSpec};
use tilewright_ptx::{Specificity, Target, signatures_to_text};
use tilewright_tile::{Fact, MapParameter, Number};

use super::DeviceError;

/// Facts about arguments, by the name of the parameter.
pub(super) type Facts = [(String, Fact)];

/// The packs of a device.
#[derive(Default)]
pub(super) struct Packs {
    packs: RwLock<Vec<Pack<'static>>>,
    /// Whether what is in none of them is an error.
    only: AtomicBool,
}

/// A kernel of a pack that does for a launch.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kernel: PackedKernelRef<'static>,
    /// What it was compiled for.
    pub(super) facts: Vec<(String, Fact)>,
    pub(super) maps: Vec<MapParameter>,
    pub(super) resident: Option<u32>,
}

impl Packs {
    pub(super) fn add(&self, pack: Pack<'static>) {
        self.packs.write().unwrap_or_else(PoisonError::into_inner).push(pack);
    }

    pub(super) fn set_only(&self, only: bool) {
        self.only.store(only, Ordering::Relaxed);
    }

    pub(super) fn are_all(&self) -> bool {
        self.only.load(Ordering::Relaxed)
    }

    /// What the packs have of a kernel for a chip, the latest pack first; `facts` is what is true of a launch, nothing of a kernel for
    /// threads. Where there is no driver, only PTX counts.
    pub(super) fn find(
        &self,
        kernel: &tilewright_lang::Kernel,
        facts: Option<&Facts>,
        (chip, has_driver): (ComputeCapability, bool),
    ) -> Result<Option<Found>, DeviceError> {
        let packs = self.packs.read().unwrap_or_else(PoisonError::into_inner);
        if packs.is_empty() {
            return Ok(None);
        }
        let source = source(kernel);
        let wish = |packed: &PackedKernelRef<'_>| {
            let fits = packed.source == Some(source) && (has_driver || packed.form == Form::Ptx);
            match (facts, packed.variant) {
                (None, None) => fits.then_some(0),
                (Some(facts), Some(variant)) if fits => fitness(&facts_of(variant.facts)?, facts),
                _ => None,
            }
        };
        let Some(&kernel) = packs.iter().rev().find_map(|pack| pack.select_by(chip, wish)) else {
            return Ok(None);
        };
        let variant = kernel.variant.unwrap_or_default();
        let maps = variant.maps.lines().map(map_of).collect::<Option<_>>().ok_or_else(|| {
            let (name, found) = (kernel.name.to_owned(), "tensor maps that cannot be read".to_owned());
            DeviceError::Packed { name, found, expected: "those of this version; write the pack again" }
        })?;
        let facts = facts_of(variant.facts).unwrap_or_default();
        Ok(Some(Found { kernel, facts, maps, resident: variant.resident }))
    }

    /// What the packs have that comes nearest to a kernel that they do not have.
    pub(super) fn nearest(&self, kernel: &tilewright_lang::Kernel) -> &'static str {
        let packs = self.packs.read().unwrap_or_else(PoisonError::into_inner);
        let has = |is: &dyn Fn(&PackedKernelRef<'_>) -> bool| packs.iter().any(|pack| pack.kernels().any(is));
        let source = source(kernel);
        if has(&|packed| packed.source == Some(source)) {
            "it for other arguments or chips"
        } else if has(&|packed| packed.name == kernel.name()) {
            "one of that name that is staged with other types or settings"
        } else {
            "none of that name"
        }
    }
}

/// What a kernel is, whatever its file and lines.
fn source(kernel: &tilewright_lang::Kernel) -> Key {
    Key::builder().field("kernel", kernel.func().to_string()).finish()
}

/// A compiled kernel as it goes into a pack: PTX for a chip and what comes after it.
pub(super) fn pack(
    kernel: &tilewright_lang::Kernel,
    facts: Option<&Facts>,
    build: &Build,
    arch: Arch,
) -> PackedKernel {
    let code = &build.code;
    let maps: Vec<String> = build.maps.iter().map(map_text).collect();
    PackedKernel {
        name: code.entry.clone(),
        // The text says what its instructions need; memory and registers are those of the chip that it was compiled for.
        target: match code.module.target {
            Target { specificity: Specificity::Plain, sm } => {
                Target::plain(u16::try_from(arch.number).unwrap_or(sm).max(sm))
            }
            target => target,
        },
        form: Form::Ptx,
        code: code.text.clone().into_bytes(),
        signatures: signatures_to_text(&code.module.signatures()),
        shared_dynamic: code.shared.dynamic,
        block: code.launch.threads,
        cluster: code.launch.cluster,
        overlaps: code.overlaps,
        producer: format!("tilewright {}", env!("CARGO_PKG_VERSION")),
        source: Some(source(kernel)),
        variant: facts.map(|facts| PackedVariant {
            facts: facts_text(facts),
            maps: maps.join("\n"),
            resident: build.resident,
        }),
    }
}

/// How many facts are used, if all of them follow from what is true; a number that is known counts for more than one that is a multiple.
fn fitness(needed: &Facts, known: &Facts) -> Option<usize> {
    let follows = |(name, fact): &(String, Fact)| {
        known.iter().any(|(other, known)| {
            let multiple = |of: u32| match *known {
                Fact::Is(number) => number.unsigned_abs().is_multiple_of(of.into()),
                Fact::MultipleOf(other) => other.is_multiple_of(of),
            };
            name == other
                && match *fact {
                    Fact::Is(_) => fact == known,
                    Fact::MultipleOf(of) => multiple(of),
                }
        })
    };
    let weight = |(_, fact): &(String, Fact)| match fact {
        Fact::Is(_) => 2,
        Fact::MultipleOf(_) => 1,
    };
    needed.iter().all(follows).then(|| needed.iter().map(weight).sum())
}

/// Facts as people and packs read them.
pub(super) fn facts_text(facts: &Facts) -> String {
    let says = |(name, fact): &(String, Fact)| match fact {
        Fact::Is(number) => format!("{name} is {number}"),
        Fact::MultipleOf(of) => format!("{name} is a multiple of {of}"),
    };
    facts.iter().map(says).collect::<Vec<_>>().join(", ")
}

fn facts_of(text: &str) -> Option<Vec<(String, Fact)>> {
    let fact = |text: &str| {
        let (name, fact) = text.split_once(" is ")?;
        let fact = match fact.strip_prefix("a multiple of ") {
            Some(of) => Fact::MultipleOf(of.parse().ok()?),
            None => Fact::Is(fact.parse().ok()?),
        };
        Some((name.to_owned(), fact))
    };
    if text.is_empty() { Some(Vec::new()) } else { text.split(", ").map(fact).collect() }
}

/// The word for an extent that is as large as the memory allows.
const ALL: &str = "*";

fn map_text(map: &MapParameter) -> String {
    let spec = &map.spec;
    let words = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let numbers = |numbers: &[Number]| {
        let word = |number: &Number| match number {
            Number::Parameter(name) => name.clone(),
            Number::Constant(number) => number.to_string(),
            Number::All => ALL.to_owned(),
        };
        numbers.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    format!(
        "{} {} {} box {} steps {} swizzle {} fill {} promotion {} extents {} strides {}",
        map.name,
        map.pointer,
        spec.element(),
        words(spec.box_dims()),
        words(spec.element_strides()),
        spec.swizzle().tma_code(),
        spec.oob_fill().code(),
        spec.l2_promotion().code(),
        numbers(&map.extents),
        numbers(&map.strides),
    )
}

/// What [`map_text`] wrote.
fn map_of(line: &str) -> Option<MapParameter> {
    let mut words = line.split(' ').peekable();
    let (name, pointer, element) = (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?);
    // The words between a title and the next.
    let mut list = |title: &str, next: Option<&str>| {
        (words.next()? == title).then_some(())?;
        Some(std::iter::from_fn(|| words.next_if(|word| Some(*word) != next)).collect::<Vec<_>>())
    };
    let sizes =
        |words: Vec<&str>| words.into_iter().map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>();
    let number = |word: &str| match word.parse() {
        _ if word == ALL => Number::All,
        Ok(number) => Number::Constant(number),
        Err(_) => Number::Parameter(word.to_owned()),
    };
    let box_dims = sizes(list("box", Some("steps"))?)?;
    let steps = sizes(list("steps", Some("swizzle"))?)?;
    let swizzle = sizes(list("swizzle", Some("fill"))?)?;
    let fill = sizes(list("fill", Some("promotion"))?)?;
    let promotion = sizes(list("promotion", Some("extents"))?)?;
    let extents = list("extents", Some("strides"))?.into_iter().map(number).collect();
    let strides = list("strides", None)?.into_iter().map(number).collect();
    let swizzle = SwizzleMode::ALL.into_iter().find(|mode| [mode.tma_code()] == swizzle[..])?;
    let fill = [OobFill::Zeros, OobFill::Nan].into_iter().find(|way| [way.code()] == fill[..])?;
    let promotions = [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256];
    let promotion = promotions.into_iter().find(|way| [way.code()] == promotion[..])?;
    let spec = TensorMapSpec::new(element.parse().ok()?, &box_dims, swizzle).ok()?;
    let spec = spec.with_element_strides(&steps).ok()?.with_oob_fill(fill).ok()?;
    Some(MapParameter { name, pointer, spec: spec.with_l2_promotion(promotion), extents, strides })
}

#[cfg(test)]
mod tests {
    use tilewright_hardware::Element;

    use super::*;

    #[test]
    fn facts_are_read_as_they_are_written() {
        let facts = [
            ("x".to_owned(), Fact::MultipleOf(16)),
            ("x_stride1".to_owned(), Fact::Is(1)),
            ("ctaid.y".to_owned(), Fact::Is(-7)),
        ];
        let text = facts_text(&facts);
        assert_eq!(text, "x is a multiple of 16, x_stride1 is 1, ctaid.y is -7");
        assert_eq!(facts_of(&text).as_deref(), Some(&facts[..]));
        assert_eq!(facts_of(""), Some(Vec::new()));
        for wrong in ["x", "x is", "x is a multiple of y", "x is 1,y is 2"] {
            assert_eq!(facts_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tensor_maps_are_read_as_they_are_written() {
        let spec = TensorMapSpec::new(Element::BF16, &[64, 128, 1], SwizzleMode::B128).unwrap();
        let spec = spec.with_l2_promotion(L2Promotion::B256).with_oob_fill(OobFill::Nan).unwrap();
        let parameter = |name: &str| Number::Parameter(name.to_owned());
        let map = MapParameter {
            name: "a_map".to_owned(),
            pointer: "a".to_owned(),
            spec,
            extents: vec![parameter("a_extent1"), Number::Constant(64), Number::All],
            strides: vec![Number::Constant(1), parameter("a_stride1"), parameter("a_stride0")],
        };
        let text = map_text(&map);
        assert_eq!(map_of(&text), Some(map));
        // A word less, or one that is not there.
        for at in 0..text.split(' ').count() {
            let words = || text.split(' ').enumerate();
            let less: Vec<&str> = words().filter(|(i, _)| *i != at).map(|(_, word)| word).collect();
            let other: Vec<&str> = words().map(|(i, word)| if i == at { "?" } else { word }).collect();
            let known = |map: Option<MapParameter>| map.is_none_or(|map| map_text(&map) != text);
            assert!(known(map_of(&less.join(" "))) && known(map_of(&other.join(" "))), "{at}");
        }
    }

    #[test]
    fn a_variant_does_where_all_its_facts_follow() {
        let known = facts_of("x is a multiple of 16, n is 64, s is 1").unwrap();
        let fits = |text: &str| fitness(&facts_of(text).unwrap(), &known);
        assert_eq!(fits(""), Some(0));
        assert_eq!(fits("x is a multiple of 8"), Some(1));
        assert_eq!(fits("x is a multiple of 16, n is a multiple of 4"), Some(2));
        assert_eq!(fits("n is 64"), Some(2));
        assert_eq!(fits("x is a multiple of 16, n is 64, s is 1"), Some(5));
        for more in
            ["x is a multiple of 32", "n is 32", "n is a multiple of 3", "x is 16", "y is 1", "s is 0"]
        {
            assert_eq!(fits(more), None, "{more}");
        }
    }
}
