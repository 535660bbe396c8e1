//! Something to look at while a connection is made or found again; on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use exec_client::{Link, LinkState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;

use crate::messages;

/// Between two frames.
const TICK: Duration = Duration::from_millis(120);

/// A line on stderr that moves. Nothing at all where stderr is no terminal. Dropping it clears it.
#[derive(Debug)]
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    /// Shows it.
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

    /// Takes it away.
    pub(crate) fn clear(self) {
        drop(self);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Tells a person of a link that breaks and is found again.
#[derive(Debug)]
pub(crate) struct LinkMonitor {
    states: watch::Receiver<LinkState>,
    target: String,
    /// The screen belongs to a program: a line of its own is all we may add, and not for a mere blink.
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

    /// Waits for a change. Cancelling it loses nothing.
    pub(crate) async fn changed(&mut self) -> LinkState {
        match self.states.changed().await {
            Ok(()) => self.states.borrow_and_update().clone(),
            // The link has ended; whoever uses it learns that by using it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether there is no connection at this moment.
    pub(crate) fn is_broken(&self) -> bool {
        *self.states.borrow() != LinkState::Connected
    }

    /// Tells of it.
    pub(crate) fn report(&mut self, state: &LinkState) {
        match state {
            _ if self.quiet => {}
            LinkState::Reconnecting { attempt } if self.raw => {
                // The first try is at once, and often enough.
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
