//! WIRE 2.12: requests made from the server's machine, their answers, and streamed bodies.

use serde_json::{Value, json};

use super::case::{Case, with};
use super::case_directory::in_directory;

pub(super) fn cases() -> Vec<Case> {
    [answers(), requests(), redirects(), headers(), variables(), refusals(), failures(), streams()].concat()
}

fn params(path: &str, more: Value) -> Value {
    with(json!({"method": "GET", "url": format!("http://$WEB/{path}"), "requestId": "r"}), more)
}

fn get(name: &str, path: &str, more: Value) -> Case {
    in_directory(name).call("http/request", params(path, more))
}

fn answers() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        200, 201, 203, 204, 205, 206, 226, 299, 300, 304, 305, 306, 400, 401, 404, 407, 408, 418, 429, 500, 503, 599,
        999,
    ]
    .into_iter()
    .map(|status| get(&format!("an answer of {status}"), &format!("status/{status}"), json!({})))
    .collect();
    cases.extend([
        get("odd headers", "odd", json!({})),
        get("a header that is no ASCII", "latin1", json!({})),
        get("a body that claims to be compressed", "gzip", json!({})),
        get("a body in chunks", "chunked", json!({})),
        get("a body to the end of the connection", "http10", json!({})),
        get("no reason in the status line", "nowords/200", json!({})),
        get("no length at all", "bare/200", json!({})),
        get("early hints", "early", json!({})),
        get("100,000 bytes", "big/100000", json!({})),
        get("3 MB", "big/3000000", json!({})),
    ]);
    cases
}

fn requests() -> Vec<Case> {
    let body = |text: &str| json!({"bodyBase64": base64_simd::STANDARD.encode_to_string(text)});
    let mut cases: Vec<Case> =
        ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "Post", "PROPFIND", "X-Y_Z"]
            .into_iter()
            .flat_map(|method| {
                let with_body = with(body("the body"), json!({"method": method}));
                let empty_body = with(body(""), json!({"method": method}));
                [
                    get(&format!("{method} without a body"), "echo", json!({"method": method})),
                    get(&format!("{method} with a body"), "echo", with_body),
                    get(&format!("{method} with an empty body"), "echo", empty_body),
                ]
            })
            .collect();
    cases.extend([
        get("HEAD", "status/200", json!({"method": "HEAD"})),
        get("a body of 300,000 bytes", "echo", body(&"x".repeat(300_000))),
        get("bad base64 in a body", "echo", json!({"bodyBase64": "*"})),
        get("a query", "echo?a=b&c=%20d e&f=ü", json!({})),
        get("a fragment", "echo#part", json!({})),
        get("dots in the path", "x/../echo", json!({})),
        get("odd letters in the path", "echo/ü %zz\\[]{}|^`\"<>", json!({})),
        get("nothing after the host", "", json!({"timeoutMs": 2000})),
        get("a name and a password", "echo", json!({"url": "http://user:pa%20ss@$WEB/echo"})),
        get("a name and a password and a header", "echo", json!({"url": "http://user:pw@$WEB/echo", "headers": [header("x-a", "1"), header("authorization", "mine")]})),
        get("a name alone", "echo", json!({"url": "http://user@$WEB/echo", "headers": [header("x-a", "1")]})),
        get("an empty name", "echo", json!({"url": "http://:pw@$WEB/echo"})),
        get("a scheme in capitals", "echo", json!({"url": "HTTP://$WEB/echo"})),
        get("spaces around the URL", "echo", json!({"url": "  http://$WEB/echo\n"})),
        get("one slash", "echo", json!({"url": "http:/$WEB/echo"})),
        get("many slashes", "echo", json!({"url": "http:////$WEB/echo"})),
        get("an empty request id", "echo", json!({"requestId": ""})),
        in_directory("two requests with one id")
            .request("http/request", params("echo", json!({})))
            .request("http/request", params("echo", json!({})))
            .response(2)
            .response(3),
    ]);
    cases
}

