//! `PROTOCOL.md` cannot lie: its JSON is that of the golden files, and it names every method and extension.

use std::collections::BTreeSet;
use std::path::Path;

use exec_wire::method::{Origin, Priority, RetryPolicy};
use exec_wire::{Extension, Method, NotificationMethod};

use crate::golden;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../PROTOCOL.md");
    std::fs::read_to_string(path).expect("PROTOCOL.md is part of the project")
}

/// The fenced JSON of the document: the golden file a fence names, and what it quotes.
fn quotes(document: &str) -> Vec<(String, String)> {
    let mut quotes = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("```json") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            quotes.push((name.trim().to_owned(), body.join("\n")));
        }
    }
    quotes
}

#[test]
fn every_json_block_is_a_golden_file() {
    let golden = golden::files();
    for (name, body) in quotes(&document()) {
        assert_eq!(Some(&body), golden.get(&name), "the block `{name}`");
    }
}

#[test]
fn every_golden_file_is_quoted() {
    let quoted: BTreeSet<String> = quotes(&document()).into_iter().map(|(name, _)| name).collect();
    let golden: BTreeSet<String> = golden::files().into_keys().collect();
    let missing: Vec<_> = golden.difference(&quoted).collect();
    assert!(missing.is_empty(), "not quoted: {missing:?}");
}

#[test]
fn every_method_notification_and_extension_is_named() {
    let document = document();
    let names = Method::ALL
        .iter()
        .map(|method| method.name())
        .chain(NotificationMethod::ALL.iter().map(|notification| notification.name()))
        .chain(Extension::all().map(Extension::name));
    let missing: Vec<_> = names.filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not named: {missing:?}");
}

#[test]
fn the_lists_of_methods_notifications_and_extensions_are_those_of_the_table() {
    for (list, lines) in [("methods", methods()), ("notifications", notifications()), ("extensions", extensions())] {
        let (begin, end) = (format!("<!-- {list}: from the table -->\n"), format!("<!-- {list}: end -->"));
        let document = document();
        let found = document.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(found, _)| found);
        let expected = lines.join("\n") + "\n";
        assert_eq!(found, Some(expected.as_str()), "the list of {list} in PROTOCOL.md should be:\n\n{expected}");
    }
}

fn methods() -> Vec<String> {
    let mut lines = vec!["| method | | runs | after a break |".to_owned(), "|---|---|---|---|".to_owned()];
    lines.extend(Method::ALL.iter().map(|method| {
        let (spec, behaviour) = (method.spec(), method.behaviour());
        let ours = if behaviour.origin == Origin::Codex { "" } else { " **Ours.**" };
        let runs = match behaviour.priority {
            Priority::Control => "at once",
            Priority::Ordinary => "in turn",
        };
        let waits = if behaviour.waits { ", may wait" } else { "" };
        let retry = match behaviour.retry {
            RetryPolicy::Always => "send again",
            RetryPolicy::IfServerRemembers => "send again with a `requestScope`",
            RetryPolicy::IfUnsent => "in doubt",
            RetryPolicy::OnItsConnection => "open the file again, then send again",
        };
        format!("| `{}` | {}{ours} | {runs}{waits} | {retry} |", spec.name, spec.summary)
    }));
    lines
}

fn notifications() -> Vec<String> {
    NotificationMethod::ALL.iter().map(|method| format!("- `{}`: {}", method.name(), method.summary())).collect()
}

fn extensions() -> Vec<String> {
    let line = |extension: Extension| match extension.remark() {
        "" => format!("- `{}`", extension.name()),
        remark => format!("- `{}`: {remark}", extension.name()),
    };
    Extension::all().map(line).collect()
}
