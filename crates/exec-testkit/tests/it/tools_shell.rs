//! The shell tools over this machine: what a model gets from one call, and what it can ask for later.

use std::sync::Arc;
use std::time::Duration;

use exec_core::Stream;
use exec_core::limits::SPOOL_MIN_BYTES;
use exec_env::process::{Terminated, Waited};
use exec_local::LocalOptions;
use exec_testkit::TestEnvironment;
use exec_testkit::os_process::OsProcess;
use exec_tools::environments::{EnvironmentUnavailable, Environments, SingleEnvironment, TargetEnvironment};
use exec_tools::shell::limits::SESSIONS;
use exec_tools::shell::{
    ExecRequest, Look, Omitted, ReadFrom, ReadRequest, SessionNumber, SessionState, Shell, ShellError, WaitFor,
    WriteRequest,
};

use crate::environments::{keeper_as_thread, local};

/// Long enough that only a hang reaches it.
const LONG: Duration = Duration::from_secs(25);
const SHORT: Duration = Duration::from_millis(250);

async fn machine() -> (TestEnvironment, Shell) {
    let env = keeper_as_thread().await;
    let shell = shell_over(&env);
    (env, shell)
}

fn shell_over(env: &TestEnvironment) -> Shell {
    let place =
        TargetEnvironment { workdir: Some(env.scratch()), ..TargetEnvironment::new("here", env.environment.clone()) };
    Shell::new(Arc::new(SingleEnvironment(place)))
}

fn request(cmd: impl Into<String>) -> ExecRequest {
    let shell = Some("/bin/sh".to_owned());
    ExecRequest { cmd: cmd.into(), shell, no_login: true, yield_time: Some(LONG), ..ExecRequest::default() }
}

async fn exec(shell: &Shell, request: ExecRequest) -> Look {
    shell.exec_command(request).await.expect("it starts")
}

async fn write(shell: &Shell, session: SessionNumber, chars: &str) -> Result<Look, ShellError> {
    let request = WriteRequest { chars: chars.to_owned(), ..WriteRequest::default() };
    shell.write_stdin(session, request).await
}

async fn look(shell: &Shell, session: SessionNumber) -> Look {
    write(shell, session, "").await.expect("it can be looked at")
}

fn exit_code(look: &Look) -> Option<i32> {
    look.state.exit().map(|exit| exit.shell_code())
}

async fn read(shell: &Shell, session: SessionNumber, from: ReadFrom, tokens: usize) -> Look {
    let request = ReadRequest { from, stream: None, max_output_tokens: Some(tokens) };
    shell.read(session, request).await.expect("it can be read")
}

#[tokio::test]
async fn a_short_command_ends_in_one_call() {
    let (env, shell) = machine().await;
    let found = exec(&shell, request("pwd; echo oops >&2; echo $HOME-$PAGER; exit 3")).await;
    assert_eq!(exit_code(&found), Some(3));
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(found.output.text.contains(&format!("{}\n", env.scratch().display())), "{}", found.output.text);
    assert!(found.output.text.contains("oops\n"));
    assert!(found.output.text.contains(&format!("{home}-cat\n")));
    assert_eq!((found.output.omitted, found.output.lost_bytes), (None, 0));
}

#[tokio::test]
async fn a_long_command_yields_and_each_look_shows_what_is_new() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!("echo one; head -c 1 {} > /dev/null; echo two; exit 7", gate.path().display());
    let first = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    assert_eq!((first.output.text.as_str(), exit_code(&first)), ("one\n", None));
    let listed = shell.list(None).await.expect("it can be listed").sessions;
    assert_eq!(listed.iter().map(|session| session.session).collect::<Vec<_>>(), [first.session]);
    gate.release();
    let waited = shell.wait(first.session, WaitFor::Exit, Some(LONG), None).await.expect("it ends");
    assert!(matches!(waited.waited, Some(Waited::Exited(_))));
    assert_eq!(exit_code(&waited.look), Some(7));
    assert!(waited.look.output.text == "two\n");
    let nothing = look(&shell, first.session).await;
    assert_eq!((nothing.output.text.as_str(), exit_code(&nothing)), ("", Some(7)));
}

#[tokio::test]
async fn sessions_are_found_by_their_number_after_a_restart() {
    let (env, shell) = machine().await;
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), stdin: true, ..request("echo a; cat") }).await;
    drop(shell);
    let next = shell_over(&env);
    let found = write(&next, started.session, "b\n").await.expect("it is found");
    assert_eq!((found.process, found.output.text.as_str()), (started.process.clone(), "a\nb\n"));
    assert_eq!(next.session_of(&started.process).await, Ok(started.session));
}

