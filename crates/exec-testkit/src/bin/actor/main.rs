//! The child in all tests: it runs a program of verbs, which are its arguments.
//!
//! ```text
//!   actor say hello ';' err oops ';' exit 3
//!   actor fork [ ignore-term ';' wait-forever ] ';' say ready ';' wait-forever
//! ```
//!
//! Verbs are separated by `;`; a program for a descendant stands in brackets. The verbs by module: what it prints
//! ([`output`]), what it reads ([`input`]), which descendants it starts ([`descendants`]), how it handles signals,
//! waits and ends ([`signals`]), what it prints about itself ([`introspection`]), which resources it uses
//! ([`resources`]).
//!
//! It is single threaded, prints without buffers, and reports a mistake in its own program with exit code 64.
//! Deliberately absent: a runtime, and `fork` without exec. A descendant is this program started again, because that
//! needs no unsafe code and looks the same in the process table.

mod descendants;
mod input;
mod introspection;
mod output;
mod program;
mod resources;
mod signals;

use std::process::ExitCode;

use program::{Program, VerbCall};

/// What stays from verb to verb.
#[derive(Default)]
struct ActorState {
    handlers: signals::SignalHandlers,
    listeners: Vec<std::net::TcpListener>,
    /// Memory that stays allocated and touched.
    allocations: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    let mut state = ActorState::default();
    for call in Program::new(std::env::args_os().skip(1)) {
        run(&mut state, &call);
    }
    ExitCode::SUCCESS
}

fn run(state: &mut ActorState, call: &VerbCall) {
    let known = output::run(call)
        || input::run(state, call)
        || descendants::run(call)
        || signals::run(state, call)
        || introspection::run(call)
        || resources::run(state, call);
    if !known {
        program::fail(&format!("unknown verb {:?}", call.verb));
    }
}
