//! The proxies of processes where a suite on every environment cannot judge them: who is asked, what is told, what a hostile
//! process tries, and what becomes of a proxy whose owner is gone.

mod hostile_requests;
mod questions;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec_core::ProcessId;
use exec_core::network::{
    DecisionSource, DomainAccess, NetworkAnswer, NetworkDecision, NetworkMode, NetworkOutcome, NetworkProtocol,
    NetworkProxy, NetworkRequest,
};
use exec_core::sandbox::{NetworkPolicy, SandboxPolicy};
use exec_env::{BoxFuture, Environment, NetworkDecider};
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions};
use exec_testkit::TestEnvironment;
use exec_testkit::origin::Origin;
use exec_testkit::proxied::{asking, connect, get, heard, proxy_that_allows, socks};
use tokio::sync::mpsc;

use crate::environments::{self, ACTOR, keeper_program};
use crate::remote;

/// Answers all the same, and remembers what it was asked and told.
struct TestDecider {
    answer: NetworkAnswer,
    asked: Mutex<Vec<(ProcessId, NetworkRequest)>>,
    told: mpsc::Sender<NetworkDecision>,
}

impl TestDecider {
    fn new(answer: NetworkAnswer) -> (Arc<Self>, mpsc::Receiver<NetworkDecision>) {
        let (told, decisions) = mpsc::channel(64);
        (Arc::new(Self { answer, asked: Mutex::default(), told }), decisions)
    }
}

impl NetworkDecider for TestDecider {
    fn decide<'a>(&'a self, process: &'a ProcessId, request: NetworkRequest) -> BoxFuture<'a, NetworkAnswer> {
        self.asked.lock().expect("nobody panics").push((process.clone(), request));
        Box::pin(async { self.answer.clone() })
    }

    fn decided(&self, _: &ProcessId, decision: NetworkDecision) {
        let _ = self.told.try_send(decision);
    }
}

fn asking_proxy(domains: &[(&str, DomainAccess)]) -> NetworkProxy {
    let domains = domains.iter().map(|(pattern, access)| ((*pattern).to_owned(), *access)).collect();
    NetworkProxy {
        domains,
        decision_timeout: Some(Duration::from_secs(20)),
        allow_local: true,
        ..proxy_that_allows(&[])
    }
}

/// What no rule allows is asked, every time; what is allowed or denied is not; and all of it is told.
async fn what_no_rule_allows_is_asked(env: &TestEnvironment) {
    let origin = Origin::start().await;
    let (decider, mut told) = TestDecider::new(NetworkAnswer::Allow);
    env.processes().set_network_decider(decider.clone());
    let here = origin.address();
    let proxy = asking_proxy(&[("denied.test", DomainAccess::Deny)]);
    let said = [get(&here), get(&here), connect(&here), socks("127.0.0.1", origin.port()), get("denied.test")];
    let heard = heard(env, "p", proxy, &said).await;
    let heard: Vec<&str> = heard.lines().collect();
    assert!(heard[..4].iter().all(|line| line.contains("asked for")), "{heard:?}");
    assert!(heard[4].contains("blocked-by-denylist"), "{heard:?}");
    use NetworkProtocol::{Http, HttpsConnect, Socks5Tcp};
    let asked: Vec<_> = decider.asked.lock().expect("nobody panics").clone();
    let protocols: Vec<NetworkProtocol> = asked.iter().map(|(_, request)| request.protocol).collect();
    assert_eq!(protocols, [Http, Http, HttpsConnect, Socks5Tcp]);
    assert!(asked.iter().all(|(id, request)| id.as_str() == "p" && request.port == origin.port()), "{asked:?}");
    let mut decisions = Vec::new();
    for _ in 0..5 {
        let decision = told.recv().await.expect("every decision is told");
        assert_eq!(decision.method.is_some(), decision.request.protocol != Socks5Tcp, "{decision:?}");
        decisions.push((decision.outcome, decision.source, decision.reason, decision.overrides_rules));
    }
    let allowed = (NetworkOutcome::Allow, DecisionSource::Decider, "not_allowed".to_owned(), true);
    let denied = (NetworkOutcome::Deny, DecisionSource::Rules, "denied".to_owned(), false);
    assert_eq!(decisions, [vec![allowed; 4], vec![denied]].concat());
}