#[tokio::test]
async fn what_a_view_leaves_out_is_told_in_numbers_and_the_call_it_names_shows_it() {
    let (_env, shell) = machine().await;
    let found = exec(&shell, ExecRequest { max_output_tokens: Some(50), ..request("seq 1 100000") }).await;
    let whole: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(found.output.bytes, whole.len() as u64);
    let omitted = found.output.omitted.expect("200 bytes are shown");
    let Omitted { bytes: Some(left_out), from_seq, skip_bytes } = omitted else { panic!("it is known: {omitted:?}") };
    assert_eq!(left_out, whole.len() as u64 - 200);
    let call = match skip_bytes {
        0 => format!("read_output(session_id={}, from_seq={from_seq})", found.session),
        _ => format!("read_output(session_id={}, from_seq={from_seq}, skip_bytes={skip_bytes})", found.session),
    };
    let note = format!("\n[… {left_out} bytes left out here: {call} shows them …]\n");
    assert_eq!(found.output.text, format!("{}{note}{}", &whole[..100], &whole[whole.len() - 100..]));
    // Going on from there, again and again, shows all of it.
    let (mut from, mut shown) = (ReadFrom::Entry { seq: from_seq, skip_bytes }, String::new());
    loop {
        let part = read(&shell, found.session, from, 30_000).await;
        let note = part.output.text.rfind("\n[… ").filter(|_| part.output.omitted.is_some());
        shown.push_str(&part.output.text[..note.unwrap_or(part.output.text.len())]);
        match part.output.omitted {
            Some(Omitted { from_seq, skip_bytes, .. }) => from = ReadFrom::Entry { seq: from_seq, skip_bytes },
            None => break,
        }
    }
    assert_eq!(shown, whole[100..]);
    let tail = read(&shell, found.session, ReadFrom::Tail, 25).await;
    assert!(tail.output.text.ends_with(&whole[whole.len() - 100..]));
    let middle = read(&shell, found.session, ReadFrom::Entry { seq: 1, skip_bytes: 300_000 }, 25).await;
    assert!(middle.output.text.starts_with(&whole[300_000..300_100]));
}

#[tokio::test]
async fn one_stream_is_shown_from_both_ends_and_the_call_it_names_shows_the_rest() {
    let (_env, shell) = machine().await;
    let cmd = "i=0; while [ $i -lt 300 ]; do seq 1 200; echo error $i >&2; i=$((i+1)); done; seq 1 20000";
    let session = exec(&shell, request(cmd)).await.session;
    let whole: String = (0..300).map(|n| format!("error {n}\n")).collect();
    let read = async |from, tokens| {
        let request = ReadRequest { from, stream: Some(Stream::Stderr), max_output_tokens: Some(tokens) };
        shell.read(session, request).await.expect("it can be read").output
    };
    assert_eq!(read(ReadFrom::Both, 10_000).await.text, whole);
    let left_out = whole.len() as u64 - 200;
    let note = |call: &str| {
        format!("[… {left_out} bytes left out here: read_output(session_id={session}, {call}) shows them …]\n")
    };
    let ends = read(ReadFrom::Both, 50).await;
    let omitted = ends.omitted.expect("200 bytes are shown");
    assert_eq!((omitted.bytes, ends.bytes), (Some(left_out), whole.len() as u64));
    let Omitted { from_seq, skip_bytes, .. } = omitted;
    let skip = if skip_bytes > 0 { format!(", skip_bytes={skip_bytes}") } else { String::new() };
    let note_of_both = format!("\n{}", note(&format!("from_seq={from_seq}{skip}, stream=\"stderr\"")));
    assert_eq!(ends.text, format!("{}{note_of_both}{}", &whole[..100], &whole[whole.len() - 100..]));
    let rest = read(ReadFrom::Entry { seq: from_seq, skip_bytes }, 10_000).await;
    assert_eq!(rest.text, whole[100..]);
    let tail = read(ReadFrom::Tail, 50).await.text;
    assert!(
        tail.ends_with(&format!("{}{}", note("from_seq=1, stream=\"stderr\""), &whole[whole.len() - 200..])),
        "{tail}"
    );
}

