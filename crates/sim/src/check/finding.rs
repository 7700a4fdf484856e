//! What was found, for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::access::{Conflict, Hazard, Proxy};

macro_rules! finding_kinds {
    ($($name:ident $text:literal $doc:literal)*) => {
        /// What kind of mistake a finding is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FindingKind { $(#[doc = $doc] $name),* }

        impl FindingKind {
            /// Every kind.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$name),*];
        }

        impl fmt::Display for FindingKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(FindingKind::$name => $text),* })
            }
        }
    };
}

finding_kinds! {
    Race "race" "Two accesses, at least one of them a write, in no particular order."
    UninitialisedRead "uninitialised read" "Reads memory that nobody has written."
    OutOfBounds "out of bounds" "Touches memory that is not part of any buffer."
    Misaligned "misaligned" "An address is not a multiple of what the access needs."
    MissingProxyFence "missing proxy fence" "Ordered, but the async proxy may not see a generic write."
    OverwrittenWhileRead "overwritten while read" "Memory of an asynchronous copy or wgmma is used before it is complete."
    AccumulatorInFlight "accumulator in flight" "Registers of a wgmma are touched before it is complete."
    WrongExpectTx "wrong expect-tx" "The bytes announced to an mbarrier are not those that arrive."
    BarrierMisuse "barrier misuse" "A barrier is used against its rules."
    Deadlock "deadlock" "Everybody waits."
    DivergentAligned "divergent aligned instruction" "An `.aligned` instruction is not executed by all lanes together."
    ResourcesExceeded "resources exceeded" "The launch asks for more than the chip has."
    PeerNotRunning "peer not running" "Shared memory of a block of the cluster that has not started or has exited."
    Trap "trap" "The kernel gave up by itself."
    AssertFailed "assertion failed" "An assertion of the kernel does not hold."
    NeverEnds "never ends" "The kernel used up its budget of steps."
    InvalidInstruction "invalid instruction" "Operand values that the instruction does not allow."
}

impl FindingKind {
    /// The kind of a conflict, given the later access's proxy.
    #[must_use]
    pub fn of(conflict: &Conflict, later: Proxy) -> FindingKind {
        match conflict.hazard {
            Hazard::MissingProxyFence => FindingKind::MissingProxyFence,
            Hazard::WriteAfterRead if later == Proxy::Async || conflict.earlier.proxy == Proxy::Async => {
                FindingKind::OverwrittenWhileRead
            }
            _ => FindingKind::Race,
        }
    }
}

/// One sentence about what to do; for conflicts, by hazard and the proxies of the earlier and the later access.
#[must_use]
pub fn likely_fix(kind: FindingKind, conflict: Option<(Hazard, Proxy, Proxy)>) -> &'static str {
    use Hazard::{MissingProxyFence, ReadAfterWrite, WriteAfterRead, WriteAfterWrite};
    use Proxy::{Async, Generic};
    if let Some(conflict) = conflict {
        return match conflict {
            (MissingProxyFence, ..) => {
                "let the writing threads execute fence.proxy.async before the barrier that the asynchronous operation follows"
            }
            (ReadAfterWrite, Generic, Generic) => {
                "put a barrier (bar.sync / __syncthreads) between the write and the read"
            }
            (WriteAfterRead, Generic, Generic) => {
                "put a barrier (bar.sync / __syncthreads) between the read and the write that reuses the memory"
            }
            (WriteAfterWrite, Generic, Generic) => {
                "let one thread write, or put a barrier between the writes, or use atomics"
            }
            (ReadAfterWrite, Async, Generic) => {
                "wait for the copy (mbarrier.try_wait on its phase, or cp.async.bulk.wait_group) before reading what it writes"
            }
            (ReadAfterWrite, Async, Async) => {
                "wait on the mbarrier of the copy before starting the asynchronous operation that reads its result"
            }
            (ReadAfterWrite, Generic, Async) => {
                "put fence.proxy.async and a barrier between the stores and the asynchronous operation that reads them"
            }
            (WriteAfterRead, Async, _) => {
                "wait until the asynchronous read is complete (wgmma.wait_group, cp.async.bulk.wait_group.read) before reusing its memory"
            }
            (WriteAfterRead, Generic, Async) => {
                "let the readers arrive on an \"empty\" mbarrier and wait for it before starting the copy that reuses the memory"
            }
            (WriteAfterWrite, Async, _) => {
                "wait until the asynchronous write is complete before writing there again"
            }
            (WriteAfterWrite, Generic, Async) => {
                "put fence.proxy.async and a barrier between the stores and the asynchronous write"
            }
        };
    }
    match kind {
        FindingKind::Race => "order the two accesses with a barrier, or with a release and an acquire",
        FindingKind::UninitialisedRead => {
            "write the memory before reading it, or wait for the copy that fills it"
        }
        FindingKind::OutOfBounds => "compare the index with the buffer's length, or predicate the access",
        FindingKind::Misaligned => "align the address to the size of the access, or use a narrower one",
        FindingKind::MissingProxyFence => {
            "put fence.proxy.async between the generic write and the asynchronous operation"
        }
        FindingKind::OverwrittenWhileRead => "wait for the asynchronous operation before touching its memory",
        FindingKind::AccumulatorInFlight => {
            "execute wgmma.wait_group before touching the accumulator registers"
        }
        FindingKind::WrongExpectTx => {
            "announce exactly the bytes of the copies that complete on this mbarrier in this phase"
        }
        FindingKind::BarrierMisuse => {
            "initialise the barrier once, with the number of arrivals that it will get in a phase"
        }
        FindingKind::Deadlock => {
            "check that every wait has its arrivals, and that the phase parity flips after each round"
        }
        FindingKind::DivergentAligned => "move the instruction out of the divergent branch",
        FindingKind::ResourcesExceeded => "use smaller tiles, fewer stages or fewer threads",
        FindingKind::PeerNotRunning => {
            "put barrier.cluster.arrive and wait after the start and before the exit of the blocks"
        }
        FindingKind::Trap => "look at the condition under which the kernel executes trap",
        FindingKind::AssertFailed => "look at the condition of the assertion",
        FindingKind::NeverEnds => "check the conditions of the loops, or raise the budget of steps",
        FindingKind::InvalidInstruction => "give the instruction operand values that the PTX manual allows",
    }
}

