//! `serve --audit` and `exec-server audit`: the log outlives whoever writes it, nothing in a sandbox reaches it, and what
//! was changed in it is found.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use exec_testkit::mount::Mount;
use exec_transport::{ConnectOptions, Connection, Message, Received, connect};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::{Running, code, exec_server, finish, stderr, stdout};

/// A server whose audit log is in a folder of its own, and the folder around that.
struct Audited {
    folder: tempfile::TempDir,
    log: PathBuf,
}

impl Audited {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let log = folder.path().join("audit/log");
        std::fs::DirBuilder::new().mode(0o700).create(folder.path().join("audit")).expect("the folder is ours");
        Self { folder, log }
    }

    /// A server with these flags, and its URL.
    fn serve(&self, args: &[&str]) -> (Running, String) {
        let socket = format!("unix://{}", self.folder.path().join("socket").display());
        let log = ["serve", "--listen", &socket, "--audit", text(&self.log)];
        let mut server = Running::start(&mut exec_server(&[&log[..], args].concat()));
        let url = server.line();
        (server, url)
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).expect("it is there");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn verify(&self) -> std::process::Output {
        finish(&mut exec_server(&["audit", "verify", text(&self.log)]))
    }

    fn mkdir(&self, url: &str, name: &str) -> std::process::Output {
        let at = format!(":{}", self.folder.path().join(name).display());
        finish(&mut exec_server(&["fs", "mkdir", "--connect", url, &at]))
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn end(server: Running) -> String {
    server.signal(Signal::TERM);
    let (_, notes, code) = server.end();
    assert_eq!(code, 0, "{notes}");
    notes
}

async fn send(connection: &mut Connection, message: Value) -> bool {
    let message = Message::Text(Bytes::from(message.to_string()));
    connection.sender.feed(message).await.is_ok() && connection.sender.flush().await.is_ok()
}

/// Sends many requests that change something, and returns how many were answered before the connection broke. The server is
/// killed after some of the answers, with the rest under way.
async fn hammer(url: &str, folder: &Path, round: usize, server: &Running) -> usize {
    let target = url.parse().expect("the server printed it");
    let mut client = connect(&target, &ConnectOptions::default()).await.expect("the server listens");
    send(&mut client, json!({"id": 0, "method": "initialize", "params": {"clientName": "test"}})).await;
    send(&mut client, json!({"method": "initialized"})).await;
    for id in 1..=200 {
        let path = format!("file://{}/{round}-{id}", folder.display());
        send(&mut client, json!({"id": id, "method": "fs/createDirectory", "params": {"path": path}})).await;
    }
    let mut answered = 0;
    loop {
        let Received::Message(message) = client.receiver.next().await else { return answered };
        let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
        if message["id"].as_u64().is_some_and(|id| id > 0) {
            assert!(message.get("result").is_some(), "{message}");
            answered += 1;
        }
        if answered == 10 + round * 7 {
            server.signal(Signal::KILL);
        }
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_leaves_a_log_that_has_all_that_it_has_answered() {
    let audited = Audited::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut answered = 0;
    for round in 0..8 {
        let (server, url) = audited.serve(&["--audit-required"]);
        answered += runtime.block_on(hammer(&url, audited.folder.path(), round, &server));
        server.abandon();
    }
    end(audited.serve(&[]).0);
    let verified = audited.verify();
    assert_eq!(code(&verified), 0, "{}", stderr(&verified));
    let events = audited.events();
    let changes = events.iter().filter(|event| event["event"] == "fileChanged" && event["outcome"] == "done").count();
    assert!(changes >= answered && answered >= 8 * 10, "{changes} lines, {answered} answers");
    assert_eq!(events.iter().filter(|event| event["event"] == "serverStarted").count(), 9);
    assert_eq!(events.last().expect("it has lines")["event"], "serverStopped");
}

#[test]
fn processes_that_end_while_no_server_runs_have_one_exit_in_the_log() {
    let audited = Audited::new();
    let state = audited.folder.path().join("state");
    let fifo = super::support::fifo(audited.folder.path());
    let (server, url) = audited.serve(&["--state-dir", text(&state)]);
    let script = format!("read line < {}", fifo.display());
    let run = |script: &str| {
        finish(
            exec_server(&["run", "--connect", &url, "--detach", "--", "sh", "-c", script])
                .env("EXEC_SERVER_HOME", audited.folder.path().join("home")),
        )
    };
    let (quick, slow) = (run("true"), run(&script));
    assert_eq!((code(&quick), code(&slow)), (0, 0), "{}", stderr(&slow));
    let exits = || audited.events().iter().filter(|event| event["event"] == "processExited").count();
    while exits() == 0 {
        std::thread::yield_now();
    }
    server.signal(Signal::KILL);
    server.abandon();
    std::fs::write(&fifo, "go\n").expect("the process reads");
    let (server, _) = audited.serve(&["--state-dir", text(&state)]);
    while exits() < 2 {
        std::thread::yield_now();
    }
    server.signal(Signal::USR2);
    drop(server.end());
    end(audited.serve(&["--state-dir", text(&state)]).0);
    assert_eq!(exits(), 2);
    assert_eq!(code(&audited.verify()), 0);
}

#[test]
fn a_program_in_a_sandbox_neither_reads_nor_writes_the_log_though_all_around_it_is_its_own() {
    let audited = Audited::new();
    let (server, url) = audited.serve(&[]);
    let folder = text(audited.folder.path());
    let before = std::fs::read_to_string(&audited.log).expect("it is there").len();
    let log = text(&audited.log);
    let script = format!(
        "cat {log}; echo x >> {log}; mv {log} {log}.9; rm -f {log}; mv {folder}/audit {folder}/elsewhere; \
         ls {folder}/audit; ln {log} {folder}/second; cat {folder}/second; echo through > {folder}/mine; cat {folder}/mine"
    );
    let sandbox = ["--sandbox", "workspace-write", "--writable", folder];
    let ran = finish(
        exec_server(
            &[&["run", "--connect", &url], &sandbox[..], &["--cwd", folder, "--", "sh", "-c", &script]].concat(),
        )
        .current_dir(audited.folder.path()),
    );
    assert_eq!(stdout(&ran), "through\n", "{}", stderr(&ran));
    assert!(std::fs::read_to_string(&audited.log).expect("it is there").len() > before);
    end(server);
    assert_eq!(code(&audited.verify()), 0);
    assert!(!audited.folder.path().join("second").exists() && !audited.folder.path().join("elsewhere").exists());
}

#[test]
fn what_was_changed_is_found_with_its_line_and_what_was_cut_off_by_a_hash_that_was_kept() {
    let audited = Audited::new();
    let (server, url) = audited.serve(&[]);
    for name in ["a", "b"] {
        assert_eq!(code(&audited.mkdir(&url, name)), 0);
    }
    end(server);
    let good = std::fs::read_to_string(&audited.log).expect("it is there");
    let verified = audited.verify();
    let told = stdout(&verified).to_owned();
    assert!(code(&verified) == 0 && told.contains("in order and unchanged"), "{told}{}", stderr(&verified));
    let kept = told.lines().find_map(|line| line.strip_prefix("last hash: ")).expect("it is printed").to_owned();
    let lines: Vec<&str> = good.lines().collect();
    let with = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let swapped = [&[lines[1], lines[0]], &lines[2..]].concat();
    for (changed, number, why) in [
        (good.replacen("fs/createDirectory", "fs/createdirectory", 1), 3, "it was changed"),
        (with(&[&lines[..2], &lines[3..]].concat()), 3, "lines are missing or out of order"),
        (with(&swapped), 2, "lines are missing or out of order"),
        (good[..good.len() - 20].to_owned(), lines.len(), "it is cut after"),
    ] {
        std::fs::write(&audited.log, changed).expect("it is ours");
        let found = audited.verify();
        let place = format!("{}:{number}: ", audited.log.display());
        assert!(stderr(&found).contains(&place) && stderr(&found).contains(why), "{why}: {}", stderr(&found));
        assert_eq!(code(&found), 1);
    }
    std::fs::write(&audited.log, with(&lines[..lines.len() - 1])).expect("it is ours");
    assert_eq!(code(&audited.verify()), 0, "a log that is cut between lines is whole");
    let missing = finish(&mut exec_server(&["audit", "verify", "--contains", &kept, text(&audited.log)]));
    assert_eq!(code(&missing), 1);
    std::fs::write(&audited.log, &good).expect("it is ours");
    let there = finish(&mut exec_server(&["audit", "verify", "--contains", &kept, text(&audited.log)]));
    assert_eq!(code(&there), 0, "{}", stderr(&there));
}

#[test]
fn the_log_is_shown_to_people_without_what_a_terminal_would_act_on() {
    let audited = Audited::new();
    let (server, url) = audited.serve(&[]);
    let ran = finish(&mut exec_server(&["run", "--connect", &url, "--", "true", "\u{1b}[2J\u{202e}"]));
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    end(server);
    let shown = finish(&mut exec_server(&["audit", "tail", "-n", "100", text(&audited.log)]));
    let printed = stdout(&shown);
    assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed:?}");
    let started = printed.lines().find(|line| line.contains("processStarted")).expect("it was started");
    assert!(started.contains(" UTC  #") && started.contains("argv=[\"true\","), "{started}");
    let last = finish(&mut exec_server(&["audit", "tail", "-n", "1", text(&audited.log)]));
    assert!(stdout(&last).contains("serverStopped") && stdout(&last).lines().count() == 1, "{}", stdout(&last));
}

#[test]
fn a_full_disk_is_told_and_a_required_audit_lets_nothing_happen_until_there_is_room() {
    for required in [true, false] {
        let audited = Audited::new();
        let folder = audited.folder.path().join("audit");
        let options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "exec-test"];
        let Some(_mount) = Mount::new(&options, &folder) else { return };
        let flags: &[&str] = if required { &["--audit-required"] } else { &[] };
        let (server, url) = audited.serve(flags);
        let filler = folder.join("log.filler");
        let mut size = 64 << 10;
        while std::fs::write(&filler, vec![b'x'; size]).is_err() {
            size -= 4 << 10;
        }
        let first_refused = (0..100).find(|at| code(&audited.mkdir(&url, &format!("full-{at}"))) != 0);
        std::fs::remove_file(&filler).expect("it is ours");
        match required {
            true => {
                let at = first_refused.expect("nothing happens without a line");
                assert!(!audited.folder.path().join(format!("full-{at}")).exists());
            }
            false => assert_eq!(first_refused, None),
        }
        // Until the writer has found out that there is room again.
        let mut tries = 0;
        while code(&audited.mkdir(&url, &format!("free-{tries}"))) != 0 {
            tries += 1;
        }
        let notes = end(server);
        assert!(notes.contains("cannot write the audit log"), "{notes}");
        let events = audited.events();
        let lost: u64 = events.iter().filter_map(|event| event["count"].as_u64()).sum();
        assert!(lost > 0, "{events:?}");
        assert_eq!(code(&audited.verify()), 0);
    }
}

#[test]
fn a_folder_that_others_can_enter_or_that_has_other_files_is_refused_with_what_to_do() {
    let audited = Audited::new();
    let folder = audited.folder.path().join("audit");
    let refused = || {
        let url = format!("unix://{}", audited.folder.path().join("s").display());
        let tried = finish(&mut exec_server(&["serve", "--listen", &url, "--audit", text(&audited.log)]));
        assert_eq!(code(&tried), 1);
        stderr(&tried).to_owned()
    };
    std::fs::write(folder.join("notes"), "").expect("the folder is ours");
    assert!(refused().contains("needs a folder of its own"));
    std::fs::remove_file(folder.join("notes")).expect("the folder is ours");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    assert!(refused().contains("mkdir -m 700"));
}

#[test]
fn a_ceiling_that_cannot_be_read_keeps_the_server_from_starting_and_one_that_can_is_kept() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let policy = folder.path().join("ceiling.toml");
    std::fs::write(&policy, "network = false\nmethod = ['fs/*']\n").expect("the folder is ours");
    let url = format!("unix://{}", folder.path().join("socket").display());
    let serve = ["serve", "--listen", &url, "--policy", text(&policy)];
    let refused = finish(&mut exec_server(&serve));
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("ceiling.toml:2: unknown field `method`"), "{}", stderr(&refused));

    std::fs::write(&policy, "sandbox = 'read-only'\n").expect("the folder is ours");
    let mut server = Running::start(&mut exec_server(&serve));
    let url = server.line();
    let run =
        |args: &[&str]| finish(&mut exec_server(&[&["run", "--connect", &url], args, &["--", "echo", "hi"]].concat()));
    let without = run(&[]);
    assert_eq!(code(&without), 125);
    assert!(stderr(&without).contains("ask for the sandbox read-only"), "{}", stderr(&without));
    let within = run(&["--sandbox", "read-only"]);
    assert_eq!((stdout(&within), code(&within)), ("hi\n", 0), "{}", stderr(&within));
    let at = format!(":{}", folder.path().join("new").display());
    let mkdir = finish(&mut exec_server(&["fs", "mkdir", "--connect", &url, &at]));
    assert_eq!(code(&mkdir), 1);
    assert!(stderr(&mkdir).contains("outside the roots that are allowed here"), "{}", stderr(&mkdir));
    end(server);
}
