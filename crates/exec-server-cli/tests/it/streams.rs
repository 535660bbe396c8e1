//! Bytes in, bytes out.

use std::io::{Read, Write};
use std::process::Stdio;

use super::support::{Running, code, exec_server, fifo, run, run_shell, stderr, stdout};

#[test]
fn stdout_and_stderr_come_out_apart() {
    let output = run_shell("echo out; echo err >&2; printf 'no line end'");
    assert_eq!((stdout(&output), stderr(&output), code(&output)), ("out\nno line end", "err\n", 0));
}

#[test]
fn on_one_pipe_their_order_is_the_childs() {
    // Each word is awaited, because there is no order between two pipes.
    let binary = env!("CARGO_BIN_EXE_exec-server");
    let script =
        format!("exec {binary} run -- sh -c 'for n in 1 2 3; do echo o$n; read x; echo e$n >&2; read x; done' 2>&1");
    let mut running = Running::start(std::process::Command::new("sh").args(["-c", &script]));
    for wanted in ["o1", "e1", "o2", "e2", "o3", "e3"] {
        assert_eq!(running.line(), wanted);
        running.type_in("go on\n");
    }
    assert_eq!(running.end(), (String::new(), String::new(), 0));
}

#[test]
fn every_byte_of_a_flood_on_both_streams_arrives() {
    let output = run_shell("seq 1 3000000 & seq 3000001 6000000 >&2; wait");
    assert_eq!(code(&output), 0);
    assert!(output.stdout == numbers(1, 3_000_000), "stdout differs");
    assert!(output.stderr == numbers(3_000_001, 6_000_000), "stderr differs");
}

#[test]
fn bytes_that_are_no_text_pass_as_they_are() {
    let output = run_shell(r"printf '\000\377\200a\r\n'");
    assert_eq!(output.stdout, b"\x00\xff\x80a\r\n");
}

#[test]
fn stdin_and_its_end_reach_the_child() {
    let mut child = exec_server(&["run", "--", "sh", "-c", "cat; echo end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let sent = numbers(1, 300_000);
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent).expect("the child reads all of it")
    });
    let mut found = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut found).expect("the pipe can be read");
    writer.join().expect("it does not panic");
    assert!(child.wait().expect("it is our child").success());
    assert!(found == [sent.as_slice(), b"end\n"].concat(), "the echo differs");
}

#[test]
fn what_is_typed_arrives_while_stdin_stays_open() {
    let mut running = Running::shell(&[], "read a; echo got $a; read b; echo got $b");
    running.type_in("one\n");
    assert_eq!(running.line(), "got one");
    running.type_in("two\n");
    assert_eq!(running.line(), "got two");
    assert_eq!(running.end(), (String::new(), String::new(), 0));
}

#[test]
fn an_open_stdin_does_not_keep_us() {
    assert_eq!(Running::shell(&[], "exit 4").end(), (String::new(), String::new(), 4));
}

#[test]
fn a_child_that_does_not_read_leaves_most_of_stdin_alone() {
    let mut running = Running::shell(&["--no-stdin"], "cat; echo end");
    // Nobody reads this; it fits the pipe, and is still there when the run is over.
    running.type_in("for somebody else\n");
    assert_eq!(running.end(), ("end\n".to_owned(), String::new(), 0));
}

#[test]
fn a_reader_that_leaves_ends_the_tree_with_141() {
    let mut running = Running::shell(&[], "echo $$; exec yes");
    let pid = running.line();
    running.close_stdout();
    let (_, err, code) = running.end();
    assert_eq!((err.as_str(), code), ("", 141));
    assert!(!super::support::is_running(&pid));
}

#[test]
fn a_full_disk_behind_stdout_is_our_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("every Linux has it");
    let output = exec_server(&["run", "--", "echo", "x"]).stdout(full).output().expect("the binary can be started");
    let said = "exec-server: cannot write to stdout: No space left on device (os error 28); the program was ended\n";
    assert_eq!((code(&output), stderr(&output)), (125, said));
}

#[test]
fn a_program_waits_for_whoever_reads_its_output_slowly() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = fifo(folder.path());
    // Far more than the spool holds is printed before the first word that the test waits for.
    let script = format!("head -c 20000000 /dev/zero & echo begun > {}; wait; echo last", fifo.display());
    let running = Running::shell(&["--spool", "1M"], &script);
    assert_eq!(std::fs::read_to_string(&fifo).expect("the child writes it"), "begun\n");
    let (out, err, code) = running.end();
    assert!(out.len() == 20_000_005 && out.ends_with("last\n"), "{} bytes", out.len());
    assert_eq!((err.as_str(), code), ("", 0));
}

#[test]
fn output_within_the_spool_waits_for_a_slow_reader() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let fifo = fifo(folder.path());
    let script = format!("seq 1 1000000; echo printed > {}", fifo.display());
    let running = Running::shell(&[], &script);
    assert_eq!(std::fs::read_to_string(&fifo).expect("the child writes it"), "printed\n");
    let (out, err, code) = running.end();
    assert!(out.as_bytes() == numbers(1, 1_000_000), "stdout differs");
    assert_eq!((err.as_str(), code), ("", 0));
}

#[test]
fn nothing_is_printed_of_our_own() {
    let output = run(&["--", "true"]);
    assert_eq!((stdout(&output), stderr(&output), code(&output)), ("", "", 0));
}

/// What `seq` prints.
fn numbers(from: u32, to: u32) -> Vec<u8> {
    let mut text = Vec::new();
    for number in from..=to {
        writeln!(text, "{number}").expect("memory takes it");
    }
    text
}
