//! Help, version, completions, the manual, and the arguments that are not for users.

use super::support::{code, exec_server, finish, stderr, stdout};

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
