//! WIRE 1.6: lines on stdin and stdout.

use serde_json::json;

use super::script::{Case, Over, Step, case, greeted};

pub(super) fn cases() -> Vec<Case> {
    let stdio = |name: &str| greeted(name).only(Over::Stdio);
    let raw = |text: &str| Step::Raw(text.as_bytes().to_vec());
    let padded = |bytes: usize| {
        let empty = r#"{"id":"big","method":"no/such","params":""}"#.len();
        format!(r#"{{"id":"big","method":"no/such","params":"{}"}}"#, "x".repeat(bytes - empty))
    };
    vec![
        stdio("lines may end in CRLF").step(raw("{\"id\":\"x\",\"method\":\"no/such\"}\r\n")).hear().alive(),
        stdio("two messages in one write")
            .step(raw("{\"id\":\"x\",\"method\":\"a\"}\n{\"id\":\"y\",\"method\":\"b\"}\n"))
            .hear()
            .hear(),
        stdio("a message in two writes").step(raw("{\"id\":\"x\",\"me")).step(raw("thod\":\"a\"}\n")).hear().alive(),
        stdio("EOF ends the server with 0").step(Step::Finish).ended(),
        case("EOF before a word ends the server with 0").only(Over::Stdio).step(Step::Finish).ended(),
        stdio("a line that is not UTF-8 ends it with 0").step(Step::Raw(b"\xff\xfe\n".to_vec())).ended(),
        stdio("a line of 64 MiB").say(padded(64 << 20)).hear().alive(),
        stdio("a line of 64 MiB and a byte ends it with 0").say(padded((64 << 20) + 1)).ended(),
        stdio("a response nobody asked for ends it with 0").say(r#"{"id":5,"result":1}"#).step(Step::Finish).ended(),
        case("initialized before initialize ends it with 0")
            .only(Over::Stdio)
            .say(r#"{"method":"initialized"}"#)
            .step(Step::Finish)
            .ended(),
        stdio("an error nobody asked for ends it with 0")
            .say(r#"{"id":"x","error":{"code":1,"message":"m"}}"#)
            .step(Step::Finish)
            .ended(),
        stdio("an unknown notification and EOF end it with 0")
            .say(r#"{"method":"no/such"}"#)
            .step(Step::Finish)
            .ended(),
        stdio("processes end with the connection")
            .sh("p", "echo $$; exec sleep 1000")
            .step(Step::Printed("p".to_owned(), "\n".to_owned()))
            .step(Step::Finish)
            .ended(),
        case("a session of stdio cannot be resumed")
            .only(Over::Stdio)
            .hello()
            .step(Step::Finish)
            .ended()
            .connect()
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "$SESSION"})),
    ]
}
