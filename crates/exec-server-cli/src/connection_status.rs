//! What the user sees of connections on stderr: a spinner while one is made, messages when one breaks and is back.

use std::io::IsTerminal;
use std::time::Duration;

use exec_client::{Link, LinkState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;

use crate::messages;

/// Between two frames of the spinner.
const TICK: Duration = Duration::from_millis(120);

/// A moving line on stderr; invisible where stderr is no terminal. Dropping it clears it.
#[derive(Debug)]
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn show(text: String) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{spinner} {msg} …").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = bar.with_style(style).with_message(text);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Tells the user when the connection breaks and when it is back.
#[derive(Debug)]
pub(crate) struct LinkMonitor {
    states: watch::Receiver<LinkState>,
    target: String,
    /// The terminal is in raw mode and its screen belongs to a program. All we may add is a line of our own, and not
    /// for an interruption that is over at once.
    raw: bool,
    quiet: bool,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Spinner { _spinner: Spinner },
    Message,
}

impl LinkMonitor {
    pub(crate) fn new(link: &Link, target: String, raw: bool, quiet: bool) -> Self {
        Self { states: link.states(), target, raw, quiet, shown: Shown::Nothing }
    }

    /// Waits for a change. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> LinkState {
        match self.states.changed().await {
            Ok(()) => self.states.borrow_and_update().clone(),
            // The link has ended. Whoever uses it gets an error from it.
            Err(_) => std::future::pending().await,
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        *self.states.borrow() != LinkState::Connected
    }

    pub(crate) fn report(&mut self, state: &LinkState) {
        match state {
            _ if self.quiet => {}
            LinkState::Reconnecting { attempt } if self.raw => {
                // The first attempt is made at once and often succeeds.
                if *attempt > 1 && !matches!(self.shown, Shown::Message) {
                    messages::print_raw_note(format_args!(
                        "the connection to {} broke, looking for it again …",
                        self.target
                    ));
                    self.shown = Shown::Message;
                }
            }
            LinkState::Reconnecting { .. } => {
                if !matches!(self.shown, Shown::Spinner { .. }) {
                    let target = &self.target;
                    let spinner = Spinner::show(format!("the connection to {target} broke, looking for it again"));
                    self.shown = Shown::Spinner { _spinner: spinner };
                }
            }
            _ => {
                if matches!(self.shown, Shown::Message) && *state == LinkState::Connected {
                    messages::print_raw_note(format_args!("connected again"));
                }
                self.shown = Shown::Nothing;
            }
        }
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
            link.report(&state);
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
