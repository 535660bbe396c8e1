//! WIRE 1.5, 1.7 and 1.9: words on the command line that end a server before it serves, and how it ends when told to.

use serde_json::{Value, json};

use super::program::{Program, Side};
use super::wire::Wire;
use super::{DEADLINE, Programs, TRIES, report};

/// The words, and what ours says instead where it has more to offer (WIRE A.2: unix sockets).
fn mistakes(home: &str) -> Vec<(Vec<String>, Option<String>)> {
    let words = |line: &str| {
        let line = line.replace("$HOME", home);
        line.split(' ').map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect()
    };
    let more = |line: &str, url: &str| {
        let said = format!("unsupported --listen URL `{url}`; expected `ws://IP:PORT`, `unix://PATH` or `stdio`");
        (words(line), Some(said))
    };
    let mut mistakes = vec![
        more("--listen foo", "foo"),
        more("--listen ''", ""),
        more("--listen http://127.0.0.1:1", "http://127.0.0.1:1"),
        more("--listen wss://127.0.0.1:0", "wss://127.0.0.1:0"),
        more("--listen 127.0.0.1:0", "127.0.0.1:0"),
        more("--listen STDIO", "STDIO"),
    ];
    let same = [
        "--listen ws://localhost:1",
        "--listen ws://127.0.0.1",
        "--listen ws://127.0.0.1:99999",
        "--listen ws://127.0.0.1:0/path",
        "--listen ws://127.0.0.1:0/",
        "--listen ws://",
        "--listen ws://[::1",
        "--ws-auth capability-token",
        "--ws-auth signed-bearer-token",
        "--ws-token-file $HOME/token",
        "--ws-token-sha256 00",
        "--ws-issuer x",
        "--ws-audience x",
        "--ws-max-clock-skew-seconds 1",
        "--ws-shared-secret-file $HOME/token",
        "--ws-auth capability-token --ws-token-file $HOME/token --ws-token-sha256 00",
        "--ws-auth capability-token --ws-token-sha256 00",
        "--ws-auth capability-token --ws-token-sha256 zz",
        "--ws-auth capability-token --ws-token-file $HOME/no-such",
        "--ws-auth capability-token --ws-token-file $HOME/empty",
        "--ws-auth capability-token --ws-token-file $HOME/blank",
        "--ws-auth capability-token --ws-token-file $HOME/token --ws-issuer x",
        "--ws-auth capability-token --ws-token-file $HOME/token --ws-shared-secret-file $HOME/token",
        "--ws-auth signed-bearer-token --ws-shared-secret-file $HOME/token",
        "--ws-auth signed-bearer-token --ws-shared-secret-file $HOME/empty",
        "--ws-auth signed-bearer-token --ws-shared-secret-file $HOME/no-such",
        "--ws-auth signed-bearer-token --ws-shared-secret-file $HOME/secret --ws-token-sha256 00",
        "--ws-auth signed-bearer-token --ws-issuer x",
        "--listen stdio --ws-auth capability-token --ws-token-file $HOME/token",
        "--listen stdio --ws-auth capability-token",
    ];
    mistakes.extend(same.iter().map(|line| (words(line), None)));
    mistakes
}

/// Clap's own words differ with its version and the names of values; the code is what scripts go by.
const MISUNDERSTOOD: [&[&str]; 6] = [
    &["--concurrent-requests", "0"],
    &["--concurrent-requests", "x"],
    &["--concurrent-requests", "-1"],
    &["--no-such-flag"],
    &["--ws-auth", "other"],
    &["--listen"],
];

pub(super) async fn compare() {
    let Some(programs) = Programs::find() else { return };
    let home = programs.home.path();
    for (name, content) in [("token", "short\n"), ("empty", ""), ("blank", " \n"), ("secret", &"s".repeat(32))] {
        std::fs::write(home.join(name), content).expect("a file in our own folder");
    }
    let mut complaints = Vec::new();
    for (words, more) in mistakes(home.to_str().expect("temporary folders have plain names")) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (theirs, ours) = tokio::join!(last_words(&programs.theirs, &words), last_words(&programs.ours, &words));
        let expected = more.map_or(theirs, |more| json!({"code": 1, "said": more}));
        if ours != expected {
            complaints.push(format!("{}\n    expected: {expected}\n    ours:     {ours}", words.join(" ")));
        }
    }
    for words in MISUNDERSTOOD {
        let (theirs, ours) = tokio::join!(last_words(&programs.theirs, words), last_words(&programs.ours, words));
        if theirs["code"] != ours["code"] {
            complaints.push(format!("{}\n    theirs: {theirs}\n    ours:   {ours}", words.join(" ")));
        }
    }
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (theirs, ours) = tokio::join!(told_to_end(&programs.theirs, signal), told_to_end(&programs.ours, signal));
        // Theirs may be served before it listens for signals, and then dies of one: chance, so it is asked again.
        let mut may_be = vec![theirs];
        while !may_be.contains(&ours) && may_be.len() < TRIES {
            may_be.push(told_to_end(&programs.theirs, signal).await);
        }
        if !may_be.contains(&ours) {
            let theirs = &may_be;
            complaints.push(format!("{signal:?}\n    theirs: {theirs:?}\n    ours:   {ours}"));
        }
    }
    report(&complaints);
}

/// The exit code, and what a person was told last.
async fn last_words(program: &Program, words: &[&str]) -> Value {
    let ended = program.command(words).output();
    let ended = tokio::time::timeout(DEADLINE, ended).await.expect("a mistake ends it").expect("the server starts");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let prefix = match program.side {
        Side::Theirs => "Error: ",
        Side::Ours => "exec-server: ",
    };
    let said = stderr.lines().find_map(|line| line.strip_prefix(prefix));
    json!({"code": ended.status.code(), "said": said})
}

/// The exit code of a server that is told to end.
async fn told_to_end(program: &Program, signal: rustix::process::Signal) -> Value {
    let mut daemon = program.listen(&[]).await;
    // Theirs prints its URL before it listens for signals; whoever is served mostly comes after both.
    let _served = Wire::connect(&daemon.address).await;
    let pid = daemon.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    rustix::process::kill_process(pid.expect("it runs"), signal).expect("it is our child");
    let ended = tokio::time::timeout(DEADLINE, daemon.child.wait()).await.expect("it ends").expect("it is our child");
    json!(ended.code())
}
