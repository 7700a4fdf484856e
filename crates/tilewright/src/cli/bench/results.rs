//! Results: what is kept of a benchmark, and how it survives what happens to programs and disks.
//!
//! While rows come in, they are kept in a file beside the one that was asked for, with `.partial` at the end of its name; it is replaced
//! as a whole after every row. At the end the file itself is written, also as a whole, and the other one goes. So whoever stops the
//! program keeps the rows that were done, and nobody ever sees half of a file.
//!
//! A file that holds rows is never replaced by another run. One without rows, which a run that was killed leaves behind, is, unless its run
//! still goes on: that one holds a lock on it. Where the system has no such locks, it has to be removed by hand.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tilewright::cuda::Driver;
use tilewright::device::{Device, DeviceKind};

use super::super::shape::Shape;
use super::super::{Failure, whole};

/// A benchmark and its rows, which are of products or of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results<R = Row> {
    pub(super) what: String,
    pub(super) gpu: String,
    pub(super) driver: Option<String>,
    pub(super) cublaslt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) torch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) triton: Option<String>,
    /// Bytes read and written a second, in 10^9, by a large copy inside of the device: what speeds are held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) copy_gbps: Option<f64>,
    pub(super) tilewright: String,
    pub(super) date: String,
    pub(super) command: String,
    /// Whether all that was asked for was measured.
    pub(super) complete: bool,
    pub(super) entries: Vec<R>,
}

/// One product. Times in microseconds; a ratio is the peer's time over ours. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    pub(super) shape: Shape,
    pub(super) dtype: String,
    pub(super) layout: String,
    pub(super) epilogue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) algorithm: Option<String>,
    /// All that were tried to find it, if several were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tried: Vec<Tried>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ours_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ours_10_to_90_percent: Option<[f64; 2]>,
    /// Multiplications and additions a second, in 10^12.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tflops: Option<f64>,
    /// Bytes of A, B and D a second, in 10^9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gbps: Option<f64>,
    /// The least time that the chip's peaks allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) roofline_us: Option<f64>,
    /// Whether that is the time of the bytes, not of the arithmetic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_bound: Option<bool>,
    /// With the algorithm that the library would choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_10_to_90_percent: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_algorithm: Option<String>,
    /// With the fastest of those that it proposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_best_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_best_algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_best: Option<f64>,
    /// The largest difference from a reference in f64, as a part of what rounding explains: below 1 is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_error: Option<f64>,
    /// Elements that were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared: Option<usize>,
    /// Why there is no time of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// Why there is no time of the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_failure: Option<String>,
}

/// An algorithm that was measured to find the fastest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tried {
    pub(super) algorithm: String,
    /// What the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) predicted_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) us: Option<f64>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { m: 0, n: 0, k: 0, batch: 1, pad: 0 }
    }
}

impl Row {
    /// Multiplications and additions a second, in 10^12, at a time of that many microseconds.
    pub(super) fn rate(&self, us: f64) -> f64 {
        let Shape { m, n, k, batch, .. } = self.shape;
        2.0 * f64::from(m) * f64::from(n) * f64::from(k) * f64::from(batch) / us * 1e-6
    }
}

/// The fields before the rows, in their order, which a map of JSON does not keep.
const HEAD: [&str; 11] = [
    "what",
    "gpu",
    "driver",
    "cublaslt",
    "torch",
    "triton",
    "copy_gbps",
    "tilewright",
    "date",
    "command",
    "complete",
];

impl<R> Results<R> {
    /// No rows yet: what is measured, and the facts of the machine.
    pub(super) fn head(what: &str, device: &Device) -> Results<R> {
        let cuda = || Driver::installed_version().ok().map(|version| format!("CUDA {version}"));
        let driver = match device.kind() {
            DeviceKind::Cuda => driver_version().or_else(cuda),
            _ => None,
        };
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Results {
            what: what.to_owned(),
            gpu: device.name().to_owned(),
            driver,
            cublaslt: None,
            torch: None,
            triton: None,
            copy_gbps: None,
            tilewright: env!("CARGO_PKG_VERSION").to_owned(),
            date: today(),
            command: format!("tilewright {command}"),
            complete: false,
            entries: Vec::new(),
        }
    }

    /// GPU, driver and peers, as people say them.
    pub(super) fn facts(&self) -> Vec<String> {
        let version = |name: &str, version: &Option<String>| Some(format!("{name} {}", version.as_ref()?));
        let facts = [
            Some(self.gpu.clone()),
            version("driver", &self.driver),
            version("cuBLASLt", &self.cublaslt),
            version("torch", &self.torch),
            version("Triton", &self.triton),
        ];
        facts.into_iter().flatten().collect()
    }
}

