//! WIRE 1.1 and 1.2: what is a message, and how anything else is refused.

use serde_json::json;

use super::case::{Case, CaseStep, Transport, case};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    [malformed(), ids(), shapes(), big(), frames()].concat()
}

/// One malformed text: the refusal, and that the connection goes on.
fn refused(name: &str, text: &str) -> Case {
    case(name).send_and_receive(text).alive()
}

fn malformed() -> Vec<Case> {
    vec![
        refused("an array is no message", "[]"),
        refused("a batch is no message", r#"[{"id":1,"method":"environment/status"}]"#),
        refused("a string is no message", r#""hello""#),
        refused("a number is no message", "1"),
        refused("null is no message", "null"),
        refused("an empty object", "{}"),
        refused("not JSON", "hello"),
        refused("an object cut short", r#"{"id":1,"method":"#),
        refused("a comma too many", r#"{"id":1,"method":"x",}"#),
        refused("single quotes", "{'id':1}"),
        refused("two documents on one line", r#"{"id":1,"method":"x"}{"id":2,"method":"x"}"#),
        refused("a bare control character in a string", "{\"id\":1,\"method\":\"a\tb\"}"),
        refused("a lone surrogate escape", r#"{"id":1,"method":"\ud800"}"#),
        refused("a bad escape", r#"{"id":1,"method":"\x"}"#),
        refused("a leading zero", r#"{"id":01,"method":"x"}"#),
        refused("NaN", r#"{"id":1,"method":"x","params":NaN}"#),
        refused("a key twice at the root", r#"{"id":1,"method":"x","id":2}"#),
        refused("a key twice in params", r#"{"id":1,"method":"x","params":{"a":1,"a":2}}"#),
        refused("a key twice deep in params", r#"{"id":1,"method":"x","params":[{"b":{"c":1,"c":1}}]}"#),
        refused("an escaped key twice", r#"{"id":1,"method":"x","params":{"a":1,"\u0061":2}}"#),
        refused("a method that is no string", r#"{"id":1,"method":5}"#),
        refused("a method that is null", r#"{"id":1,"method":null}"#),
        refused("a notification whose method is no string", r#"{"method":[]}"#),
        refused("trace that is a string", r#"{"id":1,"method":"x","trace":"t"}"#),
        refused("trace that is a number", r#"{"id":1,"method":"x","trace":1}"#),
        refused("trace with a number for traceparent", r#"{"id":1,"method":"x","trace":{"traceparent":1}}"#),
        refused("an error without an id", r#"{"error":{"code":1,"message":"m"}}"#),
        refused("an error without a code", r#"{"id":1,"error":{"message":"m"}}"#),
        refused("an error without a message", r#"{"id":1,"error":{"code":1}}"#),
        refused("an error that is a string", r#"{"id":1,"error":"m"}"#),
        refused("a result without an id", r#"{"result":{}}"#),
        refused("an id and nothing else", r#"{"id":1}"#),
        refused("only jsonrpc", r#"{"jsonrpc":"2.0"}"#),
        refused("an empty text", "").only(Transport::WebSocket),
        refused("only spaces", "   ").only(Transport::WebSocket),
        case("blank lines on stdio are skipped").only(Transport::Stdio).send("").send("   ").send("\r").alive(),
        refused("garbage after an object", r#"{"id":1,"method":"x"} trailing"#),
        refused("a byte order mark", "\u{feff}{\"id\":1,\"method\":\"x\"}"),
    ]
}

fn ids() -> Vec<Case> {
    let id = |name: &str, id: &str| refused(name, &format!(r#"{{"id":{id},"method":"no/such"}}"#));
    vec![
        id("an id of null", "null"),
        id("an id of true", "true"),
        id("an id with a fraction", "1.5"),
        id("an id like 1.0", "1.0"),
        id("an id in exponent form", "1e3"),
        id("an id that is an object", "{}"),
        id("an id that is an array", "[1]"),
        id("an id of 2^63", "9223372036854775808"),
        id("an id of 2^63-1", "9223372036854775807"),
        id("an id of -2^63", "-9223372036854775808"),
        id("an id below -2^63", "-9223372036854775809"),
        id("a negative id", "-7"),
        id("an id of zero", "0"),
        id("an id of minus zero", "-0"),
        id("an id that is a string", r#""seven""#),
        id("an id that is an empty string", r#""""#),
        id("an id with every kind of character", r#""\u0000 ü \" \\ \n 😀""#),
    ]
}

fn shapes() -> Vec<Case> {
    vec![
        refused("unknown members are ignored", r#"{"id":1,"method":"no/such","extra":[1,2,3]}"#),
        refused("method, id and result together are a request", r#"{"id":1,"method":"no/such","result":1}"#),
        refused("method, id and error together are a request", r#"{"id":1,"method":"no/such","error":1}"#),
        refused("trace of null", r#"{"id":1,"method":"no/such","trace":null}"#),
        refused("an unparsable traceparent", r#"{"id":1,"method":"no/such","trace":{"traceparent":"zz"}}"#),
        refused("spaces everywhere", " { \"id\" : 1 , \"method\" : \"no/such\" } "),
        refused("an empty method", r#"{"id":1,"method":""}"#),
        refused("a method with odd characters", r#"{"id":1,"method":"a`b\"c\\d\ne"}"#),
        case("the same id twice is answered twice")
            .send_and_receive(r#"{"id":"x","method":"no/such"}"#)
            .send_and_receive(r#"{"id":"x","method":"no/such"}"#),
        case("jsonrpc is ignored, whatever it is")
            .send_and_receive(r#"{"jsonrpc":3,"id":1,"method":"no/such"}"#)
            .differs(
                DeclaredDifference::Jsonrpc,
                json!({
                    "jsonrpc": "2.0",
                    "error": {"code": -32601, "message": "exec-server stub does not implement `no/such` yet"},
                    "id": 1
                }),
            )
            .alive(),
    ]
}

fn big() -> Vec<Case> {
    let nested = |inside: usize| {
        format!(r#"{{"id":1,"method":"no/such","params":{}{}}}"#, "[".repeat(inside), "]".repeat(inside))
    };
    let values = |count: usize| {
        let zeros = vec!["0"; count].join(",");
        format!(r#"{{"id":1,"method":"no/such","params":[{zeros}]}}"#)
    };
    let long = "x".repeat(1 << 20);
    vec![
        refused("126 arrays in params", &nested(126)),
        refused("127 arrays in params", &nested(127)),
        refused("1000 arrays in params", &nested(1000)),
        refused("262140 values", &values(262_140)),
        refused("262141 values", &values(262_141)),
        refused("a string of 1 MiB", &format!(r#"{{"id":1,"method":"no/such","params":"{long}"}}"#)),
    ]
}

fn frames() -> Vec<Case> {
    let request = r#"{"id":1,"method":"no/such","params":{"a":"äöü"}}"#;
    let padded = |bytes: usize| {
        let frame = r#"{"id":1,"method":"no/such","params":""}"#;
        format!(r#"{{"id":1,"method":"no/such","params":"{}"}}"#, "x".repeat(bytes - frame.len()))
    };
    let websocket = |name: &str| case(name).only(Transport::WebSocket);
    vec![
        websocket("a binary frame is read as JSON").step(CaseStep::Binary(request.to_owned())).receive().alive(),
        websocket("fragments of 3 bytes").step(CaseStep::Fragments(request.to_owned(), 3)).receive().alive(),
        websocket("a frame of 16 MiB").send(padded(16 << 20)).receive().alive(),
        websocket("a frame of 16 MiB and a byte").send(padded((16 << 20) + 1)).alive(),
        websocket("64 MiB in frames of 8").step(CaseStep::Fragments(padded(64 << 20), 8 << 20)).receive().alive(),
        websocket("64 MiB and a byte in frames of 8")
            .step(CaseStep::Fragments(padded((64 << 20) + 1), 8 << 20))
            .alive(),
    ]
}
