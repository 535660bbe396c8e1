//! WIRE 1.5, 1.7 and 1.9: command lines that a server refuses, and how it ends on a signal.

use serde_json::{Value, json};

use super::raw_connection::RawConnection;
use super::server_program::{Implementation, ServerProgram};
use super::{DEADLINE, Programs, TRIES, report};

/// Arguments, and the message of ours where it differs because ours supports more (WIRE A.2: unix sockets; TLS).
fn refused_arguments(home: &str) -> Vec<(Vec<String>, Option<String>)> {
    let arguments = |line: &str| {
        let line = line.replace("$HOME", home);
        line.split(' ').map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect()
    };
    let more = |line: &str, url: &str| {
        let expected = "expected `ws://IP:PORT`, `wss://IP:PORT`, `unix://PATH` or `stdio`";
        (arguments(line), Some(format!("unsupported --listen URL `{url}`; {expected}")))
    };
    let mut refused = vec![
        more("--listen foo", "foo"),
        more("--listen ''", ""),
        more("--listen http://127.0.0.1:1", "http://127.0.0.1:1"),
        more("--listen 127.0.0.1:0", "127.0.0.1:0"),
        more("--listen STDIO", "STDIO"),
    ];
    let no_certificate = "unsupported --listen URL `wss://127.0.0.1:0` without a certificate: give --tls-cert and \
                          --tls-key, or --tls-self-signed";
    refused.push((arguments("--listen wss://127.0.0.1:0"), Some(no_certificate.to_owned())));
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
        "--ws-auth capability-token --ws-token-file $HOME/no-text",
        "--ws-auth signed-bearer-token --ws-shared-secret-file $HOME/no-text",
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
    refused.extend(same.iter().map(|line| (arguments(line), None)));
    refused
}

/// The messages of clap depend on its version and on names of values, so only the exit codes are compared.
const UNPARSABLE: [&[&str]; 6] = [
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
    std::fs::write(home.join("no-text"), [0xff; 40]).expect("a file in our own folder");
    let mut differences = Vec::new();
    for (arguments, more) in refused_arguments(home.to_str().expect("temporary folders have plain names")) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (codex, ours) =
            tokio::join!(exit_message(&programs.codex, &arguments), exit_message(&programs.ours, &arguments));
        let expected = more.map_or(codex, |more| json!({"code": 1, "message": more}));
        if ours != expected {
            differences.push(format!("{}\n    expected: {expected}\n    ours:     {ours}", arguments.join(" ")));
        }
    }
    for arguments in UNPARSABLE {
        let (codex, ours) =
            tokio::join!(exit_message(&programs.codex, arguments), exit_message(&programs.ours, arguments));
        if codex["code"] != ours["code"] {
            differences.push(format!("{}\n    codex:  {codex}\n    ours:   {ours}", arguments.join(" ")));
        }
    }
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (codex, ours) =
            tokio::join!(exit_code_after(&programs.codex, signal), exit_code_after(&programs.ours, signal));
        // Codex may accept connections before it handles signals, and is then killed by one, so it is tried again.
        let mut may_be = vec![codex];
        while !may_be.contains(&ours) && may_be.len() < TRIES {
            may_be.push(exit_code_after(&programs.codex, signal).await);
        }
        if !may_be.contains(&ours) {
            let codex = &may_be;
            differences.push(format!("{signal:?}\n    codex:  {codex:?}\n    ours:   {ours}"));
        }
    }
    report(&differences);
}

/// The exit code and the error message.
async fn exit_message(program: &ServerProgram, arguments: &[&str]) -> Value {
    let ended = program.command(arguments).output();
    let ended = tokio::time::timeout(DEADLINE, ended).await.expect("a mistake ends it").expect("the server starts");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let prefix = match program.implementation {
        Implementation::Codex => "Error: ",
        Implementation::Ours => "exec-server: ",
    };
    let message = stderr.lines().find_map(|line| line.strip_prefix(prefix));
    json!({"code": ended.status.code(), "message": message})
}

async fn exit_code_after(program: &ServerProgram, signal: rustix::process::Signal) -> Value {
    let mut server = program.listen(&[]).await;
    // Codex prints its URL before it handles signals; after a connection it mostly does.
    let _served = RawConnection::connect(&server.address).await;
    let pid = server.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    rustix::process::kill_process(pid.expect("it runs"), signal).expect("it is our child");
    let ended = tokio::time::timeout(DEADLINE, server.child.wait()).await.expect("it ends").expect("it is our child");
    json!(ended.code())
}
