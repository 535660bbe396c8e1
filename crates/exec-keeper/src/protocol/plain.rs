//! How values of `exec-core` are written in a message. Core does not serialise, so each of its types has a plain form here,
//! for `#[serde(with = "plain")]`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use exec_core::flow::Quota;
use exec_core::network::{DomainAccess, NetworkMode, NetworkProxy};
use exec_core::sandbox::{Confinement, FileAccess, MountStep, SandboxMeans, SandboxReport, Supervision};
use exec_core::writable_paths::WritablePaths;
use exec_core::{
    Exit, Io, Limit, LimitMeans, LimitReport, Overflow, ProcessId, ResourceLimits, SpawnStep, TerminalSize, TimeLimit,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::spool::index::{decode_exit, encode_exit};

pub(super) trait Plain: Clone {
    type Form: Serialize + for<'de> Deserialize<'de>;

    fn to_form(self) -> Self::Form;

    /// `None` if no value has this form.
    fn from_form(form: Self::Form) -> Option<Self>;
}

pub(super) fn serialize<T: Plain, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.clone().to_form().serialize(serializer)
}

pub(super) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::from_form(T::Form::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no such value"))
}

/// A type, its form, and the way there and back.
macro_rules! plain {
    ($type:ty, $form:ty, $to:expr, $from:expr) => {
        impl Plain for $type {
            type Form = $form;

            fn to_form(self) -> $form {
                let to: fn($type) -> $form = $to;
                to(self)
            }

            fn from_form(form: $form) -> Option<$type> {
                let from: fn($form) -> Option<$type> = $from;
                from(form)
            }
        }
    };
}

plain!(ProcessId, String, |id| id.as_str().to_owned(), |id| ProcessId::new(id).ok());
// Not as text, which a path need not be.
plain!(PathBuf, OsString, PathBuf::into_os_string, |path| Some(path.into()));
plain!(SpawnStep, String, |step| step.name().to_owned(), |name| SpawnStep::from_name(&name));
plain!(TimeLimit, (Duration, Duration), |limit| (limit.after, limit.grace), |(after, grace)| Some(TimeLimit {
    after,
    grace
}));
plain!(Quota, (u64, bool), |quota| (quota.cap_bytes, quota.overflow == Overflow::Block), |(cap_bytes, block)| {
    let overflow = if block { Overflow::Block } else { Overflow::DropOldest };
    Some(Quota { cap_bytes, overflow })
});
// Whether stdin is a pipe, or else the rows and columns of the terminal.
plain!(
    Io,
    Result<bool, (u16, u16)>,
    |io| match io {
        Io::Pipes { stdin } => Ok(stdin),
        Io::Pty(size) => Err((size.rows, size.cols)),
    },
    |form| Some(match form {
        Ok(stdin) => Io::Pipes { stdin },
        Err((rows, cols)) => Io::Pty(TerminalSize { rows, cols }),
    })
);
// As in the index of a log, which keeps it too.
plain!(Exit, Vec<u8>, |exit| encode_exit(0, &exit).to_vec(), |bytes| Some(decode_exit(&bytes)?.1));

plain!(SandboxReport, Vec<String>, |report| report.means.into_iter().map(SandboxMeans::name).collect(), |names| Some(
    SandboxReport { means: names.iter().map(|name| SandboxMeans::from_name(name)).collect::<Option<_>>()? }
));

// In the order of `Limit::ALL`.
plain!(ResourceLimits, [Option<u64>; 5], |limits| Limit::ALL.map(|limit| limits.get(limit)), |values| {
    let mut limits = ResourceLimits::default();
    let asked = Limit::ALL.into_iter().zip(values).filter_map(|(limit, value)| Some((limit, value?)));
    asked.for_each(|(limit, value)| limits.set(limit, value));
    Some(limits)
});
plain!(
    LimitReport,
    Vec<(String, String)>,
    |report| report.iter().map(|(limit, means)| (limit.name().to_owned(), means.name().to_owned())).collect(),
    |names| {
        let mut report = LimitReport::default();
        for (limit, means) in names {
            report.set(Limit::from_name(&limit)?, LimitMeans::from_name(&means)?);
        }
        Some(report)
    }
);