#[tokio::test]
async fn no_character_of_one_stream_is_cut_where_some_are_left_out() {
    let (_env, shell) = machine().await;
    let session = exec(&shell, request("printf x >&2; printf 'é%.0s' $(seq 500) >&2; echo out")).await.session;
    let request = ReadRequest { from: ReadFrom::Both, stream: Some(Stream::Stderr), max_output_tokens: Some(7) };
    let shown = shell.read(session, request).await.expect("it can be read").output;
    let omitted = shown.omitted.expect("28 bytes are shown");
    assert_eq!((omitted.bytes, omitted.skip_bytes, shown.bytes), (Some(1001 - 13 - 14), 13, 1001));
    assert!(shown.text.starts_with("xéééééé\n[… 974 bytes") && shown.text.ends_with("…]\nééééééé"), "{}", shown.text);
}

#[tokio::test]
async fn what_a_full_log_has_dropped_is_told_with_its_bytes() {
    let options = LocalOptions { spool_bytes: SPOOL_MIN_BYTES, ..LocalOptions::default() };
    let env = local(options).await;
    let shell = shell_over(&env);
    let found = exec(&shell, ExecRequest { max_output_tokens: Some(50), ..request("seq 1 1000000") }).await;
    let whole: u64 = (1..=1_000_000_u64).map(|n| n.to_string().len() as u64 + 1).sum();
    let (lost, omitted) = (found.output.lost_bytes, found.output.omitted.and_then(|omitted| omitted.bytes));
    assert!(lost > 0, "seven megabytes do not fit into one");
    assert_eq!((found.output.bytes, omitted), (whole, Some(whole - lost - 200)), "lost {lost}");
    let told = format!("[… {lost} bytes were dropped from the full log and are gone …]\n");
    assert!(found.output.text.starts_with(&told) && found.output.text.ends_with("999999\n1000000\n"));
    let tail = read(&shell, found.session, ReadFrom::Tail, 25).await;
    assert_eq!(tail.output.lost_bytes, lost);
}

#[tokio::test]
async fn small_entries_and_large_ones_give_the_same_tail() {
    let (_env, shell) = machine().await;
    // Every echo of the shell is an entry of its own, at least now and then.
    let cmd = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done";
    let found = exec(&shell, ExecRequest { max_output_tokens: Some(1000), ..request(cmd) }).await;
    let whole: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    assert!(found.output.text.starts_with(&whole[..2000]), "the head");
    assert!(found.output.text.ends_with(&whole[whole.len() - 2000..]), "the tail");
}

#[tokio::test]
async fn no_character_is_cut_between_two_looks_or_at_an_omission() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!(r"printf 'a\342\202'; head -c 1 {} > /dev/null; printf '\254b\377'", gate.path().display());
    let first = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    assert_eq!(first.output.text, "a");
    gate.release();
    let rest = shell.wait(first.session, WaitFor::Closed, Some(LONG), None).await.expect("it ends");
    assert!(rest.look.output.text.starts_with('€') && rest.look.output.text.ends_with("b\u{fffd}"));

    let many = "i=0; while [ $i -lt 500 ]; do printf '€€€€'; i=$((i+1)); done";
    for tokens in 10..16 {
        let found = exec(&shell, ExecRequest { max_output_tokens: Some(tokens), ..request(many) }).await;
        assert!(!found.output.text.contains('\u{fffd}'), "{tokens}: {}", found.output.text);
        let omitted = found.output.omitted.and_then(|omitted| omitted.bytes).expect("most is left out");
        assert_eq!((6000 - omitted) % 3, 0, "whole characters are counted");
    }
}

#[tokio::test]
async fn no_character_that_two_entries_share_is_lost_where_a_view_is_cut_between_them() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!(r"printf 'aa\342\202'; head -c 1 {} > /dev/null; printf '\254bcdefgh'", gate.path().display());
    let first = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    gate.release();
    shell.wait(first.session, WaitFor::Closed, Some(LONG), None).await.expect("it ends");
    // The budget ends with the first entry.
    let part = read(&shell, first.session, ReadFrom::Entry { seq: 1, skip_bytes: 0 }, 1).await.output;
    assert_eq!(part.omitted, Some(Omitted { bytes: Some(10), from_seq: 1, skip_bytes: 2 }), "{}", part.text);
    assert!(part.text.starts_with("aa\n[… 10 bytes more follow"), "{}", part.text);
    assert_eq!(part.bytes, 12, "all there is from there");
    let rest = read(&shell, first.session, ReadFrom::Entry { seq: 1, skip_bytes: 2 }, 100).await.output;
    assert_eq!(rest.text, "€bcdefgh");
    let next = shell_over(&env);
    let looked = WriteRequest { max_output_tokens: Some(2), ..WriteRequest::default() };
    let looked = next.write_stdin(first.session, looked).await.expect("it can be looked at").output;
    assert_eq!(looked.omitted, Some(Omitted { bytes: Some(6), from_seq: 1, skip_bytes: 2 }), "{}", looked.text);
    assert!(looked.text.starts_with("aa\n[… 6 bytes") && looked.text.ends_with("efgh"), "{}", looked.text);
}

