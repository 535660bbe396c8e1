//! The user's terminal: its size, its raw mode, and its way back to normal on every path out, panics included.

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};

use exec_core::TerminalSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

/// How the terminal was before we changed it, while it is changed. One per process, because there is one terminal and
/// a panic on any thread must find it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Stdin's terminal in raw mode: every key goes through as it is. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal raw; `None` if stdin is none.
    pub(crate) fn enter() -> std::io::Result<Option<Self>> {
        if !std::io::stdin().is_terminal() {
            return Ok(None);
        }
        restore_on_panic();
        make_raw()?;
        Ok(Some(Self(())))
    }

    /// Calls `pause` with the terminal as it was before us, and makes it raw again.
    pub(crate) fn with_original_mode(&self, action: impl FnOnce()) -> std::io::Result<()> {
        restore();
        action();
        make_raw()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// The size of the terminal we are on, if we are on one that has a size.
pub(crate) fn size() -> Option<TerminalSize> {
    [stdout(), stdin(), stderr()].into_iter().find_map(|descriptor| {
        let found = tcgetwinsize(descriptor).ok()?;
        (found.ws_row > 0 && found.ws_col > 0).then_some(TerminalSize { rows: found.ws_row, cols: found.ws_col })
    })
}

/// Whether stdin may be read now. A job in the background that reads its terminal is stopped by the kernel, and we
/// with all our threads; so it is asked first.
pub(crate) fn stdin_is_ours() -> bool {
    match tcgetpgrp(stdin()) {
        Ok(foreground) => own_group().is_none_or(|own| own == foreground.as_raw_pid()),
        // Not a terminal, or not our controlling one: nobody will stop us.
        Err(_) => true,
    }
}

/// Our process group: 0 if its leader is outside our pid namespace, as after `nsenter` or in a container's first
/// process. Read from the process table, for rustix's `getpgrp` promises a pid and 0 is none.
fn own_group() -> Option<i32> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may contain anything: state, parent, group.
    stat.rsplit(')').next()?.split_whitespace().nth(2)?.parse().ok()
}

fn make_raw() -> std::io::Result<()> {
    let before = tcgetattr(stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    // Noted first: a panic in between restores what is still there, which does no harm.
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(stdin(), OptionalActions::Now, &raw)?;
    Ok(())
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Fails only when the terminal is gone, and then its state matters to nobody.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// The message of a panic would otherwise be a staircase, and a panic on another thread would restore nothing.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
    });
}
