//! The user's terminal: its size, and raw mode, which is undone however we end, panics included.

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};

use exec_core::TerminalSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

/// The settings to go back to, while the terminal is in raw mode. A static, because there is one terminal, and a panic on
/// any thread must be able to restore it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal of stdin in raw mode: every key arrives as bytes. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// `None` if stdin is no terminal.
    pub(crate) fn enter() -> std::io::Result<Option<Self>> {
        if !std::io::stdin().is_terminal() {
            return Ok(None);
        }
        restore_on_panic();
        make_raw()?;
        Ok(Some(Self(())))
    }

    /// Restores the terminal, calls `action`, and enters raw mode again.
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

/// The size of our terminal, if we have one and it has a size.
pub(crate) fn size() -> Option<TerminalSize> {
    [stdout(), stdin(), stderr()].into_iter().find_map(|descriptor| {
        let found = tcgetwinsize(descriptor).ok()?;
        (found.ws_row > 0 && found.ws_col > 0).then_some(TerminalSize { rows: found.ws_row, cols: found.ws_col })
    })
}

/// Whether there is a terminal on which a program of ours may ask the user something now, whatever our stdin is.
pub(crate) fn is_ours() -> bool {
    let Ok(terminal) = std::fs::File::options().read(true).write(true).open("/dev/tty") else { return false };
    tcgetpgrp(&terminal).is_ok_and(|foreground| own_group().is_some_and(|own| own == foreground.as_raw_pid()))
}

/// Whether stdin may be read now. The kernel stops a background job that reads its terminal, with all its threads.
pub(crate) fn stdin_is_ours() -> bool {
    match tcgetpgrp(stdin()) {
        Ok(foreground) => own_group().is_none_or(|own| own == foreground.as_raw_pid()),
        // It is not a terminal, or not our controlling one: a read does not stop us.
        Err(_) => true,
    }
}

/// Our process group: 0 if its leader is outside our pid namespace, as after `nsenter` or in a container's first
/// process. Read from /proc, because `getpgrp` of rustix returns a `Pid`, which cannot be 0.
fn own_group() -> Option<i32> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name, which may contain anything, are: state, parent, group.
    stat.rsplit(')').next()?.split_whitespace().nth(2)?.parse().ok()
}

fn make_raw() -> std::io::Result<()> {
    let before = tcgetattr(stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    // Stored first: a panic in between restores settings that are still in effect, which does no harm.
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(stdin(), OptionalActions::Now, &raw)?;
    Ok(())
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // It fails only if the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// Without it, the lines of a panic message would not begin at the left margin, and a panic on another thread would
/// restore nothing.
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