#[tokio::test]
async fn characters_of_two_streams_that_overlap_are_shown_by_the_call_that_goes_on() {
    let (env, shell) = machine().await;
    let gates = ["one", "two", "three"].map(|name| env.semaphore(name));
    let pass = gates.each_ref().map(|gate| format!("head -c 1 {} > /dev/null", gate.path().display()));
    let [one, two, three] = pass;
    let cmd =
        format!(r"printf 'aaa\342'; {one}; printf 'b\303' >&2; {two}; printf '\202\254c'; {three}; printf '\251d' >&2");
    let session = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await.session;
    for (gate, printed) in gates.iter().zip(["b", "c", "d"]) {
        gate.release();
        let pattern = WaitFor::Pattern(printed.to_owned());
        shell.wait(session, pattern, Some(LONG), None).await.expect("it prints that");
    }
    // The first eight bytes end with the one character, within the other.
    let part = read(&shell, session, ReadFrom::Entry { seq: 1, skip_bytes: 0 }, 2).await.output;
    assert!(part.text.starts_with("aaab\n[…"), "{}", part.text);
    let Omitted { from_seq: seq, skip_bytes, .. } = part.omitted.expect("eleven are there");
    let rest = read(&shell, session, ReadFrom::Entry { seq, skip_bytes }, 2).await.output;
    assert_eq!(rest.text, "€céd");
}

#[tokio::test]
async fn a_tail_begins_with_a_whole_character_of_each_stream() {
    let (env, shell) = machine().await;
    let (first, second) = (env.semaphore("first"), env.semaphore("second"));
    let (one, two) = (first.path().display(), second.path().display());
    let stdout = format!("head -c 1 {one} > /dev/null; printf 'x%.0s' $(seq 100); printf y");
    let cmd = format!(r"printf 'a\303' >&2; {stdout}; head -c 1 {two} > /dev/null; printf '\251b' >&2");
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    assert_eq!(started.output.text, "a");
    first.release();
    let pattern = WaitFor::Pattern("y".to_owned());
    shell.wait(started.session, pattern, Some(LONG), None).await.expect("it prints that");
    second.release();
    shell.wait(started.session, WaitFor::Closed, Some(LONG), None).await.expect("it ends");
    let tail = read(&shell, started.session, ReadFrom::Tail, 5).await.output;
    assert!(tail.text.ends_with(&format!("…]\n{}yb", "x".repeat(17))), "{}", tail.text);
    assert_eq!(tail.omitted.and_then(|omitted| omitted.bytes), Some(105 - 19));
}

#[tokio::test]
async fn how_much_follows_is_told_anywhere_in_a_log_and_so_is_its_end() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!("echo first; head -c 1 {} > /dev/null; seq 1000", gate.path().display());
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    gate.release();
    shell.wait(started.session, WaitFor::Closed, Some(LONG), None).await.expect("it ends");
    let whole: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    for stream in [None, Some(Stream::Stdout)] {
        let from = ReadFrom::Entry { seq: 2, skip_bytes: 1 };
        let request = ReadRequest { from, stream, max_output_tokens: Some(5) };
        let part = shell.read(started.session, request).await.expect("it can be read").output;
        let rest = whole.len() as u64 - 21;
        assert_eq!(part.omitted.and_then(|omitted| omitted.bytes), Some(rest), "{}", part.text);
        assert_eq!(part.bytes, rest + 20);
    }
    for (seq, skip_bytes) in [(1_000, 0), (1, 1_000_000)] {
        let beyond = read(&shell, started.session, ReadFrom::Entry { seq, skip_bytes }, 10).await.output;
        assert!(beyond.text.contains("nothing is there: the log ends with entry"), "{}", beyond.text);
    }
    // A terminal has no stdout, and what it has printed is not counted as if it had.
    let terminal = exec(&shell, ExecRequest { tty: true, ..request("echo on a terminal") }).await;
    let request = ReadRequest { from: ReadFrom::Both, stream: Some(Stream::Stdout), max_output_tokens: None };
    let nothing = shell.read(terminal.session, request).await.expect("it can be read").output;
    assert_eq!((nothing.text.as_str(), nothing.omitted, nothing.bytes), ("", None, 0));
}

