//! What the user sees of connections on stderr: a spinner while one is made, messages when one breaks and is back.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exec_client::bootstrap::Progress;
use exec_client::{Link, LinkState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output::visible;
use crate::{stdio, table, terminal};

/// Between two frames of the spinner.
const TICK: Duration = Duration::from_millis(120);

/// The spinner itself, the blank after it, and the last column, where a terminal may wrap.
const SPINNER_COLUMNS: usize = 3;

/// Between two numbers of a countdown.
const COUNTDOWN_STEP: Duration = Duration::from_secs(1);

/// Nobody wants to see more than that counted down.
const LONGEST_COUNTDOWN: Duration = Duration::from_secs(24 * 3600);

/// Makes room below the cursor (the terminal may have to scroll), notes where the cursor is, and goes to the line below.
/// The line feed keeps the column, because a raw terminal does not translate it.
const OPEN_LINE_BELOW: &str = "\n\x1b[A\x1b7\r\n\x1b[2K";

const ERASE_LINE: &str = "\r\x1b[2K";

/// Erases the line and goes back to where the cursor was.
const CLOSE_LINE_BELOW: &str = "\r\x1b[2K\x1b8";

/// What a program prints that takes the whole screen, and gives it back.
const ENTER_FULL_SCREEN: &str = "\x1b[?1049h";
const LEAVE_FULL_SCREEN: &str = "\x1b[?1049l";

/// A moving line on stderr; invisible where stderr is no terminal. Dropping it clears it.
#[derive(Debug)]
pub(crate) struct Spinner {
    bar: ProgressBar,
    /// What it says, which is looked at for every frame.
    text: Arc<Mutex<String>>,
}

impl Spinner {
    pub(crate) fn show(text: String) -> Self {
        Self::draw(text, |out| out.write_str("…"))
    }

    /// The same with a countdown.
    fn show_until(text: String, until: Instant) -> Self {
        Self::draw(text, move |out| out.write_str(&time_left(until)))
    }

    /// `end` is written anew for every frame. The line is cut at the edge of the terminal: one that wraps cannot be cleared.
    fn draw(
        text: String,
        end: impl Fn(&mut dyn std::fmt::Write) -> std::fmt::Result + Clone + Send + Sync + 'static,
    ) -> Self {
        let text = Arc::new(Mutex::new(text));
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), text };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let shown = Arc::clone(&text);
        let message = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let mut line = format!("{} ", shown.lock().unwrap_or_else(PoisonError::into_inner));
            let _ = end(&mut line);
            let columns = terminal::size().map_or(80, |size| usize::from(size.cols));
            let line: String = line.chars().take(columns.saturating_sub(SPINNER_COLUMNS)).collect();
            let _ = out.write_str(&line);
        };
        let style = ProgressStyle::with_template("{spinner} {message}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("message", message);
        let bar = bar.with_style(style);
        bar.enable_steady_tick(TICK);
        Self { bar, text }
    }

    /// Says something else from the next frame on.
    fn say(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A spinner of a connection that a program such as ssh makes. While that may ask the user something, it is not shown; nor
/// after [`Self::clear`]: a connection that is made again is the business of [`LinkMonitor`].
#[derive(Debug)]
pub(crate) struct LateSpinner {
    text: String,
    state: Mutex<LateSpinnerState>,
}

#[derive(Debug)]
enum LateSpinnerState {
    Hidden,
    Shown(Spinner),
    Cleared,
}

impl LateSpinner {
    pub(crate) fn new(text: String, may_ask: bool) -> Self {
        let state = match may_ask {
            true => LateSpinnerState::Hidden,
            false => LateSpinnerState::Shown(Spinner::show(text.clone())),
        };
        Self { text, state: Mutex::new(state) }
    }

    pub(crate) fn report(&self, progress: Progress) {
        let text = match progress {
            Progress::Connecting => return,
            Progress::LookingForBinary | Progress::Starting => self.text.clone(),
            Progress::Sending { sent, total } => {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                format!("{}: sending exec-server there, {:.1} of {:.1} MiB", self.text, mib(sent), mib(total))
            }
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            LateSpinnerState::Hidden => *state = LateSpinnerState::Shown(Spinner::show(text)),
            LateSpinnerState::Shown(spinner) => spinner.say(text),
            LateSpinnerState::Cleared => {}
        }
    }

    pub(crate) fn clear(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = LateSpinnerState::Cleared;
    }
}

/// Tells the user when the connection breaks and when it is back.
#[derive(Debug)]
pub(crate) struct LinkMonitor {
    states: watch::Receiver<LinkState>,
    target: String,
    quiet: bool,
    /// The terminal is in raw mode, and what is on it belongs to a program.
    raw: Option<RawScreen>,
    shown: Shown,
    /// Whether the user sees that the connection is broken: what is typed then is for us.
    outage: watch::Sender<bool>,
}

/// How the user gets away while a raw terminal has no connection, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawScreen {
    pub(crate) keys: &'static str,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Spinner { _spinner: Spinner },
    StatusLine { left_full_screen: bool },
}

