//! What `cp` writes stays beneath its target, whatever the server calls its files.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use exec_testkit::hostile_server::Action;
use serde_json::{Value, json};

use super::{Ended, contents, encode, entry, metadata, path, run, server};

const KEY: &[u8] = b"ssh-ed25519 AAAA evil\n";

/// A home with a directory that is none of the server's business, and a target.
struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::create_dir(directory.path().join("ssh")).expect("it is new");
        std::fs::create_dir(directory.path().join("target")).expect("it is new");
        std::fs::write(directory.path().join("ssh/config"), "mine").expect("it is new");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn cp(&self, url: &str, words: &[&str]) -> Ended {
        run(self.directory.path(), &[&["cp", "--connect", url], words].concat()).await
    }

    fn assert_untouched(&self, ended: &Ended) {
        let names: Vec<_> = names(&self.path("ssh"));
        assert_eq!(names, ["config"], "{}{}", ended.stdout(), ended.stderr);
        let config = std::fs::read_to_string(self.path("ssh/config")).expect("it is there");
        assert_eq!(config, "mine", "{}{}", ended.stdout(), ended.stderr);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it is there").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Answers about `/evil`: what `kinds` says of a path at its `n`th question, links to `link`, one contents for all files.
fn script(
    link: PathBuf,
    listing: impl Fn(&str) -> Vec<Value> + Send + Sync + 'static,
    kind: impl Fn(&str, usize) -> &'static str + Send + Sync + 'static,
) -> impl Fn(&str, &Value) -> Option<Vec<Action>> + Send + Sync + 'static {
    let asked = AtomicUsize::new(0);
    move |method, params| {
        let path = path(params);
        let result = match method {
            "fs/getMetadata" => metadata(kind(path, asked.fetch_add(1, Ordering::AcqRel)), KEY.len()),
            "fs/readDirectory" => json!({ "entries": listing(path) }),
            "fs/canonicalize" => json!({ "path": format!("file://{path}") }),
            "fs/readLink" => json!({ "target": link.to_string_lossy() }),
            "fs/readFile" => return Some(vec![contents(KEY)]),
            "fs/open" => json!({ "handleId": params["handleId"], "sizeBytes": KEY.len() }),
            "fs/readBlock" if params["offset"] == 0 => json!({ "chunk": encode(KEY), "eof": true }),
            "fs/readBlock" => json!({ "chunk": "", "eof": true }),
            "fs/close" => json!({}),
            _ => return None,
        };
        Some(vec![Action::Result(result)])
    }
}

/// As on kernels before 5.6, and in some containers. What this thread starts is refused the call too.
#[tokio::test]
async fn without_openat2_a_name_that_is_a_link_and_then_a_directory_leads_nowhere() {
    exec_testkit::refused_calls::refuse("openat2=38");
    link_and_then_directory().await;
}

#[tokio::test]
async fn a_name_that_is_a_link_and_then_a_directory_leads_nowhere() {
    link_and_then_directory().await;
}

async fn link_and_then_directory() {
    let home = Home::new();
    let listing = |path: &str| match path {
        "/evil/tree" => vec![entry(path, "x", "link"), entry(path, "x", "directory")],
        _ => vec![entry(path, "authorized_keys", "file")],
    };
    let kind = |path: &str, _| if path.ends_with("authorized_keys") { "file" } else { "directory" };
    let server = server(script(home.path("ssh"), listing, kind)).await;
    let ended = home.cp(server.url(), &["-r", ":/evil/tree", "target"]).await;
    home.assert_untouched(&ended);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}

#[tokio::test]
async fn two_sources_of_one_name_do_not_write_through_the_link_that_the_first_was() {
    for second in ["directory", "file"] {
        let home = Home::new();
        let link = if second == "directory" { home.path("ssh") } else { home.path("ssh/config") };
        let listing = |path: &str| vec![entry(path, "authorized_keys", "file")];
        let kind = move |path: &str, _| match path {
            "/evil/1/x" => "link",
            "/evil/2/x" => second,
            path if path.ends_with("authorized_keys") => "file",
            _ => "directory",
        };
        let server = server(script(link, listing, kind)).await;
        let ended = home.cp(server.url(), &["-r", ":/evil/1/x", ":/evil/2/x", "target"]).await;
        home.assert_untouched(&ended);
    }
}

