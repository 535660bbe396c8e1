//! A client ends, in little memory, however much a server sends and however often it hangs up.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use exec_client::limits::{CALL_RESENDS, QUICK_REDIAL_TIME, QUICK_REDIALS};
use exec_testkit::hostile_server::{Action, HostileServer, welcome};
use serde_json::json;
use tokio::sync::watch;

use super::{DEADLINE, entry, exec_server, finish, metadata, path, run, server};

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

/// Answers that our client cannot accept, and to which it is told so rather than asked again for ever.
#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_request_and_is_not_asked_for_again() {
    // More values than a client reads, more nesting, no JSON, another kind of answer.
    let many = format!("{{\"entries\":[{}0]}}", "0,".repeat(400_000));
    let deep = "[".repeat(100_000);
    for result in [many, deep, "{".to_owned(), "7".to_owned(), "\u{1}".to_owned()] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = HostileServer::start(move |method, _| {
            if method != "fs/readDirectory" {
                return None;
            }
            count.fetch_add(1, Ordering::AcqRel);
            // The id is that of the second request, after `initialize`.
            let answer = format!("{{\"id\":2,\"result\":{result}}}");
            Some(vec![Action::SendText(answer.into())])
        })
        .await;
        let home = home();
        let ended = run(home.path(), &["fs", "ls", "--connect", server.url(), ":/"]).await;
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("cannot be read") || ended.stderr.contains("cannot read"), "{}", ended.stderr);
        assert!(asked.load(Ordering::Acquire) <= 2, "asked {} times: {}", asked.load(Ordering::Acquire), ended.stderr);
        assert!(server.connections() <= 2, "{} connections", server.connections());
    }
}

/// What a server does that hangs up at everything it is asked for, after it has said something.
fn hang_up() -> Vec<Action> {
    vec![
        Action::Send(json!({ "method": "process/closed", "params": { "processId": "p", "seq": 1 } })),
        Action::Close("again".to_owned()),
    ]
}

#[tokio::test]
async fn a_call_at_which_a_server_hangs_up_again_and_again_is_given_up() {
    let server = HostileServer::start(|method, _| (method != "initialize").then(hang_up)).await;
    let home = home();
    let ended = run(home.path(), &["fs", "ls", "--connect", server.url(), ":/"]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("broke"), "{}", ended.stderr);
    assert_eq!(server.connections(), 1 + CALL_RESENDS as usize);
}

/// A call that waits for something is sent again as long as somebody wants its answer.
#[tokio::test]
async fn a_server_that_hangs_up_for_ever_is_dialed_with_rests() {
    let (greeted, mut greetings) = watch::channel(0);
    let server = HostileServer::start(move |method, params| match method {
        "initialize" => {
            greeted.send_modify(|count| *count += 1);
            None
        }
        "process/start" => Some(vec![Action::Result(json!({ "processId": params["processId"] }))]),
        _ => Some(hang_up()),
    })
    .await;
    let home = home();
    let started = Instant::now();
    let mut command = exec_server(home.path(), &["run", "--connect", server.url(), "--", "true"]);
    let mut client = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the binary can be started");
    // Beyond what may be dialed at once there is a rest, however fast the machine is. The first connections, and one after
    // an ordinary delay, are not counted by the client.
    let dialed = tokio::time::timeout(DEADLINE, greetings.wait_for(|count| *count > QUICK_REDIALS + 10)).await;
    let seconds = started.elapsed();
    assert!(dialed.is_ok(), "it gave up after {} connections, though its process may still run", server.connections());
    assert!(seconds >= QUICK_REDIAL_TIME, "{} connections in {seconds:?}", server.connections());
    client.kill().and_then(|()| client.wait()).expect("it is our child");
}

/// Every directory has two more.
#[tokio::test]
async fn a_tree_without_an_end_is_copied_up_to_a_bound() {
    let server = server(|method, params| {
        let path = path(params);
        Some(vec![Action::Result(match method {
            "fs/getMetadata" => metadata("directory", 0),
            "fs/canonicalize" => json!({ "path": format!("file://{path}") }),
            "fs/readDirectory" => {
                let names = (0..2_000).map(|number| format!("{}{number}", "n".repeat(200)));
                json!({ "entries": names.map(|name| entry(path, &name, "directory")).collect::<Vec<_>>() })
            }
            _ => return None,
        })])
    })
    .await;
    let home = home();
    let ended = run(home.path(), &["cp", "-q", "-r", "--connect", server.url(), ":/evil/tree", "copy"]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("deeper") || ended.stderr.contains("wider"), "{}", ended.stderr);
}

