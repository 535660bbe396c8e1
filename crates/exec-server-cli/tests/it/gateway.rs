//! A gateway, as its user sees it: one URL, several machines.

use super::server::{Server, Transport};
use super::support::{code, stderr, stdout};

#[test]
fn a_command_runs_in_the_environment_that_is_named_behind_a_gateway() {
    let (a, b) = (Server::start(Transport::WebSocket), Server::start(Transport::Unix));
    let gateway = Server::start_gateway(&[("a", &a.url), ("b", &b.url)], &["--allow-environment-add"]);
    let far = ["--connect", gateway.url.as_str()];
    let run = |more: &[&str]| gateway.finish(&[&["run"], &far[..], more].concat());
    for id in ["a", "b"] {
        let output = run(&["--environment", id, "--", "echo", "hello from", id]);
        assert_eq!((stdout(&output), code(&output)), (format!("hello from {id}\n").as_str(), 0), "{output:?}");
    }
    let unknown = run(&["--environment", "x", "--", "true"]);
    assert_eq!(code(&unknown), 125);
    assert!(stderr(&unknown).contains("there is no environment `x`: there is `local`, `a`, `b`"), "{unknown:?}");

    // A third one comes and goes.
    let third = Server::start(Transport::WebSocket);
    let env = |words: &[&str]| gateway.finish(&[&["env"], words, &far[..]].concat());
    assert_eq!(code(&env(&["add", "c", &third.url])), 0);
    assert_eq!(stdout(&run(&["--environment", "c", "--", "echo", "c"])), "c\n");
    let listed = env(&["status", "--json"]);
    let ids: Vec<String> = stdout(&listed)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"))
        .map(|line| {
            format!("{} {}", line["environmentId"].as_str().unwrap_or(""), line["status"].as_str().unwrap_or(""))
        })
        .collect();
    assert_eq!(ids, ["local ready", "a ready", "b ready", "c ready"], "{listed:?}");
    drop(third);
    let dead = run(&["--environment", "c", "--", "echo", "c"]);
    assert_eq!(code(&dead), 125);
    assert!(stderr(&dead).contains("`c` has been away for "), "{dead:?}");
    let status = env(&["status", "c"]);
    assert!(code(&status) == 1 && stdout(&status).contains("disconnected for "), "{status:?}");
    assert_eq!(code(&env(&["remove", "c"])), 0);
    assert_eq!(code(&env(&["remove", "c"])), 1);
}

#[test]
fn a_process_left_behind_a_gateway_is_found_with_its_environment() {
    let far = Server::start(Transport::Unix);
    let gateway = Server::start_gateway(&[("far", &far.url)], &[]);
    let run = ["run", "--connect", &gateway.url, "--environment", "far", "--detach", "--", "sleep", "600"];
    let output = gateway.finish(&run);
    assert_eq!(code(&output), 0, "{output:?}");
    let listed = gateway.finish(&["ps", "--connect", &gateway.url]);
    assert!(stdout(&listed).contains(&format!("far at {}", gateway.url)), "{listed:?}");
    let id = gateway.only_process()["id"].as_str().expect("it has one").to_owned();
    assert_eq!(code(&gateway.finish(&["kill", "--forget", &id])), 0);
    let refused = gateway.finish(&["env", "add", "x", "ws://127.0.0.1:1", "--connect", &gateway.url]);
    assert!(code(&refused) == 1 && stderr(&refused).contains("--allow-environment-add"), "{refused:?}");
}
