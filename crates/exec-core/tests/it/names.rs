//! Ids, signals, exit codes, and the numbers of the bounds that others are told.

use std::time::Duration;

use exec_core::id::BadId;
use exec_core::limits::{self, PROCESS_ID_BYTES, WRITE_ID_BYTES};
use exec_core::{Exit, ExitStatus, ProcessId, Signal, WriteId, signal};

#[test]
fn an_id_is_what_its_owner_called_it() {
    let id = ProcessId::new("build-7").expect("it is short");
    assert_eq!((id.as_str(), id.to_string(), format!("{id:?}")), ("build-7", "build-7".into(), "\"build-7\"".into()));
    assert_eq!(ProcessId::new("").expect("the protocol allows it").as_str(), "");
    assert_eq!(WriteId::new("w1").expect("it is short").as_str(), "w1");
    assert_eq!(WriteId::new(""), Err(BadId::Empty));
}

#[test]
fn the_longest_id_is_accepted_and_a_longer_one_is_not() {
    let too_long = |limit_bytes| BadId::TooLong { found_bytes: limit_bytes + 1, limit_bytes };
    assert!(ProcessId::new("x".repeat(PROCESS_ID_BYTES)).is_ok());
    assert_eq!(ProcessId::new("x".repeat(PROCESS_ID_BYTES + 1)), Err(too_long(PROCESS_ID_BYTES)));
    assert!(WriteId::new("x".repeat(WRITE_ID_BYTES)).is_ok());
    assert_eq!(WriteId::new("x".repeat(WRITE_ID_BYTES + 1)), Err(too_long(WRITE_ID_BYTES)));
}

#[test]
fn signals_have_the_numbers_and_names_of_linux() {
    let numbers = Signal::ALL.map(Signal::number);
    assert_eq!(numbers, [1, 2, 3, 9, 10, 12, 15, 18, 19, 28]);
    assert_eq!(numbers.map(Signal::from_number), Signal::ALL.map(Some));
    assert_eq!((Signal::from_number(0), Signal::from_number(11)), (None, None));
    let names = [1, 9, 15, 28, 31].map(signal::name);
    assert_eq!(names, ["SIGHUP", "SIGKILL", "SIGTERM", "SIGWINCH", "SIGSYS"]);
    assert_eq!([0, 32, -5].map(signal::name), ["signal 0", "signal 32", "signal -5"]);
}

#[test]
fn a_shell_shows_the_code_or_the_signal() {
    let shown = |status| Exit { status, ..Exit::LOST }.shell_code();
    assert_eq!(shown(ExitStatus::Code(3)), 3);
    assert_eq!(shown(ExitStatus::Code(0)), 0);
    assert_eq!(shown(ExitStatus::Signal { number: 9, core_dumped: true }), 137);
    assert_eq!(Exit::LOST.shell_code(), -1);
    assert_eq!(Exit::LOST.usage.user, Duration::ZERO);
}

/// GUARANTEES and PROTOCOL name these; a slip of a shift would make them another thing.
#[test]
fn bounds_are_the_numbers_that_are_promised() {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    let found = [
        u64::from(limits::ENTRY_BYTES),
        u64::from(limits::SPLICE_BYTES),
        u64::from(limits::FLOOD_PIPE_BYTES),
        limits::SPOOL_BYTES,
        limits::SPOOL_TOTAL_BYTES,
        limits::SPOOL_MIN_BYTES,
        limits::PUNCH_BYTES,
        u64::from(limits::PTY_ECHO_BYTES),
        limits::WRITE_BYTES as u64,
        limits::ARGUMENT_BYTES as u64,
    ];
    let promised = [64 * KIB, 256 * KIB, 256 * KIB, 256 * MIB, 4096 * MIB, MIB, MIB, KIB, 64 * MIB, 8 * MIB];
    assert_eq!(found, promised);
}