/// A refusal of the decider reaches the process in the decider's words, and one without sense as no.
async fn what_the_decider_refuses_is_refused(env: &TestEnvironment) {
    let deny = |reason: &str| NetworkAnswer::Deny { reason: reason.to_owned() };
    let cases = [
        (deny("not today"), "deny", "not today", "blocked-by-policy"),
        (NetworkAnswer::Ask { reason: "r".to_owned() }, "ask", "r", "blocked-by-policy"),
        (deny(""), "deny", "policy_denied", "blocked-by-policy"),
        (deny(&"x".repeat(1025)), "deny", "not_allowed", "blocked-by-allowlist"),
        (deny("a\nb"), "deny", "not_allowed", "blocked-by-allowlist"),
    ];
    for (at, (answer, outcome, reason, error)) in cases.into_iter().enumerate() {
        let (decider, mut told) = TestDecider::new(answer);
        env.processes().set_network_decider(decider);
        let heard = heard(env, &format!("p{at}"), asking_proxy(&[]), &[get("a.test")]).await;
        let expected = format!(r#"\"reason\":\"{reason}\",\"decision\":\"{outcome}\",\"source\":\"decider\""#);
        assert!(heard.contains(&expected) && heard.contains(error), "{heard}");
        assert_eq!(told.recv().await.map(|decision| decision.reason).as_deref(), Some(reason));
    }
}

#[tokio::test]
async fn the_decider_of_an_environment_is_asked_and_told() {
    for env in [environments::keeper_as_thread().await, remote::over_memory().await, remote::over_unix_socket().await] {
        what_no_rule_allows_is_asked(&env).await;
        what_the_decider_refuses_is_refused(&env).await;
    }
}

#[tokio::test]
async fn the_decider_is_asked_over_a_websocket() {
    what_no_rule_allows_is_asked(&remote::over_websocket().await).await;
}

/// Limited mode lets nothing pass whose method it does not know for one that reads.
#[tokio::test]
async fn limited_mode_passes_only_what_reads() {
    let env = environments::keeper_as_thread().await;
    let origin = Origin::start().await;
    let here = origin.address();
    let proxy = NetworkProxy { mode: NetworkMode::Limited, ..proxy_that_allows(&["127.0.0.1"]) };
    let (variable, request) = get(&here);
    let with = |method: &str| (variable, request.replacen("GET", method, 1));
    let said = [
        with("GET"),
        with("HEAD"),
        with("OPTIONS"),
        with("POST"),
        with("FOO"),
        connect(&here),
        socks("127.0.0.1", 443),
    ];
    let heard = heard(&env, "p", proxy, &said).await;
    let heard: Vec<&str> = heard.lines().collect();
    assert!(heard[..3].iter().all(|line| line.starts_with("HTTP/1.1 200 OK")), "{heard:?}");
    assert!(heard[3..5].iter().all(|line| line.contains("blocked-by-method-policy")), "{heard:?}");
    assert!(heard[5].contains("blocked-by-mitm-required"), "{heard:?}");
    assert_eq!(heard[6], r"\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00");
    assert_eq!(origin.requests(), 3);
}

/// A server must not serve what comes through a proxy: a sandboxed process could ask it for one without a sandbox.
#[tokio::test]
async fn a_connection_through_a_proxy_is_known_as_one() {
    let local = Arc::new(LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up"));
    let env = TestEnvironment::new(local.clone(), ACTOR);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let own = listener.local_addr().expect("it is bound");
    let proxy = proxy_that_allows(&["127.0.0.1"]);
    let process = env.start_command("p", asking(&env, proxy, &[connect(&own.to_string())])).await;
    let (through_proxy, peer) = listener.accept().await.expect("the proxy dials");
    assert!(local.is_from_a_sandbox(peer, own).await);
    drop(through_proxy);
    process.read_to_end().await;
    let direct = tokio::net::TcpStream::connect(own).await.expect("it listens");
    let (_, peer) = listener.accept().await.expect("we dial");
    assert_eq!(direct.local_addr().expect("it is connected"), peer);
    assert!(!local.is_from_a_sandbox(peer, own).await);
}

/// The sockets for datagrams are in the network of the process, where nobody could make new ones: the keeper has kept them.
#[tokio::test]
async fn the_next_owner_relays_datagrams_of_a_sandboxed_process() {
    let world = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let port = world.local_addr().expect("it is bound").port();
    let [high, low] = port.to_be_bytes();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = || durable(&folder);
    let first = Arc::new(LocalEnvironment::open(options()).await.expect("a keeper can be started"));
    let env = TestEnvironment::new(first.clone(), ACTOR);
    let gate = env.semaphore("gate");
    let mut command = env.command(&gate.acquire());
    let datagram = format!("\\x00\\x00\\x00\\x01\\x7f\\x00\\x00\\x01\\x{high:02x}\\x{low:02x}ping");
    command.argv.extend([";", "send-datagram", "ALL_PROXY", &datagram].map(Into::into));
    command.network_proxy = Some(NetworkProxy { socks5_udp: true, ..proxy_that_allows(&["127.0.0.1"]) });
    command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::ProxyOnly));
    let id = exec_testkit::test_environment::process_id("p");
    first.processes().start(&id, command).await.expect("it starts");
    first.hand_over().await;
    gate.release();
    let second = LocalEnvironment::open(options()).await.expect("the keeper is there");
    let mut buffer = [0; 16];
    let (length, from) = world.recv_from(&mut buffer).await.expect("a socket");
    assert_eq!(&buffer[..length], b"ping");
    world.send_to(b"pong", from).await.expect("the relay has a socket");
    let log = exec_testkit::process::LogReader::open(second.processes(), &id, 0).await.read_to_end().await;
    assert!(log.printed().trim_end().ends_with("pong"), "{}", log.printed());
    second.end().await;
}

