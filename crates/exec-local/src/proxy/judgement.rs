//! Whether a request of a process may go where it wants to: first its rules, then the decider, then the addresses. Every
//! decision is told.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use exec_core::ProcessId;
use exec_core::network::{
    DecisionSource, DenialReason, Host, HostVerdict, NetworkAnswer, NetworkDecision, NetworkMode, NetworkOutcome,
    NetworkProtocol, NetworkProxy, NetworkRequest, ProxyRules, UpstreamProxy, is_public,
};

use super::ProxyHost;
use super::dial::{Dialled, dial};
use crate::descriptors::DescriptorPermit;

/// How much longer than the decider's own time its answer may take to arrive; as in Codex's server.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// Longest reason of a decider, in bytes.
const REASON_BYTES: usize = 1024;
/// What a decider means that refuses without a reason.
const NO_REASON: &str = "policy_denied";

/// Judges the requests of one process.
pub(super) struct Judge {
    host: Arc<ProxyHost>,
    process: ProcessId,
    proxy: NetworkProxy,
    rules: ProxyRules,
}

/// A request, and who makes it.
pub(super) struct Asked<'a> {
    pub(super) protocol: NetworkProtocol,
    pub(super) host: &'a Host,
    pub(super) port: u16,
    pub(super) method: Option<&'a str>,
    pub(super) client: SocketAddr,
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) outcome: NetworkOutcome,
    pub(super) source: DecisionSource,
    pub(super) reason: String,
}

/// Where an allowed request goes.
pub(super) struct Destination {
    addresses: Addresses,
    pub(super) port: u16,
}

/// How an allowed request goes there.
pub(super) enum Route<'a> {
    Straight(Destination),
    /// By a proxy of the machine, which looks the name up itself.
    Through(&'a UpstreamProxy),
}

enum Addresses {
    Judged(Vec<IpAddr>),
    /// Any will do, so they are looked up when it is dialled.
    Any(Host),
}

impl Judge {
    pub(super) fn new(host: Arc<ProxyHost>, process: ProcessId, proxy: NetworkProxy, rules: ProxyRules) -> Self {
        Self { host, process, proxy, rules }
    }

    pub(super) fn mode(&self) -> NetworkMode {
        self.proxy.mode
    }

    /// Whether SOCKS5 carries datagrams.
    pub(super) fn relays_datagrams(&self) -> bool {
        self.proxy.socks5_udp
    }

    pub(super) fn take_descriptors(&self, count: usize) -> Option<[DescriptorPermit; 2]> {
        self.host.take_descriptors(count)
    }

    /// Judges the host, and tells of it.
    pub(super) async fn judge(&self, asked: &Asked<'_>) -> Result<Destination, Refusal> {
        let (judged, overrides) = self.judge_host(asked).await;
        let (outcome, source, reason) = match &judged {
            Ok(_) if overrides => {
                (NetworkOutcome::Allow, DecisionSource::Decider, DenialReason::NotAllowed.name().to_owned())
            }
            Ok(_) => (NetworkOutcome::Allow, DecisionSource::Rules, "allow".to_owned()),
            Err(refusal) => (refusal.outcome, refusal.source, refusal.reason.clone()),
        };
        self.tell(asked, outcome, source, reason, overrides && judged.is_ok());
        judged
    }

    /// Refuses for a reason of the proxy's own, and tells of it.
    pub(super) fn refuse(&self, asked: &Asked<'_>, source: DecisionSource, reason: DenialReason) -> Refusal {
        let (outcome, reason) = (NetworkOutcome::Deny, reason.name().to_owned());
        self.tell(asked, outcome, source, reason.clone(), false);
        Refusal { outcome, source, reason }
    }

    /// Also whether it was the decider who allowed it.
    async fn judge_host(&self, asked: &Asked<'_>) -> (Result<Destination, Refusal>, bool) {
        let by_rules = |reason: DenialReason| {
            let (outcome, source) = (NetworkOutcome::Deny, DecisionSource::Rules);
            Err(Refusal { outcome, source, reason: reason.name().to_owned() })
        };
        let overrides = match self.rules.judge(asked.host) {
            HostVerdict::Denied => return (by_rules(DenialReason::Denied), false),
            HostVerdict::Local => return (by_rules(DenialReason::NotAllowedLocal), false),
            HostVerdict::Allowed => false,
            HostVerdict::Open => match self.ask(asked).await {
                None => return (by_rules(DenialReason::NotAllowed), false),
                Some(Err(refusal)) => return (Err(refusal), false),
                Some(Ok(())) => true,
            },
        };
        let addresses = if self.proxy.allow_local {
            Addresses::Any(asked.host.clone())
        } else {
            let found = self.host.lookups.addresses(asked.host).await;
            if !self.rules.may_dial(asked.host, &found) {
                return (by_rules(DenialReason::NotAllowedLocal), false);
            }
            Addresses::Judged(found)
        };
        (Ok(Destination { addresses, port: asked.port }), overrides)
    }

    /// What the decider says; `None` if it shall not be asked.
    async fn ask(&self, asked: &Asked<'_>) -> Option<Result<(), Refusal>> {
        let time = self.proxy.decision_timeout?;
        let host = asked.host.as_str().to_owned();
        let request = NetworkRequest { protocol: asked.protocol, host, port: asked.port };
        let answer = match self.host.decider() {
            Some(decider) => {
                let answer = decider.decide(&self.process, request);
                tokio::time::timeout(time.saturating_add(ANSWER_GRACE), answer).await.unwrap_or(NetworkAnswer::none())
            }
            None => NetworkAnswer::none(),
        };
        let (outcome, reason) = match understood(answer) {
            NetworkAnswer::Allow => return Some(Ok(())),
            NetworkAnswer::Deny { reason } => (NetworkOutcome::Deny, reason),
            NetworkAnswer::Ask { reason } => (NetworkOutcome::Ask, reason),
        };
        Some(Err(Refusal { outcome, source: DecisionSource::Decider, reason }))
    }

