//! Login shells: each reads our one line in its own way, and some talk.

use exec_testkit::far::{Far, FarOptions, code, stdout};

/// What sshd does for an account whose login shell it is.
fn with_login_shell(shell: &str) -> Far {
    let sshd = format!("ForceCommand exec {shell} -c \"$SSH_ORIGINAL_COMMAND\"");
    Far::with(&FarOptions { sshd, ..FarOptions::default() })
}

fn works(far: &Far) {
    far.bring_binary();
    let ran = far.finish(&["ssh", "far", "--", "sh", "-c", "printf %s \"$1\"; exit 4", "sh", "it's $HOME !! \\n"]);
    assert_eq!((stdout(&ran), code(&ran)), ("it's $HOME !! \\n", 4), "{ran:?}");
}

#[test]
fn fish_is_a_login_shell_as_any_other() {
    works(&with_login_shell("fish"));
}

#[test]
fn tcsh_is_a_login_shell_as_any_other() {
    works(&with_login_shell("tcsh"));
}

#[test]
fn a_login_shell_that_greets_is_not_in_the_way() {
    let far = Far::with(&FarOptions {
        sshd: "ForceCommand echo Welcome; echo; printf 'no line end'; exec sh -c \"$SSH_ORIGINAL_COMMAND\"".to_owned(),
        ..FarOptions::default()
    });
    works(&far);
}

#[test]
fn the_binary_is_sent_through_a_shell_that_greets_too() {
    let far = Far::with(&FarOptions {
        sshd: "ForceCommand echo Welcome; exec fish -c \"$SSH_ORIGINAL_COMMAND\"".to_owned(),
        ..FarOptions::default()
    });
    let ran = far.shell("echo sent");
    assert_eq!((stdout(&ran), code(&ran)), ("sent\n", 0), "{ran:?}");
}
