//! The proxy of a process and the decisions about it become values of the domain, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use exec_core::network as core;

use super::{
    AuditMetadata, CredentialMasking, DomainPermission, NetworkMode, NetworkProxy, PolicyDecision,
    PolicyDecisionParams, PolicyProtocol, PolicyRequest, ProxyConfig,
};
use crate::process::round_up_to_millis;

impl From<NetworkProxy> for core::NetworkProxy {
    fn from(launch: NetworkProxy) -> Self {
        let proxy = launch.proxy;
        let domains = proxy.domains.unwrap_or_default().into_iter();
        let domains = domains.filter_map(|(pattern, permission)| match permission {
            DomainPermission::None => None,
            DomainPermission::Allow => Some((pattern, core::DomainAccess::Allow)),
            DomainPermission::Deny => Some((pattern, core::DomainAccess::Deny)),
        });
        let of_launch = [("environmentId", launch.environment_id), ("executionId", launch.execution_id)];
        let audit = launch.audit_metadata.named().into_iter().chain(of_launch);
        Self {
            domains: domains.collect(),
            review_domains: proxy.review_domains,
            mode: match proxy.mode {
                NetworkMode::Limited => core::NetworkMode::Limited,
                NetworkMode::Full => core::NetworkMode::Full,
            },
            socks5: proxy.enable_socks5,
            socks5_udp: proxy.enable_socks5_udp,
            allow_upstream: proxy.allow_upstream_proxy,
            allow_local: proxy.allow_local_binding,
            decision_timeout: launch.policy_decision_timeout_ms.map(Duration::from_millis),
            audit: audit.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
        }
    }
}

impl From<&core::NetworkProxy> for NetworkProxy {
    fn from(proxy: &core::NetworkProxy) -> Self {
        let permission = |access: &core::DomainAccess| match access {
            core::DomainAccess::Allow => DomainPermission::Allow,
            core::DomainAccess::Deny => DomainPermission::Deny,
        };
        let domains = proxy.domains.iter().map(|(pattern, access)| (pattern.clone(), permission(access)));
        let audit = |name: &str| {
            let found = proxy.audit.iter().find(|(found, _)| found == name);
            found.map(|(_, value)| value.clone())
        };
        Self {
            proxy: ProxyConfig {
                enabled: true,
                enable_socks5: proxy.socks5,
                enable_socks5_udp: proxy.socks5_udp,
                allow_upstream_proxy: proxy.allow_upstream,
                dangerously_allow_all_unix_sockets: false,
                mode: match proxy.mode {
                    core::NetworkMode::Limited => NetworkMode::Limited,
                    core::NetworkMode::Full => NetworkMode::Full,
                },
                domains: Some(domains.collect()),
                review_domains: proxy.review_domains.clone(),
                unix_sockets: None,
                allow_local_binding: proxy.allow_local,
                masking: CredentialMasking::default(),
            },
            audit_metadata: AuditMetadata::from_named(audit),
            environment_id: audit("environmentId"),
            execution_id: audit("executionId"),
            policy_decision_timeout_ms: proxy.decision_timeout.and_then(round_up_to_millis),
        }
    }
}

impl From<core::NetworkProtocol> for PolicyProtocol {
    fn from(protocol: core::NetworkProtocol) -> Self {
        match protocol {
            core::NetworkProtocol::Http => Self::Http,
            core::NetworkProtocol::HttpsConnect => Self::HttpsConnect,
            core::NetworkProtocol::Socks5Tcp => Self::Socks5Tcp,
            core::NetworkProtocol::Socks5Udp => Self::Socks5Udp,
        }
    }
}

impl From<PolicyProtocol> for core::NetworkProtocol {
    fn from(protocol: PolicyProtocol) -> Self {
        match protocol {
            PolicyProtocol::Http => Self::Http,
            PolicyProtocol::HttpsConnect => Self::HttpsConnect,
            PolicyProtocol::Socks5Tcp => Self::Socks5Tcp,
            PolicyProtocol::Socks5Udp => Self::Socks5Udp,
        }
    }
}