/// With a keeper that outlives its owner.
fn durable(folder: &tempfile::TempDir) -> LocalOptions {
    let orphan_ttl = Duration::from_secs(300);
    let keeper = KeeperChoice::Durable { program: keeper_program(), state: folder.path().join("state"), orphan_ttl };
    LocalOptions { keeper, ..LocalOptions::default() }
}

/// Connections that are made while nobody owns the process wait for the next owner, which serves them by the same rules.
#[tokio::test]
async fn the_next_owner_takes_a_proxy_over() {
    let origin = Origin::start().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = || durable(&folder);
    let first = Arc::new(LocalEnvironment::open(options()).await.expect("a keeper can be started"));
    let env = TestEnvironment::new(first.clone(), ACTOR);
    let gate = env.semaphore("gate");
    let mut command = env.command(&gate.acquire());
    let more = asking(&env, proxy_that_allows(&["127.0.0.1"]), &[get(&origin.address()), get("denied.test")]);
    command.argv.push(";".into());
    command.argv.extend(more.argv.into_iter().skip(1));
    command.network_proxy = more.network_proxy;
    let id = exec_testkit::test_environment::process_id("p");
    first.processes().start(&id, command).await.expect("it starts");
    first.hand_over().await;
    gate.release();
    let second = LocalEnvironment::open(options()).await.expect("the keeper is there");
    let log = exec_testkit::process::LogReader::open(second.processes(), &id, 0).await.read_to_end().await;
    let printed = log.printed();
    let heard: Vec<&str> = printed.lines().collect();
    assert!(heard[0].contains("asked for /x") && heard[1].contains("blocked-by-allowlist"), "{heard:?}");
    second.end().await;
}
