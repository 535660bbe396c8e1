//! What a row of the table of methods says: the family of a method and how it behaves.
//!
//! A row begins with `READS` or `CHANGES` and says in what it differs. Names, params and results are not known here.

/// The group of methods that an error text names when the handshake is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodFamily {
    Handshake,
    Exec,
    Filesystem,
    Http,
    EnvironmentInfo,
    EnvironmentStatus,
    EnvironmentConfig,
    CapabilityDiscovery,
    Session,
    Streams,
    /// Asked by the server, answered by the client.
    Network,
}

impl MethodFamily {
    /// The words that error texts use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Exec => "exec",
            Self::Filesystem => "filesystem",
            Self::Http => "http",
            Self::EnvironmentInfo => "environment info",
            Self::EnvironmentStatus => "environment status",
            Self::EnvironmentConfig => "environment config",
            Self::CapabilityDiscovery => "capability discovery",
            Self::Session => "session",
            Self::Streams => "stream",
            Self::Network => "network",
        }
    }
}

/// Whether a request waits for others of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// It runs at once, however many others run.
    Control,
    /// It waits while the connection runs as many requests as it may.
    Ordinary,
}

/// What a client does with a call whose connection broke before its response came. Where the params decide (a write that
/// appends), the caller chooses; otherwise the table does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryPolicy {
    /// It is sent again: it changes nothing, doing it twice is doing it once, or the server knows it by a key in its params.
    Always,
    /// It is sent again to a server that remembers the response to its request id; otherwise as [`Self::IfUnsent`]. Servers
    /// remember the responses to exactly these methods.
    IfServerRemembers,
    /// It is sent again only if it had not been sent; otherwise it fails, and the error says that it may have happened.
    IfUnsent,
    /// It is not sent again, even if it had not been sent: what its params name has ended with the connection. The caller makes
    /// that anew, and calls again.
    OnItsConnection,
}

/// How a method behaves, apart from its params and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    pub priority: Priority,
    /// Whether it may take as long as the caller or the child wants, by its nature: a long poll, a stuck stdin.
    pub waits: bool,
    /// Whether it changes something. What changes nothing is dropped when its connection ends.
    pub changes: bool,
    pub retry: RetryPolicy,
    /// Whether it belongs to the stdin of a process, whose requests are carried out in the order in which they came.
    pub stdin: bool,
    /// Whether an audit has a line for it: it runs a program, makes a request, or changes files.
    pub audited: bool,
    /// Whether its params may be megabytes. Small requests overtake it on their way to the socket.
    pub bulk: bool,
    pub observers: ObserverAccess,
    /// Whether it is carried out in an environment: the one that `environmentId` names, or the default.
    pub routed: bool,
    pub origin: Origin,
}

/// Whether a connection that only observes its session may call a method. What changes nothing it may, unless its row says
/// otherwise; so a new method that changes something is closed to observers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserverAccess {
    Allowed,
    /// As long as its params name no path that it changes ([`Call::changed_paths`](super::Call::changed_paths)).
    IfNoPathChanges,
    Refused,
}

/// Whose a method is, and which extension tells a client that a server has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Codex's server has it, so every server does.
    Codex,
    /// Ours, and the extension has the method's name.
    Ours,
    /// Ours, and it comes with the method of that name.
    OursWith(&'static str),
}

/// It changes nothing, so it may be sent twice and dropped at any time.
pub(super) const READS: Behaviour = Behaviour {
    priority: Priority::Ordinary,
    waits: false,
    changes: false,
    retry: RetryPolicy::Always,
    stdin: false,
    audited: false,
    bulk: false,
    observers: ObserverAccess::Allowed,
    routed: true,
    origin: Origin::Codex,
};

/// It changes something, and doing it twice is doing it once: by its nature, or because the server knows it by a key.
pub(super) const CHANGES: Behaviour = Behaviour { changes: true, observers: ObserverAccess::Refused, ..READS };

impl Behaviour {
    pub(super) const fn control(self) -> Self {
        Self { priority: Priority::Control, ..self }
    }

    pub(super) const fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    /// It names a handle, which belongs to its connection.
    pub(super) const fn on_its_connection(self) -> Self {
        Self { retry: RetryPolicy::OnItsConnection, ..self }
    }

    /// Doing it twice would be wrong, so the server remembers its response.
    pub(super) const fn remembered(self) -> Self {
        Self { retry: RetryPolicy::IfServerRemembers, ..self }
    }

    /// Doing it twice would be wrong, and the server does not remember it.
    pub(super) const fn once(self) -> Self {
        Self { retry: RetryPolicy::IfUnsent, ..self }
    }

    pub(super) const fn stdin(self) -> Self {
        Self { stdin: true, ..self }
    }

    pub(super) const fn audited(self) -> Self {
        Self { audited: true, ..self }
    }

    pub(super) const fn bulk(self) -> Self {
        Self { bulk: true, ..self }
    }

    /// What it changes belongs to the caller's own connection.
    pub(super) const fn for_observers(self) -> Self {
        Self { observers: ObserverAccess::Allowed, ..self }
    }

    pub(super) const fn for_observers_that_change_no_path(self) -> Self {
        Self { observers: ObserverAccess::IfNoPathChanges, ..self }
    }

    /// It changes nothing here, but somebody elsewhere may notice it.
    pub(super) const fn for_drivers(self) -> Self {
        Self { observers: ObserverAccess::Refused, ..self }
    }

    /// It concerns the server, or all its environments.
    pub(super) const fn unrouted(self) -> Self {
        Self { routed: false, ..self }
    }

    pub(super) const fn ours(self) -> Self {
        Self { origin: Origin::Ours, ..self }
    }

    pub(super) const fn ours_with(self, method: &'static str) -> Self {
        Self { origin: Origin::OursWith(method), ..self }
    }

    /// Whether a server keeps the response, for a client that asks again after a break.
    pub const fn is_remembered(&self) -> bool {
        matches!(self.retry, RetryPolicy::IfServerRemembers)
    }
}
