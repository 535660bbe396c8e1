//! The names of reasons: what one side calls a reason, the other side reads as the same reason.

mod view;

use exec_core::command::BadCommand;
use exec_core::{Exit, ProcessId, SpawnStep, TerminalSize};
use exec_env::files::{ContentHash, FileReason, WatchLimit};
use exec_env::process::{ProcessError, ProcessReason, ProcessVerb, SpawnFailure, Unreachable};

#[test]
fn a_reason_of_files_is_found_again_by_its_name_errno_and_detail() {
    let why = || "why".to_owned();
    for reason in [
        FileReason::Os(2),
        FileReason::Os(4095),
        FileReason::NotAFile,
        FileReason::NotRegular,
        FileReason::TooLarge { limit_bytes: 7 },
        FileReason::SymlinkInPath,
        FileReason::RecursiveNoFollow,
        FileReason::RecursiveRequired,
        FileReason::CopyIntoItself,
        FileReason::CopyOntoItself,
        FileReason::CopySpecial,
        FileReason::TooManyEntries { found: 7 },
        FileReason::LineTooLong { limit_bytes: 7 },
        FileReason::BinaryBehind { offset: 7 },
        FileReason::WalkLimitsTooLarge,
        FileReason::WalkLimitsZero,
        FileReason::ReadBlockLength,
        FileReason::WriteBlockLength,
        FileReason::WriteRange,
        FileReason::Changed { present: None },
        FileReason::Changed { present: Some(ContentHash([7; 32].into())) },
        FileReason::WatchLimit(WatchLimit::Watches),
        FileReason::WatchLimit(WatchLimit::Instances),
        FileReason::TooManyOpenFiles { limit: 7 },
        FileReason::BadPattern { why: why() },
        FileReason::UserUnavailable { why: why() },
        FileReason::Unsupported { why: why() },
        FileReason::Unreachable { why: why() },
    ] {
        let errno = if let FileReason::Os(errno) = reason { Some(errno) } else { None };
        let found = FileReason::from_name(reason.name(), errno, reason.detail().as_deref());
        assert_eq!(found, Some(reason));
    }
    assert_eq!(FileReason::from_name("tooLarge", None, None), None);
    assert_eq!(FileReason::from_name("a later word", None, None), None);
}

#[test]
fn a_reason_of_processes_is_found_again_if_errno_and_words_are_all_it_needs() {
    for reason in [
        ProcessReason::IdInUse,
        ProcessReason::StartCancelled,
        ProcessReason::UnknownProcess,
        ProcessReason::SpoolUnreadable { errno: 5 },
        ProcessReason::NoTerminal,
        ProcessReason::SignalRefused { errno: 5 },
        ProcessReason::BadRegex { why: "why".into() },
        ProcessReason::NoTimes,
        ProcessReason::SandboxUnavailable { why: "why".into() },
        ProcessReason::LimitUnavailable { why: "why".into() },
        ProcessReason::UserUnavailable { why: "why".into() },
    ] {
        let name = reason.name().expect("each of them has one");
        assert_eq!(ProcessReason::from_name(name, Some(5), "why"), Some(reason));
    }
    assert_eq!(ProcessReason::from_name("spoolRead", None, "why"), None);
    assert_eq!(ProcessReason::from_name("spawnFailed", Some(5), "why"), None);
}

#[test]
fn a_step_is_found_again_by_its_name() {
    for step in SpawnStep::ALL {
        assert_eq!(SpawnStep::from_name(step.name()), Some(step));
    }
    assert_eq!(SpawnStep::from_name("later"), None);
}

#[test]
fn an_error_of_a_process_says_which_process_and_what_to_do() {
    let failure = SpawnFailure { step: SpawnStep::Cwd, errno: 2, subject: "/w/x".into() };
    let size = TerminalSize { rows: 24, cols: 0 };
    let id = ProcessId::new("p").expect("short");
    for (reason, text) in [
        (BadCommand::EmptyArgv.into(), "argv must not be empty: name the program to run"),
        (ProcessReason::IdInUse, "process p already exists: choose another id, or forget the old one first"),
        (ProcessReason::SpawnFailed(failure), "cannot start process p: working directory \"/w/x\" does not exist"),
        (ProcessReason::StartCancelled, "process p start was cancelled"),
        (ProcessReason::UnknownProcess, "unknown process id p"),
        (
            ProcessReason::SpoolUnreadable { errno: 28 },
            "cannot read the output of process p: No space left on device (os error 28)",
        ),
        (
            ProcessReason::WriteTooLarge { found_bytes: 9, limit_bytes: 8 },
            "a write of 9 bytes is too large: write at most 8 at a time",
        ),
        (ProcessReason::NoTerminal, "process p has no terminal: start it with a tty"),
        (ProcessReason::NoCells { size }, "terminal size 24x0 has no cells: rows and cols must be at least 1"),
        (ProcessReason::SignalRefused { errno: 1 }, "cannot signal process p: Operation not permitted (os error 1)"),
        (ProcessReason::BadRegex { why: "why".into() }, "bad regular expression: why"),
        (
            ProcessReason::Ended { exit: Exit::LOST },
            "process p has ended (exit code -1) before what was waited for came",
        ),
        (Unreachable { why: "why".into() }.into(), "the environment cannot be reached: why"),
    ] {
        assert_eq!(ProcessError::new(ProcessVerb::Wait, &id, reason).to_string(), text);
    }
}
