//! What a child finds when it begins: arguments, working directory, environment, descriptors, session and signals.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

use exec_core::{Environ, ExitStatus, Io, Stream};

use crate::test_environment::TestEnvironment;

pub async fn a_started_process_exists_when_start_returns(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    assert!(process.os_process().is_alive());
    let page = process.read_now().await;
    assert!(page.entries.is_empty());
    assert_eq!((page.head.first_seq, page.head.next_seq), (1, 1));
}

/// Also empty ones, spaces, line ends and what is not UTF-8.
pub async fn arguments_arrive_byte_for_byte(env: &TestEnvironment) {
    let mut command = env.command("args ; exit 0 ;");
    command.argv.extend([
        OsString::new(),
        "two words".into(),
        "tab\tand 'quotes' \"$HOME\" *".into(),
        OsString::from_vec(vec![0xff, 0xfe, b'x']),
    ]);
    let mut expected = Vec::new();
    for argument in &command.argv {
        expected.extend(argument.clone().into_vec());
        expected.push(b'\n');
    }
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.bytes(Stream::Stdout), expected);
}

/// The program is still found by `argv[0]`.
pub async fn the_child_sees_arg0_instead_of_its_program(env: &TestEnvironment) {
    let mut command = env.command("args");
    command.arg0 = Some("-stage name".into());
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.stdout(), "-stage name\nargs\n");
}

pub async fn the_child_begins_in_its_folder(env: &TestEnvironment) {
    let folder = env.scratch().join("a folder");
    std::fs::create_dir(&folder).expect("the scratch folder is ours");
    let mut command = env.command("cwd");
    command.cwd = folder.clone();
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.stdout(), format!("{}\n", folder.display()));
}

pub async fn the_environment_is_exactly_what_was_asked_for(env: &TestEnvironment) {
    let mut command = env.command("env");
    command.environ = Environ::exactly([("A", "1"), ("EMPTY", ""), ("B", "x=y z\t"), ("ä", "ö")]);
    let log = env.start_command("p", command).await.read_to_end().await;
    let printed = log.stdout();
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=1", "B=x=y z\t", "EMPTY=", "ä=ö"]);
}

pub async fn an_empty_environment_is_empty(env: &TestEnvironment) {
    let log = env.run("p", "env ; say over").await;
    assert_eq!(log.stdout(), "over\n");
}

/// Where both have a variable, the caller's counts.
pub async fn an_inherited_environment_has_the_machines_and_the_callers_variables(env: &TestEnvironment) {
    let mut command = env.command("env");
    command.environ = Environ::inherit_and([("TESTKIT_OWN", "yes"), ("HOME", "/own/home")]);
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.text_after("TESTKIT_OWN="), Some("yes".into()));
    assert_eq!(log.text_after("HOME="), Some("/own/home".into()));
    assert!(log.text_after("PATH=").is_some());
}

/// Even if the parent has descriptors that are not close-on-exec.
pub async fn the_child_sees_descriptors_0_1_and_2_only(env: &TestEnvironment) {
    let slipped = rustix::pipe::pipe().expect("a pipe that is not close-on-exec");
    let on_pipes = env.run("pipes", "fds").await;
    assert_eq!(on_pipes.stdout(), "0\n1\n2\n");
    let on_terminal = env.start_on_terminal("terminal", "fds").await;
    assert_eq!(on_terminal.read_to_end().await.terminal(), "0\n1\n2\n");
    drop(slipped);
}

pub async fn the_program_is_found_in_the_childs_path(env: &TestEnvironment) {
    let folder = env.scratch().join("programs");
    std::fs::create_dir(&folder).expect("the scratch folder is ours");
    symlink(&env.actor, folder.join("player")).expect("the name is free");
    let mut command = env.command_for("player".as_ref(), "args");
    let path = format!("/nonexistent:{}", folder.display());
    command.environ = Environ::exactly([("PATH", path)]);
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.stdout(), "player\nargs\n");
}

pub async fn without_a_path_the_usual_places_are_searched(env: &TestEnvironment) {
    let mut command = env.command_for("cat".as_ref(), "");
    command.argv.push("/dev/null".into());
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.exit().status, ExitStatus::Code(0));
}

pub async fn a_relative_program_with_a_slash_is_taken_from_the_childs_folder(env: &TestEnvironment) {
    let folder = env.scratch().join("programs");
    std::fs::create_dir(&folder).expect("the scratch folder is ours");
    symlink(&env.actor, folder.join("player")).expect("the name is free");
    let mut direct = env.command_for("./player".as_ref(), "say direct");
    direct.cwd = folder;
    let direct = env.start_command("direct", direct).await.read_to_end().await;
    assert_eq!(direct.stdout(), "direct\n");
    let deeper = env.command_for("programs/player".as_ref(), "say deeper");
    let deeper = env.start_command("deeper", deeper).await.read_to_end().await;
    assert_eq!(deeper.stdout(), "deeper\n");
}

pub async fn a_script_runs_by_the_interpreter_it_names(env: &TestEnvironment) {
    let script = env.scratch().join("script");
    super::make_program(&script, "#!/bin/sh\necho \"$1 by sh\"\n", 0o755);
    let command = env.command_for(&script, "told");
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!(log.stdout(), "told by sh\n");
}

pub async fn a_child_on_pipes_leads_its_own_session_without_a_terminal(env: &TestEnvironment) {
    let log = env.run("p", "tty").await;
    assert_eq!(
        log.stdout(),
        "isatty no no no\nsize none\nsession-leader yes\ngroup-leader yes\n\
         controlling-terminal no\nforeground no\n"
    );
}

/// Whatever the parent blocks or ignores. `cat` is started instead of the actor, because Rust's runtime ignores SIGPIPE
/// before an actor can look.
pub async fn the_child_begins_with_default_signals(env: &TestEnvironment) {
    let command = env.command_for("/bin/cat".as_ref(), "/proc/self/status");
    let log = env.start_command("p", command).await.read_to_end().await;
    for field in ["SigBlk:\t", "SigIgn:\t"] {
        let mask = log.text_after(field).expect("the kernel tells it");
        let mask = u64::from_str_radix(&mask, 16).expect("it is hexadecimal");
        // 32 and 33 belong to the C library, whose posix_spawn leaves them ignored; no program uses them.
        let library = 1 << 31 | 1 << 32;
        assert_eq!(mask & !library, 0, "{field}{mask:016x}");
    }
}

pub async fn without_a_stdin_the_child_reads_the_end_at_once(env: &TestEnvironment) {
    let log = env.run("p", "cat-count").await;
    assert_eq!(log.stdout(), "0 bytes\n");
}

pub async fn a_later_child_does_not_hold_the_pipes_of_an_earlier_one(env: &TestEnvironment) {
    let mut first = env.command("cat-count");
    first.io = Io::Pipes { stdin: true };
    let first = env.start_command("first", first).await;
    let second = env.start("second", "wait-forever").await;
    first.close_stdin().await;
    assert_eq!(first.read_to_end().await.stdout(), "0 bytes\n");
    assert!(second.os_process().is_alive());
}
