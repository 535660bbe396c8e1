//! The child in all tests: it performs a program of verbs given as arguments.
//!
//! ```text
//!   actor say hello ';' err oops ';' exit 3
//!   actor fork [ ignore-term ';' wait-forever ] ';' say ready ';' wait-forever
//! ```
//!
//! Verbs are divided by `;`; a program for a descendant stands in brackets. The modules are the vocabulary: what it
//! says ([`speech`]), what it hears ([`hearing`]), whom it brings along ([`kin`]), how it takes signals and ends
//! ([`fate`]), what it knows of itself ([`facts`]) and what it costs ([`load`]).
//!
//! It is single threaded, prints without buffers, and reports a mistake in its own program with exit code 64.
//! Deliberately absent: a runtime, and `fork` without exec. A descendant is this program started again, because that
//! needs no unsafe code and looks the same in the process table.

mod facts;
mod fate;
mod hearing;
mod kin;
mod load;
mod script;
mod speech;

use std::process::ExitCode;

use script::{Script, Step};

/// What an actor carries from verb to verb.
#[derive(Default)]
struct Stage {
    /// Signals it answers.
    watches: fate::Watches,
    /// Sockets that stay open.
    listeners: Vec<std::net::TcpListener>,
    /// Memory that stays touched.
    ballast: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    let mut stage = Stage::default();
    for step in Script::new(std::env::args_os().skip(1)) {
        perform(&mut stage, &step);
    }
    ExitCode::SUCCESS
}

fn perform(stage: &mut Stage, step: &Step) {
    let known = speech::perform(step)
        || hearing::perform(stage, step)
        || kin::perform(step)
        || fate::perform(stage, step)
        || facts::perform(step)
        || load::perform(stage, step);
    if !known {
        script::reject(&format!("unknown verb {:?}", step.verb));
    }
}
