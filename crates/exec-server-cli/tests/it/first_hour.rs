//! What a new user tries in the first hour: names, variables from a file, waiting, signals, pipes to and from files,
//! completion, a narrow terminal.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use super::server::{Server, Transport};
use super::support::{code, exec_server, finish, run, stderr, stdout};
use super::terminal::Fixture;

/// Runs a command with this on its stdin.
fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it is our child");
    writer.join().expect("it only writes");
    output
}

#[test]
fn a_detached_process_has_the_name_that_it_is_given() {
    let server = Server::start(Transport::Unix);
    let named = server.run(&["--detach", "--quiet", "--name", "web-1", "--", "sleep", "1000"]);
    assert_eq!((stdout(&named), code(&named)), ("web-1\n", 0), "{}", stderr(&named));
    let again = server.run(&["--detach", "--name", "web-1", "--", "sleep", "1000"]);
    assert_eq!(code(&again), 125);
    assert!(stderr(&again).contains("exec-server kill --forget web-1"), "{}", stderr(&again));
    assert_eq!(server.only_process()["id"].as_str(), Some("web-1"));
    for bad in ["", ".x", "a/b", "a b", &"x".repeat(65)] {
        let refused = server.run(&["--detach", "--name", bad, "--", "true"]);
        assert_eq!(code(&refused), 125, "{bad:?}");
    }
    assert_eq!(code(&server.finish(&["kill", "--forget", "web-1"])), 0);
    assert_eq!(code(&server.run(&["--detach", "--quiet", "--name", "web-1", "--", "true"])), 0, "it is free again");
}

#[test]
fn variables_come_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("vars");
    std::fs::write(&file, "# ours\nA=1\nexport B=\"two words\"\nC=from file\n").expect("the folder is ours");
    let path = file.to_str().expect("a plain path");
    let printed = ["--clear-env", "--env", "PATH", "--env-file", path, "--env", "C=from flag", "--"];
    let output = run(&[&printed[..], &["sh", "-c", "echo $A,$B,$C,$HOME"]].concat());
    assert_eq!(stdout(&output), "1,two words,from flag,\n", "{}", stderr(&output));
    std::fs::write(&file, "A=1\n\n=secret\n").expect("the folder is ours");
    let output = run(&[&printed[..], &["true"]].concat());
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).contains(&format!("{path}, line 3: ")), "{}", stderr(&output));
    assert!(!stderr(&output).contains("secret"));
    let output = run(&["--env-file", "/nonexistent/vars", "--", "true"]);
    assert!(stderr(&output).contains("cannot read --env-file /nonexistent/vars"), "{}", stderr(&output));
}

#[test]
fn wait_ends_with_the_process_and_as_it_does() {
    let server = Server::start(Transport::Unix);
    let first = server.detach(&["--name", "first"], "read x; exit 3");
    let second = server.detach(&["--name", "second"], "read x; exit 4");
    let late = server.finish(&["wait", "--timeout", "300ms", "--json", &first]);
    assert_eq!((stdout(&late), code(&late)), ("{\"id\":\"first\",\"ended\":false}\n", 124));
    assert!(stderr(&late).contains("first still runs"), "{}", stderr(&late));

    let waiting = super::support::Running::start(&mut server.command(&["wait", "--json", &first, &second]));
    // Somebody else attaches and is not disturbed by the one that waits.
    for id in [&second, &first] {
        assert!([3, 4].contains(&code(&fed(&mut server.command(&["attach", "--quiet", id]), b"go\n"))));
    }
    let (printed, notes, code_of_last) = waiting.end();
    assert_eq!(code_of_last, 4, "{notes}");
    let expected =
        "{\"id\":\"first\",\"ended\":true,\"exitCode\":3}\n{\"id\":\"second\",\"ended\":true,\"exitCode\":4}\n";
    assert_eq!(printed, expected);
    let unknown = server.finish(&["wait", "nobody"]);
    assert_eq!(code(&unknown), 125);
    assert!(stderr(&unknown).contains("nobody"), "{}", stderr(&unknown));
}

#[test]
fn a_signal_by_name_or_number_reaches_the_program_and_ends_nothing() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&[], "trap 'echo usr1' USR1; trap 'echo hup' HUP; echo ready; while :; do sleep 0.05; done");
    let mut logs = super::support::Running::start(&mut server.command(&["logs", "--follow", &id]));
    assert_eq!(logs.line(), "ready");
    for (name, printed) in [("USR1", "usr1"), ("sighup", "hup")] {
        let sent = server.finish(&["kill", "-s", name, &id]);
        assert_eq!((stdout(&sent), stderr(&sent), code(&sent)), ("", "", 0));
        assert_eq!(logs.line(), printed);
    }
    assert_eq!(server.only_process()["state"].as_str(), Some("running"));
    let unknown = server.finish(&["kill", "-s", "PWR", &id]);
    assert_eq!(code(&unknown), 2);
    assert!(stderr(&unknown).contains("there are SIGHUP, SIGINT"), "{}", stderr(&unknown));
    assert_eq!(code(&server.finish(&["kill", "-s", "9", &id])), 0);
    assert_eq!(code(&server.finish(&["wait", &id])), 137);
    logs.end();
    let late = server.finish(&["kill", "-s", "TERM", "--json", &id]);
    assert_eq!(stdout(&late), format!("{{\"id\":\"{id}\",\"signal\":\"SIGTERM\",\"sent\":false}}\n"));
    assert_eq!(code(&late), 1);
}

