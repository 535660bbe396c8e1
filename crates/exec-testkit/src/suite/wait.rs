//! Waiting for something to become true of a process.

use std::time::{Duration, Instant};

use bytes::Bytes;
use exec_core::{ExitStatus, Seq};
use exec_env::process::{ProcessError, ProcessReason, ProcessVerb, WaitCondition, Waited};
use exec_env::view::PATTERN_BYTES;

use crate::process::TestProcess;
use crate::test_environment::TestEnvironment;

const SHORT: Duration = Duration::from_millis(100);

pub async fn waiting_for_exit_and_for_closed_ends_with_them(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("fork [ {} ] ; exit 5", semaphore.acquire());
    let process = env.start("p", &script).await;
    let exit = process.exit().await;
    assert_eq!(exit.status, ExitStatus::Code(5));
    let early = process.wait_at_most(WaitCondition::Closed, SHORT).await;
    assert_eq!(early, Ok(Waited::DeadlinePassed), "somebody holds the pipe");
    semaphore.release();
    assert_eq!(process.wait(WaitCondition::Closed).await, Ok(Waited::Closed(exit)));
    assert_eq!(process.wait(WaitCondition::Exited).await, Ok(Waited::Exited(exit)));
    assert_eq!(process.wait(WaitCondition::Closed).await, Ok(Waited::Closed(exit)));
}

pub async fn a_deadline_that_passes_is_an_outcome(env: &TestEnvironment) {
    let process = env.start("p", "say x ; wait-forever").await;
    let impossible = output("never said", 0);
    for until in [WaitCondition::Exited, WaitCondition::Closed, impossible, WaitCondition::Port(None)] {
        let before = Instant::now();
        let waited = process.wait_at_most(until.clone(), SHORT).await;
        assert_eq!(waited, Ok(Waited::DeadlinePassed), "{until:?}");
        assert!(before.elapsed() >= SHORT, "{:?}", before.elapsed());
    }
}

pub async fn output_of_the_past_is_found_at_once(env: &TestEnvironment) {
    let process = env.start("p", "say listening on 8080 ; exit 0").await;
    process.read_to_end().await;
    let waited = process.wait(output(r"on (\d+)", 0)).await;
    assert_eq!(waited, Ok(matched(1, "on 8080")));
}

/// With entries of the other between; the match has the seq of the entry that completes it.
pub async fn a_match_may_span_entries_of_one_stream(env: &TestEnvironment) {
    let script = "out-raw rea ; read-line ; err between ; read-line ; out-raw dy ; wait-forever";
    let process = env.start_with_stdin("p", script).await;
    let waiting = process.wait(output("ready", 0));
    let feeding = async {
        let mut reader = process.reader().await;
        for (key, printed) in [("1", "rea"), ("2", "reabetween\n"), ("3", "reabetween\ndy")] {
            reader.read_until(printed, |seen| seen.printed() == printed).await;
            if key != "3" {
                process.write(key, "\n").await;
            }
        }
    };
    let (waited, ()) = tokio::join!(waiting, feeding);
    assert_eq!(waited, Ok(matched(3, "ready")));
}

pub async fn a_match_does_not_span_two_streams(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "out-raw rea ; read-line ; err-raw dy ; exit 2").await;
    process.reader().await.read_until("rea", |seen| seen.printed() == "rea").await;
    process.write("1", "\n").await;
    let waited = process.wait(output("ready", 0)).await;
    assert_ended(&process, waited).await;
}

pub async fn a_match_begins_behind_its_place(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "say ready ; read-line ; say ready ; wait-forever").await;
    assert_eq!(process.wait(output("ready", 0)).await, Ok(matched(1, "ready")));
    let early = process.wait_at_most(output("ready", 1), SHORT).await;
    assert_eq!(early, Ok(Waited::DeadlinePassed));
    process.write("1", "\n").await;
    assert_eq!(process.wait(output("ready", 1)).await, Ok(matched(2, "ready")));
}

/// The expression works on bytes.
pub async fn a_match_is_found_behind_bytes_that_are_not_text(env: &TestEnvironment) {
    let process = env.start("p", "flood stdout 100000 8 3000 ; say the-mark-42 ; wait-forever").await;
    let waited = process.wait(output(r"the-mark-\d+\n", 0)).await;
    let Ok(Waited::Matched { text, .. }) = waited else {
        panic!("{waited:?}");
    };
    assert_eq!(text, "the-mark-42\n");
}