impl Hazard {
    /// A sentence about memory at `place` that `later` touches although `earlier` touched it (both say who, e.g.
    /// `thread (33,0,0)`).
    #[must_use]
    pub fn message(self, place: &str, later: &str, earlier: &str) -> String {
        match self {
            Hazard::ReadAfterWrite => {
                format!("{place} is read by {later} while {earlier} may still be writing it")
            }
            Hazard::WriteAfterRead => {
                format!("{place} is written by {later} while {earlier} may still be reading it")
            }
            Hazard::WriteAfterWrite => {
                format!("{place} is written by {later} and by {earlier} in no particular order")
            }
            Hazard::MissingProxyFence => {
                format!(
                    "{place} is used by {later} through the async proxy, which may not see the write by {earlier}"
                )
            }
        }
    }
}

/// A place in the source from which the PTX was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// Who did what where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The line of the PTX text, from 1.
    pub line: u32,
    /// The instruction as text.
    pub instruction: String,
    /// Where it comes from, if the PTX says so.
    pub source: Option<Source>,
    /// The block.
    pub block: [u32; 3],
    /// The thread, if it was one.
    pub thread: Option<[u32; 3]>,
    /// What it did: "writes 4 bytes", "TMA load (async) writes".
    pub action: String,
}

/// Characters of an instruction that people want to read: some name a hundred registers.
const MOST_SHOWN: usize = 100;

struct Coordinates([u32; 3]);

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coordinates([x, y, z]) = self;
        write!(f, "({x},{y},{z})")
    }
}

impl Place {
    /// For people: with the name of the file whose line it is.
    fn write(&self, file: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match file {
            Some(file) => write!(f, "{file}:{}: ", self.line)?,
            None => write!(f, "line {}: ", self.line)?,
        }
        match self.instruction.char_indices().nth(MOST_SHOWN) {
            Some((end, _)) => write!(f, "{}...", &self.instruction[..end])?,
            // A launch that was refused has none.
            None if self.instruction.is_empty() => write!(f, "launch")?,
            None => write!(f, "{:<40}", self.instruction)?,
        }
        if let Some(Source { file, line, column }) = &self.source {
            write!(f, " ({file}:{line}:{column})")?;
        }
        write!(f, " block {}", Coordinates(self.block))?;
        if let Some(thread) = self.thread {
            write!(f, " thread {}", Coordinates(thread))?;
        }
        if !self.action.is_empty() {
            write!(f, ": {}", self.action)?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(None, f)
    }
}

/// A mistake in a kernel.
///
/// ```
/// use tilewright_sim::check::{Finding, FindingKind, Place};
///
/// let first = Place { line: 7, instruction: "trap;".into(), block: [1, 0, 0], ..Place::default() };
/// let finding = Finding::new(FindingKind::Trap, "the kernel gave up", first);
/// let text = finding.to_string();
/// assert!(text.starts_with("trap: the kernel gave up\n  --> line 7: trap;"));
/// assert!(finding.in_file("a.ptx").to_string().contains("--> a.ptx:7: trap;"));
/// assert!(text.ends_with("= help: look at the condition under which the kernel executes trap"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of mistake.
    pub kind: FindingKind,
    /// The file that holds the PTX, if whoever loaded it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What happened, in a sentence.
    pub message: String,
    /// Where it was noticed: for a conflict, the later access.
    pub first: Place,
    /// The other side of a conflict: the earlier access.
    pub second: Option<Place>,
    /// The address concerned.
    pub address: Option<u64>,
    /// The state space of the address: "shared", "global".
    pub space: Option<String>,
    /// The variable or argument it belongs to.
    pub buffer: Option<String>,
    /// The bytes from its beginning.
    pub offset: Option<u64>,
    /// The seed of the schedule in which it happened.
    pub seed: u64,
    /// What to do about it.
    pub fix: String,
    /// How often it was seen.
    pub count: u64,
}

impl Finding {
    /// A finding seen once, with the usual advice for its kind.
    #[must_use]
    pub fn new(kind: FindingKind, message: impl Into<String>, first: Place) -> Self {
        Finding {
            kind,
            file: None,
            message: message.into(),
            first,
            second: None,
            address: None,
            space: None,
            buffer: None,
            offset: None,
            seed: 0,
            fix: likely_fix(kind, None).into(),
            count: 1,
        }
    }

    /// With the name of the file whose lines it names.
    #[must_use]
    pub fn in_file(self, file: impl Into<String>) -> Self {
        Finding { file: Some(file.into()), ..self }
    }
}

struct Located<'a>(&'a Place, Option<&'a str>);

impl fmt::Display for Located<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(self.1, f)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.kind, self.message)?;
        let file = self.file.as_deref();
        writeln!(f, "  --> {}", Located(&self.first, file))?;
        if let Some(second) = &self.second {
            writeln!(f, "  --> {}", Located(second, file))?;
        }
        let times = if self.count == 1 { "time" } else { "times" };
        writeln!(f, "  = seed {}; seen {} {times}", self.seed, self.count)?;
        write!(f, "  = help: {}", self.fix)
    }
}
