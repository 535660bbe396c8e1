//! The original as oracle: what Codex 0.166.0 answered to some two thousand params and messages, recorded in `oracle/`.
//!
//! `params.jsonl` has one `[method, params, reason]` a line, `messages.jsonl` one `[message, reason]`; a `null` reason
//! means that it was decoded (what came of it afterwards is not the wire's business).

use exec_wire::{Method, RawJson, envelope};

/// Where we say something else: an enum has more variants than the original's, a struct more members by position, and
/// one type stands for two of the original's. Codes are the same but for the last but one, which we accept.
const DIFFERENT: [(&str, &str); 8] = [
    ("process/signal", "unknown variant `x`, expected `interrupt`"),
    ("process/signal", "unknown variant `Interrupt`, expected `interrupt`"),
    ("process/signal", "unknown variant `terminate`, expected `interrupt`"),
    ("fs/open", "unknown variant `x`, expected `read` or `replace`"),
    ("fs/getMetadata", "invalid length 0, expected struct ExecFileSystemSandboxEntry with 3 elements"),
    ("capabilities/discoverV2", "invalid type: number, expected struct FileSystemSandboxContext"),
    ("initialize", "invalid length 3, expected fewer elements in array"),
    ("capabilities/discoverV2", "invalid type: string \"x\", expected struct FileSystemSandboxContext"),
];

#[test]
fn params_are_taken_and_refused_in_the_words_of_the_original() {
    let mut wrong = Vec::new();
    for line in include_str!("oracle/params.jsonl").lines() {
        let (method, params, theirs): (String, String, Option<String>) =
            serde_json::from_str(line).expect("the recording is JSON");
        let shape = Method::parse(&method).expect("the original's methods are all ours").params();
        let raw = RawJson::parse(&params).expect("what was recorded is JSON");
        let ours = (shape.check)(raw).err().map(|error| error.to_string());
        let excused = theirs.as_deref().is_some_and(|theirs| DIFFERENT.contains(&(method.as_str(), theirs)));
        if ours != theirs && !excused {
            wrong.push(format!("{method} {params}\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn messages_are_taken_and_refused_in_the_words_of_the_original() {
    let mut wrong = Vec::new();
    for line in include_str!("oracle/messages.jsonl").lines() {
        let (message, theirs): (String, Option<String>) = serde_json::from_str(line).expect("the recording is JSON");
        let ours = envelope::decode(&message).err().map(|malformed| malformed.reason);
        if ours != theirs {
            wrong.push(format!("{message}\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
