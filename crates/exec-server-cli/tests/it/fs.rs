//! `fs`: the same on this machine, at a server named by its URL, and in an environment named before a path.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Server, Transport};
use super::support::{Running, code, exec_server, finish, stderr, stdout};

/// How a command names the machine of the test's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Here,
    ByUrl(Transport),
    ById,
}

const EVERYWHERE: [At; 4] = [At::Here, At::ByUrl(Transport::Unix), At::ByUrl(Transport::WebSocket), At::ById];

struct Fixture {
    folder: tempfile::TempDir,
    server: Server,
    at: At,
}

impl Fixture {
    fn new(at: At) -> Self {
        let transport = if let At::ByUrl(transport) = at { transport } else { Transport::Unix };
        let server = Server::start(transport);
        server.name("far");
        Self { folder: tempfile::tempdir().expect("a folder can be made"), server, at }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("the folder is ours");
        std::fs::write(&path, contents).expect("the folder is ours");
        path
    }

    /// A path as an argument.
    fn arg(&self, name: &str) -> String {
        let path = self.path(name).display().to_string();
        if self.at == At::ById { format!("far:{path}") } else { path }
    }

    /// `fs VERB` with options, and then names in the directory.
    fn fs(&self, verb: &str, options: &[&str], names: &[&str]) -> Output {
        let names: Vec<String> = names.iter().map(|name| self.arg(name)).collect();
        let mut args = vec!["fs", verb];
        if let At::ByUrl(_) = self.at {
            args.extend(["--connect", &self.server.url]);
        }
        args.extend(options);
        args.extend(names.iter().map(String::as_str));
        self.server.finish(&args)
    }
}

fn everywhere(check: impl Fn(&Fixture)) {
    for at in EVERYWHERE {
        eprintln!("{at:?}");
        check(&Fixture::new(at));
    }
}

fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn a_listing_is_names_in_a_pipe_and_a_table_on_request() {
    everywhere(|fixture| {
        fixture.file("b", "12345");
        fixture.file("sub/c", "");
        for (name, mode) in [("b", 0o644), ("sub", 0o755)] {
            std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        fixture.file(".hidden", "");
        std::os::unix::fs::symlink("nowhere", fixture.path("a")).expect("the folder is ours");
        let names = fixture.fs("ls", &[], &[""]);
        assert_eq!((stdout(&names), stderr(&names), code(&names)), ("a\nb\nsub\n", "", 0));
        assert_eq!(stdout(&fixture.fs("ls", &["-a"], &[""])), ".hidden\na\nb\nsub\n");
        let table = fixture.fs("ls", &["-l"], &[""]);
        let rows: Vec<Vec<&str>> = stdout(&table).lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["MODE", "SIZE", "MODIFIED", "NAME"]);
        assert_eq!(rows[1], ["l?????????", "-", "-", "a", "->", "nowhere", "(leads", "nowhere)"]);
        assert_eq!((rows[2][0], &rows[2][1..3], rows[2].last()), ("-rw-r--r--", &["5", "B"][..], Some(&"b")));
        assert_eq!((rows[3][0], rows[3].last()), ("drwxr-xr-x", Some(&"sub/")));
        assert_eq!(stdout(&fixture.fs("ls", &[], &["b"])), format!("{}\n", fixture.arg("b")), "a file lists itself");
    });
}

#[test]
fn a_listing_for_programs_has_everything_that_is_known() {
    everywhere(|fixture| {
        let file = fixture.file("file", "12345");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
        let output = fixture.fs("ls", &["--json"], &[""]);
        let found = &lines(&output)[0];
        assert_eq!(found["path"], json!(file.display().to_string()));
        assert_eq!((&found["kind"], &found["sizeBytes"], &found["mode"]), (&json!("file"), &json!(5), &json!(0o640)));
        assert!(found["modifiedNs"].is_i64() && found["inode"].is_u64() && found["isSymlink"] == json!(false));
        let environment = match fixture.at {
            At::Here => "local",
            At::ByUrl(_) => &fixture.server.url,
            At::ById => "far",
        };
        assert_eq!(found["environment"], json!(environment));
    });
}

