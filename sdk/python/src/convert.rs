//! Values of Python as values of `exec-sdk`, and back.

use std::ffi::OsString;

use exec_sdk::Value;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::Object;

pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    // A bool is an int, too, so it is asked first.
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Value::Int(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        // A name that is no text has surrogates in Python, from which its bytes can be made again.
        return match value.extract::<String>() {
            Ok(text) => Ok(Value::Text(text)),
            Err(_) => Ok(Value::Os(value.extract::<OsString>()?)),
        };
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec().into()));
    }
    if let Ok(map) = value.cast::<PyDict>() {
        let pairs = map.iter().map(|(key, value)| Ok((key.extract::<String>()?, from_python(&value)?)));
        return Ok(Value::Map(pairs.collect::<PyResult<_>>()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| from_python(&item?));
        return Ok(Value::List(items.collect::<PyResult<_>>()?));
    }
    Err(PyTypeError::new_err(format!("{} cannot be an argument here", value.get_type().name()?)))
}

pub(crate) fn to_python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Bool(value) => value.into_py_any(py),
        Value::Int(value) => value.into_py_any(py),
        Value::Float(value) => value.into_py_any(py),
        Value::Text(value) => value.into_py_any(py),
        Value::Os(value) => value.into_py_any(py),
        Value::Bytes(value) => Ok(PyBytes::new(py, &value).into_any().unbind()),
        Value::List(values) => {
            let values: Vec<_> = values.into_iter().map(|value| to_python(py, value)).collect::<PyResult<_>>()?;
            Ok(PyList::new(py, values)?.into_any().unbind())
        }
        Value::Map(pairs) => {
            let map = PyDict::new(py);
            for (name, value) in pairs {
                map.set_item(name, to_python(py, value)?)?;
            }
            Ok(map.into_any().unbind())
        }
        Value::Object(object) => Ok(Py::new(py, Object(object))?.into_any()),
    }
}