#[tokio::test]
async fn more_matches_than_were_asked_for_end_a_search() {
    let server = HostileServer::start(|method, params| match method {
        "fs/search" => {
            let id = params["searchId"].clone();
            let line = json!({ "number": 1, "offset": 0, "text": "x".repeat(1000), "spans": [[0, 1]] });
            let lines: Vec<_> = std::iter::repeat_n(line, 100).collect();
            let files = json!([{ "path": "file:///evil/tree/a", "lines": lines }]);
            let found = json!({ "searchId": id, "seq": "SEQ", "files": files });
            Some(vec![
                Action::Result(json!({ "searchId": id })),
                Action::Flood(json!({ "method": "fs/found", "params": found })),
            ])
        }
        _ => None,
    })
    .await;
    let home = home();
    let ended = run(home.path(), &["fs", "grep", "--limit", "50", "--connect", server.url(), "x", ":/evil/tree"]).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stdout().lines().count() <= 200, "{} lines", ended.stdout().lines().count());
    assert!(ended.stderr.contains("more than"), "{}", ended.stderr);
}

/// A server that speaks of things that nobody asked for does not fill our memory: the command goes on.
#[tokio::test]
async fn notifications_about_unknown_things_are_dropped() {
    let server = HostileServer::start(|method, _| match method {
        "fs/readDirectory" => {
            let chunk = "QUFB".repeat(16_000);
            let mut actions: Vec<Action> = (1..300)
                .map(|number| {
                    let params =
                        json!({ "processId": format!("p{number}"), "seq": 1, "stream": "stdout", "chunk": chunk });
                    Action::Send(json!({ "method": "process/output", "params": params }))
                })
                .collect();
            actions.push(Action::Result(json!({ "entries": [] })));
            Some(actions)
        }
        _ => None,
    })
    .await;
    let home = home();
    let ended = run(home.path(), &["fs", "ls", "--connect", server.url(), ":/"]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// What a server says about itself is kept, so it must be short.
#[tokio::test]
async fn an_introduction_without_an_end_is_refused() {
    for field in ["platformOs", "executorVersion", "extensions"] {
        let server = HostileServer::start(move |method, _| match method {
            "initialize" => {
                let mut result = welcome(&[]);
                result["environmentInfo"][field] = match field {
                    "extensions" => json!((0..200_000).map(|number| format!("{number:0100}")).collect::<Vec<_>>()),
                    _ => json!("x".repeat(8 << 20)),
                };
                Some(vec![Action::Result(result)])
            }
            _ => None,
        })
        .await;
        let home = home();
        let ended = run(home.path(), &["env", "check", server.url()]).await;
        assert_eq!(ended.code, Some(1), "{field}: {} {}", ended.stdout().len(), ended.stderr.len());
        assert!(ended.stderr.len() < 1_000, "{field}: the message is short");
        assert!(ended.stderr.contains("introduction"), "{field}: {}", ended.stderr);
    }
}

/// Strangers on this machine may listen on a socket, too. The tests run as root, who can be somebody else.
#[tokio::test]
async fn a_socket_of_another_user_is_not_trusted_unless_somebody_says_so() {
    const STRANGER: u32 = 65_533;
    assert!(rustix::process::geteuid().is_root(), "run this test as root: it needs a server of another user");
    let home = home();
    std::os::unix::fs::chown(home.path(), Some(STRANGER), None).expect("we are root");
    let url = format!("unix://{}/s", home.path().display());
    let mut serve = exec_server(home.path(), &["serve", "--listen", &url]);
    let mut server = serve.uid(STRANGER).stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let mut line = [0];
    server.stdout.as_mut().expect("it is a pipe").read_exact(&mut line).expect("it prints its URL when it listens");
    let check = |name: &'static str, value: &'static str| {
        let mut command = exec_server(home.path(), &["env", "check", &url]);
        command.env_remove("SUDO_UID").env(name, value).stdout(Stdio::piped());
        finish(command, &["env", "check"], None)
    };
    let refused = check("A", "1").await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("user 65533"), "{}", refused.stderr);
    assert!(refused.stderr.contains("EXEC_SERVER_TRUSTED_UID"), "{}", refused.stderr);
    let other = check("EXEC_SERVER_TRUSTED_UID", "65532").await;
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    for name in ["EXEC_SERVER_TRUSTED_UID", "SUDO_UID"] {
        let trusted = check(name, "65533").await;
        assert_eq!(trusted.code, Some(0), "{name}: {}", trusted.stderr);
    }
    server.kill().expect("it is our child");
    server.wait().expect("it is our child");
}
