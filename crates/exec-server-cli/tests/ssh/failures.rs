//! What people are told when there is no way in: the last words of ssh, its exit code, and what to do.

use exec_testkit::far::{Far, FarOptions, code, stderr, stdout};

/// Nothing on stdout, the code of our own failure, and the text.
fn told(output: &std::process::Output) -> &str {
    assert_eq!((stdout(output), code(output)), ("", 125), "{output:?}");
    stderr(output)
}

fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn a_machine_that_lets_us_not_in_is_told_with_sshs_own_words() {
    let far = Far::empty();
    std::fs::remove_file(far.path("authorized_keys")).expect("ours");
    let text = told(&far.shell("true")).to_owned();
    expect(&text, &["cannot reach ssh://far", "exit code 255", "Permission denied", "`ssh far true`"]);
}

#[test]
fn an_unknown_host_key_is_not_accepted_in_silence() {
    let far = Far::empty();
    std::fs::remove_file(far.path("known_hosts")).expect("ours");
    let text = told(&far.shell("true")).to_owned();
    expect(&text, &["exit code 255", "Host key verification failed", "accept it"]);
}

#[test]
fn a_host_that_is_not_there_is_told_as_that() {
    let far = Far::empty();
    // A port that was free a moment ago, and that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ssh://127.0.0.1:{}", free.local_addr().expect("an address").port());
    drop(free);
    let text = told(&far.finish(&["run", "--connect", &url, "--", "true"])).to_owned();
    expect(&text, &["exit code 255", "Connection refused", "check the port"]);
    let text = told(&far.finish(&["ssh", "no-such-host.invalid", "--", "true"])).to_owned();
    expect(&text, &["Could not resolve hostname", "~/.ssh/config"]);
    let text = told(&far.finish(&["ssh", "-o", "--", "true"])).to_owned();
    assert!(!text.is_empty());
    let text = told(&far.finish(&["run", "--connect", "ssh://-oProxyCommand=x", "--", "true"])).to_owned();
    expect(&text, &["a name cannot begin with -"]);
}

#[test]
fn an_account_without_a_shell_is_quoted() {
    let far =
        Far::with(&FarOptions { sshd: "ForceCommand echo not available; exit 1".into(), ..FarOptions::default() });
    let text = told(&far.shell("true")).to_owned();
    expect(&text, &["exit code 1", "its login shell printed \"not available\""]);
}

#[test]
fn a_machine_that_cannot_verify_is_refused() {
    let programs = &[("sh", "exec /bin/sh \"$@\""), ("uname", "/usr/bin/uname -sm")];
    let far = Far::with(&FarOptions { programs, only_programs: true, sshd: String::new() });
    let text = told(&far.shell("true")).to_owned();
    expect(&text, &["nothing there can verify what is sent", "sha256sum"]);
}

/// A cache folder of its own file system, which only what ssh runs sees.
fn with_cache_on(mount_options: &str) -> Far {
    let sshd = format!(
        "ForceCommand mkdir -p $HOME/.cache; exec unshare -rm sh -c 'mount -t tmpfs -o {mount_options} tmpfs \
         $HOME/.cache && exec sh -c \"$SSH_ORIGINAL_COMMAND\"'"
    );
    Far::with(&FarOptions { sshd, ..FarOptions::default() })
}

#[test]
fn a_full_disk_is_told_as_that() {
    let text = told(&with_cache_on("size=64k").shell("true")).to_owned();
    expect(&text, &["cannot write exec-server to", "No space left on device", "make room there"]);
}

#[test]
fn a_home_whose_programs_may_not_run_is_told_as_that() {
    let text = told(&with_cache_on("noexec").shell("true")).to_owned();
    expect(&text, &["exit code 126", "starting exec-server there", "noexec"]);
}