/// The version of the driver's build, such as 580.159.04.
fn driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

impl<R: Clone + Serialize> Results<R> {
    /// As it is kept: a line for each row, so that people read it and a diff shows what changed.
    pub(super) fn to_json(&self) -> Result<String, Failure> {
        let head = serde_json::to_value(Results { entries: Vec::new(), ..self.clone() })?;
        let mut text = String::from("{\n");
        for (name, value) in HEAD.iter().filter_map(|name| Some((name, head.get(name)?))) {
            text += &format!(" \"{name}\": {value},\n");
        }
        let line = |row: &R| Ok::<_, Failure>(format!("  {}", serde_json::to_string(row)?));
        let lines = self.entries.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        text += &format!(" \"entries\": [\n{}\n ]\n}}\n", lines.join(",\n"));
        Ok(text)
    }
}

impl<R: DeserializeOwned> Results<R> {
    /// From what a file holds.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Results<R>, Failure> {
        serde_json::from_str(text).map_err(|error| {
            Failure::Input(format!(
                "{}: found {error}, expected results of `tilewright bench`",
                path.display()
            ))
        })
    }
}

/// Whether results go to the standard output: JSON and nothing else, so that another program can read it.
pub(super) fn is_stdout(json: Option<&Path>) -> bool {
    json.is_some_and(|path| path.as_os_str() == "-")
}

/// Where tables go: nowhere if the standard output is to have the results.
pub(super) fn tables<'o>(json: Option<&Path>, out: &'o mut dyn Write) -> Box<dyn Write + 'o> {
    if is_stdout(json) { Box::new(io::sink()) } else { Box::new(out) }
}

/// Results on their way to a file.
#[derive(Debug)]
pub(super) struct Journal<R = Row> {
    pub(super) results: Results<R>,
    path: Option<PathBuf>,
    claim: Option<Claim>,
    /// Whether the user was told that rows cannot be kept.
    warned: bool,
}

impl<R: Clone + Serialize> Journal<R> {
    /// Begins, and finds out whether the file can be written before anything is measured.
    pub(super) fn begin(path: Option<PathBuf>, results: Results<R>) -> Result<Journal<R>, Failure> {
        let path = path.filter(|path| !is_stdout(Some(path)));
        let mut journal = Journal { results, path, claim: None, warned: false };
        if let Some(path) = &journal.path {
            if path.is_dir() {
                return Err(Failure::Machine(format!("writing {}: it is a folder", path.display())));
            }
            journal.claim = Some(Claim::new(partial(path), journal.results.to_json()?.as_bytes())?);
        }
        Ok(journal)
    }

    /// Adds a row. That it cannot be kept on disk is said once, and no reason to stop: the disk may be well again at the end.
    pub(super) fn add(&mut self, row: R) {
        self.results.entries.push(row);
        if let Some(claim) = &mut self.claim {
            claim.has_rows = true;
        }
        let Some(Err(problem)) = self.path.as_ref().map(|path| self.keep(path)) else { return };
        if !self.warned {
            eprintln!("warning: {}; measuring goes on", problem.message());
            self.warned = true;
        }
    }

    fn keep(&self, path: &Path) -> Result<(), Failure> {
        whole::write(&partial(path), self.results.to_json()?.as_bytes())
    }

    /// All is measured. Where the file cannot be written, the folder for temporary files gets it.
    pub(super) fn finish(mut self) -> Result<Results<R>, Failure> {
        self.results.complete = true;
        let Some(path) = &self.path else { return Ok(self.results) };
        let text = self.results.to_json()?;
        let Err(problem) = whole::write(path, text.as_bytes()) else {
            // All rows are there in full elsewhere, so that none need be kept.
            if let Some(claim) = &mut self.claim {
                claim.has_rows = false;
            }
            return Ok(self.results);
        };
        let kept = match write_elsewhere(path, text.as_bytes()) {
            Some(elsewhere) => format!("the results are in {}", elsewhere.display()),
            None => format!("what could be kept is in {}", partial(path).display()),
        };
        Err(Failure::Machine(format!("{}; {kept}", problem.message())))
    }
}

/// The file for rows that are done, which is this run's alone: what another left there, or still writes, stays.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    has_rows: bool,
    /// The file as it was made, without rows and locked: as long as this is open, nobody takes it for that of a run that was killed.
    _alive: File,
}

