//! WIRE 2.13: the proxy of a process, what it is asked and answers, and what the client is asked and told.
//!
//! Only hosts that need no name server, and only the loopback is dialled.

use serde_json::{Value, json};

use super::case::{Case, initialized, start, with};
use crate::environments::ACTOR;

fn proxy(change: Value) -> Value {
    let least = json!({"enabled": true, "enableSocks5": true, "enableSocks5Udp": false, "allowUpstreamProxy": false,
        "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false});
    json!({"proxy": with(least, change)})
}

fn one(name: &str, network_proxy: Value) -> Case {
    let params = with(start("p", &["true"]), json!({"networkProxy": network_proxy}));
    initialized(name).call("process/start", params).alive()
}

/// Starts that are refused, and those that are not.
pub(super) fn starts() -> Vec<Case> {
    let mut cases = vec![
        one("a launch without members", json!({})),
        one("a proxy that is null", json!({"proxy": null})),
        one("a proxy that is a text", json!({"proxy": "on"})),
        one("a proxy that is off", proxy(json!({"enabled": false}))),
        one("an audit of numbers", with(proxy(json!({})), json!({"auditMetadata": 5}))),
        one("an audit without members", with(proxy(json!({})), json!({"auditMetadata": {}}))),
        one("an environment that is a number", with(proxy(json!({})), json!({"environmentId": 5}))),
        one("an execution that is a number", with(proxy(json!({})), json!({"executionId": 5}))),
        one("no time to decide", with(proxy(json!({})), json!({"policyDecisionTimeoutMs": 0}))),
        one("a negative time to decide", with(proxy(json!({})), json!({"policyDecisionTimeoutMs": -1}))),
    ];
    let members = ["enabled", "enableSocks5", "enableSocks5Udp", "allowUpstreamProxy", "mode", "allowLocalBinding"];
    cases.extend(members.map(|member| one(&format!("a proxy without {member}"), proxy(json!({member: "$ABSENT"})))));
    cases.extend(["limited", "full", "some"].map(|mode| one(&format!("mode {mode}"), proxy(json!({"mode": mode})))));
    let domains = [
        json!({"a.test": "allow", "b.test": "deny", "c.test": "none"}),
        json!({"a.test": "some"}),
        json!({"a.test": ["allow"]}),
        json!(["a.test"]),
        json!(5),
        json!(null),
        json!({"*": "deny"}),
        json!({"[*]": "deny"}),
        json!({"**": "none"}),
    ];
    cases.extend(domains.map(|domains| one(&format!("domains {domains}"), proxy(json!({"domains": domains})))));
    let patterns = [
        "",
        " ",
        ".",
        "*",
        "**",
        "***",
        "*.",
        "**.",
        "*.*",
        "a**b",
        "*.**.test",
        "http://a",
        "a/b",
        "a b",
        "a\\b",
        "{a,b}",
        "[",
        "[a]",
        "a[b]",
        "[::1]",
        "[::1]:80",
        "[::1",
        "::1",
        "*.[::1]",
        "[*].a",
        "a:80",
        "a:b:c",
        "10.0.0.0/8",
        "a?b",
        "A.Test.",
        "é.test",
        "a..b",
        "fe80::1%lo",
    ];
    for pattern in patterns {
        let case = |what: &str, change: Value| one(&format!("{what} {pattern:?}"), proxy(change));
        cases.push(case("allowed", json!({"domains": {pattern: "allow"}})));
        cases.push(case("reviewed", json!({"reviewDomains": [pattern]})));
    }
    cases.push(one("review of numbers", proxy(json!({"reviewDomains": [5]}))));
    cases.push(one("review that is an object", proxy(json!({"reviewDomains": {}}))));
    cases.push(one("unix sockets of numbers", proxy(json!({"unixSockets": 5}))));
    cases.push(one("unix sockets without a permission", proxy(json!({"unixSockets": {"/a": "x"}}))));
    let providers = [
        json!(null),
        json!([]),
        json!({}),
        json!("x"),
        json!(5),
        json!({"a": 1}),
        json!({"a": null}),
        json!({"a": {}}),
        json!({"a": []}),
        json!({"a": {"env": ["A"], "patterns": ["sk-*"], "url_prefixes": ["https://a.test"], "auth": ["bearer", "header"]}}),
        json!({"a": {"header": "x", "prefix": null, "url_prefix_from_env": "A"}}),
        json!({"a": {"urlPrefixes": []}}),
        json!({"a": {"env": null}}),
        json!({"a": {"env": [5]}}),
        json!({"a": {"auth": ["x"]}}),
        json!({"a": {"auth": [5]}}),
        json!({"a": {"header": 5}}),
    ];
    let of =
        |providers: &Value| one(&format!("providers {providers}"), proxy(json!({"credentialProviders": providers})));
    cases.extend(providers.iter().map(of));
    let long = "i".repeat(257);
    let asking = with(proxy(json!({})), json!({"policyDecisionTimeoutMs": 5}));
    for id in ["", &long] {
        let params = with(start(id, &["true"]), json!({"networkProxy": asking}));
        cases.push(initialized("an id that cannot be asked about").call("process/start", params).alive());
    }
    cases.push(variables("variables", json!({})));
    cases.push(variables("variables without SOCKS5", json!({"enableSocks5": false})));
    cases.push(variables("variables with the local network", json!({"allowLocalBinding": true})));
    cases
}

/// The child's variables; a port is a port.
fn variables(name: &str, change: Value) -> Case {
    let script = "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= | sed -E 's/127.0.0.1:[0-9]+$/127.0.0.1:PORT/' | sort";
    let params = with(start("p", &["/bin/sh", "-c", script]), json!({"networkProxy": proxy(change)}));
    initialized(name).call("process/start", params).log("p")
}

fn saying(name: &str, change: Value, variable: &str, text: &str) -> Case {
    let params = with(start("p", &[ACTOR, "say-to", variable, text]), json!({"networkProxy": proxy(change)}));
    initialized(name).call("process/start", params).log("p")
}

fn request(method: &str, host: &str) -> String {
    format!("{method} http://{host}/echo HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n")
}

fn tunnel(host: &str) -> String {
    format!("CONNECT {host} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n")
}

/// What a proxy answers, byte for byte but for the time, and which decisions are told.
pub(super) fn requests() -> Vec<Case> {
    let all = json!({"domains": {"*": "allow", "denied.test": "deny"}});
    let web = json!({"domains": {"127.0.0.1": "allow"}});
    let limited = json!({"domains": {"127.0.0.1": "allow"}, "mode": "limited"});
    let http = |name: &str, change: &Value, text: &str| saying(name, change.clone(), "HTTP_PROXY", text).receive();
    let silent = |name: &str, text: &str| saying(name, json!({"domains": {"*": "allow"}}), "HTTP_PROXY", text);
    let mut cases = vec![
        http("a host without a rule", &json!({}), &request("GET", "a.test")),
        http("a tunnel to a host without a rule", &json!({}), &tunnel("a.test:443")),
        http("a denied host", &all, &request("GET", "denied.test")),
        http("a denied tunnel", &all, &tunnel("DENIED.test.:443")),
        http("an allowed host", &web, &request("GET", "$WEB")),
        http("an allowed host, posted to", &web, &request("POST", "$WEB")),
        http("a query without a path", &web, &request("GET", "$WEB").replace("/echo", "?q=1")),
        http(
            "headers for the proxy alone among others",
            &web,
            &request("GET", "$WEB").replace(
                "Connection: close",
                "A: 1\\r\\nUpgrade: websocket\\r\\nB: 2\\r\\nX-Hop: 3\\r\\nD: 4\\r\\nTrailer: T\\r\\nTE: trailers\\r\\nC: 5\\r\\nConnection: close, X-Hop",
            ),
        ),
        http("limited to reading", &limited, &request("GET", "$WEB")),
        http("limited, posted to", &limited, &request("POST", "$WEB")).receive(),
        http("limited, a tunnel", &limited, &tunnel("$WEB")).receive(),
        http("a host without a rule, posted to in limited mode", &limited, &request("POST", "a.test")),
        http("a port where nobody listens", &web, &request("GET", "127.0.0.1:1")),
        http(
            "a unix socket",
            &all,
            &request("GET", "a.test").replace("\\r\\nConn", "\\r\\nx-unix-socket: /s\\r\\nConn"),
        ),
        silent(
            "two hosts in a request",
            "GET http://a.test/ HTTP/1.1\\r\\nHost: b.test\\r\\nConnection: close\\r\\n\\r\\n",
        ),
        silent("no host", "GET / HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n"),
        silent("no authority", "CONNECT /x HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n"),
        silent(
            "two lengths",
            "POST http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\nContent-Length: 1\\r\\nContent-Length: 2\\r\\n\\r\\nxx",
        ),
    ];
    let local = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "10.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
    ];
    for host in local {
        cases.push(http(&format!("{host} and a wildcard"), &all, &request("GET", &format!("{host}:7"))));
        cases.push(http(&format!("{host} and a wildcard, by a tunnel"), &all, &tunnel(&format!("{host}:7"))));
    }
    let socks = |name: &str, text: &str| saying(name, json!({"domains": {"*": "allow"}}), "ALL_PROXY", text);
    cases.push(
        socks("SOCKS5 to the loopback", "\\x05\\x01\\x00\\x05\\x01\\x00\\x01\\x7f\\x00\\x00\\x01\\x00\\x07").receive(),
    );
    cases.push(socks("SOCKS5 without a method", "\\x05\\x01\\x02"));
    cases.push(socks("SOCKS5 that binds", "\\x05\\x01\\x00\\x05\\x02\\x00\\x01\\x7f\\x00\\x00\\x01\\x00\\x07"));
    cases.push(socks("SOCKS5 for UDP", "\\x05\\x01\\x00\\x05\\x03\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00"));
    let by_name = "\\x05\\x01\\x00\\x05\\x03\\x00\\x03\\x09localhost\\x00\\x00";
    cases.push(saying("SOCKS5 for UDP from a name", json!({"enableSocks5Udp": true}), "ALL_PROXY", by_name));
    cases
}

/// A process that sends one datagram through its proxy. What is allowed is not compared: Codex's proxy sends the answers of
/// the world back to the world.
fn sending(name: &str, change: Value, address: [u8; 4], asking: bool) -> Case {
    let address: String = address.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let datagram = format!("\\x00\\x00\\x00\\x01{address}\\x00\\x07ping");
    let launch = proxy(with(json!({"enableSocks5Udp": true}), change));
    let launch = if asking { with(launch, json!({"policyDecisionTimeoutMs": 20_000})) } else { launch };
    let argv = [ACTOR, "send-datagram", "ALL_PROXY", &datagram];
    initialized(name).call("process/start", with(start("p", &argv), json!({"networkProxy": launch})))
}

/// Datagrams that are refused end their relay, and are told as other refusals are.
pub(super) fn datagrams() -> Vec<Case> {
    let public = [93, 184, 216, 34];
    let deny = json!({"id": 1, "result": {"decision": {"type": "deny", "reason": "nope"}}}).to_string();
    vec![
        sending("no relay", json!({"enableSocks5Udp": false}), public, false).log("p"),
        sending("a datagram without a rule", json!({}), public, false).log("p").receive(),
        sending("a denied datagram", json!({"domains": {"93.184.216.34": "deny"}}), public, false).log("p").receive(),
        sending("a datagram to the loopback", json!({"domains": {"*": "allow"}}), [127, 0, 0, 1], false)
            .log("p")
            .receive(),
        sending("a datagram in limited mode", json!({"domains": {"*": "allow"}, "mode": "limited"}), public, false)
            .log("p")
            .receive(),
        sending("a datagram that the client denies", json!({}), public, true).receive().send(deny).log("p").receive(),
    ]
}

/// What the client is asked, and what its answers mean.
pub(super) fn questions() -> Vec<Case> {
    let ask = |name: &str, change: Value, host: &str, answer: Value| {
        let launch = with(proxy(change), json!({"policyDecisionTimeoutMs": 20_000}));
        let argv = [ACTOR, "say-to", "HTTP_PROXY", &request("GET", host)];
        let params = with(start("p", &argv), json!({"networkProxy": launch}));
        let answer = with(json!({"id": 1}), answer).to_string();
        initialized(name).call("process/start", params).receive().send(answer).log("p").receive()
    };
    let decision = |decision: Value| json!({"result": {"decision": decision}});
    vec![
        ask("denied by the client", json!({}), "a.test", decision(json!({"type": "deny", "reason": "nope"}))),
        ask("asked by the client", json!({}), "a.test", decision(json!({"type": "ask", "reason": "later"}))),
        ask("denied with quotes", json!({}), "a.test", decision(json!({"type": "deny", "reason": "a \"b\" \\c"}))),
        ask("denied without a reason", json!({}), "a.test", decision(json!({"type": "deny", "reason": ""}))),
        ask("denied without a member", json!({}), "a.test", decision(json!({"type": "deny"}))),
        ask("denied as by the rules", json!({}), "a.test", decision(json!({"type": "deny", "reason": "denied"}))),
        ask(
            "denied with a long reason",
            json!({}),
            "a.test",
            decision(json!({"type": "deny", "reason": "x".repeat(1025)})),
        ),
        ask("denied with two lines", json!({}), "a.test", decision(json!({"type": "deny", "reason": "a\nb"}))),
        ask("something else", json!({}), "a.test", decision(json!({"type": "perhaps"}))),
        ask("no decision", json!({}), "a.test", json!({"result": {}})),
        ask("an error", json!({}), "a.test", json!({"error": {"code": -32601, "message": "unknown"}})),
        ask("allowed by the client", json!({"allowLocalBinding": true}), "$WEB", decision(json!({"type": "allow"}))),
        ask(
            "reviewed by the client",
            json!({"domains": {"*": "allow"}, "reviewDomains": ["a.test"]}),
            "a.test",
            decision(json!({"type": "deny", "reason": "seen"})),
        ),
    ]
}