#[test]
fn what_cannot_be_reached_can_be_forgotten() {
    let mut server = Server::start(Transport::Unix);
    let id = server.detach(&[], "sleep 1000");
    server.crash();
    let kept = server.finish(&["kill", &id]);
    assert_eq!(code(&kept), 1);
    assert_eq!(server.detached_files().len(), 1);
    let forgotten = server.finish(&["kill", "--forget", &id]);
    assert_eq!(code(&forgotten), 0, "{}", stderr(&forgotten));
    assert!(stderr(&forgotten).contains("forgotten, but it may still run"), "{}", stderr(&forgotten));
    assert_eq!(server.detached_files().len(), 0);
}

/// The same on this machine and at a server.
#[test]
fn stdin_becomes_a_file_and_a_file_stdout() {
    let server = Server::start(Transport::WebSocket);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    for connect in [&[][..], &["--connect", &server.url]] {
        let path = folder.path().join(format!("file-{}", connect.len()));
        let at = |command: &[&str], place: &str| -> Vec<String> {
            let words = command.iter().chain(connect).map(|word| (*word).to_owned());
            words.chain([place.to_owned()]).collect()
        };
        let command = |words: Vec<String>| server.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let text = path.to_str().expect("a plain path");
        let colon = if connect.is_empty() { text.to_owned() } else { format!(":{text}") };

        let written = fed(&mut command(at(&["fs", "write", "--mode", "640"], text)), &big);
        assert_eq!((stdout(&written), stderr(&written), code(&written)), ("", "", 0));
        assert!(std::fs::read(&path).expect("it is there") == big);
        let mode = || std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o640);
        assert!(finish(&mut command(at(&["fs", "cat"], text))).stdout == big);

        let mut copy = vec!["cp".to_owned(), "-".to_owned()];
        copy.extend(connect.iter().map(|word| (*word).to_owned()));
        copy.push(colon.clone());
        let copied = fed(&mut command(copy), b"one\ntwo\nthree\n");
        assert_eq!((stdout(&copied), code(&copied)), ("", 0), "{}", stderr(&copied));
        assert!(stderr(&copied).starts_with("exec-server: copied stdin: 14 B"), "{}", stderr(&copied));
        assert_eq!(mode(), 0o640, "the permissions of what is replaced stay");
        let back = finish(&mut command([at(&["cp"], &colon), vec!["-".to_owned()]].concat()));
        assert_eq!((stdout(&back), stderr(&back), code(&back)), ("one\ntwo\nthree\n", "", 0));

        let added = fed(&mut command(at(&["fs", "write", "--append"], text)), b"four\n");
        assert_eq!(code(&added), 0, "{}", stderr(&added));
        let head = |args: &[&str]| finish(&mut command(at(&[&["fs", "head"], args].concat(), text)));
        assert_eq!(stdout(&head(&["-n", "2"])), "one\ntwo\n");
        assert_eq!(stdout(&head(&["-c", "5"])), "one\nt");
        assert_eq!(stdout(&head(&[])), "one\ntwo\nthree\nfour\n");
        for (change, expected) in [("+x", 0o751), ("600", 0o600), ("u-w,g+r", 0o440)] {
            let words = [vec!["fs".to_owned(), "chmod".to_owned()], at(&[change], text)].concat();
            let changed = finish(&mut command(words));
            assert_eq!(code(&changed), 0, "{}", stderr(&changed));
            assert_eq!(mode(), expected, "{change}");
        }
    }
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("ours").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), 2, "nothing temporary stays: {names:?}");
}

#[test]
fn what_cannot_be_written_is_told_by_name_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = folder.path().to_str().expect("a plain path");
    let directory = fed(&mut exec_server(&["fs", "write", text]), b"x");
    assert_eq!(code(&directory), 1);
    assert!(stderr(&directory).contains(text), "{}", stderr(&directory));
    let nowhere = format!("{text}/no/such/file");
    let missing = fed(&mut exec_server(&["cp", "-", &nowhere]), b"x");
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains(&nowhere), "{}", stderr(&missing));
    for wrong in [&["cp", "-", "-"][..], &["cp", "a", "-", "b"], &["cp", "--json", "/etc/passwd", "-"]] {
        let refused = finish(&mut exec_server(wrong));
        assert_eq!(code(&refused), 1, "{wrong:?}");
        assert_eq!(stdout(&refused), "", "{wrong:?}");
    }
    let mode = finish(&mut exec_server(&["fs", "chmod", "u+q", text]));
    assert_eq!(code(&mode), 2);
    assert!(stderr(&mode).contains("as chmod takes it"), "{}", stderr(&mode));
    assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 0);
    // Through a link, what it leads to is replaced, and the link stays.
    std::fs::write(folder.path().join("real"), "old").expect("ours");
    std::os::unix::fs::symlink("real", folder.path().join("link")).expect("ours");
    assert_eq!(code(&fed(&mut exec_server(&["fs", "write", &format!("{text}/link")]), b"new")), 0);
    assert!(std::fs::symlink_metadata(folder.path().join("link")).expect("ours").is_symlink());
    assert_eq!(std::fs::read(folder.path().join("real")).expect("ours"), b"new");
}

