//! Bad input: each kind is refused with an error of its own and leaves nothing behind.

use std::path::{Path, PathBuf};

use exec_core::command::{BadCommand, CommandField};
use exec_core::{Command, Environ, Io, TerminalSize};
use exec_env::process::{ProcessError, ProcessReason, ProcessVerb, SpawnFailure, SpawnStep};

use crate::test_environment::{TestEnvironment, process_id, write_id};

const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

pub async fn an_empty_argv_is_refused(env: &TestEnvironment) {
    let command = Command::new(Vec::<String>::new(), env.scratch());
    refused(env, command, BadCommand::EmptyArgv).await;
    let command = Command::new([""], env.scratch());
    refused(env, command, BadCommand::EmptyProgram).await;
}

pub async fn a_nul_byte_is_refused_wherever_it_hides(env: &TestEnvironment) {
    let nul = |field| BadCommand::Nul { field };
    let mut command = env.command("say");
    command.argv.push("a\0b".into());
    refused(env, command, nul(CommandField::Argument(2))).await;

    let mut command = env.command("say");
    command.arg0 = Some("\0".into());
    refused(env, command, nul(CommandField::Arg0)).await;

    let mut command = env.command("say");
    command.cwd = "/tmp\0".into();
    refused(env, command, nul(CommandField::Cwd)).await;

    for (name, value) in [("A\0", "1"), ("A", "1\0")] {
        let mut command = env.command("say");
        command.environ = Environ::exactly([(name, value)]);
        refused(env, command, nul(CommandField::Environment)).await;
    }
}

pub async fn a_relative_folder_no_cells_and_a_tiny_spool_are_refused(env: &TestEnvironment) {
    let mut command = env.command("say");
    command.cwd = "relative".into();
    let cwd = "relative".into();
    refused(env, command, BadCommand::RelativeCwd { cwd }).await;

    let mut command = env.command("say");
    command.io = Io::Pty(TerminalSize { rows: 0, cols: 80 });
    refused(env, command, BadCommand::NoCells { rows: 0, cols: 80 }).await;

    let mut command = env.command("say");
    command.spool_bytes = Some(1000);
    let small = BadCommand::SmallSpool { found_bytes: 1000, limit_bytes: exec_core::limits::SPOOL_MIN_BYTES };
    refused(env, command, small).await;
}

/// By path, by name in the child's PATH, and by a name that only the server's PATH would find.
pub async fn a_missing_program_is_told_by_its_name(env: &TestEnvironment) {
    let path = env.scratch().join("nobody");
    failed(env, env.command_for(&path, ""), SpawnStep::Exec, ENOENT, &path).await;

    let name = Path::new("no-such-program-anywhere");
    failed(env, env.command_for(name, ""), SpawnStep::Exec, ENOENT, name).await;

    let name = Path::new("cat");
    let mut command = env.command_for(name, "");
    command.environ = Environ::exactly([("PATH", "/nonexistent")]);
    failed(env, command, SpawnStep::Exec, ENOENT, name).await;
}

pub async fn a_file_that_is_not_executable_and_a_folder_are_told_apart_from_a_missing_one(env: &TestEnvironment) {
    let file = env.scratch().join("data");
    super::make_program(&file, "#!/bin/sh\n", 0o644);
    failed(env, env.command_for(&file, ""), SpawnStep::Exec, EACCES, &file).await;
    let folder = env.scratch();
    failed(env, env.command_for(&folder, ""), SpawnStep::Exec, EACCES, &folder).await;
}

pub async fn a_file_in_no_executable_format_is_not_given_to_a_shell(env: &TestEnvironment) {
    let file = env.scratch().join("no-format");
    super::make_program(&file, "echo a shell would run this\n", 0o755);
    failed(env, env.command_for(&file, ""), SpawnStep::Exec, ENOEXEC, &file).await;
}

/// The error names the working directory and not the program.
pub async fn a_missing_folder_and_a_file_as_folder_are_told_by_name(env: &TestEnvironment) {
    let missing = env.scratch().join("missing");
    let file = env.scratch().join("file");
    std::fs::write(&file, "").expect("the scratch folder is ours");
    for (cwd, errno) in [(missing, ENOENT), (file, ENOTDIR)] {
        let mut command = env.command("say");
        command.cwd = cwd.clone();
        failed(env, command.clone(), SpawnStep::Cwd, errno, &cwd).await;
        command.io = Io::Pty(TerminalSize::default());
        failed(env, command, SpawnStep::Cwd, errno, &cwd).await;
    }
}

