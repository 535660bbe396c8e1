//! Through which proxy of the machine a process's request goes on, if that is allowed: what the variables of the server say.
//! Those of a request or of the process say nothing here.
//!
//! Only proxies that speak HTTP without TLS are made use of, as by Codex's: a variable that names another kind counts as not
//! set. Unlike Codex's, `NO_PROXY` counts.

use core::fmt;
use core::net::IpAddr;

use super::Host;

/// The port of a proxy whose URL has none.
const DEFAULT_PORT: u16 = 80;

/// The proxies that the machine's own requests use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamProxies {
    for_requests: Option<UpstreamProxy>,
    for_tunnels: Option<UpstreamProxy>,
    no_proxy: Vec<NoProxyEntry>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    pub host: Host,
    pub port: u16,
    /// `user:password`.
    pub credentials: Option<Vec<u8>>,
}

/// Credentials are for nobody to read.
impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamProxy({}:{})", self.host.as_str(), self.port)
    }
}

/// What an entry of `NO_PROXY` names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoProxyEntry {
    hosts: NoProxyHosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NoProxyHosts {
    All,
    /// A name and all below it, or an address.
    Named(String),
    Network {
        address: IpAddr,
        bits: u32,
    },
}

impl UpstreamProxies {
    /// `variable` says what the server's variable of that name is, if it has one.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let proxy =
            |names: &[&str]| names.iter().filter_map(|name| set(name)).find_map(|url| UpstreamProxy::parse(&url));
        let no_proxy = ["NO_PROXY", "no_proxy"].into_iter().find_map(set).unwrap_or_default();
        Self {
            for_requests: proxy(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
            for_tunnels: proxy(&["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
            no_proxy: no_proxy.split([',', ' ']).filter_map(NoProxyEntry::parse).collect(),
        }
    }

    /// For a request that is passed on as one. What is local is never asked of somebody else.
    pub fn for_request(&self, host: &Host, port: u16) -> Option<&UpstreamProxy> {
        self.for_requests.as_ref().filter(|_| self.applies_to(host, port))
    }

    /// For a tunnel that was asked for by CONNECT.
    pub fn for_tunnel(&self, host: &Host, port: u16) -> Option<&UpstreamProxy> {
        self.for_tunnels.as_ref().filter(|_| self.applies_to(host, port))
    }

    fn applies_to(&self, host: &Host, port: u16) -> bool {
        !host.is_local() && !self.no_proxy.iter().any(|entry| entry.names(host, port))
    }
}

impl UpstreamProxy {
    /// `None` if it is no URL of a proxy, or one of a kind that we do not speak.
    fn parse(url: &str) -> Option<Self> {
        let url = url.trim();
        let rest = match url.split_once("://") {
            Some((scheme, rest)) => Some(rest).filter(|_| scheme.eq_ignore_ascii_case("http"))?,
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, authority) = match rest.rsplit_once('@') {
            Some((credentials, authority)) => (Some(credentials), authority),
            None => (None, rest),
        };
        let (host, port) = match split_port(authority) {
            (host, Some(port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
            (host, None) => (host, DEFAULT_PORT),
        };
        Some(Self { host: Host::parse(host)?, port, credentials: credentials.map(decoded_credentials) })
    }
}

impl NoProxyEntry {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Self { hosts: NoProxyHosts::All, port: None });
        }
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
            return Some(Self { hosts: NoProxyHosts::Network { address, bits }, port: None });
        }
        let (host, port) = split_port(text);
        let port = match port {
            Some(port) => Some(port.parse().ok()?),
            None => None,
        };
        let host = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
        Some(Self { hosts: NoProxyHosts::Named(Host::parse(host)?.as_str().to_owned()), port })
    }

    fn names(&self, host: &Host, port: u16) -> bool {
        if self.port.is_some_and(|named| named != port) {
            return false;
        }
        match &self.hosts {
            NoProxyHosts::All => true,
            NoProxyHosts::Named(name) => {
                let below = host.as_str().strip_suffix(name.as_str());
                below.is_some_and(|before| before.is_empty() || (before.ends_with('.') && host.address().is_none()))
            }
            NoProxyHosts::Network { address, bits } => {
                host.address().is_some_and(|found| is_in_network(found, *address, *bits))
            }
        }
    }
}

/// The port behind a host, if there is one. An address of the new kind has one only behind brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// `user:password` from a URL, in which any byte may be written as `%` and two digits. A user alone has an empty password.
fn decoded_credentials(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len() + 1);
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    if !text.contains(':') {
        decoded.push(b':');
    }
    decoded
}

