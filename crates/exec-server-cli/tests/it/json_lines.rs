//! Every line of `--json`, byte for byte: which members it has, how they are named, and in which order they come.

use super::server::{Server, Transport};
use super::support::{Running, code, exec_server, finish, run, stdout};

/// The lines of a text with numbers, hashes and the test's directory made equal.
fn lines(text: &str, directory: &str) -> Vec<String> {
    let text = text.replace(directory, "DIR");
    text.lines().map(without_numbers).collect()
}

/// Replaces every number that is a JSON value by N.
fn without_numbers(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, digits) = rest.split_at(at);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let is_value = before.ends_with([':', '[', ',']);
        plain += before;
        plain += if is_value { "N" } else { &digits[..end] };
        rest = &digits[end..];
    }
    plain + rest
}

#[test]
fn lines_of_run_are_as_documented() {
    let output = run(&["--json", "--", "sh", "-c", "echo out; printf '\\377' >&2; sleep 1000 & exit 3"]);
    let exit = r#"{"kind":"exited","code":N,"coreDumped":false,"userMs":N,"systemMs":N,"maxRssBytes":N}"#;
    let wanted = [
        r#"{"event":"started","pid":N}"#.to_owned(),
        r#"{"event":"output","seq":N,"stream":"stdout","text":"out\n"}"#.to_owned(),
        r#"{"event":"output","seq":N,"stream":"stderr","base64":"/w=="}"#.to_owned(),
        format!(r#"{{"event":"exited","seq":N,"exit":{exit}}}"#),
        r#"{"event":"closed","seq":N}"#.to_owned(),
        r#"{"event":"leftBehind","ended":N,"left":N}"#.to_owned(),
    ];
    assert_eq!(lines(stdout(&output), "DIR"), wanted);
    let failed = run(&["--json", "--cwd", "/nonexistent", "--", "true"]);
    let message = r#"working directory \"/nonexistent\" does not exist"#;
    assert_eq!(lines(stdout(&failed), "DIR"), [format!(r#"{{"event":"failed","message":"{message}","exitCode":N}}"#)]);
}

#[test]
fn lines_of_detached_processes_are_as_documented() {
    let server = Server::start(Transport::Unix);
    let directory = server.home.path().display().to_string();
    let detached = server.run(&["--detach", "--json", "--", "sh", "-c", "exec sleep 1000"]);
    let record = std::fs::read_to_string(&server.detached_files()[0]).expect("it is there");
    let id = server.detached_files()[0].file_stem().expect("it has a name").to_string_lossy().into_owned();
    let record: serde_json::Value = serde_json::from_str(&record).expect("a record is JSON");
    let session = record["session"].as_str().expect("it has a session").to_owned();
    let plain = |text: &str| lines(&text.replace(&id, "ID").replace(&session, "SESSION"), &directory);
    let at = r#""at":{"url":"unix://DIR/s"}"#;
    assert_eq!(
        plain(stdout(&detached)),
        [r#"{"event":"detached","id":"ID","pid":N,"at":"unix://DIR/s","session":"SESSION"}"#]
    );
    let known = r#""pid":N,"nextSeq":N,"heldBytes":N,"droppedBytes":N"#;
    let first = format!(
        r#"{{"id":"ID",{at},"session":"SESSION","argv":["sh","-c","exec sleep 1000"],"tty":false,"startedMs":N"#
    );
    let listed = server.finish(&["ps", "--json"]);
    assert_eq!(plain(stdout(&listed)), [format!(r#"{first},"state":"running",{known}}}"#)]);
    let killed = server.finish(&["kill", "--json", &id]);
    assert_eq!(plain(stdout(&killed)), [r#"{"id":"ID","wasRunning":true,"ended":N,"left":N,"forgotten":false}"#]);
    let exit = r#"{"kind":"terminated","signal":N,"coreDumped":false,"userMs":N,"systemMs":N,"maxRssBytes":N}"#;
    let listed = server.finish(&["ps", "--json"]);
    assert_eq!(plain(stdout(&listed)), [format!(r#"{first},"state":"exited",{known},"exit":{exit}}}"#)]);
}

#[test]
fn lines_of_file_commands_are_as_documented() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let directory = folder.path().display().to_string();
    let path = |name: &str| format!("{directory}/{name}");
    std::fs::write(path("file"), "a needle\nb\n").expect("the folder is ours");
    std::os::unix::fs::symlink("nowhere", path("link")).expect("the folder is ours");
    let printed = |args: &[&str]| {
        let output = finish(&mut exec_server(args));
        assert_eq!(code(&output), 0, "{output:?}");
        // Not every file system remembers when a file was created.
        lines(stdout(&output), &directory).iter().map(|line| line.replace(r#","createdNs":N"#, "")).collect::<Vec<_>>()
    };
    let file = r#"{"path":"DIR/file","environment":"local","kind":"file","isSymlink":false"#;
    let link = r#"{"path":"DIR/link","environment":"local","kind":"symlink","isSymlink":true"#;
    let metadata = r#""sizeBytes":N,"mode":N,"uid":N,"gid":N,"inode":N,"device":N,"nlink":N,"modifiedNs":N,"accessedNs":N,"changedNs":N"#;
    let listed = printed(&["fs", "ls", "--json", &directory]);
    assert_eq!(listed, [format!("{file},{metadata}}}"), format!(r#"{link},"target":"nowhere"}}"#)]);
    let hash = blake3::hash(b"a needle\nb\n");
    let known = printed(&["fs", "stat", "--json", "--hash", &path("file")]);
    assert_eq!(known, [without_numbers(&format!(r#"{file},{metadata},"hash":"{hash}"}}"#))]);
    assert_eq!(printed(&["fs", "find", "--json", &directory]), [format!("{file}}}"), format!("{link}}}")]);
    let contents = printed(&["fs", "cat", "--json", &path("file")]);
    assert_eq!(contents, [r#"{"path":"DIR/file","offset":N,"text":"a needle\nb\n"}"#]);
    let found = printed(&["fs", "grep", "--json", "needle", &directory]);
    let line = r#"{"path":"DIR/file","environment":"local","line":N,"offset":N,"text":"a needle","matches":[[N,N]]}"#;
    assert_eq!(found, [line]);
    let names = printed(&["fs", "grep", "--json", "-l", "needle", &directory]);
    assert_eq!(names, [r#"{"environment":"local","path":"DIR/file"}"#]);
    let made = printed(&["fs", "mkdir", "--json", &path("new")]);
    assert_eq!(made, [r#"{"event":"created","environment":"local","path":"DIR/new"}"#]);
    let moved = printed(&["fs", "mv", "--json", &path("new"), &path("old")]);
    assert_eq!(moved, [r#"{"event":"moved","environment":"local","path":"DIR/new","to":"DIR/old"}"#]);
    let removed = printed(&["fs", "rm", "-r", "--json", &path("old")]);
    assert_eq!(removed, [r#"{"event":"removed","environment":"local","path":"DIR/old"}"#]);
    let copied = printed(&["cp", "--json", &path("file"), &path("copy")]);
    let done = r#"{"event":"done","files":N,"directories":N,"symlinks":N,"bytes":N,"skipped":N,"elapsedMs":N}"#;
    assert_eq!(copied, [done]);
}

#[test]
fn lines_of_a_copy_between_machines_and_of_a_failure_are_as_documented() {
    let server = Server::start(Transport::Unix);
    server.name("far");
    let directory = server.home.path().display().to_string();
    let path = |name: &str| format!("{directory}/{name}");
    std::fs::write(path("file"), "contents").expect("the folder is ours");
    let copied = server.finish(&["cp", "--json", &path("file"), &path("none"), &format!("far:{directory}/")]);
    let hash = blake3::hash(b"contents");
    let message = r#"cannot look at \"DIR/none\": no such file or directory"#;
    let onto = r#"refused to copy \"DIR/file\" onto itself"#;
    let wanted = [
        format!(r#"{{"event":"failed","reason":"copyOntoItself","message":"{onto}"}}"#),
        format!(r#"{{"event":"failed","reason":"ENOENT","message":"{message}"}}"#),
        r#"{"event":"done","files":N,"directories":N,"symlinks":N,"bytes":N,"skipped":N,"elapsedMs":N}"#.to_owned(),
    ];
    assert_eq!(lines(stdout(&copied), &directory), wanted);
    let copied = server.finish(&["cp", "--json", &path("file"), &format!("far:{directory}/copy")]);
    let (from, to) = (r#"{"environment":"local","path":"DIR/file"}"#, r#"{"environment":"far","path":"DIR/copy"}"#);
    let file = format!(r#"{{"event":"file","from":{from},"to":{to},"bytes":8,"hash":"{hash}"}}"#);
    assert_eq!(lines(stdout(&copied), &directory)[0], without_numbers(&file));
}

#[test]
fn lines_of_a_watch_are_as_documented() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let directory = folder.path().display().to_string();
    let mut watch = Running::start(&mut exec_server(&["fs", "watch", "--json", &directory]));
    let next = |watch: &mut Running| lines(&watch.line(), &directory).concat();
    assert_eq!(next(&mut watch), r#"{"event":"watching","path":"DIR","environment":"local"}"#);
    std::fs::create_dir(folder.path().join("a")).expect("the folder is ours");
    assert_eq!(next(&mut watch), r#"{"event":"created","path":"DIR/a"}"#);
    std::fs::rename(folder.path().join("a"), folder.path().join("b")).expect("the folder is ours");
    assert_eq!(next(&mut watch), r#"{"event":"renamed","from":"DIR/a","to":"DIR/b"}"#);
    std::fs::remove_dir(folder.path().join("b")).expect("the folder is ours");
    assert_eq!(next(&mut watch), r#"{"event":"removed","path":"DIR/b"}"#);
    watch.signal(rustix::process::Signal::INT);
    watch.end();
}
