//! `env list` and `env check`, and the schema.

use super::server::{Server, Transport};
use super::support::{code, stderr, stdout};

#[test]
fn environments_are_listed_with_where_they_come_from() {
    let server = Server::start(Transport::Unix);
    let alone = server.finish(&["env", "list", "--json"]);
    let line = r#"{"id":"local","default":true,"kind":"local","where":"this machine","from":"built in"}"#;
    assert_eq!(stdout(&alone), format!("{line}\n"));

    let file = server.home.path().join("environments.toml");
    let text = format!("default = \"far\"\n[[environments]]\nid = \"far\"\nurl = \"{}\"\n", server.url);
    std::fs::write(&file, text).expect("the folder is ours");
    let output = server.finish(&["env", "list"]);
    let rows: Vec<Vec<&str>> = stdout(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    let from = file.display().to_string();
    assert_eq!(rows[0], ["ID", "DEFAULT", "WHERE", "FROM"]);
    assert_eq!(rows[1], ["local", "this", "machine", from.as_str()]);
    assert_eq!(rows[2], ["far", "*", server.url.as_str(), from.as_str()]);
}

#[test]
fn a_check_tells_what_is_there() {
    let server = Server::start(Transport::WebSocket);
    let output = server.finish(&["env", "check", "--json", &server.url, "local"]);
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!((line["status"].as_str(), line["os"].as_str()), (Some("ready"), Some("linux")), "{line}");
        assert_eq!(line["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
        assert!(line["shell"].is_string() && line["latencyMs"].is_number());
    }
    assert_eq!(code(&output), 0);
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let server = Server::start(Transport::Unix);
    let dead = format!("unix://{}", server.home.path().join("nobody").display());
    let output = server.finish(&["env", "check", &dead]);
    let said = format!(
        "exec-server: cannot connect to {dead}: No such file or directory (os error 2): is `exec-server serve` running \
         there?\n"
    );
    assert_eq!((stdout(&output), stderr(&output), code(&output)), ("", said.as_str(), 1));
    let run = server.finish(&["run", "--connect", &dead, "--", "true"]);
    assert_eq!((stderr(&run), code(&run)), (said.as_str(), 125));
    let json = server.finish(&["env", "check", "--json", &dead, &server.url]);
    let status: Vec<serde_json::Value> = stdout(&json)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON")["status"].clone())
        .collect();
    assert_eq!((status, code(&json)), (vec!["failed".into(), "ready".into()], 1));
}

#[test]
fn a_url_that_is_none_is_refused_before_anything_is_tried() {
    let server = Server::start(Transport::Unix);
    let output = server.finish(&["run", "--connect", "http://x", "--", "true"]);
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).contains("expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`"), "{output:?}");
}

#[test]
fn the_schema_names_every_method_we_use() {
    let server = Server::start(Transport::Unix);
    let output = server.finish(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a schema is JSON");
    for method in ["initialize", "process/start", "session/list", "fs/readFile"] {
        assert!(schema["methods"][method]["params"].is_object(), "{method}");
    }
}
