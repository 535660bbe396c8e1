//! The thread that tells event loops of finished calls.
//!
//! Telling one takes Python's lock, for which one may have to wait. The runtime's threads move everybody's bytes and must
//! not, so they only leave a note here.
//!
//! It must not wait for that lock when the interpreter ends: CPython ends such a thread where it stands, and with it the
//! process. So [`stop`] is called before that, by `atexit`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use exec_sdk::Call;
use pyo3::prelude::*;

enum Message {
    Done { event_loop: Py<PyAny>, callback: Py<PyAny> },
    Stop,
}

enum Notifier {
    /// Nobody has waited in an event loop yet.
    None,
    /// The process is the one that has the thread: a fork does not copy it.
    Running { pid: u32, messages: Sender<Message>, thread: JoinHandle<()> },
    /// The interpreter of this process ends.
    Stopped { pid: u32 },
}

static NOTIFIER: Mutex<Notifier> = Mutex::new(Notifier::None);

/// Has the loop call `callback` once the call is done.
pub(crate) fn when_done(call: &Call, event_loop: Py<PyAny>, callback: Py<PyAny>) {
    let Some(messages) = sender() else { return };
    call.on_done(move || {
        // Without the thread the interpreter is ending, and nobody waits any more.
        let _ = messages.send(Message::Done { event_loop, callback });
    });
}

/// Ends the thread, and waits for its end.
#[pyfunction]
pub(crate) fn stop_notifying(py: Python<'_>) {
    let pid = std::process::id();
    let running = {
        let mut notifier = NOTIFIER.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *notifier, Notifier::Stopped { pid })
    };
    if let Notifier::Running { pid: owner, messages, thread } = running
        && owner == pid
    {
        let _ = messages.send(Message::Stop);
        // It may need Python's lock for what it is about to tell.
        let _ = py.detach(|| thread.join());
    }
}

/// `None` when the interpreter ends.
fn sender() -> Option<Sender<Message>> {
    let mut notifier = NOTIFIER.lock().unwrap_or_else(PoisonError::into_inner);
    let own_pid = std::process::id();
    match &*notifier {
        Notifier::Running { pid, messages, .. } if *pid == own_pid => Some(messages.clone()),
        Notifier::Stopped { pid } if *pid == own_pid => None,
        _ => {
            // Bounded by the calls that are under way: each leaves one message.
            let (messages, receiver) = channel();
            let thread = std::thread::Builder::new().name("exec-server-notify".to_owned()).spawn(|| tell(receiver));
            let thread = thread.expect("a process that runs Python can make one more thread");
            *notifier = Notifier::Running { pid: own_pid, messages: messages.clone(), thread };
            Some(messages)
        }
    }
}

/// Lives until it is stopped.
fn tell(messages: Receiver<Message>) {
    while let Ok(first @ Message::Done { .. }) = messages.recv() {
        // `None` when the interpreter is ending; then there is nobody to tell.
        let goes_on = Python::try_attach(|py| {
            for message in std::iter::once(first).chain(messages.try_iter()) {
                let Message::Done { event_loop, callback } = message else { return false };
                let told = event_loop.call_method1(py, "call_soon_threadsafe", (callback,));
                // A loop that was closed has nobody who waits.
                drop(told);
            }
            true
        });
        if goes_on != Some(true) {
            return;
        }
    }
}