#[tokio::test]
async fn input_that_a_program_does_not_read_waits_for_it_and_nobody_else() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!("head -c 1 {} > /dev/null; wc -c", gate.path().display());
    let started = exec(&shell, ExecRequest { stdin: true, yield_time: Some(SHORT), ..request(cmd) }).await;
    let much = WriteRequest { chars: "x".repeat(1 << 20), yield_time: Some(SHORT), ..WriteRequest::default() };
    let looked = shell.write_stdin(started.session, much.clone()).await.expect("it waits for the program");
    assert!(looked.input_waits && looked.state.exit().is_none());
    let refused = shell.write_stdin(started.session, much).await.expect_err("the first is not read yet");
    assert_eq!(refused, ShellError::InputWaits { session: started.session });
    assert!(refused.to_string().contains("nothing of this was typed"), "{refused}");
    gate.release();
    let close = WriteRequest { close_stdin: true, yield_time: Some(LONG), ..WriteRequest::default() };
    let done = shell.write_stdin(started.session, close).await.expect("all of it is read by now");
    let printed = done.output.text.trim().to_owned();
    assert_eq!((printed.as_str(), exit_code(&done), done.input_waits), ("1048576", Some(0), false));
}

/// A session that does not read, with more input than its pipe holds, and closes its stdin then.
async fn closed_with_input_that_waits(env: &TestEnvironment, shell: &Shell, gate: &str) -> SessionNumber {
    let gate = env.semaphore(gate);
    let cmd = format!("head -c 1 {} > /dev/null; exec <&-; exec sleep 1000", gate.path().display());
    let started = exec(shell, ExecRequest { stdin: true, yield_time: Some(SHORT), ..request(cmd) }).await;
    let much = WriteRequest { chars: "x".repeat(1 << 20), yield_time: Some(SHORT), ..WriteRequest::default() };
    let looked = shell.write_stdin(started.session, much).await.expect("it waits for the program");
    assert_eq!((looked.input_waits, looked.input_failed), (true, None));
    gate.release();
    started.session
}

#[tokio::test]
async fn input_that_fails_when_its_call_has_returned_is_told_by_the_next_look() {
    let (env, shell) = machine().await;
    let session = closed_with_input_that_waits(&env, &shell, "gate").await;
    let why = loop {
        let looked = look_shortly(&shell, session).await;
        assert!(looked.input_waits != looked.input_failed.is_some(), "it waits, or it is told: {looked:?}");
        if let Some(why) = looked.input_failed {
            break why;
        }
    };
    assert_eq!(why, ShellError::StdinClosed { session });
    assert_eq!(look_shortly(&shell, session).await.input_failed, None, "it is told once");
    let refused = write(&shell, session, "x").await.expect_err("it reads no more");
    assert_eq!(refused, ShellError::StdinClosed { session });
}

#[tokio::test]
async fn input_is_refused_if_what_was_typed_before_has_failed() {
    let (env, shell) = machine().await;
    let session = closed_with_input_that_waits(&env, &shell, "gate").await;
    let refused = loop {
        match write(&shell, session, "x").await.expect_err("it never reads") {
            // It has not closed its stdin yet.
            ShellError::InputWaits { .. } => {}
            refused => break refused,
        }
    };
    let why = Box::new(ShellError::StdinClosed { session });
    assert_eq!(refused, ShellError::InputBeforeFailed { session, why });
    let told = refused.to_string();
    assert!(told.contains("nothing of this was typed") && told.contains("stdin is closed for session"), "{told}");
    let refused = write(&shell, session, "x").await.expect_err("it reads no more");
    assert_eq!(refused, ShellError::StdinClosed { session }, "it is told once");
    assert_eq!(look_shortly(&shell, session).await.input_failed, None);
}

