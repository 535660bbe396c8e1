//! What a language reads page by page: the output of a process, changes of files, matches, the body of a response.
//!
//! It is read until its end, until it is closed, or until its environment is. Closing it ends a read that is under way: the one
//! who reads and the one who closes may be two threads, or two tasks of an event loop.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::{Outcome, Work};
use crate::environment::Environment;
use crate::object::What;
use crate::{Arguments, Failure, Object, Value};

/// Where pages come from.
pub(crate) trait ReadPages: Send {
    /// The next page, or null after the last. Cancelling it loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Outcome>;
}

/// A place in what is read. Several calls at once get their pages one after the other.
pub(crate) struct Pages {
    kind: &'static str,
    /// `None` after it was closed.
    reader: Mutex<Option<Box<dyn ReadPages>>>,
    closed: CancellationToken,
    /// Whoever reads may hold nothing else of it, and an environment that nobody holds ends what runs there.
    environment: Arc<Environment>,
}

impl Pages {
    /// `kind`: what it is called in an error.
    pub(crate) fn object(kind: &'static str, reader: impl ReadPages + 'static, environment: Arc<Environment>) -> Value {
        let reader: Mutex<Option<Box<dyn ReadPages>>> = Mutex::new(Some(Box::new(reader)));
        let pages = Self { kind, reader, closed: CancellationToken::new(), environment };
        Object::new(What::Pages(Arc::new(pages))).into()
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Cancelled when the environment is closed, and with it what is read here.
    pub(crate) fn scope(&self) -> &CancellationToken {
        self.environment.scope()
    }

    pub(crate) fn call(self: &Arc<Self>, method: &str, arguments: Arguments) -> Result<Work, Failure> {
        arguments.finish()?;
        let pages = Arc::clone(self);
        match method {
            "next" => Ok(Work::new(async move { pages.next().await })),
            "close" => {
                // Here, so that a read that waits ends without anybody's waiting for this call.
                self.closed.cancel();
                Ok(Work::new(async move {
                    pages.reader.lock().await.take();
                    Ok(Value::Null)
                }))
            }
            method => Err(Failure::bad_argument("method", &format!("a {} has no `{method}`", self.kind))),
        }
    }

    async fn next(&self) -> Outcome {
        let page = async {
            match &mut *self.reader.lock().await {
                Some(reader) => reader.next().await,
                None => Ok(Value::Null),
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Ok(Value::Null),
            page = page => page,
        }
    }
}
