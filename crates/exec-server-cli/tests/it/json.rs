//! The events of `run --json`.

use serde_json::{Value, json};

use super::support::{code, run, stderr};

fn events(args: &[&str]) -> (Vec<Value>, i32, String) {
    let output = run(&[&["--json"], args].concat());
    let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    let events = lines.map(|line| serde_json::from_slice(line).expect("one object per line")).collect();
    (events, code(&output), stderr(&output).to_owned())
}

/// Removes what differs from run to run.
fn plain(mut event: Value) -> Value {
    if let Some(pid) = event.get_mut("pid") {
        assert!(pid.as_u64().is_some_and(|pid| pid > 0), "{pid}");
        *pid = json!("PID");
    }
    if let Some(exit) = event.get_mut("exit").and_then(Value::as_object_mut) {
        for cost in ["userMs", "systemMs", "maxRssBytes"] {
            assert!(exit.remove(cost).is_some_and(|number| number.is_u64()), "{cost}");
        }
    }
    event
}

#[test]
fn a_life_is_told_event_by_event() {
    let (found, code, err) = events(&["--", "sh", "-c", "echo out; printf '\\377' >&2; exit 3"]);
    let wanted = [
        json!({"event": "started", "pid": "PID"}),
        json!({"event": "output", "seq": 1, "stream": "stdout", "text": "out\n"}),
        json!({"event": "output", "seq": 2, "stream": "stderr", "base64": "/w=="}),
        json!({"event": "exited", "seq": 3, "exit": {"kind": "exited", "code": 3, "coreDumped": false}}),
        json!({"event": "closed", "seq": 4}),
    ];
    assert_eq!((found.into_iter().map(plain).collect::<Vec<_>>(), code, err.as_str()), (wanted.to_vec(), 3, ""));
}

#[test]
fn a_time_limit_is_told_with_its_signal() {
    let (found, code, _) = events(&["--timeout", "100ms", "--grace", "0s", "--", "sleep", "1000"]);
    let exit = found.into_iter().map(plain).find(|event| event["event"] == "exited").expect("it is told");
    assert_eq!(exit["exit"], json!({"kind": "timedOut", "signal": 9, "coreDumped": false}));
    assert_eq!(code, 124);
}

#[test]
fn a_terminal_is_one_stream() {
    let (found, code, _) = events(&["--tty", "--no-stdin", "--", "sh", "-c", "echo out; echo err >&2"]);
    let text: String = found
        .iter()
        .filter(|event| event["stream"] == "pty")
        .map(|event| event["text"].as_str().expect("it is text"))
        .collect();
    assert_eq!((text.as_str(), code), ("out\r\nerr\r\n", 0));
}

#[test]
fn a_failure_is_an_event_too() {
    let (found, code, err) = events(&["--", "no-such-program-anywhere"]);
    let message = "program \"no-such-program-anywhere\" was not found: give its full path, or a PATH that has it";
    assert_eq!(found, [json!({"event": "failed", "message": message, "exitCode": 127})]);
    assert_eq!((code, err), (127, format!("exec-server: {message}\n")));
}

#[test]
fn what_was_left_behind_is_an_event() {
    let (found, code, _) = events(&["-q", "--", "sh", "-c", "sleep 1000 & exit 0"]);
    assert_eq!(found.last(), Some(&json!({"event": "leftBehind", "ended": 1, "left": 0})));
    assert_eq!(code, 0);
}