/// Whoever asks how things are, and does not look, takes it from nobody.
#[tokio::test]
async fn input_of_a_session_that_ends_without_it_has_failed() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd = format!("head -c 1 {} > /dev/null; exit 3", gate.path().display());
    let started = exec(&shell, ExecRequest { stdin: true, yield_time: Some(SHORT), ..request(cmd) }).await;
    let much = WriteRequest { chars: "x".repeat(1 << 20), yield_time: Some(SHORT), ..WriteRequest::default() };
    shell.write_stdin(started.session, much).await.expect("it waits for the program");
    gate.release();
    let until_it_ends = WriteRequest { yield_time: Some(LONG), ..WriteRequest::default() };
    let mut look = shell.write_stdin(started.session, until_it_ends).await.expect("it can be looked at");
    // On a slow machine it takes longer to be known than a look waits for it.
    while look.input_failed.is_none() {
        look = look_shortly(&shell, started.session).await;
    }
    let ended = ShellError::Ended { session: started.session, exit_code: 3 };
    assert_eq!((exit_code(&look), look.input_failed), (Some(3), Some(ended)));
    assert_eq!(shell.failed_input(started.session).await, Ok(None));
}

async fn look_shortly(shell: &Shell, session: SessionNumber) -> Look {
    let request = WriteRequest { yield_time: Some(SHORT), ..WriteRequest::default() };
    shell.write_stdin(session, request).await.expect("it can be looked at")
}

#[tokio::test]
async fn an_interrupt_overtakes_input_that_waits() {
    let (_env, shell) = machine().await;
    let deaf = exec(&shell, ExecRequest { stdin: true, yield_time: Some(SHORT), ..request("exec sleep 1000") }).await;
    let much = WriteRequest { chars: "x".repeat(1 << 20), yield_time: Some(SHORT), ..WriteRequest::default() };
    assert!(shell.write_stdin(deaf.session, much).await.expect("it waits").input_waits);
    let interrupt = WriteRequest { chars: "\u{3}".to_owned(), yield_time: Some(LONG), ..WriteRequest::default() };
    let ended = shell.write_stdin(deaf.session, interrupt).await.expect("it is a signal");
    assert_eq!((exit_code(&ended), ended.input_waits), (Some(130), false));
}

#[tokio::test]
async fn a_repl_on_a_terminal_answers_what_is_typed() {
    let (_env, shell) = machine().await;
    let cmd = "while read -r line; do echo \"<$line>\"; done";
    let repl = exec(&shell, ExecRequest { tty: true, yield_time: Some(SHORT), ..request(cmd) }).await;
    let mut answer = write(&shell, repl.session, "hello\n").await.expect("it has a terminal").output.text;
    if !answer.contains("<hello>") {
        let waited = shell.wait(repl.session, WaitFor::Pattern("<hello>".into()), Some(LONG), None).await;
        answer = waited.expect("it answers").look.output.text;
    }
    assert!(answer.contains("<hello>"), "{answer}");
    write(&shell, repl.session, "\u{4}").await.expect("the end of input");
    let ended = shell.wait(repl.session, WaitFor::Exit, Some(LONG), None).await.expect("it ends");
    assert_eq!(exit_code(&ended.look), Some(0));
}

#[tokio::test]
async fn a_pipe_is_kept_open_on_request_and_can_be_closed() {
    let (_env, shell) = machine().await;
    let sort = exec(&shell, ExecRequest { stdin: true, yield_time: Some(SHORT), ..request("sort") }).await;
    write(&shell, sort.session, "b\na\n").await.expect("stdin is open");
    let close = WriteRequest { close_stdin: true, yield_time: Some(LONG), ..WriteRequest::default() };
    let sorted = shell.write_stdin(sort.session, close).await.expect("it can be closed");
    assert_eq!((sorted.output.text.as_str(), exit_code(&sorted)), ("a\nb\n", Some(0)));
    let ended = write(&shell, sort.session, "c\n").await.expect_err("it has ended");
    assert_eq!(ended, ShellError::Ended { session: sort.session, exit_code: 0 });
}

#[tokio::test]
async fn without_stdin_only_an_interrupt_is_taken() {
    let (_env, shell) = machine().await;
    let cmd = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    shell
        .wait(started.session, WaitFor::Pattern("ready".into()), Some(SHORT), None)
        .await
        .expect("it can be waited for");
    let refused = write(&shell, started.session, "x").await.expect_err("stdin is closed");
    assert_eq!(refused, ShellError::StdinClosed { session: started.session });
    assert!(refused.to_string().contains("rerun exec_command with stdin=true"));
    write(&shell, started.session, "\u{3}").await.expect("an interrupt");
    let ended = shell.wait(started.session, WaitFor::Exit, Some(LONG), None).await.expect("it ends");
    assert_eq!(exit_code(&ended.look), Some(9));
}