pub async fn a_match_is_found_on_a_terminal(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "out-raw login: ; wait-forever").await;
    let waited = process.wait(output("^login:$", 0)).await;
    assert_eq!(waited, Ok(matched(1, "login:")));
}

pub async fn a_bad_expression_is_refused(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    let waited = process.wait(output("(unclosed", 0)).await;
    let reason = waited.map_err(|error| error.reason);
    assert!(matches!(reason, Err(ProcessReason::BadRegex { .. })), "{reason:?}");
}

/// What was printed before the place that is waited from says whether a line begins there, and may begin a match.
pub async fn a_match_is_completed_behind_the_place_and_may_begin_before_it(env: &TestEnvironment) {
    let script = "out-raw not- ; read-line ; say ready ; read-line ; say ready ; wait-forever";
    let process = env.start_with_stdin("p", script).await;
    let mut reader = process.reader().await;
    reader.read_until("not-", |seen| seen.printed() == "not-").await;
    let line = || output("(?m)^ready$", 1);
    let (waited, ()) = tokio::join!(process.wait(output("not-ready", 1)), async {
        assert_eq!(process.wait_at_most(line(), SHORT).await, Ok(Waited::DeadlinePassed));
        process.write("1", "\n").await;
    });
    assert_eq!(waited, Ok(matched(2, "not-ready")));
    assert_eq!(process.wait_at_most(line(), SHORT).await, Ok(Waited::DeadlinePassed));
    assert_eq!(process.wait_at_most(output("not-ready", 2), SHORT).await, Ok(Waited::DeadlinePassed));
    process.write("2", "\n").await;
    assert_eq!(process.wait(line()).await, Ok(matched(3, "ready")));
    assert_eq!(process.wait(output("ready", 1)).await, Ok(matched(2, "ready")));
}

/// Nothing comes after the log is complete.
/// Compiling takes memory and time, which a bound on the expression bounds.
pub async fn an_expression_of_the_longest_length_is_waited_for_and_a_longer_one_refused(env: &TestEnvironment) {
    let process = env.start("p", "say ready ; wait-forever").await;
    // Blanks mean nothing there, and compile to nothing.
    let of_length = |bytes: usize| format!("(?x)ready{}", " ".repeat(bytes - 9));
    let waited = process.wait(output(&of_length(PATTERN_BYTES), 0)).await;
    assert_eq!(waited, Ok(matched(1, "ready")));
    for expression in [of_length(PATTERN_BYTES + 1), r"(?:\pL{100}){100}".to_owned()] {
        let waited = process.wait(output(&expression, 0)).await;
        let refused = waited.expect_err("it is too long, or takes too much memory").reason;
        assert!(matches!(&refused, ProcessReason::BadRegex { why } if why.len() < 1000), "{refused:?}");
    }
}

/// What was searched before is not kept, and yet a match that began there is found when it is completed.
pub async fn a_match_that_began_long_before_is_found_when_it_is_completed(env: &TestEnvironment) {
    let script = "say begin ; flood stderr 300000 1 1000 ; say so far ; read-line ; say end ; wait-forever";
    let process = env.start_with_stdin("p", script).await;
    process.reader_at_line("so far").await;
    let whole = || output("begin\nso far\nend", 0);
    let feeding = async {
        assert_eq!(process.wait_at_most(whole(), SHORT).await, Ok(Waited::DeadlinePassed));
        process.write("1", "\n").await;
    };
    let (waited, ()) = tokio::join!(process.wait(whole()), feeding);
    assert!(matches!(&waited, Ok(Waited::Matched { text, .. }) if text == "begin\nso far\nend"), "{waited:?}");
}

/// Whether it holds the output or not.
pub async fn the_end_of_a_tree_is_that_of_all_that_the_process_has_started(env: &TestEnvironment) {
    let (first, second) = (env.semaphore("first"), env.semaphore("second"));
    let script = format!(
        "setsid [ close-stdout ; close-stderr ; {} ] ; fork [ {} ] ; say x ; exit 3",
        first.acquire(),
        second.acquire()
    );
    let process = env.start("p", &script).await;
    let exit = process.exit().await;
    let tree_ended = || process.wait_at_most(WaitCondition::TreeEnded, SHORT);
    assert_eq!(tree_ended().await, Ok(Waited::DeadlinePassed));
    second.release();
    assert_eq!(process.wait(WaitCondition::Closed).await, Ok(Waited::Closed(exit)));
    assert_eq!(tree_ended().await, Ok(Waited::DeadlinePassed), "one has closed its output and lives on");
    first.release();
    assert_eq!(process.wait(WaitCondition::TreeEnded).await, Ok(Waited::TreeEnded(exit)));
    assert_eq!(process.wait(WaitCondition::TreeEnded).await, Ok(Waited::TreeEnded(exit)));
}

