//! A server and a keeper that run out of descriptors, one earlier each time: wherever it strikes, what was asked for is
//! refused, what is there goes on, and when there are descriptors again everything works.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::client::{Client, ServerFixture, shell, with_deadline};
use crate::durability::support::number_from_env;

/// Descriptors that are left, from this many down to none.
const SPARE: u64 = 12;

/// A soak goes further away from the end, where more is begun before it fails.
const SPARE_IN_SOAK: u64 = 80;

#[derive(Debug, Clone, Copy)]
enum Starved {
    Server,
    Keeper,
    Both,
}

#[tokio::test]
async fn a_server_that_is_out_of_descriptors_refuses_and_goes_on_at_every_point() {
    starve(Starved::Server).await;
}

#[tokio::test]
async fn a_keeper_that_is_out_of_descriptors_refuses_and_goes_on_at_every_point() {
    starve(Starved::Keeper).await;
}

#[tokio::test]
async fn a_server_and_a_keeper_that_are_out_of_descriptors_refuse_and_go_on_at_every_point() {
    starve(Starved::Both).await;
}

async fn starve(who: Starved) {
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    let started = client.call("process/start", shell("living", "while read x; do echo $x; done", true)).await;
    assert_eq!(started["result"]["processId"], "living", "{started}");
    let (daemon, keeper) = (server.pid(), server.keeper().pid);
    let starved = match who {
        Starved::Server => vec![daemon],
        Starved::Keeper => vec![keeper],
        Starved::Both => vec![daemon, keeper],
    };
    let most = if number_from_env("EXEC_SOAK_ROUNDS").is_some() { SPARE_IN_SOAK } else { SPARE };
    for spare in (0..=most).rev() {
        let before: Vec<(u32, Rlimit)> = starved.iter().map(|pid| (*pid, lower_limit(*pid, spare))).collect();
        let refused = with_deadline(ask_for_everything(&server, &mut client, spare)).await;
        for (pid, limit) in before {
            prlimit(Some(os_pid(pid)), Resource::Nofile, limit).expect("it was so before");
        }
        assert!(spare > 0 || refused > 0, "{who:?}: without any descriptor something is refused");
        with_deadline(everything_works(&server, &mut client, spare)).await;
    }
}

/// Leaves the process so many descriptors above the highest that it has. Returns the limits it had.
fn lower_limit(pid: u32, spare: u64) -> Rlimit {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let highest =
        open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max().expect("some are open");
    let found = prlimit(Some(os_pid(pid)), Resource::Nofile, current_limit(pid)).expect("it is ours");
    let lower = Rlimit { current: Some(highest + 1 + spare), ..found };
    prlimit(Some(os_pid(pid)), Resource::Nofile, lower).expect("a limit may be lowered");
    found
}

fn current_limit(pid: u32) -> Rlimit {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("every process has it");
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Rlimit { current: words.next().flatten(), maximum: words.next().flatten() }
}

fn os_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the kernel gave it")
}

/// Asks for all that takes descriptors. Each is answered, one way or the other; returns how many were refused.
async fn ask_for_everything(server: &ServerFixture, client: &mut Client, round: u64) -> usize {
    let folder = format!("file://{}", server.directory.path().display());
    // Nobody may answer these before there are descriptors again.
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(TcpStream::connect(&server.process.address).await.expect("the kernel accepts"));
    }
    let mut terminal = shell(&format!("terminal {round}"), "exit 0", false);
    terminal["tty"] = json!(true);
    let requests: [(&str, Value); 9] = [
        ("process/start", shell(&format!("pipes {round}"), "exit 0", true)),
        ("process/start", terminal),
        ("fs/open", json!({"handleId": round.to_string(), "path": format!("{folder}/server.new"), "mode": "replace"})),
        ("fs/readDirectory", json!({"path": folder})),
        ("fs/walk", json!({"path": folder})),
        ("fs/watch", json!({"watchId": round.to_string(), "path": folder, "recursive": true})),
        ("fs/search", json!({"searchId": round.to_string(), "path": folder, "pattern": {"literal": "x"}})),
        ("fs/writeFile", json!({"path": format!("{folder}/written"), "dataBase64": "AAAA"})),
        ("http/request", json!({"method": "GET", "url": "http://127.0.0.1:1/", "requestId": round.to_string()})),
    ];
    let mut refused = 0;
    for (method, params) in requests {
        let answer = client.call(method, params).await;
        assert!(answer["result"].is_object() || answer["error"].is_object(), "{method}: {answer}");
        refused += usize::from(answer["error"].is_object() && method != "http/request");
    }
    refused
}

async fn everything_works(server: &ServerFixture, client: &mut Client, round: u64) {
    for (method, params) in
        [("fs/unwatch", json!({"watchId": round.to_string()})), ("fs/close", json!({"handleId": round.to_string()}))]
    {
        client.call(method, params).await;
    }
    let id = format!("after {round}");
    client.sh(&id, "exit 3").await;
    let waited = client.call("process/wait", json!({"processId": id, "until": {"kind": "closed"}})).await;
    assert_eq!(waited["result"]["outcome"]["kind"], "closed", "{waited}");
    for name in ["after", "pipes", "terminal"] {
        client.call("process/forget", json!({"processId": format!("{name} {round}")})).await;
    }
    let mut newcomer = server.client().await;
    assert_eq!(newcomer.call("environment/status", json!({})).await["result"]["status"], "ready");
    // The child that was there before is still served, in both directions.
    client.drop_unread();
    let chunk = base64_simd::STANDARD.encode_to_string(format!("{round}\n"));
    let write = json!({"processId": "living", "writeId": round.to_string(), "chunk": chunk});
    assert_eq!(client.call("process/write", write).await["result"]["status"], "accepted");
    let until = json!({"kind": "output", "regex": format!("(?m)^{round}$"), "afterSeq": 0});
    let waited = client.call("process/wait", json!({"processId": "living", "until": until})).await;
    assert_eq!(waited["result"]["outcome"]["kind"], "matched", "{waited}");
}
