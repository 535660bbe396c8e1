//! The proxy of one process: which hosts it may reach, who decides about the rest, and what is told of each decision.
//!
//! All of it is rules about names and addresses. Whoever serves the proxy (`exec-local`) asks in this order: what do the
//! rules say of the host ([`ProxyRules::judge`]), does the decider allow what they leave open, and may the addresses be
//! dialled that the name has ([`ProxyRules::may_dial`]). The rules are those of Codex's proxy.

mod address;
mod pattern;
mod upstream;

// Addresses are values; this is where they are without sockets.
use core::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

pub use address::is_public;
pub use pattern::{BadPattern, HostPattern};
pub use upstream::{UpstreamProxies, UpstreamProxy};

use crate::limits::PROXY_RULE_BYTES;

/// What the proxy of a process shall do, in the words of whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkProxy {
    /// Patterns of hosts, and what holds for them. A denial wins.
    pub domains: Vec<(String, DomainAccess)>,
    /// Patterns of hosts that are never allowed without the decider, whatever the other rules say.
    pub review_domains: Vec<String>,
    pub mode: NetworkMode,
    /// Whether it also speaks SOCKS5.
    pub socks5: bool,
    /// Whether SOCKS5 may carry UDP.
    pub socks5_udp: bool,
    /// Whether requests may go through the proxy that the machine itself uses, see [`UpstreamProxies`].
    pub allow_upstream: bool,
    /// Whether addresses that are not of the public internet may be reached.
    pub allow_local: bool,
    /// The decider is asked about what no rule allows, and has so long to answer. `None`: it is not asked.
    pub decision_timeout: Option<Duration>,
    /// What the audit shall know of who started the process, by name.
    pub audit: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainAccess {
    Allow,
    Deny,
}

/// Which requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkMode {
    /// Only those that read, and whose method can be seen.
    Limited,
    Full,
}

impl NetworkMode {
    pub fn allows_method(self, method: &str) -> bool {
        self == Self::Full || matches!(method, "GET" | "HEAD" | "OPTIONS")
    }
}

/// Why a proxy cannot be as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProxy {
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    /// A proxy that denies everything is none.
    #[error("the pattern {0:?} would deny every host: name those to deny")]
    DeniesAll(String),
    #[error("the rules of the proxy take {found_bytes} bytes, more than {limit_bytes}: use wildcards")]
    TooLarge { found_bytes: usize, limit_bytes: usize },
    #[error("the decider needs time to answer: give it at least a millisecond")]
    NoTime,
}

impl NetworkProxy {
    /// What its strings hold.
    pub fn bytes(&self) -> usize {
        self.rule_bytes() + self.audit.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    fn rule_bytes(&self) -> usize {
        self.domains.iter().map(|(pattern, _)| pattern).chain(&self.review_domains).map(String::len).sum()
    }
}

/// The rules of a proxy, read once.
#[derive(Debug, Clone)]
pub struct ProxyRules {
    allowed: Vec<HostPattern>,
    denied: Vec<HostPattern>,
    reviewed: Vec<HostPattern>,
    allow_local: bool,
}

/// What the rules say of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict {
    Denied,
    /// It is a name or an address of this machine or its networks.
    Local,
    /// No rule allows it. The decider may.
    Open,
    Allowed,
}

