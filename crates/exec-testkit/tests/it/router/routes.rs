//! Which environment a request is for, and what is said where there are several.

use std::sync::Arc;

use exec_client::CallError;
use exec_core::Command;
use exec_env::files::{LinkPolicy, OpenMode, WriteOptions};
use exec_env::http::{HttpRequest, Redirects};
use exec_env::process::{ReadQuery, WaitCondition};
use exec_env::{Environment, EnvironmentRegistry};
use exec_rpc::ServerOptions;
use exec_testkit::origin::Origin;
use exec_testkit::test_environment::process_id;
use exec_transport::ListenUrl;
use exec_wire::environment::{self, AddParams, RemoveParams, StatusParams};
use exec_wire::process::{ForgetParams, ListParams};

use super::{Gateway, two};
use crate::environments::ACTOR;
use crate::remote::{self, InProcessServer};

struct Fixture {
    gateway: Gateway,
    _servers: [InProcessServer; 2],
    folder: tempfile::TempDir,
}

async fn fixture(options: ServerOptions) -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (a_url, a) = remote::listen(ListenUrl::Unix(folder.path().join("a"))).await;
    let (b_url, b) = remote::listen(ListenUrl::Unix(folder.path().join("b"))).await;
    let gateway = Gateway::start(&format!("default = \"a\"\n{}", two(&a_url, &b_url)), options).await;
    Fixture { gateway, _servers: [a, b], folder }
}

fn kind(error: &CallError) -> Option<(String, Option<String>)> {
    let data = error.refusal()?.data.clone()?;
    Some((data.kind, data.environment_id))
}

#[tokio::test]
async fn a_process_stays_where_it_was_started_and_is_found_without_saying_where() {
    let fixture = fixture(ServerOptions::default()).await;
    let client = &fixture.gateway.client;
    let (a, b) = (fixture.gateway.environment("a").await, fixture.gateway.environment("b").await);
    for (environment, id) in [(&a, "in-a"), (&b, "in-b")] {
        let command = Command::new([ACTOR, "say", id, ";", "wait-forever"], "/");
        environment.processes().start(&process_id(id), command).await.expect("it starts");
    }
    // Without an id it goes where the process is.
    let until = WaitCondition::Output { regex: "in-b".into(), after: 0 };
    client.processes().wait(&process_id("in-b"), until, None).await.expect("the gateway knows where it is");
    // With another one it is refused, and nothing happens to the process.
    let error = a.processes().terminate(&process_id("in-b"), std::time::Duration::ZERO).await.expect_err("it is in b");
    assert!(error.to_string().contains("process in-b is in environment `b`, not in `a`"), "{error}");
    let error = a.processes().read(&process_id("in-b"), ReadQuery::default()).await.expect_err("it is in b");
    assert!(error.to_string().contains("is in environment `b`"), "{error}");
    // Each lists its own, and the session lists both.
    let ids =
        |listed: Vec<exec_env::process::ProcessInfo>| listed.into_iter().map(|info| info.id.to_string()).collect();
    let of_a: Vec<String> = ids(a.processes().list().await.expect("a answers"));
    let of_b: Vec<String> = ids(b.processes().list().await.expect("b answers"));
    assert_eq!((of_a, of_b), (vec!["in-a".to_owned()], vec!["in-b".to_owned()]));
    let listed = client.link().call(ListParams::default()).await.expect("both answer");
    let mut listed: Vec<(String, Option<String>)> =
        listed.processes.into_iter().map(|info| (info.process_id, info.environment_id)).collect();
    listed.sort();
    assert_eq!(listed, [("in-a".into(), Some("a".into())), ("in-b".into(), Some("b".into()))]);
    // An id is taken in the whole session.
    let again = a.processes().start(&process_id("in-b"), Command::new([ACTOR, "exit", "0"], "/")).await;
    assert!(again.expect_err("the id is taken").to_string().contains("in-b"));
    client.link().call(ForgetParams { process_id: "in-b".into() }).await.expect("it is forgotten in b");
    assert!(b.processes().list().await.expect("b answers").is_empty());
}

#[tokio::test]
async fn files_handles_and_http_go_where_the_request_says() {
    let fixture = fixture(ServerOptions::default()).await;
    let (a, b) = (fixture.gateway.environment("a").await, fixture.gateway.environment("b").await);
    // Both are this machine in truth, so a file of one is a file of the other: what differs is the handle.
    let path = fixture.folder.path().join("file");
    b.files().write(&path, "hello".into(), WriteOptions::default()).await.expect("the folder is ours");
    let opened = b.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    let block = opened.read_block(0, 5).await.expect("it has five bytes");
    assert_eq!(block.bytes, "hello");
    opened.close().await.expect("it is open");
    assert_eq!(a.files().read(&path, LinkPolicy::Follow).await.expect("it is there"), "hello");
    assert_eq!(b.info().os, "linux");
    let origin = Origin::start().await;
    for (environment, name) in [(&a, "a"), (&b, "b")] {
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: format!("http://{}/{name}", origin.address()),
            headers: Vec::new(),
            body: None,
            timeout: None,
            redirects: Redirects::Follow,
        };
        let mut response = environment.http().request(request).await.expect("the origin answers");
        let mut body = Vec::new();
        while let Some(bytes) = response.body.next().await.expect("the origin sends all of it") {
            body.extend_from_slice(&bytes);
        }
        assert_eq!((response.status, body), (200, format!("asked for /{name}").into_bytes()));
    }
    assert_eq!(origin.requests(), 2, "each request was made once");
}