#[test]
fn a_name_that_is_no_text_comes_through_byte_for_byte() {
    everywhere(|fixture| {
        let name = std::ffi::OsString::from_vec(b"n\xff\n".to_vec());
        std::fs::write(fixture.folder.path().join(&name), "there").expect("the folder is ours");
        let names = fixture.fs("ls", &[], &[""]);
        assert_eq!(names.stdout, b"n\xff\n\n");
        let json = fixture.fs("find", &["--json"], &[""]);
        let path = &lines(&json)[0]["path"]["base64"];
        let bytes = base64_simd::STANDARD.decode_to_vec(path.as_str().expect("it is not UTF-8")).expect("it is base64");
        assert_eq!(Path::new(std::ffi::OsStr::from_bytes(&bytes)), fixture.folder.path().join(&name));
        let mut word = fixture.arg("").into_bytes();
        word.extend_from_slice(name.as_bytes());
        let mut cat = fixture.server.command(&["fs", "cat", "--connect", &fixture.server.url]);
        let shown = finish(cat.arg(std::ffi::OsString::from_vec(word)));
        assert_eq!(stdout(&shown), "there");
    });
}

#[test]
fn contents_are_printed_as_they_are_one_file_after_the_other() {
    everywhere(|fixture| {
        let large: String = (0..200_000).map(|line| format!("{line}\n")).collect();
        fixture.file("large", &large);
        fixture.file("small", "small");
        let output = fixture.fs("cat", &[], &["large", "small"]);
        assert!(output.stdout == format!("{large}small").as_bytes() && stderr(&output).is_empty());
        let json = fixture.fs("cat", &["--json"], &["small"]);
        let path = fixture.path("small").display().to_string();
        assert_eq!(lines(&json), [json!({"path": path, "offset": 0, "text": "small"})]);
    });
}

#[test]
fn a_reader_that_leaves_is_no_reason_to_complain() {
    let fixture = Fixture::new(At::ByUrl(Transport::Unix));
    fixture.file("large", &"x\n".repeat(4 << 20));
    let path = fixture.arg("large");
    let mut cat = Running::start(&mut fixture.server.command(&["fs", "cat", "--connect", &fixture.server.url, &path]));
    assert_eq!(cat.line(), "x");
    cat.close_stdout();
    let (_, err, code) = cat.end();
    assert_eq!((err.as_str(), code), ("", 141));
}

#[test]
fn what_is_known_of_a_file_is_told_with_its_hash() {
    everywhere(|fixture| {
        fixture.file("file", "hello");
        std::os::unix::fs::symlink("file", fixture.path("link")).expect("the folder is ours");
        let output = fixture.fs("stat", &["--json", "--hash"], &["file", "link"]);
        let found = lines(&output);
        let hash = blake3::hash(b"hello").to_hex().to_string();
        assert_eq!((&found[0]["hash"], &found[0]["kind"]), (&json!(hash), &json!("file")));
        assert_eq!((&found[1]["isSymlink"], &found[1]["target"]), (&json!(true), &json!("file")));
        let text = fixture.fs("stat", &[], &["link"]);
        assert!(stdout(&text).contains("   link to  file\n") && stdout(&text).contains("5 B (5 bytes)"), "{text:?}");
    });
}