#[test]
fn a_token_comes_from_a_variable_that_the_file_names() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let token = folder.path().join("token");
    let token_text = token.to_str().expect("a plain path");
    assert_eq!(code(&finish(&mut exec_server(&["token", "new", "--file", token_text]))), 0);
    let auth = ["--ws-auth", "capability-token", "--ws-token-file", token_text];
    let serve = [&["serve", "--listen", "ws://127.0.0.1:0"], &auth[..]].concat();
    let mut server = super::support::Running::start(&mut exec_server(&serve));
    let url = server.line();
    let file = format!("[[environments]]\nid = \"b\"\nurl = \"{url}\"\nauth_bearer_token_env = \"BUILD_TOKEN\"\n");
    // The folder for files of ours, where no variable says otherwise.
    let config = folder.path().join(".config/exec-server");
    std::fs::create_dir_all(&config).expect("the folder is ours");
    std::fs::write(config.join("environments.toml"), file).expect("the folder is ours");
    let run = |token: Option<&str>| {
        let mut command = exec_server(&["run", "--environment", "b", "--", "echo", "hi"]);
        command.env_remove("EXEC_SERVER_HOME").env_remove("XDG_CONFIG_HOME").env("HOME", folder.path());
        match token {
            Some(token) => command.env("BUILD_TOKEN", token),
            None => command.env_remove("BUILD_TOKEN"),
        };
        finish(&mut command)
    };
    let secret = std::fs::read_to_string(&token).expect("ours");
    let let_in = run(Some(&secret));
    assert_eq!((stdout(&let_in), code(&let_in)), ("hi\n", 0), "{}", stderr(&let_in));
    let without = run(None);
    assert_eq!(code(&without), 125);
    assert!(stderr(&without).contains("the variable BUILD_TOKEN has no token"), "{}", stderr(&without));
    let wrong = run(Some("wrong"));
    assert_eq!(code(&wrong), 125);
    assert!(!stderr(&wrong).contains(secret.trim()), "{}", stderr(&wrong));
    server.signal(rustix::process::Signal::TERM);
    server.end();
}

#[test]
fn bash_completes_subcommands_options_ids_and_environments() {
    let server = Server::start(Transport::Unix);
    server.name("build-box");
    server.detach(&["--name", "web-1"], "sleep 1000");
    server.detach(&["--name", "web-2"], "sleep 1000");
    let complete = |line: &str| {
        let script = format!(
            "source <(exec-server completions bash); \
             COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             read -ra COMP_WORDS <<< \"$COMP_LINE\"; [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=(''); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             function compopt() {{ :; }}; \
             $(complete -p exec-server | sed 's/.*-F \\([^ ]*\\) .*/\\1/') exec-server \
               \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_exec-server")).parent().expect("it is in a folder");
        let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("there is one"));
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &script]).env("PATH", path).env("EXEC_SERVER_HOME", server.home.path());
        let output = finish(command.current_dir(server.home.path()));
        let mut words: Vec<String> = stdout(&output).split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    assert!(complete("exec-server att").contains(&"attach".to_owned()));
    assert!(complete("exec-server run --det").contains(&"--detach".to_owned()));
    assert!(complete("exec-server app-server --lis").contains(&"--listen".to_owned()), "a name with a hyphen");
    assert!(complete("exec-server fs gre").contains(&"grep".to_owned()), "a command of a command");
    assert!(complete("exec-server fs grep --fix").contains(&"--fixed-strings".to_owned()));
    assert_eq!(complete("exec-server attach "), ["web-1", "web-2"]);
    assert_eq!(complete("exec-server kill --grace 1s web-2"), ["web-2"]);
    assert_eq!(complete("exec-server run --environment b"), ["build-box"]);
    assert_eq!(complete("exec-server fs ls bui"), ["build-box:"]);
}

#[test]
fn ps_is_readable_on_forty_columns() {
    let server = Server::start(Transport::WebSocket);
    let id = server.detach(&["--name", "web-1"], "echo some output; sleep 1000");
    let mut terminal = Fixture::open_sized(&["ps"], server.home.path(), 24, 40);
    let table = terminal.until("sleep 1000").replace('\r', "");
    // The spinner was there before, and is erased.
    let plain = |line: &str| line.rsplit("\x1b[2K").next().unwrap_or_default().trim_end().to_owned();
    let lines: Vec<String> = table.lines().map(plain).collect();
    let head = lines.iter().find(|line| line.contains("COMMAND")).expect("there is a head");
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["ID", "STATE", "COMMAND"]);
    let row = lines.iter().find(|line| line.starts_with(&id)).expect("there is a row");
    assert!(row.contains("running") && row.chars().count() <= 40, "{table:?}");
    terminal.end();
}