impl Claim {
    /// Makes the file with what it holds at first, so that nobody ever finds it empty.
    fn new(path: PathBuf, bytes: &[u8]) -> Result<Claim, Failure> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
        // The kind alone: the rest is about a name that nobody has given.
        let unwritable = |error: std::io::Error| Failure::file("writing", &path, &error.kind().into());
        let made = NamedTempFile::new_in(folder).and_then(|mut file| file.write_all(bytes).map(|()| file));
        let mut file = made.map_err(unwritable)?;
        // Before anybody can find it.
        let _ = lock(file.as_file());
        // Others may come and go in between, but not for ever.
        for _ in 0..100 {
            let taken = match file.persist_noclobber(&path) {
                Ok(alive) => return Ok(Claim { path, has_rows: false, _alive: alive }),
                Err(problem) if problem.error.kind() == ErrorKind::AlreadyExists => problem.file,
                Err(problem) => return Err(unwritable(problem.error)),
            };
            match found(&path) {
                Found::Nothing => file = taken,
                Found::NoRows(old) => {
                    let alive = taken.persist(&path).map_err(|problem| unwritable(problem.error))?;
                    // Until now nobody else could replace it.
                    drop(old);
                    return Ok(Claim { path, has_rows: false, _alive: alive });
                }
                Found::Rows => break,
                Found::Running => {
                    return Err(Failure::Input(format!(
                        "{}: found a run that still goes on, expected no other; wait for its end, or give another name",
                        path.display()
                    )));
                }
            }
        }
        Err(Failure::Input(format!(
            "{}: found rows of a run that was interrupted or still goes on, expected no such file; \
             move it away if you want to keep them, remove it if not, or give another name",
            path.display()
        )))
    }
}

/// What lies where a run wants to keep its rows.
enum Found {
    /// Nothing any more.
    Nothing,
    /// What a run left that was killed before its first row, locked.
    NoRows(File),
    /// Rows, or what may be some.
    Rows,
    /// A run that still goes on, and has no rows yet.
    Running,
}

fn found(path: &Path) -> Found {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Found::Nothing,
        Err(_) => return Found::Rows,
    };
    let mut text = String::new();
    let results = (&file).read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let rows = results.as_ref().and_then(|results: &serde_json::Value| results.get("entries")?.as_array());
    if !rows.is_some_and(Vec::is_empty) {
        return Found::Rows;
    }
    match lock(&file) {
        Some(true) => {}
        Some(false) => return Found::Running,
        None => return Found::Rows,
    }
    // While the lock was not there yet, the run that had it may have put another file in its place, one with rows.
    if is_at(&file, path) { Found::NoRows(file) } else { Found::Nothing }
}

/// Locks a file for as long as it is open; not if somebody else has. Nothing where files cannot be locked.
#[cfg(unix)]
fn lock(file: &File) -> Option<bool> {
    match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Some(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Some(false),
        Err(_) => None,
    }
}

/// Whether it is this file that lies there.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let both = file.metadata().and_then(|own| Ok((own, std::fs::metadata(path)?)));
    both.is_ok_and(|(own, there)| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn lock(_file: &File) -> Option<bool> {
    None
}

#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> bool {
    false
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A run that ended before its first row leaves nothing that the next would stumble over.
        if !self.has_rows {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Finds out whether a file can be written at the end, and leaves things as they are.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let written = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        // Under another name: somebody else may be about to write this one.
        false => NamedTempFile::new_in(folder).map(drop),
    };
    written.map_err(|error| Failure::file("writing", path, &error.kind().into()))
}

/// Writes a file of that name to the folder for temporary files, under a number of its own if there is one already.
fn write_elsewhere(path: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let name = path.file_name().unwrap_or("results.json".as_ref());
    let numbered = |number: u32| {
        let mut name = name.to_owned();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        std::env::temp_dir().join(name)
    };
    // Claimed by being created: nothing of others is replaced.
    let free = |path: &PathBuf| OpenOptions::new().write(true).create_new(true).open(path).is_ok();
    let elsewhere = (0..100).map(numbered).find(free)?;
    whole::write(&elsewhere, bytes).ok().map(|()| elsewhere)
}

/// Where rows are kept until all are done.
fn partial(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".partial");
    name.into()
}

