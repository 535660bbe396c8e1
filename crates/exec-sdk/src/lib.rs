//! What the bindings to other languages have in common: one way to call, plain values, one error.
//!
//! ```text
//! the language ── open("local" | "connect", values) ──► Call ──► Object     an environment
//!                 object.call("spawn", values)      ──► Call ──► Object     a process, its output, a watch …
//!                 object.call("files.read", values) ──► Call ──► Value
//! ```
//!
//! A binding only turns its language's values into [`Value`]s and back, waits for [`Call`]s in its language's way, and makes
//! exceptions of [`Failure`]s. So the SDKs cannot differ in what they do, and a new method is written once.
//!
//! - `value`, `arguments`: what goes in and comes out;
//! - `failure`: why nothing comes out;
//! - `call`: work under way on threads of our own, `runtime`;
//! - `object`: what can be called, and the table of methods; `environment`, `process`, `files`, `http` carry them
//!   out; `pages` is what is read bit by bit, such as the `output` of a process.
//!
//! No thread of the language ever waits here, except in [`Call::wait_up_to`], and nothing here knows any language.

#![warn(missing_docs)]

mod arguments;
mod call;
mod environment;
mod failure;
mod files;
mod http;
pub mod limits;
mod object;
mod output;
mod pages;
mod process;
mod runtime;
mod value;

pub use arguments::Arguments;
pub use call::{Call, Outcome};
pub use environment::open;
pub use failure::{Failure, FailureKind};
pub use object::Object;
pub use value::Value;
