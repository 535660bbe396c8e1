//! The clients of others: the official SDKs of Python and TypeScript, and the conformance suite of the protocol.

use std::path::{Path, PathBuf};

use exec_testkit::binaries;
use tokio::process::Command;

use super::http::listen;
use super::server::Account;
use crate::durability::support::run;
use exec_testkit::packages;

const PYTHON_SDK: &str = "2.3.0";
const TYPESCRIPT_SDK: &str = "1.32.2";
const CONFORMANCE: &str = "0.1.16";
/// The suite needs a newer Node than many machines have; npm has it, too.
const NODE: &str = "22.23.3";

/// Scenarios that judge any server. The others call tools, prompts and resources that only a server made for the suite has.
const SCENARIOS: [&str; 7] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

/// The packages of npm, in one folder.
fn node_modules() -> Option<PathBuf> {
    let name = format!("mcp-npm-{TYPESCRIPT_SDK}-{CONFORMANCE}-{NODE}");
    let sdk = format!("@modelcontextprotocol/sdk@{TYPESCRIPT_SDK}");
    let suite = format!("@modelcontextprotocol/conformance@{CONFORMANCE}");
    Some(packages::npm(&name, &[&sdk, &suite, &format!("node@{NODE}")])?.join("node_modules"))
}

async fn must_succeed(mut command: Command) -> String {
    let done = command.output().await.expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?} ended with {}:\n{out}\n{err}", done.status);
    format!("{out}{err}")
}

/// The script that is a client, where it finds its packages.
fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let script = folder.join(name);
    std::fs::write(&script, text).expect("the folder is ours");
    script
}

#[test]
fn the_python_sdk_works_with_and_without_a_handshake() {
    let Some(python) = packages::python(&format!("mcp-python-{PYTHON_SDK}"), &[&format!("mcp=={PYTHON_SDK}")]) else {
        return;
    };
    run(async {
        let account = Account::new();
        let script = script(account.path(), "client.py", include_str!("client.py"));
        for mode in ["legacy", "2026-07-28"] {
            let mut client = account.command(python.join("bin/python"));
            client.arg(&script).arg(binaries::exec_server()).arg(mode);
            assert_eq!(must_succeed(client).await, "ok\n");
        }
    });
}

#[test]
fn the_python_sdk_asks_its_user_with_and_without_a_handshake() {
    let Some(python) = packages::python(&format!("mcp-python-{PYTHON_SDK}"), &[&format!("mcp=={PYTHON_SDK}")]) else {
        return;
    };
    run(async {
        let (account, outside) = (Account::new(), super::sandbox::outside());
        let script = script(account.path(), "approval.py", include_str!("approval.py"));
        for mode in ["legacy", "2026-07-28"] {
            let mut client = account.command(python.join("bin/python"));
            client.arg(&script).arg(binaries::exec_server()).arg(mode).arg(outside.path());
            assert_eq!(must_succeed(client).await, "ok\n");
        }
    });
}

#[test]
fn the_typescript_sdk_works_on_stdio_and_http() {
    let Some(modules) = node_modules() else { return };
    run(async {
        let account = Account::new();
        std::os::unix::fs::symlink(&modules, account.path().join("node_modules")).expect("it is new");
        let script = script(account.path(), "client.mjs", include_str!("client.mjs"));
        let (mut server, address) = listen(&account, &[]).await;
        for place in [binaries::exec_server().display().to_string(), format!("http://{address}/mcp")] {
            let mut client = account.command("node");
            client.arg(&script).arg(place);
            assert_eq!(must_succeed(client).await, "ok\n", "it warns of nothing");
        }
        server.kill().await.expect("it is our child");
    });
}

#[test]
fn the_conformance_suite_finds_no_fault_where_it_can_judge() {
    let Some(modules) = node_modules() else { return };
    run(async {
        let account = Account::new();
        let (mut server, address) = listen(&account, &[]).await;
        let mut client = account.command(modules.join("node/bin/node"));
        client.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        client.args(["server", "--url", &format!("http://{address}/mcp"), "--output-dir", "results"]);
        let done = client.output().await.expect("it starts");
        let told = String::from_utf8_lossy(&done.stdout);
        for scenario in SCENARIOS {
            let passed = format!("\n✓ {scenario}: ");
            assert!(told.contains(&passed), "{scenario} fails:\n{told}\n{}", String::from_utf8_lossy(&done.stderr));
        }
        server.kill().await.expect("it is our child");
    });
}