/// Today, in the calendar of Greenwich.
pub(super) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// The date of a day since 1970, counted in eras of 400 years that begin with March, so that the leap day is the last of its year.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        Results {
            what: "products".to_owned(),
            gpu: "a \"GPU\"".to_owned(),
            driver: None,
            cublaslt: Some("13.8.2".to_owned()),
            torch: None,
            triton: None,
            copy_gbps: None,
            tilewright: "0.1.0".to_owned(),
            date: "2026-11-15".to_owned(),
            command: "tilewright bench".to_owned(),
            complete: false,
            entries: Vec::new(),
        }
    }

    fn read(path: &Path) -> Results {
        Results::parse(path, &std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn row(m: u32) -> Row {
        let shape = Shape { m, n: 2, k: 3, ..Shape::default() };
        Row { shape, dtype: "bf16".to_owned(), ours_us: Some(1.5), ..Row::default() }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let results = Results { entries: vec![row(1), row(7)], ..results() };
        let text = results.to_json().unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  {")).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("  {\"shape\":\"7x2x3\"") && !lines[1].contains("null"), "{}", lines[1]);
    }

    #[test]
    fn rows_are_kept_until_the_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let partial = folder.path().join("results.json.partial");
        let mut journal = Journal::begin(Some(path.clone()), results()).unwrap();
        journal.add(row(1));
        // Whoever stops the program now has this:
        let kept = read(&partial);
        assert_eq!((kept.entries.len(), kept.complete, path.exists()), (1, false, false));
        journal.add(row(2));
        let all = journal.finish().unwrap();
        assert_eq!(read(&path), all);
        assert!(all.complete && all.entries.len() == 2 && !partial.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    fn what_another_run_left_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let partial = folder.path().join("results.json.partial");
        let begin = || Journal::begin(Some(path.clone()), results());
        let mut first = begin().unwrap();
        first.add(row(1));
        // While the first goes on, and when it was interrupted.
        for _ in 0..2 {
            let error = begin().unwrap_err();
            assert!(matches!(&error, Failure::Input(text) if text.contains("interrupted")), "{error:?}");
            assert_eq!(read(&partial).entries, [row(1)]);
            first.path = None;
        }
        drop(first);
        assert_eq!(read(&partial).entries, [row(1)]);
        std::fs::remove_file(&partial).unwrap();
        // One that ended before its first row is not in the way.
        drop(begin().unwrap());
        assert!(!partial.exists());
        begin().unwrap().finish().unwrap();
        assert!(!partial.exists());
        // Something else of that name is nobody's to replace.
        for other in ["", "{}", "notes"] {
            std::fs::write(&partial, other).unwrap();
            assert!(begin().is_err());
            assert_eq!(std::fs::read_to_string(&partial).unwrap(), other);
        }
    }

    /// A run that was killed before its first row leaves a file that nobody holds.
    #[cfg(unix)]
    #[test]
    fn a_run_that_was_killed_before_its_first_row_is_not_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let partial = folder.path().join("results.json.partial");
        let begin = || Journal::begin(Some(path.clone()), results());
        for _ in 0..2 {
            std::fs::write(&partial, results().to_json().unwrap()).unwrap();
            let mut journal = begin().unwrap();
            // Now there is one that goes on, though it has no rows either.
            let error = begin().unwrap_err();
            assert!(matches!(&error, Failure::Input(text) if text.contains("still goes on")), "{error:?}");
            journal.add(row(1));
            assert!(begin().is_err());
            assert_eq!(journal.finish().unwrap().entries, [row(1)]);
            assert!(!partial.exists());
        }
        // Of many that begin at once, one does.
        std::fs::write(&partial, results().to_json().unwrap()).unwrap();
        let begun: Vec<_> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..16).map(|_| scope.spawn(begin)).collect();
            runs.into_iter().filter_map(|run| run.join().unwrap().ok()).collect()
        });
        assert_eq!(begun.len(), 1);
    }

    #[test]
    fn results_elsewhere_replace_nothing() {
        let name = format!("bench-other-{}.json", std::process::id());
        let taken = std::env::temp_dir().join(&name);
        std::fs::write(&taken, "mine").unwrap();
        let elsewhere = write_elsewhere(Path::new(&name), b"results").unwrap();
        assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "results");
        std::fs::remove_file(&taken).unwrap();
        std::fs::remove_file(&elsewhere).unwrap();
    }

    #[test]
    fn a_bad_path_is_noticed_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("no/such/folder.json"), folder.path().to_owned()] {
            let error = Journal::begin(Some(path), results()).unwrap_err();
            assert!(matches!(&error, Failure::Machine(text) if text.starts_with("writing ")), "{error:?}");
        }
    }

    #[test]
    fn a_disk_that_fails_costs_no_results() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("bench-{}.json", std::process::id());
        let mut journal = Journal::begin(Some(folder.path().join(&name)), results()).unwrap();
        folder.close().unwrap();
        journal.add(row(1));
        let error = journal.finish().unwrap_err();
        let elsewhere = std::env::temp_dir().join(name);
        assert_eq!(read(&elsewhere).entries, [row(1)]);
        std::fs::remove_file(&elsewhere).unwrap();
        assert!(
            error.message().ends_with(&format!("the results are in {}", elsewhere.display())),
            "{error:?}"
        );
    }

    #[test]
    fn days_become_dates() {
        for (day, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_772, "2026-11-15")]
        {
            assert_eq!(date(day), text);
        }
    }
}
