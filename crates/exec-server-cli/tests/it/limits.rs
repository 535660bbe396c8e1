//! `run --limit` and `run --user`, here and on a server, as root and as an ordinary user.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use super::other_users::OrdinaryUser;
use super::support::{Running, code, exec_server, finish, run, stderr, stdout};

const SPIN: [&str; 3] = ["sh", "-c", "while :; do :; done"];

#[test]
fn a_program_that_uses_up_its_processor_time_is_ended_and_the_reason_told_here_and_on_a_server() {
    let limits = ["--limit", "cpu=1s", "--limit", "files=64"];
    let here = run(&[&limits[..], &["--"], &SPIN].concat());
    assert_eq!(code(&here), 128 + 9, "{}", stderr(&here));
    assert_eq!(stderr(&here), "exec-server: sh: ended: it has used up the processor time of its limit\n");

    let folder = tempfile::tempdir().expect("a folder can be made");
    let url = format!("unix://{}", folder.path().join("s").display());
    let mut server = Running::start(&mut exec_server(&["serve", "--listen", &url]));
    assert_eq!(server.line(), url);
    let there = run(&[&["--connect", &url, "--no-stdin", "--json"], &limits[..], &["--"], &SPIN].concat());
    let exited = stdout(&there).lines().find(|line| line.contains(r#""event":"exited""#)).unwrap_or_default();
    assert!(
        exited.contains(r#""kind":"cpuLimit""#) && exited.contains(r#""limitsReached":["cpuSeconds"]"#),
        "{exited}"
    );
}

#[test]
fn a_file_over_its_limit_is_cut_and_the_reason_told() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command =
        exec_server(&["run", "--limit", "file-size=1K", "--", "sh", "-c", "exec head -c 2000 /dev/zero > f"]);
    let output = finish(command.current_dir(&folder));
    assert_eq!(code(&output), 128 + 25);
    assert!(stderr(&output).contains("it wrote a file larger than its limit"), "{}", stderr(&output));
    assert_eq!(std::fs::metadata(folder.path().join("f")).map(|file| file.len()).ok(), Some(1024));
}

/// Otherwise it would listen and refuse everybody.
#[test]
fn a_server_that_may_open_too_few_files_says_so_instead_of_listening() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let url = format!("unix://{}", folder.path().join("s").display());
    let server = exec_server(&["serve", "--listen", &url]);
    let limited = format!("ulimit -n 64 && exec {} serve --listen {url}", server.get_program().display());
    let output = finish(std::process::Command::new("sh").args(["-c", &limited]));
    assert_eq!((stdout(&output), code(&output)), ("", 1));
    assert!(stderr(&output).contains("needs more open files"), "{}", stderr(&output));
}

#[test]
fn a_limit_that_does_not_read_is_refused_with_a_way_out() {
    for (limit, said) in [("disk=1G", "memory, pids, cpu, files or file-size"), ("pids=0", "nothing could run")] {
        let output = run(&["--limit", limit, "--", "true"]);
        assert_eq!(code(&output), 125, "{limit}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn an_ordinary_user_runs_as_itself_and_as_nobody_else() {
    let user = OrdinaryUser::new();
    let own = user.uid().to_string();
    let itself = finish(&mut user.exec_server(&["run", "--user", &own, "--", "id", "-u"]));
    assert_eq!((stdout(&itself).trim_end(), code(&itself)), (own.as_str(), 0), "{}", stderr(&itself));
    let other = finish(&mut user.exec_server(&["run", "--user", "0", "--", "id", "-u"]));
    assert_eq!((stdout(&other), code(&other)), ("", 125));
    assert!(stderr(&other).contains("only root may act as another"), "{}", stderr(&other));
}

/// It may make no cgroups, unless the machine has passed some on to it.
#[test]
fn what_an_ordinary_user_cannot_limit_is_refused_and_the_doctor_says_so_too() {
    let user = OrdinaryUser::new();
    let doctor = finish(&mut user.exec_server(&["doctor", "--json"]));
    let findings: serde_json::Value = serde_json::from_str(stdout(&doctor)).expect("it prints JSON");
    let finding = |name: &str| {
        let all = findings.as_array().into_iter().flatten();
        all.into_iter().find(|finding| finding["name"] == name).cloned().expect("it is told")
    };
    let pids = finding("limit pids");
    let limited = finish(&mut user.exec_server(&["run", "--limit", "pids=5", "--", "echo", "ran"]));
    if pids["works"] == true {
        assert_eq!(stdout(&limited), "ran\n");
    } else {
        assert_eq!((stdout(&limited), code(&limited)), ("", 125));
        let why = pids["detail"].as_str().expect("it is told why");
        assert!(why.contains("cgroup") && stderr(&limited).contains("pids cannot be limited"), "{why}");
    }
    for limit in ["memoryBytes", "cpuSeconds", "openFiles", "fileBytes"] {
        assert_eq!(finding(&format!("limit {limit}"))["works"], true, "{limit}");
    }
}

#[test]
fn root_runs_a_program_as_another_user_and_others_are_refused() {
    let output = run(&["--user", "nobody", "--cwd", "/", "--", "sh", "-c", "id -un; echo $USER"]);
    if rustix::process::geteuid().is_root() {
        assert_eq!((stdout(&output), code(&output)), ("nobody\nnobody\n", 0), "{}", stderr(&output));
    } else {
        assert_eq!((stdout(&output), code(&output)), ("", 125));
    }
}

/// `exec-server` with these words, in a shell that limits the size of files.
fn below_a_file_limit(blocks: u32, words: &str) -> std::process::Command {
    let binary = exec_server(&[]).get_program().display().to_string();
    let mut command = std::process::Command::new("bash");
    super::support::unconfigured(&mut command);
    command.args(["-c", &format!("ulimit -f {blocks}; {}", words.replace("exec-server", &binary))]);
    command
}

#[test]
fn a_copy_beyond_the_limit_on_the_size_of_files_says_so_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let target = folder.path().join("to");
    std::fs::create_dir(&target).expect("the folder is ours");
    std::fs::write(folder.path().join("big"), vec![7; 4 << 20]).expect("the folder is ours");
    std::fs::write(folder.path().join("small"), vec![7; 300 << 10]).expect("the folder is ours");
    for words in [
        "exec-server cp big to/b",
        "exec-server cp small to/b",
        "exec-server cp -r big small to/b",
        "exec-server cp - to/b < big",
        "exec-server fs write to/b < big",
        "exec-server fs write --append to/../b < big",
    ] {
        let output = finish(below_a_file_limit(100, words).current_dir(&folder));
        assert_eq!(code(&output), 1, "{words}: {output:?}");
        let said = stderr(&output);
        assert!(said.contains("raise the limit (`ulimit -f`)") || words.contains("-r"), "{words}: {said}");
        let left = std::fs::read_dir(&target).expect("the folder is ours").flatten();
        assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), [""; 0], "{words}");
    }
}