#[tokio::test]
async fn an_environment_that_is_not_there_is_refused_with_those_that_are() {
    let fixture = fixture(ServerOptions::default()).await;
    for hostile in ["x", "", "A", "a ", "../a", "a\u{0}", &"a".repeat(100_000)] {
        let error = fixture.gateway.client.environment(hostile).await.expect_err("there is no such environment");
        assert!(error.to_string().contains("there is no environment"), "{hostile:.20}: {error:.200}");
        if hostile.len() < 10 {
            assert!(error.to_string().contains("there is `a`, `b`"), "{hostile}: {error}");
        }
        assert!(error.to_string().len() < 10_000, "an error is not as long as what it is about");
    }
}

#[tokio::test]
async fn statuses_are_told_without_connecting() {
    let fixture = fixture(ServerOptions::default()).await;
    let status = |id: &str| fixture.gateway.router.status(id).expect("it is configured").state;
    use exec_env::registry::EnvironmentState::{Pending, Ready};
    // The handshake asked the default, and nobody has asked the other.
    assert_eq!((status("a"), status("b")), (Ready, Pending));
    let listed = fixture.gateway.client.link().call(environment::ListParams {}).await.expect("it is listed");
    let told: Vec<(&str, bool, &str)> = listed
        .environments
        .iter()
        .map(|entry| (entry.environment_id.as_str(), entry.is_default, entry.status.as_str()))
        .collect();
    assert_eq!(told, [("a", true, "ready"), ("b", false, "pending")]);
    assert_eq!(status("b"), Pending, "to list it is not to use it");
    let default = fixture.gateway.client.link().call(StatusParams {}).await.expect("the gateway answers");
    assert_eq!(default.status, "ready");
}

#[tokio::test]
async fn environments_are_added_and_removed_only_where_that_is_permitted() {
    let add = |id: &str, url: &str| AddParams {
        environment_id: id.to_owned(),
        exec_server_url: url.to_owned(),
        connect_timeout_ms: None,
        auth_bearer_token: Some("s3cret".to_owned()),
    };
    let strict = fixture(ServerOptions::default()).await;
    let refused = strict.gateway.client.link().call(add("c", "ws://127.0.0.1:1")).await.expect_err("nobody may");
    assert_eq!(kind(&refused).map(|(kind, _)| kind).as_deref(), Some("forbidden"), "{refused}");
    let refused = strict.gateway.client.link().call(RemoveParams { environment_id: "b".into() }).await;
    assert_eq!(kind(&refused.expect_err("nobody may")).map(|(kind, _)| kind).as_deref(), Some("forbidden"));

    let open = fixture(ServerOptions { allow_environment_add: true, ..ServerOptions::default() }).await;
    let link = open.gateway.client.link();
    for (id, url) in [
        ("", "ws://127.0.0.1:1"),
        ("local", "ws://127.0.0.1:1"),
        ("none", "ws://127.0.0.1:1"),
        ("a b", "ws://127.0.0.1:1"),
        ("../x", "ws://127.0.0.1:1"),
        (&"x".repeat(65), "ws://127.0.0.1:1"),
        ("c", "unix:///run/secret"),
        ("c", "http://127.0.0.1:1"),
        ("c", "file:///etc/passwd"),
        ("c", "ws://far.example:1"),
        ("c", ""),
    ] {
        assert!(link.call(add(id, url)).await.is_err(), "{id} {url}");
    }
    assert_eq!(open.gateway.router.count(), 2, "nothing was added");
    // A third server, with a token that nobody is told of.
    let (c_url, _c) = remote::listen(ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"))).await;
    link.call(add("c", &format!("{c_url}?token=s3cret"))).await.expect("it is permitted");
    let listed = link.call(environment::ListParams {}).await.expect("it is listed");
    assert!(!serde_json::to_string(&listed).expect("a shape of ours").contains("s3cret"), "{listed:?}");
    let c = open.gateway.environment("c").await;
    let command = Command::new([ACTOR, "wait-forever"], "/");
    c.processes().start(&process_id("p"), command).await.expect("it starts there");
    // The same again changes nothing; the default and what does not exist are told.
    link.call(add("c", &format!("{c_url}?token=s3cret"))).await.expect("it is permitted");
    assert_eq!(c.processes().list().await.expect("it is still there").len(), 1);
    assert!(link.call(RemoveParams { environment_id: "a".into() }).await.is_err(), "it is the default");
    let unknown = link.call(RemoveParams { environment_id: "x".into() }).await.expect("it is no error");
    assert!(!unknown.removed);
    let removed = link.call(RemoveParams { environment_id: "c".into() }).await.expect("it is permitted");
    assert!(removed.removed);
    let gone = open.gateway.client.processes().read(&process_id("p"), ReadQuery::default()).await;
    assert!(gone.expect_err("nobody reaches it").to_string().contains("`c` was removed"));
    assert!(open.gateway.client.environment("c").await.is_err());
}

#[tokio::test]
async fn a_router_is_an_environment_for_each_id_without_a_server_too() {
    let fixture = fixture(ServerOptions::default()).await;
    let b = fixture.gateway.router.environment("b").expect("it is configured");
    assert_eq!(b.info().os, "", "nobody has reached it");
    assert!(
        b.files().metadata("/".as_ref(), LinkPolicy::Follow).await.expect("it is reached now").kind
            == exec_env::files::FileKind::Directory
    );
    assert_eq!(b.info().os, "linux");
    let same = fixture.gateway.router.environment("b").expect("it is configured");
    assert!(Arc::ptr_eq(&b, &same), "an id means the same environment");
}
