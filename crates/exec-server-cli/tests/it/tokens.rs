//! `exec-server token`, and what a server and its clients make of the files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;

use super::support::{Running, code, exec_server, finish, stderr, stdout};

fn token(args: &[&str]) -> Output {
    finish(&mut exec_server(&[&["token"], args].concat()))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it was made").permissions().mode() & 0o7777
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A server with these flags, and its URL.
fn serve(args: &[&str]) -> (Running, String) {
    let mut server = Running::start(&mut exec_server(&[&["serve", "--listen", "ws://127.0.0.1:0"], args].concat()));
    let url = server.line();
    (server, url)
}

fn end(server: Running) -> String {
    server.signal(Signal::TERM);
    let (_, notes, code) = server.end();
    assert_eq!(code, 0, "{notes}");
    notes
}

#[test]
fn a_new_token_is_a_file_of_ones_own_that_lets_in_and_is_never_printed() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("token");
    let made = token(&["new", "--file", text(&path)]);
    assert_eq!((stdout(&made), stderr(&made), code(&made)), (format!("{}\n", path.display()).as_str(), "", 0));
    assert_eq!(mode(&path), 0o600);
    let secret = std::fs::read_to_string(&path).expect("it is ours").trim().to_owned();
    let again = token(&["new", "--file", text(&path)]);
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("exists already"), "{}", stderr(&again));

    let (server, url) = serve(&["--ws-auth", "capability-token", "--ws-token-file", text(&path)]);
    let run =
        |args: &[&str]| finish(&mut exec_server(&[&["run", "--connect", &url], args, &["--", "echo", "hi"]].concat()));
    let let_in = run(&["--token-file", text(&path)]);
    assert_eq!((stdout(&let_in), code(&let_in)), ("hi\n", 0), "{}", stderr(&let_in));
    let without = run(&[]);
    assert_eq!(code(&without), 125);
    assert!(stderr(&without).contains("name the file of its token with --token-file"), "{}", stderr(&without));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let exposed = run(&["--token-file", text(&path)]);
    assert_eq!(code(&exposed), 125);
    assert!(stderr(&exposed).contains("other users can read the secret in"), "{}", stderr(&exposed));
    let inspected = token(&["inspect", text(&path)]);
    assert!(stdout(&inspected).contains("other users can read it"), "{}", stdout(&inspected));

    let (exposed_server, _) = serve(&["--ws-auth", "capability-token", "--ws-token-file", text(&path)]);
    let (notes, warned) = (end(server), end(exposed_server));
    assert!(warned.contains("other users can read the secret in"), "{warned}");
    for said in [&notes, &warned, stderr(&let_in), stderr(&without), stderr(&exposed), stdout(&inspected)] {
        assert!(!said.contains(&secret), "{said}");
    }
}

#[test]
fn a_scoped_token_may_do_what_it_says_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (key, alice) = (folder.path().join("signer"), folder.path().join("alice"));
    let public = folder.path().join("signer.pub");
    let pair = token(&["keygen", "--file", text(&key)]);
    assert_eq!(stdout(&pair), format!("{}\n{}\n", key.display(), public.display()));
    assert_eq!(mode(&key), 0o600);
    let scoped = ["new", "--scoped", "--key", text(&key), "--subject", "alice", "--expires", "1h"];
    let made = token(&[&scoped[..], &["--methods", "process/*,fs/getMetadata", "--file", text(&alice)]].concat());
    assert_eq!((stderr(&made), code(&made)), ("", 0));

    let (server, url) = serve(&["--ws-auth", "scoped-token", "--ws-public-key", text(&public)]);
    let at = ["--connect", &url, "--token-file", text(&alice)];
    let run = finish(&mut exec_server(&[&["run"], &at[..], &["--", "echo", "hi"]].concat()));
    assert_eq!((stdout(&run), stderr(&run), code(&run)), ("hi\n", "", 0));
    let cat = finish(&mut exec_server(&[&["fs", "cat"], &at[..], &[&format!(":{}", public.display())]].concat()));
    assert_eq!((stdout(&cat), code(&cat)), ("", 1));
    assert!(stderr(&cat).contains("the token of this connection does not permit fs/"), "{}", stderr(&cat));
    end(server);

    let json = token(&["inspect", "--json", "--public-key", text(&public), text(&alice)]);
    assert!(stdout(&json).contains(r#""methods":["process/*","fs/getMetadata"]"#), "{}", stdout(&json));
    assert!(stdout(&json).contains(r#""signatureIsGood":true,"isExpired":false"#), "{}", stdout(&json));
}

#[test]
fn a_scoped_token_that_could_not_be_meant_is_refused() {
    for args in [
        &["new", "--scoped"][..],
        &["new", "--methods", "process/*"],
        &["new", "--scoped", "--key", "k", "--subject", "s", "--expires", "1h", "--methods", "proces/*"],
        &["new", "--file", "f", "--print"],
    ] {
        assert_eq!(code(&token(args)), 2, "{args:?}");
    }
}

#[test]
fn a_token_is_not_sent_where_others_could_read_it() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("token");
    token(&["new", "--file", text(&path)]);
    let args = ["run", "--connect", "ws://192.0.2.1:7000", "--token-file", text(&path), "--", "true"];
    let refused = finish(&mut exec_server(&args));
    assert_eq!(code(&refused), 125);
    assert!(stderr(&refused).contains("a token is not sent to ws://192.0.2.1:7000"), "{}", stderr(&refused));
}