#[tokio::test]
async fn a_background_child_that_holds_the_pipe_does_not_hold_the_call() {
    let (_env, shell) = machine().await;
    let found = exec(&shell, request("sleep 1000 & echo started")).await;
    assert_eq!(found.output.text, "started\n");
    assert!(matches!(found.state, SessionState::Exited { open: true, .. }));
    assert!(found.wall_time < LONG);
    let (Terminated { was_running, ended, left }, _) =
        shell.kill(found.session, None).await.expect("its tree is there");
    assert_eq!((was_running, ended, left), (false, 1, 0));
}

#[tokio::test]
async fn a_kill_ends_the_whole_tree_and_tells_what_was_printed_last() {
    let (_env, shell) = machine().await;
    let cmd = "trap 'echo bye; exit 4' TERM; echo up; sleep 1000 & while :; do sleep 0.05; done";
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    let (terminated, last) = shell.kill(started.session, Some(LONG)).await.expect("it runs");
    assert!(terminated.was_running && terminated.left == 0);
    assert_eq!(exit_code(&last), Some(4));
    assert!(last.output.text.contains("bye\n"), "{}", last.output.text);
}

#[tokio::test]
async fn waiting_ends_with_what_was_waited_for_or_with_the_session() {
    let (env, shell) = machine().await;
    let gate = env.semaphore("gate");
    let cmd =
        format!("echo starting; head -c 1 {} > /dev/null; echo listening on 80; sleep 0.1", gate.path().display());
    let started = exec(&shell, ExecRequest { yield_time: Some(SHORT), ..request(cmd) }).await;
    gate.release();
    let until = WaitFor::Pattern(r"listening on \d+".into());
    let waited = shell.wait(started.session, until, Some(LONG), None).await.expect("it prints that");
    assert!(matches!(waited.waited, Some(Waited::Matched { text, .. }) if &text[..] == b"listening on 80"));
    let never = WaitFor::Pattern("never".into());
    let ended = shell.wait(started.session, never, Some(LONG), None).await.expect("its end is no error");
    assert_eq!((ended.waited, exit_code(&ended.look)), (None, Some(0)));
    let bad = shell.wait(started.session, WaitFor::Pattern("(".into()), None, None).await.expect_err("no pattern");
    assert!(bad.to_string().starts_with("bad regular expression"), "{bad}");
}

#[tokio::test]
async fn a_pattern_to_wait_for_has_lines_also_on_a_terminal() {
    let (env, shell) = machine().await;
    for tty in [false, true] {
        let gate = env.semaphore(if tty { "terminal" } else { "pipe" });
        let cmd =
            format!("echo not READY; head -c 1 {} > /dev/null; echo READY; exec sleep 1000", gate.path().display());
        let started = exec(&shell, ExecRequest { tty, yield_time: Some(SHORT), ..request(cmd) }).await;
        gate.release();
        let line = WaitFor::Pattern("^READY$".into());
        let waited = shell.wait(started.session, line, Some(LONG), None).await.expect("it prints that");
        assert!(matches!(&waited.waited, Some(Waited::Matched { text, .. }) if &text[..] == b"READY"), "{waited:?}");
        shell.kill(started.session, Some(Duration::ZERO)).await.expect("it runs");
    }
}

#[tokio::test]
async fn commands_that_start_at_once_agree_about_the_room_there_is() {
    let (_env, shell) = machine().await;
    let at_once = async |cmd: &str, count: usize| {
        let starts = (0..count).map(|_| shell.start(ExecRequest { stdin: true, ..request(cmd) }));
        futures_util::future::join_all(starts).await
    };
    let short = at_once("exit 0", SESSIONS + 10).await;
    let listed = shell.list(None).await.expect("they are there").sessions.len();
    assert!(listed <= SESSIONS, "{listed} of {} are kept", short.len());
    for session in shell.list(None).await.expect("they are there").sessions {
        shell.wait(session.session, WaitFor::Closed, Some(LONG), None).await.expect("it ends");
    }
    let running = at_once("exec cat", SESSIONS + 5).await;
    let refused = running.iter().filter(|start| matches!(start, Err(ShellError::TooManySessions { .. }))).count();
    let started = running.iter().filter(|start| start.is_ok()).count();
    assert_eq!((started, refused), (SESSIONS, 5));
    let listed = shell.list(None).await.expect("they are there").sessions;
    assert_eq!(listed.iter().filter(|session| session.state.exit().is_none()).count(), SESSIONS);
}

