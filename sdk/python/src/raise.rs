//! Failures as exceptions. Which class is which is said in Python, in `exec_server/_errors.py`.

use exec_sdk::Failure;
use pyo3::prelude::*;

use crate::convert;

pub(crate) fn exception(py: Python<'_>, failure: Failure) -> PyErr {
    match make(py, failure) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn make(py: Python<'_>, failure: Failure) -> PyResult<Bound<'_, PyAny>> {
    let Failure { kind, message, errno, path, reason, partial } = failure;
    let partial = convert::to_python(py, partial)?;
    let path = path.map(std::path::PathBuf::into_os_string);
    let make = py.import("exec_server._errors")?.getattr("make")?;
    make.call1((kind.name(), message, errno, path, reason, partial))
}