#[tokio::test]
async fn one_source_named_twice_does_not_write_through_the_link_that_it_was_first() {
    for (second, recursive) in [("directory", true), ("file", true), ("file", false)] {
        let home = Home::new();
        let link = if second == "directory" { home.path("ssh") } else { home.path("ssh/config") };
        let listing = |path: &str| vec![entry(path, "authorized_keys", "file")];
        let kind = move |path: &str, asked: usize| match path {
            path if path.ends_with("authorized_keys") => "file",
            _ if asked == 0 => "link",
            _ => second,
        };
        let server = server(script(link, listing, kind)).await;
        let options: &[&str] = if recursive { &["-r"] } else { &[] };
        let ended = home.cp(server.url(), &[options, &[":/evil/x", ":/evil/x", "target"]].concat()).await;
        home.assert_untouched(&ended);
    }
}

#[tokio::test]
async fn a_link_that_stands_in_the_target_is_replaced_by_a_file_and_refused_to_a_directory() {
    let home = Home::new();
    symlink(home.path("ssh/config"), home.path("target/file")).expect("it is new");
    symlink(home.path("ssh"), home.path("target/tree")).expect("it is new");
    let listing = |path: &str| vec![entry(path, "authorized_keys", "file")];
    let kind = |path: &str, _| if path == "/evil/tree" { "directory" } else { "file" };
    let server = server(script(home.path("ssh"), listing, kind)).await;
    let ended = home.cp(server.url(), &["-r", ":/evil/file", "target"]).await;
    home.assert_untouched(&ended);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(std::fs::read(home.path("target/file")).expect("it was copied"), KEY);
    assert!(!home.path("target/file").is_symlink(), "the link is gone, and what it led to is not");
    let ended = home.cp(server.url(), &["-r", ":/evil/tree", "target"]).await;
    home.assert_untouched(&ended);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("or a link that leads away"), "{}", ended.stderr);
}

#[tokio::test]
async fn the_target_may_itself_be_reached_by_a_link_of_the_users() {
    let home = Home::new();
    symlink(home.path("target"), home.path("shortcut")).expect("it is new");
    let listing = |path: &str| vec![entry(path, "a", "file")];
    let kind = |path: &str, _| if path == "/evil/tree" { "directory" } else { "file" };
    let server = server(script(home.path("ssh"), listing, kind)).await;
    let ended = home.cp(server.url(), &["-r", ":/evil/tree", ":/evil/file", "shortcut"]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(names(&home.path("target")), ["file", "tree"]);
    assert_eq!(std::fs::read(home.path("target/tree/a")).expect("it was copied"), KEY);
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let home = Home::new();
    let ssh = home.path("ssh");
    let listing = move |path: &str| {
        let mut entries: Vec<Value> =
            ["..", ".", "", "../ssh/authorized_keys", "a/../../ssh/authorized_keys", "a\u{0}b"]
                .into_iter()
                .flat_map(|name| ["file", "directory", "link"].map(|kind| (name, kind)))
                .map(|(name, kind)| {
                    let mut entry = entry(path, name, kind);
                    entry.as_object_mut().expect("it is one").remove("path");
                    entry
                })
                .collect();
        entries.push(entry(path, &ssh.join("authorized_keys").to_string_lossy(), "file"));
        if path.ends_with("tree") { entries } else { Vec::new() }
    };
    let kind = |path: &str, _| if path.ends_with("tree") { "directory" } else { "file" };
    let server = server(script(home.path("ssh"), listing, kind)).await;
    let ended = home.cp(server.url(), &["-r", ":/evil/tree", "target"]).await;
    home.assert_untouched(&ended);
    assert_eq!(names(&home.path("target")), ["tree"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}