impl ProxyRules {
    pub fn new(proxy: &NetworkProxy) -> Result<Self, BadProxy> {
        let found_bytes = proxy.rule_bytes();
        if found_bytes > PROXY_RULE_BYTES {
            return Err(BadProxy::TooLarge { found_bytes, limit_bytes: PROXY_RULE_BYTES });
        }
        if proxy.decision_timeout.is_some_and(|time| time.is_zero()) {
            return Err(BadProxy::NoTime);
        }
        let with = |access: DomainAccess| proxy.domains.iter().filter(move |(_, found)| *found == access);
        let read = |text: &String| HostPattern::parse(text).map_err(BadProxy::from);
        let mut denied = Vec::new();
        for (text, _) in with(DomainAccess::Deny) {
            let pattern = read(text)?;
            if pattern.matches_everything() {
                return Err(BadProxy::DeniesAll(text.clone()));
            }
            denied.push(pattern);
        }
        let allowed = with(DomainAccess::Allow).map(|(text, _)| read(text)).collect::<Result<_, _>>()?;
        let reviewed = proxy.review_domains.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { allowed, denied, reviewed, allow_local: proxy.allow_local })
    }

    /// What the rules say of a host, before anybody knows its addresses. A wildcard allows no name or address of this
    /// machine and its networks; one that is named as it is may be reached.
    pub fn judge(&self, host: &Host) -> HostVerdict {
        let any = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.matches(host.as_str()));
        if any(&self.denied) {
            return HostVerdict::Denied;
        }
        if !self.allow_local && host.is_local() && !self.names(host) {
            return HostVerdict::Local;
        }
        if any(&self.reviewed) || !any(&self.allowed) {
            return HostVerdict::Open;
        }
        HostVerdict::Allowed
    }

    /// Whether these, all addresses of an allowed host, may be dialled. One that may not spoils the rest: whoever answers
    /// for the name could make us take it.
    pub fn may_dial(&self, host: &Host, addresses: &[IpAddr]) -> bool {
        if self.allow_local {
            return true;
        }
        match host.is_local() && self.names(host) {
            // `localhost` is this machine, whatever somebody answers for it.
            true => host.address().is_some() || addresses.iter().all(IpAddr::is_loopback),
            false => !addresses.is_empty() && addresses.iter().all(|address| is_public(*address)),
        }
    }

    /// Whether a rule allows exactly this host.
    fn names(&self, host: &Host) -> bool {
        self.allowed.iter().any(|pattern| pattern.names(host.as_str()))
    }
}

/// A host as the rules see it: in lower case, without brackets and without dots at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// `None` if it can be no host: it is empty, too long, or has something in it that no name and no address has.
    pub fn parse(text: &str) -> Option<Self> {
        let host = Self::normalized(text);
        let is_name = |text: &str| {
            let text = text.strip_prefix('.').unwrap_or(text);
            text.split('.').all(|label| {
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                !label.is_empty() && label.len() <= 63 && label != "xn--" && label.bytes().all(allowed)
            })
        };
        (host.len() <= 253 && (host.parse::<IpAddr>().is_ok() || is_name(&host))).then_some(Self(host))
    }

    /// The same of any text.
    pub(crate) fn normalized(text: &str) -> String {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        inner.trim_end_matches('.').to_ascii_lowercase()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// If it is an address and not a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// Whether it is `localhost`, or an address that is not of the public internet.
    pub fn is_local(&self) -> bool {
        self.0 == "localhost" || self.address().is_some_and(|address| !is_public(address))
    }
}

/// What a process wants to reach through its proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRequest {
    pub protocol: NetworkProtocol,
    pub host: String,
    pub port: u16,
}

/// How the process spoke to its proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkProtocol {
    Http,
    HttpsConnect,
    Socks5Tcp,
    Socks5Udp,
}

impl NetworkProtocol {
    pub const ALL: [NetworkProtocol; 4] = [Self::Http, Self::HttpsConnect, Self::Socks5Tcp, Self::Socks5Udp];

    /// For programs to compare.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpsConnect => "https_connect",
            Self::Socks5Tcp => "socks5_tcp",
            Self::Socks5Udp => "socks5_udp",
        }
    }
}

/// What the decider says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkAnswer {
    Allow,
    Deny {
        reason: String,
    },
    /// Refused for now: a person must be asked.
    Ask {
        reason: String,
    },
}

impl NetworkAnswer {
    /// What counts if there is no answer, or one that cannot be understood.
    pub fn none() -> Self {
        Self::Deny { reason: DenialReason::NotAllowed.name().to_owned() }
    }
}

