//! Torch and Triton as peers: each a Python process of its own on the same GPU, which is asked by turns with our kernels.
//!
//! The interpreter is `TILEWRIGHT_PYTHON`, else `python3` of the `PATH`, else `/usr/bin/python3`. One without torch or Triton is no
//! error: the peer is not installed. What a request looks like is in [`protocol`], what the other side does with it in `peers.py`, which
//! is part of this program and written to a temporary file for the interpreter, since Triton reads the source of its kernels.
//!
//! A peer may crash, hang or talk nonsense. Every answer has a time limit; whatever is wrong ends the process, becomes the reason why
//! there is no time of this peer, and the next case gets a new process.

mod child;
mod protocol;
mod source;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use super::super::Failure;
use super::timing::Sampled;
use child::Child;
pub(super) use protocol::Clock;
use protocol::{Answer, Case, Facts, Hello, PROTOCOL, Request};
use source::Source;

/// Whom to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    Torch,
    Triton,
}

impl Name {
    pub(super) const ALL: [Name; 2] = [Name::Torch, Name::Triton];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Name::Torch => "torch",
            Name::Triton => "triton",
        }
    }
}

/// What a peer is to compute, on how many copies of the operands, by which clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) op: &'static str,
    pub(super) dtype: &'static str,
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) depth: u64,
    pub(super) k: u64,
    pub(super) copies: usize,
    pub(super) clock: Clock,
    pub(super) seed: u64,
}

/// Why there is no time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Absence {
    /// The peer does not have this.
    Unsupported(String),
    /// Something went wrong.
    Failed(String),
}

/// A peer that is installed.
#[derive(Debug)]
pub(super) struct Peer {
    name: Name,
    interpreter: OsString,
    /// The number of the GPU; none is this computer.
    device: Option<u32>,
    patience: Duration,
    /// None after it failed, until it is needed again.
    child: Option<(Child, Source)>,
    version: String,
}

impl Peer {
    /// Starts a peer. That it is not installed is said in words.
    pub(super) fn start(name: Name, device: Option<u32>, patience: Duration) -> Result<Peer, String> {
        Peer::start_with(interpreter()?, name, device, patience)
    }

    fn start_with(
        interpreter: OsString,
        name: Name,
        device: Option<u32>,
        patience: Duration,
    ) -> Result<Peer, String> {
        let mut peer = Peer { name, interpreter, device, patience, child: None, version: String::new() };
        let facts = peer.open()?;
        let version = match name {
            Name::Torch => facts.torch,
            Name::Triton => facts.triton,
        };
        peer.version = version.unwrap_or_else(|| "of unknown version".to_owned());
        Ok(peer)
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    /// As the peer says it.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A new process that has introduced itself.
    fn open(&mut self) -> Result<Facts, String> {
        let source = Source::write().map_err(|error| format!("writing the peer's program: {error}"))?;
        let mut child = Child::spawn(self.name.as_str(), &self.interpreter, source.path())?;
        let hello = Hello { hello: PROTOCOL, peer: self.name.as_str(), device: self.device };
        let facts = match child.ask(&Request::Hello(hello), self.patience)? {
            Answer::Hello(facts) if facts.protocol == PROTOCOL => facts,
            Answer::Missing { missing } => return Err(missing),
            other => return Err(unexpected(self.name, "its versions", &other)),
        };
        self.child = Some((child, source));
        Ok(facts)
    }

    /// Asks. Whoever does not answer in time, or does not answer what was asked, is ended.
    fn ask<R>(
        &mut self,
        request: &Request,
        patience: Duration,
        expected: &str,
        pick: impl FnOnce(&Answer) -> Option<R>,
    ) -> Result<R, Absence> {
        if self.child.is_none() {
            self.open().map_err(Absence::Failed)?;
        }
        let Some((child, _)) = &mut self.child else {
            return Err(Absence::Failed(format!("{} did not start", self.name.as_str())));
        };
        let failure = match child.ask(request, patience) {
            // A request that failed may have left a GPU in a bad state, so that the next would fail for no reason of its own.
            Ok(Answer::Failed { failed }) => failed,
            Ok(Answer::Unsupported { unsupported }) => return Err(Absence::Unsupported(unsupported)),
            Ok(answer) => match pick(&answer) {
                Some(picked) => return Ok(picked),
                None => unexpected(self.name, expected, &answer),
            },
            Err(failure) => failure,
        };
        self.child = None;
        Err(Absence::Failed(failure))
    }

    /// Makes it ready: memory, compilation, tuning.
    pub(super) fn prepare(&mut self, work: Work) -> Result<(), Absence> {
        let request = Request::Prepare(Case::new(self.name.as_str(), work));
        self.ask(&request, self.patience, "that it is ready", |answer| {
            matches!(answer, Answer::Prepared { .. }).then_some(())
        })
    }

    /// How far its result is from one in float64: the norm of the difference over that of the result.
    pub(super) fn check(&mut self) -> Result<f64, Absence> {
        let request = Request::Check { check: true };
        self.ask(&request, self.patience, "an error", |answer| match *answer {
            Answer::Checked { relative_error } => Some(relative_error),
            _ => None,
        })
    }

    /// Seconds of one launch, of as many as fit into the time of a sample.
    fn measure(&mut self, sample: Duration) -> Result<f64, Absence> {
        let request = Request::Measure { measure: sample.as_secs_f64() * 1e3 };
        let patience = self.patience.saturating_add(sample);
        self.ask(&request, patience, "a time", |answer| match *answer {
            Answer::Measured { us } if us.is_finite() && us > 0.0 => Some(us * 1e-6),
            _ => None,
        })
    }

    /// The one who takes part in rounds, after [`prepare`](Peer::prepare).
    pub(super) fn entrant(&mut self, sample: Duration) -> Entrant<'_> {
        Entrant { peer: self, sample }
    }
}

/// A peer that takes turns with others.
pub(super) struct Entrant<'a> {
    peer: &'a mut Peer,
    sample: Duration,
}

impl Sampled for Entrant<'_> {
    fn sample(&mut self) -> Result<f64, Failure> {
        self.peer.measure(self.sample).map_err(|absence| match absence {
            Absence::Unsupported(why) | Absence::Failed(why) => Failure::Machine(why),
        })
    }
}

fn unexpected(name: Name, expected: &str, answer: &Answer) -> String {
    format!("{}: found the answer {answer:?}, expected {expected}", name.as_str())
}

/// The variable that names the interpreter.
const VARIABLE: &str = "TILEWRIGHT_PYTHON";

/// Python, where it is.
fn interpreter() -> Result<OsString, String> {
    choose(std::env::var_os(VARIABLE), std::env::var_os("PATH").as_deref(), Path::new("/usr/bin/python3"))
}

fn choose(named: Option<OsString>, path: Option<&OsStr>, last: &Path) -> Result<OsString, String> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return Ok(named);
    }
    let folders = path.iter().flat_map(std::env::split_paths);
    let candidates = folders.map(|folder| folder.join("python3")).chain([last.to_owned()]);
    let found = candidates.into_iter().find(|candidate| candidate.is_file());
    found
        .map(OsString::from)
        .ok_or_else(|| format!("found no python3 in PATH, expected one, or its path in {VARIABLE}"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