#[tokio::test]
async fn finished_sessions_make_room_and_running_ones_are_never_ended_for_that() {
    let (_env, shell) = machine().await;
    let idle = || ExecRequest { stdin: true, ..request("exec cat") };
    let mut running = Vec::new();
    for _ in 0..SESSIONS - 1 {
        running.push(shell.start(idle()).await.expect("there is room").session);
    }
    let finished = exec(&shell, request("echo done")).await;
    let last = shell.start(idle()).await.expect("a finished one makes room");
    assert_eq!(last.forgotten, [finished.session]);
    let refused = shell.start(idle()).await.expect_err("all run");
    let ShellError::TooManySessions { running: told } = &refused else { panic!("{refused}") };
    assert_eq!(told.len(), SESSIONS);
    assert!(refused.to_string().contains("kill_session") && refused.to_string().contains("exec cat"));
    assert!(
        shell.list(None).await.expect("they are there").sessions.iter().all(|session| session.state.exit().is_none())
    );
    shell.kill(running[0], Some(Duration::ZERO)).await.expect("it runs");
    shell.start(idle()).await.expect("there is room again");
}

/// Also if it has closed the output, as a server that was started in the background does.
#[tokio::test]
async fn what_a_finished_session_has_left_running_is_never_ended_to_make_room() {
    let (env, shell) = machine().await;
    let pid_file = env.scratch().join("pid");
    let server = format!("setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > {}", pid_file.display());
    let left = exec(&shell, request(server)).await;
    assert!(matches!(left.state, SessionState::Exited { open: false, .. }), "{left:?}");
    let pid = std::fs::read_to_string(&pid_file).expect("it was written").trim().parse().expect("a pid");
    let server = OsProcess::of(pid).expect("it runs");
    let mut forgotten = Vec::new();
    for number in 0..SESSIONS + 3 {
        forgotten.extend(exec(&shell, request(format!("echo {number}"))).await.forgotten);
    }
    assert_eq!(forgotten.len(), 4);
    assert!(!forgotten.contains(&left.session) && server.is_alive());
    shell.kill(left.session, Some(Duration::ZERO)).await.expect("it is known");
    assert!(!server.is_alive());
}

#[tokio::test]
async fn errors_say_what_to_do_next() {
    let (_env, shell) = machine().await;
    let unknown = write(&shell, SessionNumber(1000), "x").await.expect_err("there is none");
    assert!(unknown.to_string().contains("list_sessions shows those there are"), "{unknown}");
    let nowhere = ExecRequest { workdir: Some("no/such".into()), ..request("true") };
    let refused = shell.exec_command(nowhere).await.expect_err("there is no such folder");
    assert!(refused.to_string().contains("no/such\" does not exist"), "{refused}");
    let elsewhere = ExecRequest { environment_id: Some("mars".into()), ..request("true") };
    let refused = shell.exec_command(elsewhere).await.expect_err("there is no such place");
    let known = vec!["here".to_owned()];
    assert_eq!(
        refused,
        ShellError::EnvironmentUnavailable(EnvironmentUnavailable::Unknown { id: "mars".into(), known })
    );
    let no_shell = ExecRequest { shell: Some("/no/sh".into()), ..request("true") };
    let refused = shell.exec_command(no_shell).await.expect_err("there is no such shell");
    assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
}

/// Two ids of one machine, so that each has all sessions of the other.
struct Twins(TargetEnvironment);

impl Environments for Twins {
    fn find<'a>(
        &'a self,
        id: Option<&'a str>,
    ) -> exec_env::BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>> {
        let id = id.unwrap_or("one").to_owned();
        Box::pin(std::future::ready(Ok(TargetEnvironment { id, ..self.0.clone() })))
    }

    fn ids(&self) -> Vec<String> {
        vec!["one".to_owned(), "two".to_owned()]
    }

    fn default_id(&self) -> Option<String> {
        Some("one".to_owned())
    }
}

#[tokio::test]
async fn a_number_that_two_environments_have_is_refused_rather_than_guessed() {
    let env = keeper_as_thread().await;
    let place =
        TargetEnvironment { workdir: Some(env.scratch()), ..TargetEnvironment::new("one", env.environment.clone()) };
    let started = exec(&Shell::new(Arc::new(Twins(place.clone()))), request("echo once")).await;
    let later = Shell::new(Arc::new(Twins(place)));
    let refused = later.kill(started.session, None).await.expect_err("nobody knows which is meant");
    let environments = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(refused, ShellError::Ambiguous { session: started.session, environments });
}
