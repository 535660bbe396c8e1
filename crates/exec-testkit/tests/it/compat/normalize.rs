//! Removes from messages what may differ between two servers without any client minding: ids, ports, versions, and
//! members that WIRE A.2 declares as additions.

use regex::Regex;
use serde_json::{Value, json};

/// A response to `method`, or any other message if that is empty.
pub(crate) fn reply(method: &str, mut message: Value, session: &str, folder: &str) -> Value {
    if let Some(error) = message.get_mut("error").and_then(Value::as_object_mut) {
        error.remove("data");
        if let Some(text) = error.get("message").and_then(Value::as_str) {
            let text = without_port(text);
            error.insert("message".to_owned(), json!(text));
        }
    }
    if message["method"] == "network/policyDecision" {
        for varying in ["timestamp", "client", "port"] {
            message["params"][varying] = json!(!message["params"][varying].is_null());
        }
    }
    if message["method"] == "network/policyRequest" {
        message["params"]["request"]["port"] = json!(true);
    }
    if let Some(result) = message.get_mut("result") {
        for added in additions(method) {
            remove(result, added);
        }
        if method == "initialize"
            && let Some(info) = result.get_mut("environmentInfo")
        {
            environment(info);
        }
        if method == "environment/info" {
            environment(result);
        }
        match method {
            "fs/getMetadata" => metadata(result),
            "fs/readDirectory" => listing(result),
            "fs/walk" => walk(result),
            "http/request" => http_response(result),
            _ => {}
        }
        if let Some(chunks) = result.get_mut("chunks").and_then(Value::as_array_mut) {
            for chunk in chunks {
                let text = text_of(&chunk["chunk"]);
                chunk["chunk"] = json!(text);
            }
        }
    }
    without_folder(without_session(message, session), folder)
}

/// Cases do not compare when a file was made. Codex does not know it where it follows links, and says 0.
fn metadata(found: &mut Value) {
    if let Some(made) = found.get_mut("createdAtMs") {
        *made = json!(made.is_i64());
    }
}

/// Sorted by name, since Codex has no order.
fn listing(listing: &mut Value) {
    let Some(entries) = listing["entries"].as_array_mut() else { return };
    for entry in entries.iter_mut() {
        remove(entry, "isSymlink");
        remove(entry, "path");
    }
    entries.sort_by_key(|entry| entry["fileName"].to_string());
}

fn walk(walk: &mut Value) {
    for entry in walk["entries"].as_array_mut().into_iter().flatten() {
        remove(entry, "isSymlink");
    }
    for error in walk["errors"].as_array_mut().into_iter().flatten() {
        remove(error, "data");
    }
}

/// The body of an HTTP response as text: it may show the request, and with it the port.
fn http_response(answer: &mut Value) {
    let text = without_port(&text_of(&answer["bodyBase64"]));
    let text = if text.len() > 2000 { format!("{} bytes", text.len()) } else { text };
    answer["bodyBase64"] = json!(text);
}

/// A streamed body: whether the seqs were 1, 2, 3 …, the text, the end; and that no piece is too large.
pub(crate) fn body(deltas: &[Value]) -> Value {
    let dense = deltas.iter().zip(1..).all(|(delta, seq)| delta["params"]["seq"] == seq);
    let texts: Vec<String> = deltas.iter().map(|delta| text_of(&delta["params"]["deltaBase64"])).collect();
    let small = texts.iter().all(|text| text.len() <= 1 << 20);
    let early = deltas.iter().rev().skip(1).any(|delta| delta["params"]["done"] != false);
    let text = texts.concat();
    let text = if text.len() > 2000 { format!("{} bytes", text.len()) } else { without_port(&text) };
    let error = deltas.last().map(|delta| delta["params"]["error"].clone());
    let last_is_empty = texts.last().is_some_and(String::is_empty);
    json!({"dense": dense, "small": small, "early": early, "text": text, "error": error, "lastIsEmpty": last_is_empty})
}

fn without_folder(value: Value, folder: &str) -> Value {
    let text = value.to_string().replace(folder, "$ROOT");
    serde_json::from_str(&text).expect("the name needs no escape")
}

/// Members of results that we add.
fn additions(method: &str) -> &'static [&'static str] {
    match method {
        "process/start" => &["pid", "sandbox"],
        "process/read" => &["firstSeq", "droppedBytes", "exit", "head"],
        "process/terminate" => &["ended", "left", "known"],
        "process/signal" => &["status"],
        "fs/open" => &["sizeBytes"],
        "fs/getMetadata" => &[
            "kind",
            "mode",
            "uid",
            "gid",
            "inode",
            "device",
            "nlink",
            "createdNs",
            "modifiedNs",
            "accessedNs",
            "changedNs",
        ],
        _ => &[],
    }
}

