//! Help, version, completions, the manual, and the arguments that are not for users.

use super::support::{code, exec_server, finish, stderr, stdout, unconfigured};

#[test]
fn help_and_version_are_answers() {
    for args in
        [&["--help"][..], &["run", "--help"], &["run", "-h"], &["attach", "--help"], &["env", "-h"], &["--version"]]
    {
        let output = finish(&mut exec_server(args));
        assert_eq!((code(&output), stderr(&output)), (0, ""), "{args:?}");
    }
    let version = finish(&mut exec_server(&["--version"]));
    assert_eq!(stdout(&version), concat!("exec-server ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_option_of_run_is_in_its_help_its_manual_and_its_completions() {
    let help = finish(&mut exec_server(&["run", "--help"]));
    let manual = finish(&mut exec_server(&["man", "run"]));
    let completions = finish(&mut exec_server(&["completions", "bash"]));
    let options = [
        "tty",
        "no-stdin",
        "cwd",
        "env",
        "clear-env",
        "timeout",
        "grace",
        "wait-all",
        "spool",
        "json",
        "quiet",
        "environment",
        "connect",
        "detach",
        "keep",
    ];
    for option in options {
        assert!(stdout(&help).contains(&format!("--{option}")), "{option}");
        assert!(stdout(&manual).contains(&format!("\\-\\-{}", option.replace('-', "\\-"))), "{option}");
        assert!(stdout(&completions).contains(&format!("--{option}")), "{option}");
    }
}

#[test]
fn there_are_completions_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = finish(&mut exec_server(&["completions", shell]));
        assert_eq!(code(&output), 0, "{shell}");
        assert!(stdout(&output).contains("exec-server"), "{shell}");
    }
}

#[test]
fn in_fish_a_name_is_completed_by_names_and_not_by_files() {
    let home = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(
        home.path().join("environments.toml"),
        "[[environments]]\nid = \"build\"\nurl = \"ws://127.0.0.1:1\"\n",
    )
    .expect("the folder is ours");
    std::fs::write(home.path().join("bundle.tar"), "").expect("the folder is ours");
    let script = home.path().join("completions.fish");
    let completions = finish(&mut exec_server(&["completions", "fish"]));
    std::fs::write(&script, completions.stdout).expect("the folder is ours");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_exec-server"));
    let completed = |line: &str| {
        let mut fish = std::process::Command::new("fish");
        fish.args(["--no-config", "-c"]).arg(format!("source {}; complete -C '{line}'", script.display()));
        let path = std::env::var("PATH").expect("there is one");
        fish.env("PATH", format!("{}:{path}", binary.parent().expect("it is in a folder").display()));
        unconfigured(&mut fish);
        fish.env("EXEC_SERVER_HOME", home.path()).env("HOME", home.path()).current_dir(home.path());
        String::from_utf8(fish.output().expect("`cargo xtask setup` installs fish").stdout).expect("names are text")
    };
    assert_eq!(completed("exec-server run --environment b"), "build\n");
    assert_eq!(completed("exec-server env check b"), "build\n");
    assert_eq!(completed("exec-server attach b"), "");
    assert_eq!(completed("exec-server cp b"), "build:\nbundle.tar\n");
}

#[test]
fn the_manual_of_a_command_that_is_none_is_refused() {
    let output = finish(&mut exec_server(&["man", "fly"]));
    let said = "exec-server: there is no command \"fly\": see `exec-server --help`\n";
    assert_eq!((code(&output), stderr(&output)), (2, said));
}

#[test]
fn the_keepers_words_are_not_for_people_and_not_in_the_help() {
    let output = finish(&mut exec_server(&["keeper", "--help"]));
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("started by exec-server itself"), "{}", stderr(&output));
    assert!(!stdout(&finish(&mut exec_server(&["--help"]))).contains("keeper"));
}