plain!(
    MountStep,
    (u8, OsString, OsString),
    |step| match step {
        MountStep::EmptyRoot => (0, OsString::new(), OsString::new()),
        MountStep::ReadOnlyRoot => (1, OsString::new(), OsString::new()),
        MountStep::Bind { path, writable } => (if writable { 3 } else { 2 }, path.into(), OsString::new()),
        MountStep::Link { path, target } => (4, path.into(), target.into()),
        MountStep::HideDirectory { path, passable } => (if passable { 6 } else { 5 }, path.into(), OsString::new()),
        MountStep::HideFile { path } => (7, path.into(), OsString::new()),
        MountStep::Devices => (8, OsString::new(), OsString::new()),
        MountStep::Processes => (10, OsString::new(), OsString::new()),
        MountStep::EmptyDirectory { path } => (9, path.into(), OsString::new()),
    },
    |(kind, path, target)| {
        let path = PathBuf::from(path);
        Some(match kind {
            0 => MountStep::EmptyRoot,
            1 => MountStep::ReadOnlyRoot,
            2 => MountStep::Bind { path, writable: false },
            3 => MountStep::Bind { path, writable: true },
            4 => MountStep::Link { path, target: target.into() },
            5 => MountStep::HideDirectory { path, passable: false },
            6 => MountStep::HideDirectory { path, passable: true },
            7 => MountStep::HideFile { path },
            8 => MountStep::Devices,
            9 => MountStep::EmptyDirectory { path },
            10 => MountStep::Processes,
            _ => return None,
        })
    }
);
plain!(
    FileAccess,
    u8,
    |access| match access {
        FileAccess::Read => 0,
        FileAccess::Write => 1,
        FileAccess::Deny => 2,
    },
    |number| Some(match number {
        0 => FileAccess::Read,
        1 => FileAccess::Write,
        2 => FileAccess::Deny,
        _ => return None,
    })
);
plain!(
    Supervision,
    (Vec<u64>, Vec<(OsString, u8)>),
    |supervision| {
        let rules = supervision.places.rules().iter();
        let rules = rules.map(|(path, access)| (path.clone().into_os_string(), access.to_form()));
        (supervision.filter, rules.collect())
    },
    |(filter, rules)| {
        let rules = rules.into_iter().map(|(path, access)| Some((path.into(), FileAccess::from_form(access)?)));
        Some(Supervision { filter, places: WritablePaths::new(rules.collect::<Option<_>>()?) })
    }
);
plain!(
    Confinement,
    ConfinementForm,
    |confinement| ConfinementForm {
        user_namespace: confinement.user_namespace,
        pid_namespace: confinement.pid_namespace,
        network: confinement.network,
        mounts: confinement.mounts.into_iter().map(MountStep::to_form).collect(),
        landlock: confinement.landlock,
        filters: confinement.filters,
        supervision: confinement.supervision.to_form(),
    },
    |form| Some(Confinement {
        user_namespace: form.user_namespace,
        pid_namespace: form.pid_namespace,
        network: form.network,
        mounts: form.mounts.into_iter().map(MountStep::from_form).collect::<Option<_>>()?,
        landlock: form.landlock,
        filters: form.filters,
        supervision: Option::from_form(form.supervision)?,
    })
);

#[derive(Serialize, Deserialize)]
pub(super) struct ConfinementForm {
    user_namespace: bool,
    pid_namespace: bool,
    network: Option<Vec<u16>>,
    mounts: Vec<<MountStep as Plain>::Form>,
    landlock: Option<u64>,
    filters: Vec<Vec<u64>>,
    supervision: <Option<Supervision> as Plain>::Form,
}

plain!(
    NetworkProxy,
    ProxyForm,
    |proxy| ProxyForm {
        domains: proxy.domains.into_iter().map(|(pattern, access)| (pattern, access == DomainAccess::Allow)).collect(),
        review_domains: proxy.review_domains,
        limited: proxy.mode == NetworkMode::Limited,
        socks5: proxy.socks5,
        socks5_udp: proxy.socks5_udp,
        allow_upstream: proxy.allow_upstream,
        allow_local: proxy.allow_local,
        decision_timeout: proxy.decision_timeout,
        audit: proxy.audit,
    },
    |form| {
        let access = |allowed| if allowed { DomainAccess::Allow } else { DomainAccess::Deny };
        Some(NetworkProxy {
            domains: form.domains.into_iter().map(|(pattern, allowed)| (pattern, access(allowed))).collect(),
            review_domains: form.review_domains,
            mode: if form.limited { NetworkMode::Limited } else { NetworkMode::Full },
            socks5: form.socks5,
            socks5_udp: form.socks5_udp,
            allow_upstream: form.allow_upstream,
            allow_local: form.allow_local,
            decision_timeout: form.decision_timeout,
            audit: form.audit,
        })
    }
);

#[derive(Serialize, Deserialize)]
pub(super) struct ProxyForm {
    domains: Vec<(String, bool)>,
    review_domains: Vec<String>,
    limited: bool,
    socks5: bool,
    socks5_udp: bool,
    allow_upstream: bool,
    allow_local: bool,
    decision_timeout: Option<Duration>,
    audit: Vec<(String, String)>,
}

impl<T: Plain> Plain for Option<T> {
    type Form = Option<T::Form>;

    fn to_form(self) -> Self::Form {
        self.map(T::to_form)
    }

    fn from_form(form: Self::Form) -> Option<Self> {
        match form {
            Some(form) => T::from_form(form).map(Some),
            None => Some(None),
        }
    }
}
