//! `serve --listen wss://…` and the commands that connect to it.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use super::support::{Running, code, exec_server, finish, stderr, stdout};

/// A server with a self-signed certificate, kept in `state`.
fn serve(state: &str) -> (Running, String) {
    let args = ["serve", "--listen", "wss://127.0.0.1:0", "--tls-self-signed", "--state-dir", state];
    let mut server = Running::start(&mut exec_server(&args));
    let url = server.line();
    assert!(url.starts_with("wss://127.0.0.1:"), "{url}");
    (server, url)
}

/// Ends it; the fingerprint that it printed.
fn end(server: Running) -> String {
    server.signal(Signal::TERM);
    let (_, notes, code) = server.end();
    assert_eq!(code, 0, "{notes}");
    let at = notes.find("sha256:").expect("it prints its fingerprint");
    notes[at..].split_whitespace().next().expect("the fingerprint").to_owned()
}

#[test]
fn a_self_signed_server_is_trusted_by_the_fingerprint_that_it_prints_and_keeps() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let state = folder.path().join("state");
    let fingerprint = end(serve(&state.display().to_string()).0);
    let mode = std::fs::metadata(state.join("tls-self-signed.pem")).expect("it is kept").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    let (server, url) = serve(&state.display().to_string());
    let run = |args: &[&str]| exec_server(&[&["run", "--connect", &url], args, &["--", "echo", "hello"]].concat());
    let pinned = finish(&mut run(&["--tls-fingerprint", &fingerprint]));
    assert_eq!((stdout(&pinned), code(&pinned)), ("hello\n", 0), "{}", stderr(&pinned));
    let pinned = finish(run(&[]).env("EXEC_SERVER_TLS_FINGERPRINT", &fingerprint));
    assert_eq!((stdout(&pinned), code(&pinned)), ("hello\n", 0), "{}", stderr(&pinned));

    let unknown = finish(&mut run(&[]));
    assert_eq!((stdout(&unknown), code(&unknown)), ("", 125));
    let advice = format!("give --tls-ca, or --tls-fingerprint {fingerprint} if that is what the server printed");
    assert!(stderr(&unknown).contains(&advice), "{}", stderr(&unknown));
    let other = format!("sha256:{}", "0".repeat(64));
    let refused = finish(&mut run(&["--tls-fingerprint", &other]));
    assert!(stderr(&refused).contains("it is not the one whose fingerprint was given"), "{}", stderr(&refused));
    assert_eq!(end(server), fingerprint);
}

#[test]
fn flags_that_would_leave_connections_unencrypted_are_refused() {
    for (args, told) in [
        (
            &["--listen", "wss://127.0.0.1:0"][..],
            "unsupported --listen URL `wss://127.0.0.1:0` without a certificate: give --tls-cert and --tls-key, or \
             --tls-self-signed",
        ),
        (&["--tls-self-signed"], "--tls flags are for `wss://` listeners, and there is none: see --listen"),
        (
            &["--listen", "wss://127.0.0.1:0", "--tls-cert", "/no/such", "--tls-key", "/no/such"],
            "cannot read the certificate /no/such: No such file or directory (os error 2)",
        ),
    ] {
        let refused = finish(&mut exec_server(&[&["serve"], args].concat()));
        assert_eq!((stderr(&refused), code(&refused)), (format!("exec-server: {told}\n").as_str(), 1));
    }
}