pub async fn waiting_for_what_cannot_come_any_more_is_an_error(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start("p", &format!("{} ; say x ; exit 2", semaphore.acquire())).await;
    let (by_output, by_port, ()) =
        tokio::join!(process.wait(output("never said", 0)), process.wait(WaitCondition::Port(None)), async {
            semaphore.release()
        });
    assert_ended(&process, by_output).await;
    assert_ended(&process, by_port).await;
    let late = process.wait(output("never said", 0)).await;
    assert_ended(&process, late).await;
}

/// It is counted from the last output.
pub async fn silence_is_found_when_nothing_is_printed_for_a_while(env: &TestEnvironment) {
    let process = env.start("p", "lines 100 ; say over ; wait-forever").await;
    process.reader_at_line("over").await;
    let waited = process.wait(WaitCondition::Silence(SHORT)).await;
    assert_eq!(waited, Ok(Waited::Silent));
}

pub async fn a_child_that_keeps_talking_is_not_silent(env: &TestEnvironment) {
    let chatter = "say word ; sleep 20 ; ".repeat(500);
    let process = env.start("p", &format!("say first ; {chatter}")).await;
    process.reader_at_line("first").await;
    // Far longer than one line takes even on a busy machine, and shorter than the deadline.
    let until = WaitCondition::Silence(Duration::from_millis(1500));
    let waited = process.wait_at_most(until, Duration::from_millis(2500)).await;
    assert_eq!(waited, Ok(Waited::DeadlinePassed));
}

pub async fn a_port_the_leader_listens_on_is_found(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let script = format!("{} ; listen 0 ; wait-forever", semaphore.acquire());
    let process = env.start("p", &script).await;
    let waiting = process.wait(WaitCondition::Port(None));
    let (waited, ()) = tokio::join!(waiting, async { semaphore.release() });
    let port = printed_port(&process).await;
    assert_eq!(waited, Ok(Waited::Listening { port }));
    let waited = process.wait(WaitCondition::Port(Some(port))).await;
    assert_eq!(waited, Ok(Waited::Listening { port }));
}

/// Also of a descendant that left the session.
pub async fn a_port_of_a_descendant_is_found_and_a_strangers_is_not(env: &TestEnvironment) {
    let stranger = env.start("stranger", "listen 0 ; wait-forever").await;
    let strange = printed_port(&stranger).await;
    let process = env.start("p", "setsid [ listen 0 ; wait-forever ] ; wait-forever").await;
    let port = printed_port(&process).await;
    let waited = process.wait(WaitCondition::Port(Some(port))).await;
    assert_eq!(waited, Ok(Waited::Listening { port }));
    let waited = process.wait_at_most(WaitCondition::Port(Some(strange)), SHORT).await;
    assert_eq!(waited, Ok(Waited::DeadlinePassed));
}

pub async fn a_cancelled_wait_takes_nothing_away(env: &TestEnvironment) {
    let semaphore = env.semaphore("semaphore");
    let process = env.start("p", &format!("{} ; say mark ; exit 0", semaphore.acquire())).await;
    for _ in 0..20 {
        let wait = process.wait(output("mark", 0));
        let cancelled = tokio::time::timeout(Duration::from_millis(1), wait).await;
        assert!(cancelled.is_err(), "nothing was said yet");
    }
    semaphore.release();
    assert_eq!(process.wait(output("mark", 0)).await, Ok(matched(1, "mark")));
}

async fn assert_ended(process: &TestProcess<'_>, waited: Result<Waited, ProcessError>) {
    let exit = process.exit().await;
    assert_eq!(waited, Err(ProcessError::new(ProcessVerb::Wait, &process.id, ProcessReason::Ended { exit })));
}

async fn printed_port(process: &TestProcess<'_>) -> u16 {
    let port = process.reader().await.wait_for_text_after("port ").await;
    port.parse().expect("the actor prints a number")
}

fn output(regex: &str, after: Seq) -> WaitCondition {
    WaitCondition::Output { regex: regex.into(), after }
}

fn matched(seq: Seq, text: &'static str) -> Waited {
    Waited::Matched { seq, text: Bytes::from_static(text.as_bytes()) }
}
