//! What a process reaches through the proxy that it was given.

use exec_core::network::NetworkProxy;
use exec_core::sandbox::{NetworkPolicy, SandboxMeans, SandboxPolicy};
use exec_env::process::ProcessReason;

use crate::TestEnvironment;
use crate::origin::Origin;
use crate::proxied::{asking, connect, get, heard, proxy_that_allows, socks};
use crate::test_environment::process_id;

pub async fn a_process_reaches_through_its_proxy_what_its_rules_allow_and_nothing_else(env: &TestEnvironment) {
    let origin = Origin::start().await;
    let (allowed, other) = (origin.address(), format!("localhost:{}", origin.port()));
    let said = [get(&allowed), connect(&allowed), socks("127.0.0.1", origin.port()), get(&other), connect(&other)];
    let heard = heard(env, "p", proxy_that_allows(&["127.0.0.1"]), &said).await;
    let heard: Vec<&str> = heard.lines().collect();
    assert_eq!(heard.len(), said.len(), "{heard:?}");
    assert!(heard[0].contains("200 OK") && heard[0].contains("asked for /x"), "{heard:?}");
    for tunnel in [&heard[1], &heard[2]] {
        assert!(tunnel.ends_with("asked for /inside"), "{heard:?}");
    }
    let refused =
        "{\\\"status\\\":\\\"blocked\\\",\\\"host\\\":\\\"localhost\\\",\\\"reason\\\":\\\"not_allowed_local\\\"";
    assert!(heard[3].starts_with("HTTP/1.1 403 Forbidden") && heard[3].contains(refused), "{heard:?}");
    assert!(heard[4].ends_with("Sandbox policy blocks local/private network addresses."), "{heard:?}");
    assert_eq!(origin.requests(), 3, "what was refused never left the proxy");
}

pub async fn no_writing_of_a_local_address_gets_past_a_wildcard(env: &TestEnvironment) {
    let origin = Origin::start().await;
    let port = origin.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[::ffff:7f00:1]",
    ];
    let said: Vec<_> =
        hosts.iter().flat_map(|host| [get(&format!("{host}:{port}")), connect(&format!("{host}:{port}"))]).collect();
    let heard = heard(env, "p", proxy_that_allows(&["*"]), &said).await;
    for (line, (_, said)) in heard.lines().zip(&said) {
        assert!(line.starts_with("HTTP/1.1 403 Forbidden"), "{said}: {line}");
    }
    assert_eq!((heard.lines().count(), origin.requests()), (said.len(), 0));
}

pub async fn a_sandboxed_process_reaches_its_proxy_and_nothing_else(env: &TestEnvironment) {
    let origin = Origin::start().await;
    let mut command = asking(env, proxy_that_allows(&["127.0.0.1"]), &[get(&origin.address())]);
    command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::ProxyOnly));
    // The origin itself, and whatever else listens on the machine, is not in the network of the process.
    let direct = format!("say-to-address {} hello", origin.address());
    command.argv.extend([";"].into_iter().chain(direct.split(' ')).map(Into::into));
    let process = env.start_command("p", command).await;
    let means = process.info().await.sandbox.expect("it is sandboxed").means;
    assert!(means.contains(&SandboxMeans::NetworkNamespace), "{means:?}");
    let printed = process.read_to_end().await.printed();
    let heard: Vec<&str> = printed.lines().collect();
    assert!(heard[0].contains("200 OK") && heard[0].contains("asked for /x"), "{heard:?}");
    assert!(heard[1].starts_with("nobody listens"), "{heard:?}");
    assert_eq!(origin.requests(), 1);
}

pub async fn datagrams_go_through_the_proxy_of_a_process_sandboxed_or_not(env: &TestEnvironment) {
    let world = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let port = world.local_addr().expect("it is bound").port();
    let [high, low] = port.to_be_bytes();
    let proxy = NetworkProxy { socks5_udp: true, ..proxy_that_allows(&["127.0.0.1"]) };
    for (name, sandbox) in [("p", None), ("s", Some(SandboxPolicy::read_only(NetworkPolicy::ProxyOnly)))] {
        let to = |address: &str| format!("\\x00\\x00\\x00\\x01{address}\\x{high:02x}\\x{low:02x}ping");
        let said = [("ALL_PROXY", to("\\x7f\\x00\\x00\\x01")), ("ALL_PROXY", to("\\x7f\\x00\\x00\\x02"))];
        let mut command = asking(env, proxy.clone(), &said);
        for word in command.argv.iter_mut().filter(|word| *word == "say-to") {
            *word = "send-datagram".into();
        }
        command.sandbox = sandbox;
        let process = env.start_command(name, command).await;
        let mut buffer = [0; 64];
        let (length, from) = world.recv_from(&mut buffer).await.expect("the proxy sends it");
        assert_eq!(&buffer[..length], b"ping");
        world.send_to(b"pong", from).await.expect("the relay has a socket");
        let printed = process.read_to_end().await.printed();
        let header: String = [0, 0, 0, 1, 127, 0, 0, 1, high, low].escape_ascii().to_string();
        assert_eq!(printed.lines().collect::<Vec<_>>(), [&format!("{header}pong"), "the relay has ended"], "{name}");
    }
}

pub async fn a_proxy_that_means_nothing_is_refused(env: &TestEnvironment) {
    for pattern in ["", "**", "http://a", "[x]"] {
        let command = asking(env, proxy_that_allows(&[pattern]), &[]);
        let refused = env.processes().start(&process_id("p"), command).await.expect_err(pattern);
        assert!(matches!(refused.reason, ProcessReason::BadCommand(_)), "{pattern}: {refused}");
    }
    let mut command = env.command("exit 0");
    command.sandbox = Some(SandboxPolicy::read_only(NetworkPolicy::ProxyOnly));
    let refused = env.processes().start(&process_id("p"), command).await.expect_err("it has no proxy");
    assert!(matches!(refused.reason, ProcessReason::BadCommand(_)), "{refused}");
}