fn redirects() -> Vec<Case> {
    let mut cases = Vec::new();
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        for policy in [json!("$ABSENT"), json!("follow"), json!("stop")] {
            let more = json!({"redirectPolicy": policy, "method": "POST", "bodyBase64": "Ym9keQ==", "headers": [
                {"name": "content-type", "value": "text/plain"}, {"name": "authorization", "value": "secret"},
                {"name": "x-own", "value": "1"}]});
            cases.push(get(&format!("{status} under {policy}"), &format!("redirect/{status}"), more));
        }
    }
    for status in [301, 302, 303, 307, 308] {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"] {
            let more = json!({"method": method, "bodyBase64": "Ym9keQ==", "headers": [
                header("content-length", "4"), header("content-encoding", "x"), header("content-language", "y"),
                header("transfer-encoding", "identity"), header("content-type", "z"), header("x-own", "1")]});
            cases.push(get(&format!("{status} for {method}"), &format!("redirect/{status}"), more));
        }
        for body in [json!("$ABSENT"), json!("Ym9keQ==")] {
            let more = json!({"method": "HEAD", "bodyBase64": body, "headers": [header("content-type", "z")]});
            cases.push(get(&format!("{status} for HEAD with {body}"), &format!("redirect/{status}"), more));
        }
    }
    let secrets = json!({"headers": [
        {"name": "authorization", "value": "secret"}, {"name": "cookie2", "value": "c2"}, {"name": "cookie", "value": "c=1"}, {"name": "x-own", "value": "1"},
        {"name": "x-two", "value": "2"}, {"name": "x-three", "value": "3"}, {"name": "proxy-authorization", "value": "p"}, {"name": "www-authenticate", "value": "w"}]});
    cases.extend([
        get("secrets stay at their host", "otherhost", secrets.clone()),
        get("secrets go on at the same host", "redirect/307", secrets),
        get(
            "a referer of one's own",
            "redirect/302",
            json!({"headers": [header("referer", "mine"), header("x-a", "1")]}),
        ),
        get("a referer of one's own at another host", "otherhost", json!({"headers": [header("referer", "mine")]})),
        get("a redirection of a query", "redirect/302?a=b#c", json!({})),
        get("a redirection to another host of a query", "otherhost?a=b#c", json!({})),
        get("a name and a password, redirected", "", json!({"url": "http://user:pw@$WEB/redirect/302"})),
        get("a name and a password, redirected elsewhere", "", json!({"url": "http://user:pw@$WEB/otherhost"})),
        get("an accept of one's own, redirected", "redirect/302", json!({"headers": [header("accept", "x/y")]})),
        get("a host of one's own, redirected", "redirect/302", json!({"headers": [header("host", "h.invalid")]})),
        get(
            "a host of one's own, redirected elsewhere",
            "otherhost",
            json!({"headers": [header("host", "h.invalid")]}),
        ),
        get("nine hops", "hops/9", json!({})),
        get("ten hops", "hops/10", json!({})),
        get("eleven hops", "hops/11", json!({})),
        get("for ever", "loop", json!({})),
        get("to another scheme", "ftp", json!({})),
        get("to nowhere", "nowhere", json!({})),
        get("to a bad place", "badplace", json!({})),
        get("to a place with a fragment", "fragment", json!({})),
        get("an unknown policy", "echo", json!({"redirectPolicy": "sometimes"})),
    ]);
    cases
}