impl LinkMonitor {
    pub(crate) fn new(link: &Link, target: String, raw: Option<RawScreen>, quiet: bool) -> Self {
        let (outage, _) = watch::channel(false);
        Self { states: link.states(), target, quiet, raw, shown: Shown::Nothing, outage }
    }

    /// Waits for a change, or for the next second of a countdown. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> LinkState {
        let counting = matches!(self.shown, Shown::StatusLine { .. });
        tokio::select! {
            changed = self.states.changed() => match changed {
                Ok(()) => self.states.borrow_and_update().clone(),
                // The link has ended. Whoever uses it gets an error from it.
                Err(_) => std::future::pending().await,
            },
            () = tokio::time::sleep(COUNTDOWN_STEP), if counting => self.states.borrow().clone(),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        *self.states.borrow() != LinkState::Connected
    }

    /// Whether an outage is on the screen.
    pub(crate) fn outage(&self) -> watch::Receiver<bool> {
        self.outage.subscribe()
    }

    /// `full_screen`: the program uses the whole screen, so that no line of it is ours. Returns whether it must be drawn
    /// again now.
    pub(crate) fn report(&mut self, state: &LinkState, full_screen: bool) -> bool {
        // The first attempt is made at once and often succeeds.
        let is_told = match state {
            LinkState::Reconnecting { attempt, .. } => *attempt > 1 || *self.outage.borrow(),
            _ => false,
        };
        self.outage.send_if_modified(|told| std::mem::replace(told, is_told) != is_told);
        match (state, self.raw) {
            _ if self.quiet => false,
            (LinkState::Reconnecting { .. }, Some(_)) if !is_told => false,
            (LinkState::Reconnecting { give_up_at, .. }, Some(raw)) => {
                self.show_status_line(*give_up_at, raw, full_screen);
                false
            }
            (LinkState::Reconnecting { give_up_at, .. }, None) => {
                if !matches!(self.shown, Shown::Spinner { .. }) {
                    let text = format!("the connection to {} broke,", self.target);
                    self.shown = Shown::Spinner { _spinner: Spinner::show_until(text, *give_up_at) };
                }
                false
            }
            _ => self.clear(*state == LinkState::Connected),
        }
    }

    /// One line below the cursor, which is written anew for every second and gone when the connection is back. A program
    /// that has the whole screen is taken off it first, as when it ends: its own screen stays as it is.
    fn show_status_line(&mut self, give_up_at: Instant, raw: RawScreen, full_screen: bool) {
        let left = time_left(give_up_at);
        let text = format!("exec-server: no connection, {left}; {} ({})", raw.keys, self.target);
        // A line that wraps could not be erased.
        let columns = terminal::size().map_or(80, |size| usize::from(size.cols));
        let text: String = visible(text.as_bytes()).chars().take(columns.saturating_sub(1)).collect();
        let mut out = String::new();
        match self.shown {
            Shown::StatusLine { .. } => out.push_str(ERASE_LINE),
            _ => {
                if full_screen {
                    out.push_str(LEAVE_FULL_SCREEN);
                }
                out.push_str(OPEN_LINE_BELOW);
                self.shown = Shown::StatusLine { left_full_screen: full_screen };
            }
        }
        out.push_str(&text);
        print_to_terminal(&out);
    }

    /// Returns whether the program's screen must be drawn again.
    fn clear(&mut self, connected: bool) -> bool {
        let shown = std::mem::replace(&mut self.shown, Shown::Nothing);
        let Shown::StatusLine { left_full_screen } = shown else { return false };
        print_to_terminal(CLOSE_LINE_BELOW);
        if !connected {
            return false;
        }
        if left_full_screen {
            print_to_terminal(ENTER_FULL_SCREEN);
        }
        left_full_screen
    }
}

impl Drop for LinkMonitor {
    /// Whatever ends the command, no half line of ours stays on the terminal.
    fn drop(&mut self) {
        self.clear(false);
    }
}

fn print_to_terminal(sequence: &str) {
    let _ = stdio::stderr().write_all(sequence.as_bytes());
}

/// Rounded up, so that it ends with 1s and not with 0s.
fn time_left(until: Instant) -> String {
    let left = until.saturating_duration_since(Instant::now());
    let left = Duration::from_secs(left.as_secs() + 1);
    match left > LONGEST_COUNTDOWN {
        true => "looking for it".to_owned(),
        false => format!("looking for it for {} more", table::duration(left)),
    }
}

/// The monitors of all connections that a command has.
pub(crate) struct LinkMonitors(pub(crate) Vec<LinkMonitor>);

impl LinkMonitors {
    /// Waits for a change and says which monitor saw it; without connections it waits for ever. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> (usize, LinkState) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.0.iter_mut().map(|link| Box::pin(link.changed()));
        let (state, which, _) = futures_util::future::select_all(changes).await;
        (which, state)
    }

    pub(crate) fn report(&mut self, (which, state): (usize, LinkState)) {
        if let Some(link) = self.0.get_mut(which) {
            link.report(&state, false);
        }
    }

    /// Waits for `work` and reports changes meanwhile.
    pub(crate) async fn report_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                change = self.changed() => self.report(change),
            }
        }
    }
}