/// What is a matter of the version or of what is built stays out; what both have must agree. A capability of ours must
/// be one of Codex's.
fn environment(info: &mut Value) {
    for name in ["executorVersion", "providerId", "prependPathDirs", "extensions"] {
        remove(info, name);
    }
    if let Some(capabilities) = info.get_mut("capabilities").and_then(Value::as_object_mut) {
        capabilities.retain(|name, value| value == true && !CODEX_CAPABILITIES.contains(&name.as_str()));
    }
}

const CODEX_CAPABILITIES: [&str; 14] = [
    "networkProxyLaunch",
    "networkProxyReviewDomains",
    "credentialMasking",
    "credentialMaskingCustomProviders",
    "capabilityDiscoverySandbox",
    "fsWatchMissing",
    "capabilityDiscoveryV2",
    "environmentConfigRead",
    "httpHeaderEnvVars",
    "sandboxedFileStreaming",
    "fileWriteStreaming",
    "shellSnapshotV2",
    "linuxRootWritePreservesDevices",
    "linuxApprovedRootWritePreservesRestrictions",
];

/// The notifications of a process: `[stream, text]` in the order of seqs, then `["exited", code, sandboxDenied]` and
/// `["closed"]`. Where output is cut into chunks depends on the moment, so neighbours of one stream are one; and Codex
/// may number the exit before the last output of a quick child. The seqs themselves must be 1, 2, 3 …
pub(crate) fn log(notifications: &[Value]) -> Value {
    let lines = in_order(notifications);
    let dense = lines.iter().zip(1..).all(|((seq, _), expected)| *seq == expected);
    let (output, mut ends): (Vec<Value>, Vec<Value>) = lines.into_iter().map(|(_, line)| line).partition(is_output);
    let mut lines: Vec<Value> = Vec::new();
    for line in output {
        match lines.last_mut() {
            Some(last) if last[0] == line[0] => {
                let text = format!("{}{}", last[1].as_str().unwrap_or_default(), line[1].as_str().unwrap_or_default());
                last[1] = json!(text);
            }
            _ => lines.push(line),
        }
    }
    lines.append(&mut ends);
    json!({"dense": dense, "lines": lines})
}

/// The same, with every seq and every chunk.
pub(crate) fn exact_log(notifications: &[Value]) -> Value {
    in_order(notifications).into_iter().map(|(seq, line)| json!([seq, line])).collect()
}

fn in_order(notifications: &[Value]) -> Vec<(u64, Value)> {
    let mut lines: Vec<(u64, Value)> = notifications.iter().filter_map(line).collect();
    // Codex may send notifications out of order; that ours never does is checked elsewhere.
    lines.sort_by_key(|(seq, _)| *seq);
    lines
}

fn line(notification: &Value) -> Option<(u64, Value)> {
    let params = &notification["params"];
    let line = match notification["method"].as_str()? {
        "process/output" => json!([params["stream"], text_of(&params["chunk"])]),
        "process/exited" => json!(["exited", params["exitCode"], params["sandboxDenied"]]),
        "process/closed" => json!(["closed"]),
        _ => return None,
    };
    Some((params["seq"].as_u64()?, line))
}

fn is_output(line: &Value) -> bool {
    line.as_array().is_some_and(|members| members.len() == 2)
}

pub(crate) fn text_of(chunk: &Value) -> String {
    let bytes = base64_simd::STANDARD.decode_to_vec(chunk.as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Codex prepends a directory with programs of its own to `PATH`.
pub(crate) fn variable(line: &str) -> String {
    let Some(path) = line.strip_prefix("PATH=") else { return line.to_owned() };
    let folders: Vec<&str> = path.split(':').filter(|folder| !folder.ends_with("/codex-path")).collect();
    format!("PATH={}", folders.join(":"))
}

fn without_port(text: &str) -> String {
    let port = Regex::new(r"127\.0\.0\.1:\d+").expect("a pattern");
    port.replace_all(text, "127.0.0.1:PORT").into_owned()
}

fn without_session(value: Value, session: &str) -> Value {
    match value {
        Value::String(text) => {
            let uuid = Regex::new("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$");
            let uuid = uuid.expect("a pattern");
            if !session.is_empty() {
                json!(text.replace(session, "SESSION"))
            } else if uuid.is_match(&text) {
                json!("a new session")
            } else {
                json!(text)
            }
        }
        Value::Array(members) => members.into_iter().map(|member| without_session(member, session)).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, member)| (name, without_session(member, session))).collect())
        }
        other => other,
    }
}

fn remove(value: &mut Value, name: &str) {
    if let Some(members) = value.as_object_mut() {
        members.remove(name);
    }
}
