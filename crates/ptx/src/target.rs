//! Versions of PTX, and targets: which exist, which code runs where, and which version each needs.

use std::fmt;
use std::str::FromStr;

use crate::error::PtxError;

/// A version of the PTX language.
///
/// ```
/// let version: tilewright_ptx::Version = "8.0".parse()?;
/// assert!(version > tilewright_ptx::Version::new(7, 8));
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Before the point.
    pub major: u8,
    /// Behind the point.
    pub minor: u8,
}

impl Version {
    /// Version `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Version {
        Version { major, minor }
    }

    /// The last released version before this one; `None` for the oldest known.
    pub fn previous(self) -> Option<Version> {
        let all = VERSIONS
            .iter()
            .flat_map(|&(major, minors)| minors.iter().map(move |&minor| Version { major, minor }));
        all.filter(|&version| version < self).max()
    }
}

/// The released versions, from the oldest that the table tells apart.
const VERSIONS: &[(u8, &[u8])] = &[
    (6, &[0, 1, 2, 3, 4, 5]),
    (7, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    (8, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    (9, &[0, 1]),
];

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = PtxError;

    fn from_str(text: &str) -> Result<Version, PtxError> {
        let parts =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match parts {
            Some((major, minor)) => Ok(Version { major, minor }),
            None => Err(PtxError::Version { found: text.into() }),
        }
    }
}

/// How much of a chip's own features a target may use, and so where its code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Specificity {
    /// `sm_90`: runs on this chip and all later ones.
    Plain,
    /// `sm_100f`: runs on this chip and later ones of its family.
    Family,
    /// `sm_90a`: runs on this chip only.
    Arch,
}

/// A compilation target.
///
/// ```
/// use tilewright_ptx::Target;
/// let hopper: Target = "sm_90a".parse()?;
/// assert!(hopper.includes(Target::plain(80)));
/// assert!(!Target::plain(90).includes(hopper));
/// assert_eq!(hopper.since().to_string(), "8.0");
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Plain, family or architecture specific.
    pub specificity: Specificity,
    /// The number of the chip: 80 for `sm_80`.
    pub sm: u16,
}

impl Target {
    /// `sm_X`
    pub const fn plain(sm: u16) -> Target {
        Target { specificity: Specificity::Plain, sm }
    }

    /// `sm_Xf`
    pub const fn family(sm: u16) -> Target {
        Target { specificity: Specificity::Family, sm }
    }

    /// `sm_Xa`
    pub const fn arch(sm: u16) -> Target {
        Target { specificity: Specificity::Arch, sm }
    }

    /// Every target, plain ones first, then in the order of the chips.
    pub fn all() -> impl Iterator<Item = Target> {
        let of = |specificity: Specificity, since: fn(&Row) -> Option<Version>| {
            TARGETS
                .iter()
                .filter(move |row| since(row).is_some())
                .map(move |row| Target { specificity, sm: row.sm })
        };
        of(Specificity::Plain, |row| Some(row.plain))
            .chain(of(Specificity::Family, |row| row.family))
            .chain(of(Specificity::Arch, |row| row.arch))
    }

    /// The version of PTX that brought it; for one that is not known, the newest version.
    pub fn since(self) -> Version {
        let row = TARGETS.iter().find(|row| row.sm == self.sm);
        let since = row.and_then(|row| match self.specificity {
            Specificity::Plain => Some(row.plain),
            Specificity::Family => row.family,
            Specificity::Arch => row.arch,
        });
        since.unwrap_or(Version::new(9, 1))
    }

    /// Whether code for this target may use what `need` has.
    pub fn includes(self, need: Target) -> bool {
        match need.specificity {
            Specificity::Plain => self.sm >= need.sm,
            Specificity::Arch => self == need,
            Specificity::Family => {
                let family = |sm| TARGETS.iter().find(|row| row.sm == sm).map(|row| row.member_of);
                self.specificity != Specificity::Plain
                    && self.sm >= need.sm
                    && family(self.sm).is_some_and(|own| Some(own) == family(need.sm))
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.specificity {
            Specificity::Plain => "",
            Specificity::Family => "f",
            Specificity::Arch => "a",
        };
        write!(f, "sm_{}{suffix}", self.sm)
    }
}

impl FromStr for Target {
    type Err = PtxError;

    fn from_str(text: &str) -> Result<Target, PtxError> {
        let unknown = || PtxError::Target { found: text.into() };
        let rest = text.strip_prefix("sm_").ok_or_else(unknown)?;
        let (number, specificity) = match rest.strip_suffix(['a', 'f']) {
            Some(number) if rest.ends_with('a') => (number, Specificity::Arch),
            Some(number) => (number, Specificity::Family),
            None => (rest, Specificity::Plain),
        };
        Ok(Target { specificity, sm: number.parse().map_err(|_| unknown())? })
    }
}

/// What may follow the target in `.target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetOption {
    /// `debug`: the module has debug sections.
    Debug,
    /// `texmode_unified`
    TexmodeUnified,
    /// `texmode_independent`
    TexmodeIndependent,
    /// `map_f64_to_f32`
    MapF64ToF32,
}

impl TargetOption {
    /// The spelling.
    pub const fn text(self) -> &'static str {
        match self {
            TargetOption::Debug => "debug",
            TargetOption::TexmodeUnified => "texmode_unified",
            TargetOption::TexmodeIndependent => "texmode_independent",
            TargetOption::MapF64ToF32 => "map_f64_to_f32",
        }
    }

    /// The option with this spelling.
    pub fn from_text(text: &str) -> Option<TargetOption> {
        use TargetOption::{Debug, MapF64ToF32, TexmodeIndependent, TexmodeUnified};
        [Debug, TexmodeUnified, TexmodeIndependent, MapF64ToF32]
            .into_iter()
            .find(|option| option.text() == text)
    }
}

struct Row {
    sm: u16,
    /// Chips with the same number share family features.
    member_of: u16,
    plain: Version,
    family: Option<Version>,
    arch: Option<Version>,
}

const fn old(sm: u16, major: u8, minor: u8) -> Row {
    Row { sm, member_of: sm, plain: Version::new(major, minor), family: None, arch: None }
}

const fn specific(sm: u16, member_of: u16, plain: Version, family: Version, arch: Version) -> Row {
    Row { sm, member_of, plain, family: Some(family), arch: Some(arch) }
}

const V8_6: Version = Version::new(8, 6);
const V8_7: Version = Version::new(8, 7);
const V8_8: Version = Version::new(8, 8);
const V9_0: Version = Version::new(9, 0);

/// The versions that brought the targets.
const TARGETS: &[Row] = &[
    old(50, 4, 0),
    old(52, 4, 1),
    old(53, 4, 2),
    old(60, 5, 0),
    old(61, 5, 0),
    old(62, 5, 0),
    old(70, 6, 0),
    old(72, 6, 1),
    old(75, 6, 3),
    old(80, 7, 0),
    old(86, 7, 1),
    old(87, 7, 4),
    old(88, 9, 0),
    old(89, 7, 8),
    Row { arch: Some(Version::new(8, 0)), ..old(90, 7, 8) },
    specific(100, 100, V8_6, V8_8, V8_6),
    specific(101, 110, V8_6, V8_8, V8_6),
    specific(103, 100, V8_8, V8_8, V8_8),
    specific(110, 110, V9_0, V9_0, V9_0),
    specific(120, 120, V8_7, V8_8, V8_7),
    specific(121, 120, V8_8, V8_8, V8_8),
];