    pub(super) async fn dial(&self, destination: &Destination) -> std::io::Result<Dialled> {
        dial(&self.host.dialled, &self.addresses(destination).await, destination.port).await
    }

    /// Those that were judged; or those that the host has now, if any will do.
    pub(super) async fn addresses(&self, destination: &Destination) -> Vec<IpAddr> {
        match &destination.addresses {
            Addresses::Judged(addresses) => addresses.clone(),
            Addresses::Any(host) => self.host.lookups.addresses(host).await,
        }
    }

    /// The proxy of the machine through which an allowed request goes on, if it shall. A name that is known here as one of
    /// the machine or its networks is dialled here: what comes back to our own server must be known as ours.
    pub(super) async fn route(&self, asked: &Asked<'_>, destination: Destination) -> Route<'_> {
        let upstream = match asked.protocol {
            NetworkProtocol::Http => self.host.upstream.for_request(asked.host, asked.port),
            NetworkProtocol::HttpsConnect => self.host.upstream.for_tunnel(asked.host, asked.port),
            // Codex's proxy passes on only what it was asked in HTTP.
            NetworkProtocol::Socks5Tcp | NetworkProtocol::Socks5Udp => None,
        };
        let Some(upstream) = upstream.filter(|_| self.proxy.allow_upstream) else {
            return Route::Straight(destination);
        };
        let found = self.addresses(&destination).await;
        if found.iter().all(|address| is_public(*address)) {
            return Route::Through(upstream);
        }
        Route::Straight(Destination { addresses: Addresses::Judged(found), port: destination.port })
    }

    /// A connection to a proxy of the machine. Whatever its addresses are: it is the machine's own.
    pub(super) async fn dial_upstream(&self, upstream: &UpstreamProxy) -> std::io::Result<Dialled> {
        let addresses = self.host.lookups.addresses(&upstream.host).await;
        dial(&self.host.dialled, &addresses, upstream.port).await
    }

    fn tell(
        &self,
        asked: &Asked<'_>,
        outcome: NetworkOutcome,
        source: DecisionSource,
        reason: String,
        overrides_rules: bool,
    ) {
        let Some(decider) = self.host.decider() else { return };
        let host = asked.host.as_str().to_owned();
        let decision = NetworkDecision {
            at: SystemTime::now(),
            request: NetworkRequest { protocol: asked.protocol, host, port: asked.port },
            outcome,
            source,
            reason,
            method: asked.method.map(str::to_owned),
            client: Some(asked.client),
            overrides_rules,
            audit: self.proxy.audit.clone(),
        };
        decider.decided(&self.process, decision);
    }
}

/// An answer whose reason cannot be passed on to a program and a log is none.
fn understood(answer: NetworkAnswer) -> NetworkAnswer {
    let reason = match &answer {
        NetworkAnswer::Allow => return answer,
        NetworkAnswer::Deny { reason } | NetworkAnswer::Ask { reason } => reason,
    };
    if reason.len() > REASON_BYTES || reason.chars().any(char::is_control) {
        return NetworkAnswer::none();
    }
    match (reason.is_empty(), &answer) {
        (true, NetworkAnswer::Ask { .. }) => NetworkAnswer::Ask { reason: NO_REASON.to_owned() },
        (true, _) => NetworkAnswer::Deny { reason: NO_REASON.to_owned() },
        (false, _) => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use exec_core::network::DomainAccess;

    use super::*;
    use crate::descriptors::DescriptorBudget;
    use crate::proxy::dial::Lookups;

    /// Whoever answers for a name says another address every time it is asked. What was judged is what is dialled, because
    /// nobody asks again.
    #[tokio::test]
    async fn a_name_is_looked_up_once_and_the_judged_addresses_are_dialled() {
        let public: IpAddr = "93.184.216.34".parse().expect("an address");
        let loopback: IpAddr = "127.0.0.1".parse().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let lookups = Lookups::with(move |_| {
            let first = counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            Box::pin(async move { Ok(vec![if first { public } else { loopback }]) })
        });
        let host = ProxyHost { lookups, ..ProxyHost::new(DescriptorBudget::of_this_process()) };
        let proxy = NetworkProxy {
            domains: vec![("*".to_owned(), DomainAccess::Allow)],
            review_domains: Vec::new(),
            mode: NetworkMode::Full,
            socks5: false,
            socks5_udp: false,
            allow_upstream: false,
            allow_local: false,
            decision_timeout: None,
            audit: Vec::new(),
        };
        let rules = ProxyRules::new(&proxy).expect("a good pattern");
        let process = ProcessId::new("p").expect("short");
        let judge = Judge::new(Arc::new(host), process, proxy, rules);
        let name = Host::parse("rebound.test").expect("a name");
        let client = SocketAddr::from(([127, 0, 0, 1], 1));
        let asked_for = Asked { protocol: NetworkProtocol::Http, host: &name, port: 80, method: None, client };
        let destination = judge.judge(&asked_for).await.expect("it is public");
        assert!(matches!(&destination.addresses, Addresses::Judged(found) if *found == [public]));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let refused = judge.judge(&asked_for).await.err().expect("now it is the loopback");
        assert_eq!((refused.reason.as_str(), asked.load(Ordering::Relaxed)), ("not_allowed_local", 2));
    }
}
