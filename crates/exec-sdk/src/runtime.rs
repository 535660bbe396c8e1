//! The threads on which everything runs, one set for each process.
//!
//! A fork copies no threads: in the child there is nobody to carry anything out. So the child gets a runtime of its own with
//! its first call, and what was made before the fork refuses to be used (`object`).

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::limits::WORKER_THREADS;

/// The runtime, and the process in which its threads are.
static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

/// The runtime of this process. It lives as long as the process.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some((owner, runtime)) = &*runtime
        && *owner == pid
    {
        return Ok(runtime.handle().clone());
    }
    let made =
        Builder::new_multi_thread().worker_threads(WORKER_THREADS).thread_name("exec-server").enable_all().build()?;
    let handle = made.handle().clone();
    // Its threads are in the parent, and dropping it would wait for them for ever.
    std::mem::forget(runtime.replace((pid, made)));
    Ok(handle)
}
