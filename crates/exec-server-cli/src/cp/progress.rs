//! Progress of a copy: a bar on a terminal, a line now and then in a pipe, JSON, or nothing.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use exec_client::LinkState;
use exec_env::files::Copied;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::args::CpArgs;
use crate::{messages, table, terminal};

/// From here on there is room for a bar.
const WIDE_COLUMNS: u16 = 70;

/// How often `tick` is called.
pub(super) const TICK: Duration = Duration::from_millis(250);

const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Longer than for JSON: the lines stay in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Progress {
    display: ProgressDisplay,
    started: Instant,
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
enum ProgressDisplay {
    Bar(ProgressBar),
    Lines,
    Json,
    Hidden,
}

#[derive(Debug, Default)]
struct ProgressState {
    copied: Copied,
    total_bytes: u64,
    /// The files of the command line whose size is counted: measuring and copying both come across them.
    named: HashSet<PathBuf>,
    last_reported: Option<Instant>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ProgressJson {
    Progress {
        bytes: u64,
        total_bytes: u64,
    },
    Done {
        #[serde(flatten)]
        copied: exec_wire::fs::Copied,
        elapsed_ms: u64,
    },
}

impl Progress {
    pub(super) fn new(quiet: bool, json: bool) -> Self {
        let display = match (json, quiet) {
            (true, _) => ProgressDisplay::Json,
            (false, true) => ProgressDisplay::Hidden,
            (false, false) if std::io::stderr().is_terminal() => ProgressDisplay::Bar(bar()),
            (false, false) => ProgressDisplay::Lines,
        };
        Self { display, started: Instant::now(), state: Mutex::default() }
    }

    pub(super) fn has_bar(&self) -> bool {
        matches!(self.display, ProgressDisplay::Bar(_))
    }

    pub(super) fn is_shown(&self) -> bool {
        !matches!(self.display, ProgressDisplay::Hidden)
    }

    pub(super) fn is_json(&self) -> bool {
        matches!(self.display, ProgressDisplay::Json)
    }

    /// Announces a file of the command line. It is counted once, however often it is announced.
    pub(super) fn expect_file(&self, path: &Path, bytes: u64) {
        let is_new = self.state().named.insert(path.to_owned());
        if is_new {
            self.expect_more(bytes);
        }
    }

    /// Announces so many more bytes.
    pub(super) fn expect_more(&self, bytes: u64) {
        let mut state = self.state();
        state.total_bytes += bytes;
        if let ProgressDisplay::Bar(bar) = &self.display {
            bar.set_length(state.total_bytes);
        }
    }

    pub(super) fn add(&self, more: &Copied) {
        let mut state = self.state();
        state.copied = combine(&state.copied, more, u64::saturating_add);
        if let ProgressDisplay::Bar(bar) = &self.display {
            bar.set_position(state.copied.bytes);
        }
    }

    pub(super) fn bytes(&self, bytes: u64) {
        self.add(&Copied { bytes, ..Copied::default() });
    }

    /// Prints the progress, if it is time.
    pub(super) fn tick(&self) -> anyhow::Result<()> {
        let every = match &self.display {
            ProgressDisplay::Bar(bar) => {
                bar.tick();
                return Ok(());
            }
            ProgressDisplay::Hidden => return Ok(()),
            ProgressDisplay::Json => JSON_INTERVAL,
            ProgressDisplay::Lines => LINE_INTERVAL,
        };
        let now = Instant::now();
        let (bytes, total_bytes) = {
            let mut state = self.state();
            if now.duration_since(state.last_reported.unwrap_or(self.started)) < every {
                return Ok(());
            }
            state.last_reported = Some(now);
            (state.copied.bytes, state.total_bytes)
        };
        match self.display {
            ProgressDisplay::Json => messages::print_json(&ProgressJson::Progress { bytes, total_bytes }),
            _ => {
                messages::print_note(progress_line(bytes, total_bytes, self.started.elapsed()));
                Ok(())
            }
        }
    }

    /// Shows in the bar that a connection broke or is back.
    pub(super) fn link(&self, state: &LinkState) {
        if let ProgressDisplay::Bar(bar) = &self.display {
            bar.set_message(match state {
                LinkState::Reconnecting { .. } => "connection lost … ",
                _ => "",
            });
        }
    }

    /// Removes the bar.
    pub(super) fn end(&self) {
        if let ProgressDisplay::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }

    /// Prints what was copied, at the end.
    pub(super) fn summary(&self) -> anyhow::Result<()> {
        let (Copied { files, directories, symlinks, bytes, skipped }, elapsed) =
            (self.state().copied, self.started.elapsed());
        if self.is_json() {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let copied = exec_wire::fs::Copied { files, directories, symlinks, bytes, skipped };
            return messages::print_json(&ProgressJson::Done { copied, elapsed_ms });
        }
        let counts = [(files, "file", "files"), (directories, "directory", "directories"), (symlinks, "link", "links")];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
            .collect();
        if counts.is_empty() {
            return Ok(());
        }
        let mut text = format!("copied {}: {}, {}", counts.join(", "), table::size(bytes), rate(bytes, elapsed));
        if skipped > 0 {
            text += &format!("; left out {skipped} FIFOs, sockets or devices");
        }
        messages::print_note(text);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        // A panic cannot leave counters inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a copy from stdin has done.
pub(super) fn stream_summary(args: &CpArgs, bytes: u64, elapsed: Duration) -> anyhow::Result<()> {
    if args.common.json {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let copied = exec_wire::fs::Copied { files: 1, directories: 0, symlinks: 0, bytes, skipped: 0 };
        return messages::print_json(&ProgressJson::Done { copied, elapsed_ms });
    }
    if !args.quiet {
        messages::print_note(format_args!("copied stdin: {}, {}", table::size(bytes), rate(bytes, elapsed)));
    }
    Ok(())
}

/// Adds or subtracts two counts, field by field.
pub(super) fn combine(one: &Copied, other: &Copied, with: fn(u64, u64) -> u64) -> Copied {
    Copied {
        files: with(one.files, other.files),
        directories: with(one.directories, other.directories),
        symlinks: with(one.symlinks, other.symlinks),
        bytes: with(one.bytes, other.bytes),
        skipped: with(one.skipped, other.skipped),
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    // A narrow terminal has room for the numbers, and none for a bar between them; a line that wraps would stay behind.
    let columns = terminal::size().map_or(WIDE_COLUMNS, |size| size.cols);
    let template = match columns >= WIDE_COLUMNS {
        true => "{msg}{wide_bar} {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        false => "{msg}{percent}%  {binary_bytes}  {eta} left",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("█▉▊▋▌▍▎▏ "))
}

/// `12 MiB of 64 MiB, 30 MiB/s, 2s left`.
fn progress_line(bytes: u64, total_bytes: u64, elapsed: Duration) -> String {
    let speed = rate(bytes, elapsed);
    if total_bytes <= bytes || bytes == 0 {
        return format!("{} copied, {speed}", table::size(bytes));
    }
    let left = elapsed.mul_f64((total_bytes - bytes) as f64 / bytes as f64);
    format!("{} of {} copied, {speed}, {}s left", table::size(bytes), table::size(total_bytes), left.as_secs() + 1)
}

/// `30 MiB/s`.
fn rate(bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    format!("{}/s", table::size((bytes as f64 / seconds) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_how_fast_and_how_long() {
        let ten = Duration::from_secs(10);
        assert_eq!(progress_line(10 << 20, 40 << 20, ten), "10 MiB of 40 MiB copied, 1.0 MiB/s, 31s left");
        assert_eq!(progress_line(10 << 20, 0, ten), "10 MiB copied, 1.0 MiB/s");
    }

    #[test]
    fn a_named_file_counts_once() {
        let progress = Progress::new(true, false);
        progress.expect_file(Path::new("/a"), 5);
        progress.expect_file(Path::new("/a"), 5);
        progress.expect_file(Path::new("/b"), 7);
        assert_eq!(progress.state().total_bytes, 12);
    }
}