/// The reasons that the proxy itself has. Those of a decider are its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialReason {
    NotAllowed,
    NotAllowedLocal,
    Denied,
    MethodNotAllowed,
    /// Limited mode must see the method, and in a tunnel nobody does.
    TunnelInLimitedMode,
    UnixSocket,
}

impl DenialReason {
    /// As Codex's proxy names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::NotAllowedLocal => "not_allowed_local",
            Self::Denied => "denied",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TunnelInLimitedMode => "mitm_required",
            Self::UnixSocket => "unix_socket_unsupported",
        }
    }
}

/// What became of a request, whoever decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDecision {
    pub at: SystemTime,
    pub request: NetworkRequest,
    pub outcome: NetworkOutcome,
    pub source: DecisionSource,
    /// One of [`DenialReason`], the decider's own, or `allow`.
    pub reason: String,
    /// The HTTP method, if there was one.
    pub method: Option<String>,
    /// The process's end of its connection to the proxy.
    pub client: Option<SocketAddr>,
    /// Whether the decider has allowed what the rules do not.
    pub overrides_rules: bool,
    /// What came with the proxy, see [`NetworkProxy::audit`].
    pub audit: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkOutcome {
    Allow,
    Deny,
    Ask,
}

impl NetworkOutcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Ask].into_iter().find(|outcome| outcome.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionSource {
    /// The rules about hosts.
    Rules,
    /// The mode of the proxy.
    Mode,
    /// What the proxy can do at all.
    Proxy,
    Decider,
}

impl DecisionSource {
    /// As Codex's proxy names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rules => "baseline_policy",
            Self::Mode => "mode_guard",
            Self::Proxy => "proxy_state",
            Self::Decider => "decider",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Rules, Self::Mode, Self::Proxy, Self::Decider].into_iter().find(|source| source.name() == name)
    }

    /// Whether the decision was about the host.
    pub fn is_about_host(self) -> bool {
        matches!(self, Self::Rules | Self::Decider)
    }
}