fn header(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn headers() -> Vec<Case> {
    let with_headers = |name: &str, headers: Vec<Value>| get(name, "echo", json!({"headers": headers}));
    let mut cases = vec![
        with_headers(
            "headers in order",
            vec![header("x-b", "1"), header("x-a", "2"), header("x-b", "3"), header("X-C", "4")],
        ),
        with_headers("a host of one's own", vec![header("Host", "example.invalid")]),
        with_headers("an accept of one's own", vec![header("Accept", "text/html")]),
        with_headers("an empty accept", vec![header("accept", "")]),
        with_headers("a user agent", vec![header("User-Agent", "me")]),
        get("a length of one's own", "head", json!({"headers": [header("content-length", "3")]})),
        get("chunks of one's own", "head", json!({"headers": [header("transfer-encoding", "chunked")]})),
        with_headers("connection", vec![header("connection", "close")]),
        with_headers("an encoding", vec![header("accept-encoding", "gzip")]),
        with_headers("expect", vec![header("expect", "x")]),
        with_headers("te and trailer", vec![header("te", "trailers"), header("trailer", "x")]),
    ];
    for name in ["", " ", "a b", "a:b", "ü", "x\ny", "a/b", "x-\u{0}", ":path", "a\"b", "x_y", "x.y~z", "(x)"] {
        cases.push(with_headers(&format!("a header called {name:?}"), vec![header(name, "v")]));
    }
    for value in
        ["", " ", "  v  ", "a\tb", "a\nb", "a\rb", "ü", "😀", "\u{0}", "\u{7f}", "\u{1}", "a\r\nx-b: c", "a,b;c=\"d\""]
    {
        cases.push(with_headers(&format!("a header value of {value:?}"), vec![header("X-Mine", value)]));
    }
    cases
}

fn variables() -> Vec<Case> {
    let taken = |variable: &str| {
        let headers = json!([{"name": "X-Mine", "value": "pre ", "valueEnvVar": variable}]);
        get(&format!("a header from the variable {variable:?}"), "echo", json!({"headers": headers}))
    };
    let names = [
        "PLAIN",
        "PLAIN2",
        "plain",
        "MISSING",
        "EMPTY",
        "UMLAUT",
        "TWO_LINES",
        "",
        "A=B",
        "PATH ",
        "a\u{0}b",
        "HOME",
        "MY_API_KEY",
        "github_token",
        "NODE_REPL_AUTH_TOKEN",
        "OPENAI_API_KEY",
        "openai_api_key",
        "CODEX_API_KEY",
        "CODEX_ACCESS_TOKEN",
        "CODEX_CONNECTORS_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "openai_identity_token_file",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
        "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
    ];
    let mut cases: Vec<Case> = names.iter().map(|name| taken(name)).collect();
    let bad_name = json!([{"name": "a b", "value": "", "valueEnvVar": "OPENAI_API_KEY"}]);
    let bad_value = json!([{"name": "x", "value": "\n", "valueEnvVar": "MISSING"}]);
    cases.extend([
        get("a bad name and a refused variable", "echo", json!({"headers": bad_name})),
        get("a bad value and a missing variable", "echo", json!({"headers": bad_value})),
        get(
            "an empty value and a variable",
            "echo",
            json!({"headers": [{"name": "x", "value": "", "valueEnvVar": "PLAIN"}]}),
        ),
    ]);
    cases
}

fn refusals() -> Vec<Case> {
    let mut cases: Vec<Case> = ["", " ", "GET ", "G T", "GÉT", "GET\n", "(", "G:T", "GET\u{0}"]
        .into_iter()
        .map(|method| get(&format!("the method {method:?}"), "echo", json!({"method": method})))
        .collect();
    let urls = [
        "",
        " ",
        "/echo",
        "echo",
        "127.0.0.1/echo",
        "http:",
        "http://",
        "http:///",
        "http://?x",
        "http://#",
        "http://[bad",
        "http://a b/",
        "http://:80/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:x/",
        "http://256.1.1.1/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "ws://127.0.0.1/",
        "data:,x",
        "mailto:a@b",
        "javascript:1",
        "HTTPX://x/",
        "http://%00/",
        "//127.0.0.1/echo",
    ];
    cases.extend(urls.into_iter().map(|url| get(&format!("the URL {url:?}"), "echo", json!({"url": url}))));
    cases.extend([
        get("a bad method and a bad URL", "", json!({"method": " ", "url": ""})),
        get("a bad URL and a bad header", "", json!({"url": "", "headers": [{"name": " ", "value": ""}]})),
        get("a wrong scheme and a bad header", "", json!({"url": "ftp://x/", "headers": [{"name": " ", "value": ""}]})),
        get("a bad method and a bad header", "", json!({"method": " ", "headers": [{"name": " ", "value": ""}]})),
        get("two bad headers", "", json!({"headers": [{"name": "x", "value": "\n"}, {"name": " ", "value": ""}]})),
    ]);
    cases
}

fn failures() -> Vec<Case> {
    vec![
        get("nobody listens", "", json!({"url": "http://127.0.0.1:1/x"})),
        get("nobody listens, with TLS", "", json!({"url": "https://127.0.0.1:1/x"})),
        get("TLS with somebody who does not speak it", "", json!({"url": "https://$WEB/x"})),
        get("a closed connection", "closed", json!({})),
        get("an answer that is no HTTP", "garbage", json!({})),
        get("a header that is none", "badheader", json!({})),
        get("a body cut short", "cut", json!({})),
        get("chunks cut short", "cutchunked", json!({})),
        get("a bad chunk", "badchunk", json!({})),
        // No answer in time is missing: Codex has two clocks for that with a text each, and it is chance which
        // strikes first.
        get("no time at all", "silent", json!({"timeoutMs": 0})),
        get("a body that stalls", "stall", json!({"timeoutMs": 300})),
        get("chunks that stall", "stallchunked", json!({"timeoutMs": 300})),
        get("all the time in the world", "status/200", json!({"timeoutMs": u64::MAX})),
        get("null for all the time", "status/200", json!({"timeoutMs": null})),
        get(
            "a redirection that ends in silence",
            "redirect/302",
            json!({"url": "http://$WEB/loop", "timeoutMs": 5000}),
        ),
    ]
}

fn streams() -> Vec<Case> {
    let stream = |name: &str, path: &str, more: Value| {
        get(&format!("a stream: {name}"), path, with(json!({"streamResponse": true}), more)).body("r").alive()
    };
    let refused = |name: &str, path: &str, more: Value| {
        get(&format!("a stream refused: {name}"), path, with(json!({"streamResponse": true}), more)).alive()
    };
    let again = params("echo", json!({"streamResponse": true}));
    vec![
        stream("of text", "chunked", json!({})),
        stream("of nothing", "status/204", json!({})),
        stream("of an empty body", "big/0", json!({})),
        stream("of a status", "status/500", json!({})),
        stream("of 100,000 bytes", "big/100000", json!({})),
        stream("of 5 MB", "big/5000000", json!({})),
        stream("of a head", "status/200", json!({"method": "HEAD"})),
        stream("cut short", "cut", json!({})),
        stream("of chunks cut short", "cutchunked", json!({})),
        stream("with a bad chunk", "badchunk", json!({})),
        stream("that stalls", "stall", json!({"timeoutMs": 400})),
        stream("of chunks that stall", "stallchunked", json!({"timeoutMs": 400})),
        stream("to the end of the connection", "http10", json!({})),
        stream("after redirections", "hops/3", json!({})),
        stream("of a redirection", "redirect/302", json!({"redirectPolicy": "stop"})),
        refused("nobody listens", "", json!({"url": "http://127.0.0.1:1/x"})),
        refused("a bad URL", "", json!({"url": ""})),
        in_directory("a request id again after its stream")
            .call("http/request", again.clone())
            .body("r")
            .call("http/request", again.clone())
            .body("r"),
        in_directory("a request id in use")
            .call("http/request", params("stall", json!({"streamResponse": true})))
            .call("http/request", again.clone())
            .call("http/request", params("echo", json!({})))
            .call("http/request", params("echo", json!({"streamResponse": true, "url": ""}))),
        in_directory("a request id again after a failure")
            .call("http/request", params("", json!({"streamResponse": true, "url": "http://127.0.0.1:1/x"})))
            .call("http/request", again)
            .body("r"),
        in_directory("two streams")
            .call("http/request", params("chunked", json!({"streamResponse": true, "requestId": "one"})))
            .call("http/request", params("chunked", json!({"streamResponse": true, "requestId": "two"})))
            .body("two")
            .body("one"),
        in_directory("an empty request id streams")
            .call("http/request", params("chunked", json!({"streamResponse": true, "requestId": ""})))
            .body(""),
    ]
}
