//! A process that is asked and answers, line by line, and that may do anything else instead.
//!
//! Two threads read what it writes, so that no pipe ever fills up and every wait has an end. They are not waited for: a process that the
//! peer started may hold the pipes open.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::protocol::{Answer, Request};

/// The longest line that is an answer.
const LONGEST: usize = 1 << 16;
/// Lines of standard error that are kept.
const KEPT: usize = 40;
/// How long the last words of a process are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running peer; it ends with this value.
#[derive(Debug)]
pub(super) struct Child {
    name: &'static str,
    process: std::process::Child,
    lines: Receiver<io::Result<String>>,
    errors: Arc<Mutex<VecDeque<String>>>,
    /// Disconnected when standard error is closed.
    silence: Receiver<()>,
}

impl Child {
    /// Starts `interpreter -u program`.
    pub(super) fn spawn(name: &'static str, interpreter: &OsStr, program: &Path) -> Result<Child, String> {
        let mut command = Command::new(interpreter);
        command.arg("-u").arg(program).arg("--temporary");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: io::Error| format!("starting {}: {error}", Path::new(interpreter).display());
        let mut process = command.spawn().map_err(failed)?;
        let (send, lines) = mpsc::channel();
        if let Some(output) = process.stdout.take() {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                // An error is the last that is sent, and nobody may be left to hear.
                while let Some(line) = line(&mut output).transpose() {
                    let over = line.is_err();
                    if send.send(line).is_err() || over {
                        break;
                    }
                }
            });
        }
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        let (closed, silence) = mpsc::channel();
        if let Some(output) = process.stderr.take() {
            let errors = errors.clone();
            thread::spawn(move || {
                keep_last(output, &errors);
                drop(closed);
            });
        }
        Ok(Child { name, process, lines, errors, silence })
    }

    /// The number of the process.
    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks, and waits for the answer for so long. After an error the process is of no more use.
    pub(super) fn ask(&mut self, request: &Request, patience: Duration) -> Result<Answer, String> {
        let mut text = serde_json::to_string(request).map_err(|error| error.to_string())?;
        text.push('\n');
        let sent = match &mut self.process.stdin {
            Some(input) => input.write_all(text.as_bytes()).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if sent.is_err() {
            return Err(self.end());
        }
        let line = match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(format!("{}: {error}", self.name)),
            Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("{} gave no answer in {patience:?}; it was ended", self.name));
            }
        };
        serde_json::from_str(&line).map_err(|_| {
            let shown: String = line.chars().take(200).collect();
            format!("{}: found the line `{}`, expected an answer in JSON", self.name, shown.escape_debug())
        })
    }

    /// How it ended, now that it no longer talks. All that it wrote to standard error is shown there; its last line is in the message.
    fn end(&mut self) -> String {
        let status = self.status();
        // Its last words may still be on their way.
        let _ = self.silence.recv_timeout(LAST_WORDS);
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        for line in errors.iter() {
            eprintln!("{}: {line}", self.name);
        }
        let status =
            status.map_or_else(|| "closed its output".to_owned(), |status| format!("ended, {status}"));
        match errors.iter().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{} {status}: {}", self.name, last.trim()),
            None => format!("{} {status}, without a word", self.name),
        }
    }

    /// Its status, if it ends soon.
    fn status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself. After a kill the wait is short, and leaves no zombie.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The next line without its end; none at the end of the output. A line that is too long is an error: it is no answer, and may have no end.
fn line(output: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    output.take(LONGEST as u64 + 1).read_until(b'\n', &mut bytes)?;
    if bytes.len() > LONGEST {
        let text = format!("found a line of more than {LONGEST} bytes, expected an answer in JSON");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned()))
}

/// Reads to the end, and keeps the last lines. Pieces of a line that is too long count as lines.
fn keep_last(output: impl Read, kept: &Mutex<VecDeque<String>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut bytes = Vec::new();
        let read = output.by_ref().take(LONGEST as u64).read_until(b'\n', &mut bytes);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(String::from_utf8_lossy(&bytes).trim_end().to_owned());
    }
}
