//! WIRE 1.6: lines on stdin and stdout.

use serde_json::json;

use super::case::{Case, CaseStep, Transport, case, initialized};

pub(super) fn cases() -> Vec<Case> {
    let stdio = |name: &str| initialized(name).only(Transport::Stdio);
    let raw = |text: &str| CaseStep::Raw(text.as_bytes().to_vec());
    let padded = |bytes: usize| {
        let empty = r#"{"id":"big","method":"no/such","params":""}"#.len();
        format!(r#"{{"id":"big","method":"no/such","params":"{}"}}"#, "x".repeat(bytes - empty))
    };
    vec![
        stdio("lines may end in CRLF").step(raw("{\"id\":\"x\",\"method\":\"no/such\"}\r\n")).receive().alive(),
        stdio("two messages in one write")
            .step(raw("{\"id\":\"x\",\"method\":\"a\"}\n{\"id\":\"y\",\"method\":\"b\"}\n"))
            .receive()
            .receive(),
        stdio("a message in two writes").step(raw("{\"id\":\"x\",\"me")).step(raw("thod\":\"a\"}\n")).receive().alive(),
        stdio("EOF ends the server with 0").disconnect(),
        case("EOF before a word ends the server with 0").only(Transport::Stdio).disconnect(),
        stdio("a line that is not UTF-8 ends it with 0").step(CaseStep::Raw(b"\xff\xfe\n".to_vec())).ended(),
        stdio("a line of 64 MiB").send(padded(64 << 20)).receive().alive(),
        stdio("a line of 64 MiB and a byte ends it with 0").send(padded((64 << 20) + 1)).ended(),
        stdio("a response nobody asked for ends it with 0").send(r#"{"id":5,"result":1}"#).disconnect(),
        case("initialized before initialize ends it with 0")
            .only(Transport::Stdio)
            .send(r#"{"method":"initialized"}"#)
            .disconnect(),
        stdio("an error nobody asked for ends it with 0")
            .send(r#"{"id":"x","error":{"code":1,"message":"m"}}"#)
            .disconnect(),
        stdio("an unknown notification and EOF end it with 0").send(r#"{"method":"no/such"}"#).disconnect(),
        stdio("processes end with the connection")
            .sh("p", "echo $$; exec sleep 1000")
            .step(CaseStep::Printed("p".to_owned(), "\n".to_owned()))
            .disconnect(),
        case("a session of stdio cannot be resumed")
            .only(Transport::Stdio)
            .initialize()
            .disconnect()
            .connect()
            .call("initialize", json!({"clientName": "c", "resumeSessionId": "$SESSION"})),
    ]
}
