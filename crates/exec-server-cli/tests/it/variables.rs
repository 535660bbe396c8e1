//! Variables and the working directory.

use super::support::{code, exec_server, finish, run, stderr, stdout};

#[test]
fn our_variables_are_passed_on_and_env_wins() {
    let mut command = exec_server(&["run", "--env", "B=new=x", "--", "sh", "-c", "echo $A $B"]);
    let output = finish(command.env("A", "old").env("B", "old"));
    assert_eq!(stdout(&output), "old new=x\n");
}

#[test]
fn a_cleared_environment_has_what_env_names_and_nothing_else() {
    let args = ["run", "--clear-env", "-e", "A=1", "-e", "EMPTY=", "-e", "OURS", "--", "env"];
    let output = finish(exec_server(&args).env("OURS", "passed on").env("OTHER", "not"));
    let mut lines: Vec<_> = stdout(&output).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=1", "EMPTY=", "OURS=passed on"]);
}

#[test]
fn a_variable_that_is_not_set_here_cannot_be_passed_on() {
    let output = finish(exec_server(&["run", "--env", "NOWHERE", "--", "env"]).env_remove("NOWHERE"));
    let said = "exec-server: --env NOWHERE: it is not set here; give it a value with NAME=VALUE\n";
    assert_eq!((code(&output), stderr(&output)), (125, said));
    assert_eq!(code(&run(&["--env", "=x", "--", "env"])), 125);
}

#[test]
fn the_folder_is_ours_or_the_one_given_relative_to_ours() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().canonicalize().expect("it exists");
    std::fs::create_dir(path.join("below")).expect("the folder is ours");
    let here = finish(exec_server(&["run", "--", "pwd", "-P"]).current_dir(&path));
    assert_eq!(stdout(&here).trim_end(), path.to_str().expect("a plain path"));
    let below = finish(exec_server(&["run", "--cwd", "below", "--", "pwd", "-P"]).current_dir(&path));
    assert_eq!(stdout(&below).trim_end(), path.join("below").to_str().expect("a plain path"));
}

#[test]
fn arguments_pass_as_they_are() {
    let output = run(&["--", "printf", "[%s]", "--help", "", "a b", "-x", "--", "é"]);
    assert_eq!(stdout(&output), "[--help][][a b][-x][--][é]");
}

#[test]
fn the_child_has_three_descriptors() {
    let output = run(&["--", "sh", "-c", "ls /proc/$$/fd"]);
    assert_eq!(stdout(&output), "0\n1\n2\n");
}
