//! WIRE 1.4: what ends a connection, and what does not. On stdio Codex notices its own end only at the next EOF, so
//! most cases run over WebSocket; [`super::stdio`] has the rest.

use serde_json::json;

use super::case::{Case, CaseStep, Transport, case, initialized, start};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    let websocket = |name: &str| initialized(name).only(Transport::WebSocket);
    let frame = |head: &[u8], body: &[u8]| CaseStep::Raw([head, body].concat());
    vec![
        websocket("an unknown notification")
            .send(r#"{"method":"no/such"}"#)
            .alive()
            .differs(DeclaredDifference::UnknownNotice, json!("alive")),
        websocket("a request's method without an id")
            .send(r#"{"method":"environment/status"}"#)
            .alive()
            .differs(DeclaredDifference::UnknownNotice, json!("alive")),
        case("an unknown notification before initialize")
            .only(Transport::WebSocket)
            .send(r#"{"method":"no/such","params":{}}"#)
            .alive()
            .differs(DeclaredDifference::UnknownNotice, json!("alive")),
        websocket("a response nobody asked for").send(r#"{"id":77,"result":{}}"#).alive(),
        websocket("an error nobody asked for").send(r#"{"id":"x","error":{"code":1,"message":"m"}}"#).alive(),
        websocket("a response with an id of zero").send(r#"{"id":0,"result":null}"#).alive(),
        case("a response before initialize").only(Transport::WebSocket).send(r#"{"id":1,"result":{}}"#).alive(),
        websocket("a text frame that is not UTF-8").step(frame(&[0x81, 0x83, 0, 0, 0, 0], &[0xff, 0xfe, b'x'])).alive(),
        websocket("a frame without a mask").step(frame(&[0x81, 0x02], b"{}")).alive(),
        websocket("a reserved opcode").step(frame(&[0x83, 0x80, 0, 0, 0, 0], b"")).alive(),
        websocket("a reserved bit").step(frame(&[0xc1, 0x80, 0, 0, 0, 0], b"")).alive(),
        websocket("a continuation of nothing").step(frame(&[0x80, 0x80, 0, 0, 0, 0], b"")).alive(),
        websocket("a fragmented ping").step(frame(&[0x09, 0x80, 0, 0, 0, 0], b"")).alive(),
        websocket("a ping is answered and harmless").step(frame(&[0x89, 0x81, 0, 0, 0, 0], b"p")).alive(),
        websocket("a pong out of the blue").step(frame(&[0x8a, 0x80, 0, 0, 0, 0], b"")).alive(),
        websocket("a close frame").disconnect(),
        initialized("errors of every kind leave it open")
            .send_and_receive("nonsense")
            .call("no/such", json!({}))
            .call("process/read", json!({"processId": "none"}))
            .call("process/start", start("p", &[]))
            .alive(),
        websocket("a session outlives a violation")
            .sh_with_stdin("p", "while read x; do echo $x; done")
            .step(frame(&[0x81, 0x02], b"{}"))
            .ended()
            .connect()
            .resume()
            .write("p", "1", "still here\n")
            .read("p", json!({"waitMs": 20000, "maxBytes": 1000})),
    ]
}
