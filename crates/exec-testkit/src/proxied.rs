//! A process that speaks to its proxy, and what it hears. The actor speaks in raw bytes, so that no HTTP library of a test can
//! be kinder than a program would be.

use exec_core::network::{DomainAccess, NetworkMode, NetworkProxy};

use crate::TestEnvironment;

/// A proxy that allows these hosts and no others.
pub fn proxy_that_allows(hosts: &[&str]) -> NetworkProxy {
    NetworkProxy {
        domains: hosts.iter().map(|host| ((*host).to_owned(), DomainAccess::Allow)).collect(),
        review_domains: Vec::new(),
        mode: NetworkMode::Full,
        socks5: true,
        socks5_udp: false,
        allow_upstream: false,
        allow_local: false,
        decision_timeout: None,
        audit: Vec::new(),
    }
}

/// What the actor hears when it says `text` to the proxy whose address is in this variable.
pub async fn heard(env: &TestEnvironment, name: &str, proxy: NetworkProxy, said: &[(&str, String)]) -> String {
    let log = env.start_command(name, asking(env, proxy, said)).await.read_to_end().await;
    log.printed()
}

/// An actor that says these texts, one after the other, each on a connection of its own.
pub fn asking(env: &TestEnvironment, proxy: NetworkProxy, said: &[(&str, String)]) -> exec_core::Command {
    let mut command = env.command("");
    for (at, (variable, text)) in said.iter().enumerate() {
        let separator = (at > 0).then_some(";");
        let words = separator.into_iter().chain(["say-to", variable, text]).map(Into::into);
        command.argv.extend(words);
    }
    command.network_proxy = Some(proxy);
    command
}

pub fn get(host: &str) -> (&'static str, String) {
    ("HTTP_PROXY", format!("GET http://{host}/x HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n"))
}

pub fn connect(host: &str) -> (&'static str, String) {
    let tunnel = format!("CONNECT {host} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n");
    ("HTTP_PROXY", format!("{tunnel}GET /inside HTTP/1.0\\r\\n\\r\\n"))
}

/// SOCKS5 with the name of a host.
pub fn socks(host: &str, port: u16) -> (&'static str, String) {
    let name: String = host.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    let [high, low] = port.to_be_bytes();
    let request = format!("\\x05\\x01\\x00\\x05\\x01\\x00\\x03\\x{:02x}{name}\\x{high:02x}\\x{low:02x}", host.len());
    ("ALL_PROXY", format!("{request}GET /inside HTTP/1.0\\r\\n\\r\\n"))
}
