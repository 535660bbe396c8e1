//! What a program there does, seen from here.

use std::io::Write;
use std::process::Stdio;

use exec_testkit::far::{Far, code, read_until, stderr, stdout};

#[test]
fn output_errors_and_the_exit_code_are_the_programs_own() {
    let far = Far::ready();
    let ran = far.shell("echo out; echo err >&2; exit 3");
    assert_eq!((stdout(&ran), stderr(&ran), code(&ran)), ("out\n", "err\n", 3));
    // It starts at home, not where ssh or the server happen to be.
    let home = far.home().canonicalize().expect("it is there");
    assert_eq!(stdout(&far.shell("pwd -P")).trim_end(), home.to_str().expect("text"));
    // The mask is the one that ssh gives, not the one that our own files there have.
    let mask = std::process::Command::new(far.path("client").join("ssh")).args(["far", "umask"]).output();
    assert_eq!(stdout(&far.shell("umask")), stdout(&mask.expect("ssh can be started")));
    let missing = far.finish(&["ssh", "far", "--", "no-such-program"]);
    assert_eq!(code(&missing), 127, "{missing:?}");
    let overdue = far.finish(&["ssh", "--timeout", "100ms", "far", "--", "sleep", "1000"]);
    assert_eq!(code(&overdue), 124, "{overdue:?}");
}

#[test]
fn a_megabyte_goes_there_and_back_exactly() {
    let far = Far::ready();
    let mut number = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) as u8
    });
    let bytes: Vec<u8> = bytes.take(1 << 20).collect();
    let back = far.finish_with_input(&["ssh", "far", "--", "cat"], &bytes);
    assert!(back.stdout == bytes, "{} bytes came back, {}", back.stdout.len(), stderr(&back));
    assert_eq!((stderr(&back), code(&back)), ("", 0));
}

#[test]
fn every_byte_of_an_argument_arrives() {
    use std::os::unix::ffi::OsStrExt;
    let far = Far::ready();
    let strange: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"a b  c".to_vec(),
        b"'\"$HOME`id`\\!!*?~#;&|<>(){}[]\n\t-- -n".to_vec(),
        (1..=0xff).collect(),
        "\u{e4}\u{20ac}\u{1f600}".as_bytes().to_vec(),
    ];
    let mut command = far.client(&["ssh", "far", "--", "printf", "%s|"]);
    command.args(strange.iter().map(|word| std::ffi::OsStr::from_bytes(word)));
    let ran = command.output().expect("the binary can be started");
    let expected: Vec<u8> = strange.iter().flat_map(|word| [word.as_slice(), b"|"].concat()).collect();
    assert_eq!(ran.stdout, expected, "{ran:?}");
}

#[test]
fn a_terminal_there_has_the_size_of_ours_and_a_login_shell_is_the_default() {
    let far = Far::ready();
    // `run --tty` gives the client a terminal of its own.
    let in_terminal = |args: &[&str], input: &[u8]| {
        let mut words = vec!["run", "--tty", "--", exec_testkit::far::binary().to_str().expect("text")];
        words.extend(args);
        far.finish_with_input(&words, input)
    };
    let ran = in_terminal(&["ssh", "-t", "far", "--", "sh", "-c", "stty size; tty -s && exit 5"], b"");
    assert!(stdout(&ran).contains("24 80\r\n"), "{ran:?}");
    assert_eq!(code(&ran), 5, "{ran:?}");
    let shell = in_terminal(&["ssh", "far"], b"echo $((6*7)) is it; tty -s && exit 6\n");
    assert!(stdout(&shell).contains("42 is it"), "{shell:?}");
    assert_eq!(code(&shell), 6, "{shell:?}");
    // Without a terminal there is nobody to talk to.
    let nobody = far.finish(&["ssh", "far"]);
    assert!(stderr(&nobody).contains("name a program after `--`"), "{nobody:?}");
    assert_eq!(code(&nobody), 125);
}

#[test]
fn at_a_terminal_ssh_may_ask_about_a_host_key() {
    let far = Far::ready();
    std::fs::remove_file(far.path("known_hosts")).expect("ours");
    let client = exec_testkit::far::binary().to_str().expect("text");
    let mut command = far.client(&["run", "--tty", "--", client, "ssh", "far", "--", "echo", "let in"]);
    let mut terminal = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let (mut keys, mut screen) = (terminal.stdin.take().expect("piped"), terminal.stdout.take().expect("piped"));
    read_until(&mut screen, |seen| seen.contains("continue connecting"));
    keys.write_all(b"yes\n").expect("it reads");
    read_until(&mut screen, |seen| seen.contains("let in"));
    drop(keys);
    std::io::copy(&mut screen, &mut std::io::sink()).expect("a pipe can be read");
    assert_eq!(terminal.wait().expect("it is our child").code(), Some(0));
    assert!(far.path("known_hosts").exists(), "ssh remembers the key");
}

#[test]
fn what_is_detached_there_is_found_by_later_commands() {
    let far = Far::ready();
    let started = far.finish(&["ssh", "--detach", "far", "--", "sh", "-c", "echo begun; read x; echo got $x; exit 7"]);
    let id = stdout(&started).trim_end().to_owned();
    assert!(id.starts_with("sh-"), "{started:?}");
    let listed = far.finish(&["ps"]);
    assert!(stdout(&listed).contains(&id) && stdout(&listed).contains("ssh://far"), "{listed:?}");
    assert_eq!(stdout(&far.finish(&["logs", &id])), "begun\n");
    let attached = far.finish_with_input(&["attach", &id], b"it\n");
    assert_eq!((stdout(&attached), code(&attached)), ("begun\ngot it\n", 7), "{attached:?}");
    let killed = far.finish(&["kill", "--forget", &id]);
    assert_eq!(code(&killed), 0, "{killed:?}");
}

#[test]
fn the_url_works_with_every_command() {
    let far = Far::ready();
    let url = format!("ssh://127.0.0.1:{}", far.port());
    let ran = far.finish(&["run", "--connect", &url, "--", "sh", "-c", "echo $HOME"]);
    assert_eq!(stdout(&ran).trim_end(), far.home().to_str().expect("text"), "{ran:?}");
    let source = far.path("note");
    std::fs::write(&source, "a note").expect("ours");
    let copied = far.finish(&["cp", "--connect", &url, source.to_str().expect("text"), ":there"]);
    assert_eq!(code(&copied), 0, "{copied:?}");
    assert_eq!(std::fs::read(far.home().join("there")).expect("it was copied"), b"a note");
    let shown = far.finish(&["fs", "cat", "--connect", &url, ":there"]);
    assert_eq!(stdout(&shown), "a note", "{shown:?}");
}

#[test]
fn a_machine_is_saved_under_a_name_once_and_comments_stay() {
    let far = Far::ready();
    let file = far.path("own").join("environments.toml");
    std::fs::write(&file, "# my machines\n").expect("ours");
    for _ in 0..2 {
        let saved = far.finish(&["ssh", "--save", "devbox", "far", "--", "echo", "hi"]);
        assert_eq!((stdout(&saved), code(&saved)), ("hi\n", 0), "{saved:?}");
    }
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(text, "# my machines\n\n[[environments]]\nid = \"devbox\"\nurl = \"ssh://far\"\n");
    let ran = far.finish(&["run", "--environment", "devbox", "--", "echo", "by name"]);
    assert_eq!(stdout(&ran), "by name\n", "{ran:?}");
}