impl From<core::NetworkRequest> for PolicyRequest {
    fn from(request: core::NetworkRequest) -> Self {
        Self { protocol: request.protocol.into(), host: request.host, port: request.port }
    }
}

impl From<PolicyRequest> for core::NetworkRequest {
    fn from(request: PolicyRequest) -> Self {
        Self { protocol: request.protocol.into(), host: request.host, port: request.port }
    }
}

impl From<PolicyDecision> for core::NetworkAnswer {
    fn from(decision: PolicyDecision) -> Self {
        match decision {
            PolicyDecision::Allow => Self::Allow,
            PolicyDecision::Deny { reason } => Self::Deny { reason },
            PolicyDecision::Ask { reason } => Self::Ask { reason },
        }
    }
}

impl From<core::NetworkAnswer> for PolicyDecision {
    fn from(answer: core::NetworkAnswer) -> Self {
        match answer {
            core::NetworkAnswer::Allow => Self::Allow,
            core::NetworkAnswer::Deny { reason } => Self::Deny { reason },
            core::NetworkAnswer::Ask { reason } => Self::Ask { reason },
        }
    }
}

impl PolicyDecisionParams {
    /// What a client is told of a decision. The audit data stays with the server: the client has sent it.
    pub fn new(process_id: String, decision: &core::NetworkDecision) -> Self {
        let scope = if decision.source.is_about_host() { "domain" } else { "non_domain" };
        Self {
            process_id,
            timestamp: timestamp(decision.at),
            scope: scope.to_owned(),
            decision: decision.outcome.name().to_owned(),
            source: decision.source.name().to_owned(),
            reason: decision.reason.clone(),
            protocol: decision.request.protocol.into(),
            host: decision.request.host.clone(),
            port: decision.request.port,
            method: decision.method.clone(),
            client: decision.client.map(|client| client.to_string()),
            policy_override: decision.overrides_rules,
        }
    }

    /// `None` if it has words that we do not know.
    pub fn into_domain(self) -> Option<core::NetworkDecision> {
        Some(core::NetworkDecision {
            at: from_timestamp(&self.timestamp)?,
            request: core::NetworkRequest { protocol: self.protocol.into(), host: self.host, port: self.port },
            outcome: core::NetworkOutcome::from_name(&self.decision)?,
            source: core::DecisionSource::from_name(&self.source)?,
            reason: self.reason,
            method: self.method,
            client: self.client.and_then(|client| client.parse().ok()),
            overrides_rules: self.policy_override,
            audit: Vec::new(),
        })
    }
}

const DAY: u64 = 86_400;

/// `2026-11-15T18:43:50.064Z`, in the calendar that begins in March, so that the odd day is the last.
fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY + 719_468, since.as_secs() % DAY);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

fn from_timestamp(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let three = |text: &str, at: char| -> Option<[u64; 3]> {
        let numbers: Option<Vec<u64>> = text.split(at).map(|part| part.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let (time, millis) = time.split_once('.')?;
    let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = three(date, '-')? else { return None };
    let [hour @ 0..=23, minute @ 0..=59, second @ 0..=60] = three(time, ':')? else { return None };
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)?;
    let seconds = days * DAY + hour * 3600 + minute * 60 + second;
    let millis = millis.get(..3)?.parse::<u64>().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds) + Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_codex_writes_them_and_read_again() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_794_768_230_064, "2026-11-15T18:43:50.064Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(timestamp(at), text);
            assert_eq!(from_timestamp(text), Some(at));
        }
        for text in
            ["", "now", "2026-13-01T00:00:00.000Z", "2026-01-01T00:00:00Z", "2026-01-01", "0000-00-00T00:00:00.000Z"]
        {
            assert_eq!(from_timestamp(text), None, "{text}");
        }
    }
}