/// The variables by which programs find their proxy, and those that tell them what else to know: exactly those that Codex's
/// server sets.
pub fn proxy_variables(http: SocketAddr, socks: Option<SocketAddr>, allow_local: bool) -> Vec<(String, String)> {
    const HTTP: [&str; 20] = [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "WS_PROXY",
        "WSS_PROXY",
        "http_proxy",
        "https_proxy",
        "ws_proxy",
        "wss_proxy",
        "NPM_CONFIG_HTTP_PROXY",
        "NPM_CONFIG_HTTPS_PROXY",
        "NPM_CONFIG_PROXY",
        "npm_config_http_proxy",
        "npm_config_https_proxy",
        "npm_config_proxy",
        "YARN_HTTP_PROXY",
        "YARN_HTTPS_PROXY",
        "BUNDLE_HTTP_PROXY",
        "BUNDLE_HTTPS_PROXY",
        "DOCKER_HTTP_PROXY",
        "DOCKER_HTTPS_PROXY",
    ];
    const ANY: [&str; 4] = ["ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"];
    const AROUND: [&str; 5] = ["NO_PROXY", "no_proxy", "NPM_CONFIG_NOPROXY", "npm_config_noproxy", "BUNDLE_NO_PROXY"];
    let http = format!("http://{http}");
    let any = socks.map_or_else(|| http.clone(), |socks| format!("socks5h://{socks}"));
    let around = if allow_local { "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16" } else { "" };
    let all = HTTP.iter().chain(&["PIP_PROXY"]).map(|name| (*name, http.as_str()));
    let all = all.chain(ANY.map(|name| (name, any.as_str()))).chain(AROUND.map(|name| (name, around)));
    let facts = [
        ("CODEX_NETWORK_PROXY_ACTIVE", "1"),
        ("CODEX_NETWORK_ALLOW_LOCAL_BINDING", if allow_local { "1" } else { "0" }),
        ("NODE_USE_ENV_PROXY", "1"),
        ("ELECTRON_GET_USE_PROXY", "true"),
    ];
    all.chain(facts).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(domains: &[(&str, DomainAccess)], review: &[&str], allow_local: bool) -> Result<ProxyRules, BadProxy> {
        ProxyRules::new(&NetworkProxy {
            domains: domains.iter().map(|(pattern, access)| ((*pattern).to_owned(), *access)).collect(),
            review_domains: review.iter().map(|pattern| (*pattern).to_owned()).collect(),
            mode: NetworkMode::Full,
            socks5: true,
            socks5_udp: false,
            allow_upstream: false,
            allow_local,
            decision_timeout: None,
            audit: Vec::new(),
        })
    }

    fn host(text: &str) -> Host {
        Host::parse(text).expect(text)
    }

    #[test]
    fn denial_wins_then_what_is_local_then_review_and_at_last_what_is_allowed() {
        use DomainAccess::{Allow, Deny};
        use HostVerdict::{Allowed, Denied, Local, Open};
        let strict = rules(&[("*", Allow), ("bad.test", Deny), ("10.0.0.1", Allow)], &["seen.test"], false);
        let strict = strict.expect("the patterns are good");
        let cases = [
            ("bad.test", Denied),
            ("BAD.test.", Denied),
            ("a.test", Allowed),
            ("seen.test", Open),
            ("localhost", Local),
            ("127.0.0.1", Local),
            ("[::1]", Local),
            ("10.0.0.2", Local),
            ("10.0.0.1", Allowed),
        ];
        for (name, verdict) in cases {
            assert_eq!(strict.judge(&host(name)), verdict, "{name}");
        }
        let open = rules(&[], &[], true).expect("there are none");
        assert_eq!(open.judge(&host("127.0.0.1")), Open);
        assert_eq!(rules(&[("*", Deny)], &[], false).err(), Some(BadProxy::DeniesAll("*".to_owned())));
    }

    #[test]
    fn one_address_that_may_not_be_dialled_spoils_all_and_no_address_is_none() {
        let public: IpAddr = "93.184.216.34".parse().expect("an address");
        let loopback: IpAddr = "127.0.0.1".parse().expect("an address");
        let rules_for = |pattern: &str, allow_local| rules(&[(pattern, DomainAccess::Allow)], &[], allow_local);
        let strict = rules_for("a.test", false).expect("a good pattern");
        let name = host("a.test");
        assert!(strict.may_dial(&name, &[public]));
        for addresses in [&[][..], &[loopback], &[public, loopback], &[loopback, public]] {
            assert!(!strict.may_dial(&name, addresses), "{addresses:?}");
        }
        assert!(rules_for("a.test", true).expect("a good pattern").may_dial(&name, &[loopback]));
        let named = rules_for("localhost", false).expect("a good pattern");
        assert!(named.may_dial(&host("localhost"), &[loopback]));
        assert!(!named.may_dial(&host("localhost"), &[public]), "whoever answers for it");
    }

    #[test]
    fn rules_are_bounded() {
        let fits = "a".repeat(PROXY_RULE_BYTES);
        assert!(rules(&[(&fits, DomainAccess::Allow)], &[], false).is_ok());
        let refused = rules(&[(&fits, DomainAccess::Allow)], &["b"], false);
        assert!(matches!(refused, Err(BadProxy::TooLarge { .. })));
    }

    #[test]
    fn what_is_no_host_is_none() {
        for text in ["", ".", "a..b", "*", "a b", "xn--", "a/b", "é", "a%b", &"a".repeat(64), &"a.".repeat(128)] {
            assert_eq!(Host::parse(text), None, "{text}");
        }
        assert_eq!(Host::parse("[2606:2800::1]").map(|host| host.0).as_deref(), Some("2606:2800::1"));
    }
}