pub async fn an_environment_of_three_mebibytes_is_too_long(env: &TestEnvironment) {
    let mut command = env.command("say");
    command.environ = Environ::exactly([("LARGE", "x".repeat(3 << 20))]);
    failed(env, command, SpawnStep::Exec, E2BIG, &env.actor).await;
}

/// Before they cost memory.
pub async fn arguments_beyond_every_kernel_are_refused(env: &TestEnvironment) {
    let mut command = env.command("say");
    command.argv.push("x".repeat(17 << 20).into());
    let error = refuse(env, command).await;
    let bad = matches!(error.reason, ProcessReason::BadCommand(BadCommand::TooLarge { .. }));
    assert!(bad, "{error:?}");
}

/// While its process runs, and after, until it is forgotten.
pub async fn an_id_in_use_is_refused_and_its_process_left_alone(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat").await;
    let in_use = Err(ProcessError::new(ProcessVerb::Start, &process.id, ProcessReason::IdInUse));
    let again = env.processes().start(&process.id, env.command("say no"));
    assert_eq!(again.await, in_use);
    process.write("1", "still here\n").await;
    process.close_stdin().await;
    assert_eq!(process.read_to_end().await.stdout(), "still here\n");
    let again = env.processes().start(&process.id, env.command("say no"));
    assert_eq!(again.await, in_use);
}

pub async fn of_many_starts_with_one_id_exactly_one_wins(env: &TestEnvironment) {
    let id = process_id("p");
    let starts = (0..8).map(|_| env.processes().start(&id, env.command("wait-forever")));
    let outcomes = futures_util::future::join_all(starts).await;
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let in_use = Err(ProcessError::new(ProcessVerb::Start, &id, ProcessReason::IdInUse));
    let lost = outcomes.iter().filter(|outcome| **outcome == in_use).count();
    assert_eq!((won, lost), (1, 7), "{outcomes:?}");
}

/// The list never shows the failed start.
pub async fn a_refused_start_leaves_its_id_free(env: &TestEnvironment) {
    let missing = env.command_for("/nonexistent/program".as_ref(), "");
    refuse(env, missing).await;
    assert_eq!(env.run("p", "say now").await.stdout(), "now\n");
}

pub async fn a_process_on_pipes_cannot_be_resized(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    let refused = ProcessError::new(ProcessVerb::Resize, &process.id, ProcessReason::NoTerminal);
    assert_eq!(process.resize(10, 10).await, Err(refused));
}

pub async fn a_terminal_cannot_be_resized_to_nothing(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "wait-forever").await;
    let size = TerminalSize { rows: 24, cols: 0 };
    let refused = ProcessError::new(ProcessVerb::Resize, &process.id, ProcessReason::NoCells { size });
    assert_eq!(process.resize(24, 0).await, Err(refused));
}

pub async fn a_write_beyond_the_limit_is_refused(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "cat-count").await;
    let limit_bytes = exec_core::limits::WRITE_BYTES;
    let found_bytes = limit_bytes + 1;
    let large = bytes::Bytes::from(vec![0; found_bytes]);
    let written = env.processes().write(&process.id, write_id("1"), large).await;
    let too_large = ProcessReason::WriteTooLarge { found_bytes, limit_bytes };
    assert_eq!(written, Err(ProcessError::new(ProcessVerb::Write, &process.id, too_large)));
    process.close_stdin().await;
    assert_eq!(process.read_to_end().await.stdout(), "0 bytes\n");
}

async fn refused(env: &TestEnvironment, command: Command, why: BadCommand) {
    let expected = ProcessError::new(ProcessVerb::Start, &process_id("p"), why.into());
    assert_eq!(refuse(env, command).await, expected);
}

async fn failed(env: &TestEnvironment, command: Command, step: SpawnStep, errno: i32, subject: &Path) {
    let failure = SpawnFailure { step, errno, subject: PathBuf::from(subject) };
    let expected = ProcessError::new(ProcessVerb::Start, &process_id("p"), ProcessReason::SpawnFailed(failure));
    assert_eq!(refuse(env, command).await, expected);
}

/// Starts what must not start; nothing of it is listed afterwards.
async fn refuse(env: &TestEnvironment, command: Command) -> ProcessError {
    let error = match env.processes().start(&process_id("p"), command).await {
        Ok(started) => panic!("this must not start, but runs as pid {}", started.pid),
        Err(error) => error,
    };
    let listed = env.processes().list().await;
    assert_eq!(listed, Ok(Vec::new()), "after: {error}");
    error
}
