//! `PROTOCOL.md` cannot lie: its JSON is that of the golden files, and it names every method and extension.

use std::collections::BTreeSet;
use std::path::Path;

use exec_wire::environment::EXTENSIONS;
use exec_wire::{Method, NotificationMethod};

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
        .chain(EXTENSIONS);
    let missing: Vec<_> = names.filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not named: {missing:?}");
}
