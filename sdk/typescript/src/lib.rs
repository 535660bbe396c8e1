//! The part of the npm package `exec-server` that is Rust: `native/exec_server.node`.
//!
//! It has three things: `open`, [`NativeObject`] and [`NativeCall`], as `exec-sdk` has them. Everything that people see is
//! TypeScript, over these, in `lib`.
//!
//! - `convert`: values of JavaScript become values of `exec-sdk`, and back.
//!
//! JavaScript's one thread never waits here, except in [`NativeCall::wait_sync`], for programs that are about to exit.

mod convert;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exec_sdk::{Arguments, Failure};
use napi::bindgen_prelude::{Object, Unknown};
use napi::{Env, Error, JsValue as _, Result, Status};
use napi_derive::napi;

/// Opens an environment.
#[napi]
pub fn open(way: String, arguments: Object<'_>) -> Result<NativeCall> {
    Ok(NativeCall(exec_sdk::open(&way, arguments_of(&arguments)?)))
}

/// Something to call, until it is released.
#[napi]
pub struct NativeObject(Mutex<Option<Arc<exec_sdk::Object>>>);

impl NativeObject {
    pub(crate) fn new(object: Arc<exec_sdk::Object>) -> Self {
        Self(Mutex::new(Some(object)))
    }
}

#[napi]
impl NativeObject {
    /// Begins a method.
    #[napi]
    pub fn call(&self, method: String, arguments: Object<'_>) -> Result<NativeCall> {
        let arguments = arguments_of(&arguments)?;
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let released = || Error::new(Status::GenericFailure, "this was released and cannot be called any more");
        Ok(NativeCall(object.ok_or_else(released)?.call(&method, arguments)))
    }

    /// Lets go of it now: whoever reads a log holds it back, and the garbage collector comes when it likes.
    #[napi]
    pub fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Work under way.
#[napi]
pub struct NativeCall(exec_sdk::Call);

#[napi]
impl NativeCall {
    /// A promise that is kept once the call is done. It keeps the program running until then, as a promise of Node's own does.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn done<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        let (deferred, promise) = env.create_deferred()?;
        // Only a message to JavaScript's thread: nobody waits.
        self.0.on_done(move || deferred.resolve(|_| Ok(())));
        Ok(promise)
    }

    /// Waits for it here, but not longer than this; answers whether it is done.
    #[napi]
    pub fn wait_sync(&self, milliseconds: u32) -> bool {
        self.0.wait_up_to(Duration::from_millis(milliseconds.into()))
    }

    /// What it ended with, `{ value }` or `{ failure }`; only when it is done, and only once.
    #[napi(ts_return_type = "Outcome")]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Unknown<'env>> {
        let mut outcome = Object::new(env)?;
        match self.0.take() {
            Some(Ok(value)) => outcome.set("value", convert::to_js(env, value)?)?,
            Some(Err(failure)) => outcome.set("failure", failure_of(env, failure)?)?,
            None => {
                let why = "the call is not done, or its outcome was taken";
                return Err(Error::new(Status::GenericFailure, why));
            }
        }
        Ok(outcome.to_unknown())
    }

    /// Asks it to end early. It is done when it has cleaned up.
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

fn arguments_of(arguments: &Object<'_>) -> Result<Arguments> {
    Ok(Arguments::new(convert::pairs_of(arguments)?))
}

/// Which class it becomes is said in TypeScript, in `lib/errors.ts`.
fn failure_of<'env>(env: &'env Env, failure: Failure) -> Result<Object<'env>> {
    let Failure { kind, message, errno, path, reason, partial } = failure;
    let mut shown = Object::new(env)?;
    shown.set("kind", kind.name())?;
    shown.set("message", message)?;
    shown.set("errno", errno)?;
    shown.set("path", path.map(|path| convert::os_to_js(env, path.as_os_str())).transpose()?)?;
    shown.set("reason", reason)?;
    shown.set("partial", convert::to_js(env, partial)?)?;
    Ok(shown)
}
