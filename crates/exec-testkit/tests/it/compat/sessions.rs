//! WIRE 3.1: what survives a connection.

use serde_json::{Value, json};

use super::rows::Row;
use super::script::{Case, Over, Step, case, greeted};

pub(super) fn cases() -> Vec<Case> {
    let websocket = |name: &str| greeted(name).only(Over::WebSocket);
    let resume = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
    vec![
        websocket("a session is resumed after a close").step(Step::Finish).ended().connect().resume(),
        websocket("a session is resumed after a dropped connection")
            .step(Step::Drop)
            .connect()
            .step(Step::ResumeSoon)
            .say(r#"{"method":"initialized"}"#)
            .call("environment/status", Value::Null),
        websocket("processes go on without a connection")
            .sh_with_stdin("p", "while read x; do echo got $x; done")
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .write("p", "1", "hello\n")
            .read("p", json!({"waitMs": 20000, "maxBytes": 100})),
        websocket("a write id is remembered across connections")
            .sh_with_stdin("p", "while read x; do echo got $x; done")
            .write("p", "1", "one\n")
            .printed("p", "got one\n")
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .write("p", "1", "again\n")
            .write("p", "2", "two\n")
            .read("p", json!({"afterSeq": 1, "waitMs": 20000, "maxBytes": 100})),
        websocket("what was missed is read, what follows is told")
            .sh_with_stdin("p", "echo one; while read x; do echo got $x; done; exit 3")
            .printed("p", "one\n")
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .read("p", json!({"afterSeq": 1}))
            .write("p", "1", "two\n")
            .printed("p", "got two\n")
            .step(Step::ExactLog("p".to_owned())),
        websocket("a process that ended without a connection")
            .sh("p", "sleep 0.2; echo late; exit 3")
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .read("p", json!({"waitMs": 20000, "afterSeq": 2}))
            .read("p", json!({})),
        websocket("an attached session is resumed by another")
            .connect()
            .step(Step::Resume)
            .better(Row::TakeOver, json!("resumed"))
            .on(0)
            .alive()
            .better(Row::TakeOver, json!("not alive")),
        websocket("another session does not see the processes")
            .sh("p", "exec sleep 1000")
            .connect()
            .hello()
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
            .hello()
            .sh("p", "echo second")
            .log("p"),
        websocket("a client may come back under another name")
            .step(Step::Finish)
            .ended()
            .connect()
            .call("initialize", resume),
        websocket("two resumes, one after the other")
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .call("environment/status", Value::Null),
        case("a session of another server")
            .only(Over::WebSocket)
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "380b6183-0000-4000-8000-000000000000"}))
            .alive(),
        websocket("a wait under way does not hold up a resume")
            .sh("p", "exec sleep 1000")
            .ask("process/read", json!({"processId": "p", "waitMs": 20000}))
            .step(Step::Finish)
            .ended()
            .connect()
            .resume()
            .read("p", json!({})),
    ]
}
