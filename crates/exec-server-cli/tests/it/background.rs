//! What a program leaves behind when it exits.

use super::support::{code, is_running, run, run_shell, stderr, stdout};

#[test]
fn a_background_child_that_holds_the_output_does_not_keep_us() {
    let output = run_shell("sleep 1000 & echo $!");
    assert_eq!(code(&output), 0);
    assert!(!is_running(stdout(&output).trim()), "it was ended");
    let said = "exec-server: sh left 1 process running in the background: ended; --wait-all waits for it\n";
    assert_eq!(stderr(&output), said);
}

#[test]
fn a_child_that_went_into_a_session_of_its_own_is_ended_too() {
    let output = run_shell("setsid sleep 1000 > /dev/null 2>&1 & echo $!");
    assert_eq!(code(&output), 0);
    assert!(!is_running(stdout(&output).trim()), "it was ended");
    // The rest of the line depends on whether it had closed our pipe by then, which is up to the scheduler.
    let said = "exec-server: sh left 1 process running in the background: ended";
    assert!(stderr(&output).starts_with(said), "{}", stderr(&output));
}

#[test]
fn a_flood_in_the_background_does_not_keep_us() {
    let output = run(&["-q", "--", "sh", "-c", "yes & exit 3"]);
    assert_eq!((code(&output), stderr(&output)), (3, ""));
}

#[test]
fn a_background_child_that_ignores_term_is_killed() {
    let script = "(trap '' TERM; echo ready; while :; do sleep 1000; done) & read x < /dev/null; echo $!";
    let output = run(&["-q", "--grace", "100ms", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 0);
    let pid = stdout(&output).lines().find(|line| *line != "ready").expect("it was printed");
    assert!(!is_running(pid), "it was ended");
}

#[test]
fn with_wait_all_what_comes_after_the_exit_is_printed() {
    let output = run(&["-q", "--wait-all", "--", "sh", "-c", "(sleep 0.3; echo late) & echo early; exit 6"]);
    assert_eq!((stdout(&output), stderr(&output), code(&output)), ("early\nlate\n", "", 6));
}

#[test]
fn the_time_limit_bounds_wait_all() {
    let output = run(&["--wait-all", "--timeout", "300ms", "--", "sh", "-c", "sleep 1000 & echo early"]);
    assert_eq!((stdout(&output), code(&output)), ("early\n", 124));
    assert!(stderr(&output).contains("its output was still open after 300ms"), "{}", stderr(&output));
}