#[test]
fn something_that_is_not_there_is_told_with_its_path_and_the_others_are_done() {
    everywhere(|fixture| {
        fixture.file("there", "x");
        for verb in ["ls", "cat", "stat", "rm"] {
            let output = fixture.fs(verb, &[], &["not", "there"]);
            let said = format!("{:?}: no such file or directory\n", fixture.arg("not"));
            assert!(stderr(&output).ends_with(&said), "{verb}: {}", stderr(&output));
            assert_eq!((code(&output), stdout(&output).is_empty()), (1, verb == "rm"), "{verb}");
        }
        assert!(!fixture.path("there").exists(), "rm went on");
        let json = fixture.fs("cat", &["--json"], &["not"]);
        assert_eq!((&lines(&json)[0]["event"], &lines(&json)[0]["reason"]), (&json!("failed"), &json!("ENOENT")));
    });
}

#[test]
fn directories_are_made_moved_and_removed() {
    everywhere(|fixture| {
        let refused = fixture.fs("mkdir", &[], &["a/b"]);
        assert_eq!(code(&refused), 1);
        assert!(stderr(&refused).contains("does not exist: make that first, or say -p"), "{}", stderr(&refused));
        assert_eq!(code(&fixture.fs("mkdir", &["-p", "-m", "750"], &["a/b"])), 0);
        let mode = std::fs::metadata(fixture.path("a/b")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        fixture.file("x", "x");
        fixture.file("y", "y");
        assert_eq!(code(&fixture.fs("mv", &[], &["x", "y", "a/b"])), 0);
        assert!(fixture.path("a/b/x").exists() && fixture.path("a/b/y").exists());
        let clobber = fixture.fs("mv", &["-n"], &["a/b/x", "a/b/y"]);
        let said = format!("{:?}: there is something of that name already\n", fixture.arg("a/b/y"));
        assert!(code(&clobber) == 1 && fixture.path("a/b/x").exists(), "{clobber:?}");
        // The message has the new name with its environment, however that was named.
        assert!(fixture.at != At::Here || stderr(&clobber).ends_with(&said), "{}", stderr(&clobber));
        let directory = fixture.fs("rm", &[], &["a"]);
        assert_eq!(code(&directory), 1);
        assert!(stderr(&directory).ends_with("it is a directory: say -r\n"), "{}", stderr(&directory));
        let removed = fixture.fs("rm", &["-r", "--json"], &["a"]);
        assert_eq!((&lines(&removed)[0]["event"], fixture.path("a").exists()), (&json!("removed"), false));
        assert_eq!(code(&fixture.fs("rm", &["-f"], &["a"])), 0);
    });
}

#[test]
fn a_folder_without_a_name_is_not_removed() {
    for word in [".", "..", "/", "local:/", "a/.."] {
        let output = finish(&mut exec_server(&["fs", "rm", "-rf", word]));
        assert_eq!(code(&output), 1, "{word}");
        assert!(stderr(&output).contains("refused to remove"), "{}", stderr(&output));
    }
}

#[test]
fn files_are_found_by_pattern_and_kind() {
    everywhere(|fixture| {
        for name in ["src/a.rs", "src/deep/b.rs", "src/c.md", ".hidden/d.rs"] {
            fixture.file(name, "");
        }
        std::os::unix::fs::symlink("a.rs", fixture.path("src/link.rs")).expect("the folder is ours");
        let found = |options: &[&str]| {
            let output = fixture.fs("find", options, &[""]);
            assert_eq!((stderr(&output), code(&output)), ("", 0), "{options:?}");
            let root = fixture.arg("");
            stdout(&output).lines().map(|line| line.strip_prefix(&root).expect("as it was named").to_owned()).collect()
        };
        let all: Vec<String> = found(&["-g", "*.rs"]);
        assert_eq!(all, [".hidden/d.rs", "src/a.rs", "src/deep/b.rs", "src/link.rs"]);
        let files: Vec<String> = found(&["-g", "src/**/*.rs", "-t", "f"]);
        assert_eq!(files, ["src/a.rs", "src/deep/b.rs"]);
        let links: Vec<String> = found(&["-t", "l"]);
        assert_eq!(links, ["src/link.rs"]);
        let folders: Vec<String> = found(&["-t", "d"]);
        assert_eq!(folders, [".hidden", "src", "src/deep"]);
        let stopped = fixture.fs("find", &["--limit", "1"], &[""]);
        assert!(code(&stopped) == 1 && stderr(&stopped).contains("stopped after 1 paths"), "{stopped:?}");
    });
}

#[test]
fn contents_are_searched_with_the_codes_of_grep() {
    everywhere(|fixture| {
        fixture.file("a.txt", "one\nTwo\nthree\nfour\ntwo\n");
        fixture.file("b.md", "two.\n");
        let a = fixture.arg("a.txt");
        let plain = fixture.fs("grep", &["two"], &[""]);
        let b = fixture.arg("b.md");
        assert_eq!((stdout(&plain), code(&plain)), (format!("{a}:5:two\n{b}:1:two.\n").as_str(), 0));
        let options = ["-i", "-F", "-C", "1", "-g", "*.txt", "two"];
        let around = fixture.fs("grep", &options, &[""]);
        let shown = format!("{a}-1-one\n{a}:2:Two\n{a}-3-three\n{a}-4-four\n{a}:5:two\n");
        assert_eq!(stdout(&around), shown);
        assert_eq!(stdout(&fixture.fs("grep", &["-l", "two"], &["b.md"])), format!("{b}\n"));
        let none = fixture.fs("grep", &["nowhere"], &[""]);
        assert_eq!((stdout(&none), stderr(&none), code(&none)), ("", "", 1));
        let bad = fixture.fs("grep", &["("], &[""]);
        assert!(code(&bad) == 2 && stderr(&bad).contains("bad pattern"), "{bad:?}");
        assert_eq!(code(&fixture.fs("grep", &["x"], &["not"])), 2);
        let json = fixture.fs("grep", &["--json", "three"], &["a.txt"]);
        let path = fixture.path("a.txt").display().to_string();
        let found = &lines(&json)[0];
        assert_eq!((&found["path"], &found["line"], &found["text"]), (&json!(path), &json!(3), &json!("three")));
        assert_eq!(found["matches"], json!([[0, 5]]));
    });
}

#[test]
fn changes_are_told_until_ctrl_c() {
    everywhere(|fixture| {
        let word = fixture.arg("");
        let mut args = vec!["fs", "watch", "--json", &word];
        if let At::ByUrl(_) = fixture.at {
            args.extend(["--connect", &fixture.server.url]);
        }
        let mut watch = Running::start(&mut fixture.server.command(&args));
        assert!(watch.line().contains(r#""event":"watching""#));
        let path = fixture.file("new", "x").display().to_string();
        let created: Value = serde_json::from_str(&watch.line()).expect("a line is JSON");
        assert_eq!(created, json!({"event": "created", "path": path}));
        watch.signal(Signal::INT);
        let (_, err, code) = watch.end();
        assert_eq!((err.as_str(), code), ("", 0));
    });
}

#[test]
fn an_environment_nobody_has_heard_of_is_told_with_those_there_are() {
    let fixture = Fixture::new(At::ById);
    let output = fixture.server.finish(&["fs", "ls", "fra:/tmp"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("environment `fra` is not configured; there is `local`, `far`"), "{output:?}");
    assert!(stderr(&output).contains("a local file of that name is written ./fra:/tmp"), "{output:?}");
    let url = fixture.server.finish(&["fs", "ls", "ws://x/y"]);
    assert!(stderr(&url).contains("name a URL with --connect"), "{}", stderr(&url));
}

#[test]
fn nothing_stays_there_after_a_look() {
    let fixture = Fixture::new(At::ByUrl(Transport::Unix));
    assert_eq!(code(&fixture.fs("ls", &[], &[""])), 0);
    let output = fixture.server.finish(&["ps", "--connect", &fixture.server.url, "--json"]);
    assert_eq!((stdout(&output), code(&output)), ("", 0), "no session but that of ps itself");
}
