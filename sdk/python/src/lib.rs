//! The part of the Python package `exec_server` that is Rust: `exec_server._native`.
//!
//! It has three things: `open`, [`Object`] and [`Call`], as `exec-sdk` has them. Everything that people see is Python, over
//! these: `exec_server/_sync.py` and `exec_server/aio.py`.
//!
//! - `convert`: values of Python become values of `exec-sdk`, and back;
//! - `raise`: failures become exceptions;
//! - `notify`: the thread that tells event loops of finished calls, so that no thread of the runtime ever waits for Python.

mod convert;
mod notify;
mod raise;

use std::sync::Arc;
use std::time::Duration;

use exec_sdk::limits::CLEAN_UP;
use exec_sdk::{Arguments, Value};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How often a thread that waits for a call looks for signals: Ctrl-C must not seem to be ignored.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::notify::stop_notifying;
    #[pymodule_export]
    use super::{Call, Object, open};
}

/// Opens an environment.
#[pyfunction]
fn open(way: &str, arguments: &Bound<'_, PyDict>) -> PyResult<Call> {
    Ok(Call(exec_sdk::open(way, arguments_of(arguments)?)))
}

/// Something to call.
#[pyclass(frozen)]
struct Object(Arc<exec_sdk::Object>);

#[pymethods]
impl Object {
    fn call(&self, method: &str, arguments: &Bound<'_, PyDict>) -> PyResult<Call> {
        Ok(Call(self.0.call(method, arguments_of(arguments)?)))
    }
}

/// Work under way.
#[pyclass(frozen)]
struct Call(exec_sdk::Call);

#[pymethods]
impl Call {
    /// Waits until it is done, with other threads running meanwhile. An interrupt cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = &self.0;
        while !py.detach(|| call.wait_up_to(SIGNAL_CHECK)) {
            if let Err(interrupt) = py.check_signals() {
                call.cancel();
                py.detach(|| call.wait_up_to(CLEAN_UP));
                return Err(interrupt);
            }
        }
        self.take(py)
    }

    /// What it ended with; only when it is done, and only once.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.0.take() {
            Some(Ok(value)) => convert::to_python(py, value),
            Some(Err(failure)) => Err(raise::exception(py, failure)),
            None => Err(pyo3::exceptions::PyRuntimeError::new_err("the call is not done, or its result was taken")),
        }
    }

    fn cancel(&self) {
        self.0.cancel();
    }

    /// Has `event_loop.call_soon_threadsafe(callback)` called once it is done.
    fn on_done(&self, event_loop: Py<PyAny>, callback: Py<PyAny>) {
        notify::when_done(&self.0, event_loop, callback);
    }
}

fn arguments_of(arguments: &Bound<'_, PyDict>) -> PyResult<Arguments> {
    match convert::from_python(arguments)? {
        Value::Map(pairs) => Ok(Arguments::new(pairs)),
        _ => Err(pyo3::exceptions::PyTypeError::new_err("arguments are a dict")),
    }
}