fn is_in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) if bits <= 32 => {
            (u32::from(address) ^ u32::from(network)).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) if bits <= 128 => {
            (u128::from(address) ^ u128::from(network)).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn proxies(variables: Variables<'_>) -> UpstreamProxies {
        let find = |name: &str| variables.iter().find(|(found, _)| *found == name);
        UpstreamProxies::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn host(text: &str) -> Host {
        Host::parse(text).expect(text)
    }

    /// The ports of the proxies that a request and a tunnel go through; 0 if they go straight to the world.
    fn ports(variables: Variables<'_>) -> (u16, u16) {
        let (proxies, host) = (proxies(variables), host("a.test"));
        let port = |proxy: Option<&UpstreamProxy>| proxy.map_or(0, |proxy| proxy.port);
        (port(proxies.for_request(&host, 80)), port(proxies.for_tunnel(&host, 443)))
    }

    /// As Codex's server chooses, asked with the same variables.
    #[test]
    fn the_first_variable_that_names_a_proxy_of_the_right_kind_counts() {
        let cases: [(Variables<'_>, (u16, u16)); 14] = [
            (&[], (0, 0)),
            (&[("HTTP_PROXY", "http://p:1")], (1, 1)),
            (&[("https_proxy", "http://p:1")], (0, 1)),
            (&[("ALL_PROXY", "http://p:1")], (1, 1)),
            (&[("all_proxy", "http://p:1")], (1, 1)),
            (&[("HTTP_PROXY", "http://p:1"), ("http_proxy", "http://p:2"), ("ALL_PROXY", "http://p:3")], (1, 1)),
            (&[("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://p:2")], (1, 2)),
            (&[("HTTP_PROXY", ""), ("http_proxy", "http://p:2")], (2, 2)),
            (&[("HTTP_PROXY", "socks5://p:1"), ("ALL_PROXY", "http://p:2")], (2, 2)),
            (&[("ALL_PROXY", "socks5h://p:1")], (0, 0)),
            (&[("HTTP_PROXY", "p:1")], (1, 1)),
            (&[("HTTP_PROXY", "http://p/")], (80, 80)),
            (&[("HTTP_PROXY", "http://p:1/path")], (0, 0)),
            (&[("HTTP_PROXY", "::::")], (0, 0)),
        ];
        for (variables, expected) in cases {
            assert_eq!(ports(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn what_is_local_and_what_no_proxy_names_goes_straight_to_the_world() {
        let goes_on = |no_proxy: &str, name: &str, port: u16| {
            let proxies = proxies(&[("HTTP_PROXY", "http://p:1"), ("NO_PROXY", no_proxy)]);
            proxies.for_request(&host(name), port).is_some()
        };
        for local in ["localhost", "127.0.0.1", "10.0.0.1", "::1"] {
            assert!(!goes_on("", local, 80), "{local}");
        }
        let no_proxy = ["*", "a.test", ".test", "*.test", "TEST", "x, a.test ,y", "a.test:80"];
        for entry in no_proxy {
            assert!(!goes_on(entry, "a.test", 80), "{entry}");
        }
        for entry in ["", "b.test", "aa.test", ".a.test.b", "a.test:81", "93.184.216.0/24", "a.test:x", "test/8"] {
            assert!(goes_on(entry, "a.test", 80), "{entry}");
        }
        assert!(goes_on("a.test", "ba.test", 80));
        for (entry, address, straight) in [
            ("93.184.216.34", "93.184.216.34", true),
            ("184.216.34", "93.184.216.34", false),
            ("93.184.0.0/16", "93.184.216.34", true),
            ("93.185.0.0/16", "93.184.216.34", false),
            ("0.0.0.0/0", "93.184.216.34", true),
            ("2606::/16", "2606:2800::1", true),
            ("2607::/16", "2606:2800::1", false),
        ] {
            assert_eq!(!goes_on(entry, address, 80), straight, "{entry} {address}");
        }
    }

    #[test]
    fn credentials_are_read_and_never_shown() {
        let credentials = |url: &str| UpstreamProxy::parse(url).expect(url).credentials;
        assert_eq!(credentials("http://p:1"), None);
        assert_eq!(credentials("http://u%40x:p%3a%zs@p:1"), Some(b"u@x:p:%zs".to_vec()));
        assert_eq!(credentials("http://u@[2606::1]:1"), Some(b"u:".to_vec()));
        let shown = format!("{:?}", proxies(&[("HTTP_PROXY", "http://user:secret@p:1")]));
        assert!(!shown.contains("secret") && !shown.contains("user"), "{shown}");
    }
}
