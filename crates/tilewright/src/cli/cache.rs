//! `tilewright cache`: the compiled kernels that are kept on disk.

use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde::Serialize;
use tilewright::cuda::{CACHE_VARIABLE, DiskCache, EntryInfo, EntryState};

use super::{Failure, bytes, table};

/// Options of `cache`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 fine, 1 `verify` found damage or the cache cannot be used, 2 wrong input."
)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the entries, the last used first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove all entries
    Clear {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every entry and say what is damaged or not to be trusted
    Verify {
        /// Remove what is damaged, and what killed programs left behind
        #[arg(long)]
        remove: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The list as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    folder: String,
    cap_bytes: u64,
    bytes: u64,
    entries: Vec<ListedEntry<'a>>,
}

#[derive(Serialize)]
struct ListedEntry<'a> {
    key: String,
    path: String,
    bytes: u64,
    seconds_since_use: Option<u64>,
    kernels: Option<&'a str>,
    device: Option<&'a str>,
    driver: Option<&'a str>,
    problem: Option<String>,
}

/// What `clear` removed, as JSON.
#[derive(Serialize)]
struct Cleared {
    folder: String,
    files: u64,
    bytes: u64,
    problem: Option<String>,
}

/// What `verify` found, as JSON.
#[derive(Serialize)]
struct Verified {
    folder: String,
    entries: usize,
    problems: Vec<Damage>,
}

#[derive(Serialize)]
struct Damage {
    path: String,
    found: String,
    removed: bool,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let cache = DiskCache::from_environment();
    let Some(folder) = cache.folder().map(PathBuf::from) else {
        let message = "the cache is turned off, or there is no home folder";
        return Err(Failure::Machine(format!("{message}; set {CACHE_VARIABLE} to a folder")));
    };
    let folder = folder.display().to_string();
    cache.check().map_err(|problem| Failure::Machine(format!("{folder}: {problem}")))?;
    match options.action {
        Action::List { json } => list(&cache, folder, json, out),
        Action::Clear { json } => clear(&cache, folder, json, out),
        Action::Verify { remove, json } => verify(&cache, &folder, remove, json, out),
    }
}

fn print_json(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

fn list(cache: &DiskCache, folder: String, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let entries = cache.list();
    let total = entries.iter().map(|entry| entry.bytes).sum();
    if json {
        let entries = entries.iter().map(ListedEntry::new).collect();
        return print_json(&Listed { folder, cap_bytes: cache.cap(), bytes: total, entries }, out);
    }
    if !entries.is_empty() {
        let mut rows = table(&["kernels", "for", "size", "last used", "key", "state"]);
        for entry in entries.iter().map(ListedEntry::new) {
            rows.add_row([
                entry.kernels.unwrap_or("?"),
                entry.device.unwrap_or("?"),
                &bytes(entry.bytes),
                &entry.seconds_since_use.map_or_else(|| "?".to_owned(), ago),
                &entry.key[..12],
                entry.problem.as_deref().unwrap_or("readable"),
            ]);
        }
        writeln!(out, "{rows}")?;
    }
    let count = match entries.len() {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    };
    Ok(writeln!(out, "{count}, {} of at most {} in {folder}", bytes(total), bytes(cache.cap()))?)
}

impl ListedEntry<'_> {
    fn new(info: &EntryInfo) -> ListedEntry<'_> {
        let fact =
            |name: &str| info.meta.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        ListedEntry {
            key: info.key.to_string(),
            path: info.path.display().to_string(),
            bytes: info.bytes,
            seconds_since_use: SystemTime::now().duration_since(info.modified).ok().map(|age| age.as_secs()),
            kernels: fact("kernels"),
            device: fact("device"),
            driver: fact("driver"),
            problem: match &info.state {
                EntryState::Readable => None,
                EntryState::Bad(problem) => Some(problem.to_string()),
            },
        }
    }
}

/// A span of time as people say it.
fn ago(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

fn clear(cache: &DiskCache, folder: String, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let removed = cache.clear();
    let problem = cache.stats().last_error;
    if json {
        let problem = problem.clone();
        print_json(&Cleared { folder, files: removed.files, bytes: removed.bytes, problem }, out)?;
    } else {
        let files = if removed.files == 1 { "1 file".to_owned() } else { format!("{} files", removed.files) };
        writeln!(out, "removed {files}, {}, from {folder}", bytes(removed.bytes))?;
    }
    problem.map_or(Ok(()), |problem| {
        out.flush()?;
        Err(Failure::Machine(problem))
    })
}

fn verify(
    cache: &DiskCache,
    folder: &str,
    remove: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let entries = cache.list().len();
    let found = if remove { cache.repair() } else { cache.verify() };
    let problems: Vec<Damage> = found
        .iter()
        .map(|(path, problem)| Damage {
            path: path.display().to_string(),
            found: problem.to_string(),
            removed: remove && path.symlink_metadata().is_err(),
        })
        .collect();
    let count = problems.len();
    if json {
        print_json(&Verified { folder: folder.to_owned(), entries, problems }, out)?;
    } else {
        for Damage { path, found, removed } in &problems {
            writeln!(out, "{path}: {found}{}", if *removed { "; removed" } else { "" })?;
        }
        if count == 0 {
            writeln!(out, "{entries} entries in {folder}, all sound")?;
        }
    }
    if count == 0 {
        return Ok(());
    }
    out.flush()?;
    let advice = if remove { "what could be removed is" } else { "`--remove` removes what is damaged" };
    let problems = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
    Err(Failure::Machine(format!("{problems} in {folder}; {advice}")))
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn ages_are_readable() {
        let said = [0, 59, 60, 3_599, 7_200, 86_400, 864_000].map(ago);
        let expected = [
            "just now",
            "just now",
            "1 minute ago",
            "59 minutes ago",
            "2 hours ago",
            "1 day ago",
            "10 days ago",
        ];
        assert_eq!(said, expected);
    }
}
