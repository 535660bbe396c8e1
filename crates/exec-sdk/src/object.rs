//! What a language holds and calls: an environment, and what its methods hand out.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::pages::Pages;
use crate::process::Process;
use crate::{Arguments, Call, Failure, runtime};

/// Something to call. Dropping it lets go of it: a process runs on, a watch ends.
pub struct Object {
    /// The process in which its threads are.
    pid: u32,
    /// `None` only while it is dropped.
    what: Option<What>,
}

pub(crate) enum What {
    Environment(Arc<Environment>),
    Process(Arc<Process>),
    Pages(Arc<Pages>),
}

impl Object {
    pub(crate) fn new(what: What) -> Self {
        Self { pid: std::process::id(), what: Some(what) }
    }

    /// Begins a method. Everything that can go wrong, an unknown name included, is the outcome of the call.
    pub fn call(&self, method: &str, arguments: Arguments) -> Call {
        if self.pid != std::process::id() {
            return Call::failed(Failure::forked());
        }
        let (work, scope) = match &self.what {
            Some(What::Environment(environment)) => (environment.call(method, arguments), environment.scope()),
            Some(What::Process(process)) => (process.call(method, arguments), process.scope()),
            Some(What::Pages(pages)) => (pages.call(method, arguments), pages.scope()),
            None => return Call::failed(Failure::closed()),
        };
        match work {
            // What ends something is not ended by the environment's being closed.
            Ok(work) if matches!(method, "close" | "end") => Call::begin(work, &CancellationToken::new()),
            // Nothing of it was under way.
            Ok(_) if scope.is_cancelled() => Call::failed(Failure::closed()),
            Ok(work) => Call::begin(work, scope),
            Err(failure) => Call::failed(failure),
        }
    }

    /// Which kind of object it is.
    pub fn kind(&self) -> &'static str {
        match &self.what {
            Some(What::Environment(_)) => "environment",
            Some(What::Process(_)) => "process",
            Some(What::Pages(pages)) => pages.kind(),
            None => "nothing",
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let what = self.what.take();
        if self.pid != std::process::id() {
            // The child of a fork: half of it is missing here, and the other half still works in the parent.
            std::mem::forget(what);
            return;
        }
        // Some of what is dropped speaks to the runtime's reactor, and we are on a thread of the language.
        let runtime = runtime::handle();
        let _inside = runtime.as_ref().map(|runtime| runtime.enter());
        drop(what);
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Object").field(&self.kind()).finish()
    }
}