/// A child has the signal again, and our own output is told.
#[test]
fn below_a_limit_on_the_size_of_files_a_child_ends_as_ever_and_we_say_why_we_fail() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let words = "exec-server run -- sh -c 'exec head -c 1M /dev/zero > out'";
    let child = finish(below_a_file_limit(100, words).current_dir(&folder));
    assert_eq!((code(&child), stdout(&child)), (128 + 25, ""));
    std::fs::write(folder.path().join("big"), vec![7; 4 << 20]).expect("the folder is ours");
    let words = "exec-server fs cat big > out";
    let output = finish(below_a_file_limit(100, words).current_dir(&folder));
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("File too large"), "{output:?}");
}

/// The output is kept in files, which the limit holds for, too.
#[test]
fn output_beyond_the_limit_on_the_size_of_files_waits_says_so_and_arrives_once_the_limit_is_raised() {
    let binary = exec_server(&[]).get_program().display().to_string();
    let mut command = std::process::Command::new("bash");
    super::support::unconfigured(&mut command);
    command.args(["-c", &format!("ulimit -S -f 100; exec {binary} run -- seq 100000")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("bash is there");
    let mut stdout = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("the pipe can be read");
        text
    });
    let mut note = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut note).expect("the pipe can be read");
    assert!(note.contains("the program waits") && note.contains("`ulimit -f`"), "{note:?}");
    let pid = child.id().to_string();
    let raised = std::process::Command::new("prlimit").args(["--fsize=unlimited:", "--pid", &pid]).status();
    assert!(raised.expect("util-linux is there").success());
    let ended = child.wait().expect("it is our child");
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert!(reader.join().expect("it does not panic") == expected, "every byte");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_run_that_may_open_too_few_files_says_what_to_do() {
    let binary = exec_server(&[]).get_program().display().to_string();
    let mut command = std::process::Command::new("bash");
    super::support::unconfigured(&mut command);
    let output = finish(command.args(["-c", &format!("ulimit -n 14; exec {binary} run -- true")]));
    assert_eq!(code(&output), 125);
    let advice = "cannot set up this machine: it needs more open files: raise their limit with `ulimit -n`";
    assert!(stderr(&output).contains(advice), "{output:?}");
}
