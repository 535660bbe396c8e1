//! WIRE 3.1: what survives a connection.

use serde_json::{Value, json};

use super::case::{Case, CaseStep, Transport, case, initialized};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    let websocket = |name: &str| initialized(name).only(Transport::WebSocket);
    let resume = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
    vec![
        websocket("a session is resumed after a close").reconnect(),
        websocket("a session is resumed after a dropped connection")
            .step(CaseStep::Drop)
            .connect()
            .step(CaseStep::ResumeSoon)
            .send(r#"{"method":"initialized"}"#)
            .call("environment/status", Value::Null),
        websocket("processes go on without a connection")
            .sh_with_stdin("p", "while read x; do echo got $x; done")
            .reconnect()
            .write("p", "1", "hello\n")
            .read("p", json!({"waitMs": 20000, "maxBytes": 100})),
        websocket("a write id is remembered across connections")
            .sh_with_stdin("p", "while read x; do echo got $x; done")
            .write("p", "1", "one\n")
            .printed("p", "got one\n")
            .reconnect()
            .write("p", "1", "again\n")
            .write("p", "2", "two\n")
            .read("p", json!({"afterSeq": 1, "waitMs": 20000, "maxBytes": 100})),
        websocket("what was missed is read, what follows is told")
            .sh_with_stdin("p", "echo one; while read x; do echo got $x; done; exit 3")
            .printed("p", "one\n")
            .reconnect()
            .read("p", json!({"afterSeq": 1}))
            .write("p", "1", "two\n")
            .printed("p", "got two\n")
            .step(CaseStep::ExactLog("p".to_owned())),
        websocket("a process that ended without a connection")
            .sh("p", "sleep 0.2; echo late; exit 3")
            .reconnect()
            .read("p", json!({"waitMs": 20000, "afterSeq": 2}))
            .read("p", json!({})),
        websocket("an attached session is resumed by another")
            .connect()
            .step(CaseStep::Resume)
            .differs(DeclaredDifference::TakeOver, json!("resumed"))
            .use_connection(0)
            .alive()
            .differs(DeclaredDifference::TakeOver, json!("not alive")),
        websocket("another session does not see the processes")
            .sh("p", "exec sleep 1000")
            .connect()
            .initialize()
            .read("p", json!({}))
            .write("p", "1", "x")
            .call("process/terminate", json!({"processId": "p"}))
            .call("process/signal", json!({"processId": "p", "signal": "interrupt"}))
            .sh("p", "echo mine")
            .log("p"),
        websocket("an id is free in another session")
            .sh("p", "echo first")
            .log("p")
            .connect()
            .initialize()
            .sh("p", "echo second")
            .log("p"),
        websocket("a client may come back under another name").disconnect().connect().call("initialize", resume),
        websocket("two resumes, one after the other").reconnect().reconnect().call("environment/status", Value::Null),
        case("a session of another server")
            .only(Transport::WebSocket)
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "380b6183-0000-4000-8000-000000000000"}))
            .alive(),
        websocket("a wait under way does not hold up a resume")
            .sh("p", "exec sleep 1000")
            .request("process/read", json!({"processId": "p", "waitMs": 20000}))
            .reconnect()
            .read("p", json!({})),
    ]
}
