//! What a connection may do at most: the ceiling of the server, and that of the connection's token. Pure.
//!
//! One type says both, and each is asked about every request: a client can only ask for less. Nothing that is asked for
//! is changed to fit; it is refused, with the rule that it violates and what may be asked for instead.
//!
//! Methods, sandboxes, the network and numbers are judged here. Roots are about files, whose paths may lead through
//! links: they become a [`FileCeiling`], which the environment enforces on the handles that it opens and on the sandboxes
//! that it plans.

mod file;

use std::path::PathBuf;
use std::sync::Arc;

use exec_core::sandbox::{
    FileAccess, FileCeiling, FilePolicy, FileRule, NetworkPolicy, PROTECTED_NAMES, RuleTarget, SandboxPolicy,
};
use exec_env::streams::StreamAddress;
use exec_transport::Grant;
use exec_transport::token::{MethodPattern, Root, TokenScope, WeakestSandbox};
use exec_wire::method::Method;

pub use file::CeilingFileError;

/// The most that may be done. The default is everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// The methods that may be called; `None` for all. The handshake always may.
    pub methods: Option<Vec<MethodPattern>>,
    /// Where files may be read and written; `None` for everywhere.
    pub roots: Option<Roots>,
    /// The sandbox that processes must at least have, and that file calls never do more than. With
    /// [`WeakestSandbox::WorkspaceWrite`] there are roots, or nothing could be written.
    pub weakest_sandbox: Option<WeakestSandbox>,
    /// Whether processes may have the network, and requests be made.
    pub network: bool,
    /// Processes of one session that have not exited.
    pub processes_per_session: Option<usize>,
    /// Processes of all sessions that have not exited.
    pub processes: Option<usize>,
    /// Output that one process may ask to hold.
    pub spool_bytes: Option<u64>,
    /// Output that all processes may hold together. Whoever opens the environment sees to it.
    pub total_spool_bytes: Option<u64>,
}

/// Places, each with all below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roots {
    pub read: Vec<Root>,
    /// To be read as well.
    pub write: Vec<Root>,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self {
            methods: None,
            roots: None,
            weakest_sandbox: None,
            network: true,
            processes_per_session: None,
            processes: None,
            spool_bytes: None,
            total_spool_bytes: None,
        }
    }
}

impl From<&TokenScope> for Ceiling {
    fn from(scope: &TokenScope) -> Self {
        Self {
            methods: Some(scope.methods.clone()),
            roots: scope.roots.as_ref().map(|roots| Roots { read: Vec::new(), write: roots.clone() }),
            weakest_sandbox: scope.weakest_sandbox,
            ..Self::default()
        }
    }
}

impl Ceiling {
    /// Whether a process needs a sandbox that restricts files.
    fn restricts_files(&self) -> bool {
        self.roots.is_some() || self.weakest_sandbox.is_some()
    }

    /// What may be done with files; `None` if everything may.
    fn file_policy(&self) -> Option<FilePolicy> {
        if !self.restricts_files() {
            return None;
        }
        let rule = |target, access| FileRule { target, access };
        let everything = || Roots { read: vec![Root::Path(PathBuf::from("/"))], write: Vec::new() };
        let Roots { read, write } = self.roots.clone().unwrap_or_else(everything);
        let mut rules = Vec::new();
        for (root, is_written) in
            read.into_iter().map(|root| (root, false)).chain(write.into_iter().map(|root| (root, true)))
        {
            let path = match root {
                Root::SystemFiles => {
                    rules.push(rule(RuleTarget::SystemFiles, FileAccess::Read));
                    continue;
                }
                Root::Path(path) => path,
            };
            let writes = is_written && self.weakest_sandbox != Some(WeakestSandbox::ReadOnly);
            let access = if writes { FileAccess::Write } else { FileAccess::Read };
            // Whoever may write a root may write its repository, too, unless the sandbox of that name is demanded.
            if writes && self.weakest_sandbox.is_none() {
                rules.extend(PROTECTED_NAMES.map(|name| rule(RuleTarget::Path(path.join(name)), FileAccess::Write)));
            }
            rules.push(rule(RuleTarget::Path(path), access));
        }
        Some(FilePolicy::Restricted { rules, glob_scan_depth: None })
    }
}

/// A request that goes beyond a ceiling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Whose rule, and which: `server/network`.
    pub(crate) rule: String,
    pub(crate) why: String,
    /// What may be asked for.
    pub(crate) instead: String,
}

/// What a start asks for, as far as ceilings speak of it.
pub(crate) struct RequestedStart<'a> {
    pub(crate) sandbox: Option<&'a SandboxPolicy>,
    /// Beside what its sandbox says.
    pub(crate) asks_for_network: bool,
    pub(crate) spool_bytes: Option<u64>,
}

/// What a token restricts its processes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessBounds {
    roots: Option<Roots>,
    weakest_sandbox: Option<WeakestSandbox>,
}

/// How many processes may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessLimits {
    pub(crate) per_session: Option<usize>,
    pub(crate) in_all: Option<usize>,
}

/// What the server and the token of a connection permit it: both must.
#[derive(Debug, Clone)]
pub(crate) struct Permissions {
    server: Arc<Ceiling>,
    token: Option<Arc<Ceiling>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Server,
    Token,
}

impl Source {
    fn violation(self, rule: &str, why: impl Into<String>, instead: impl Into<String>) -> Violation {
        let source = match self {
            Self::Server => "server",
            Self::Token => "token",
        };
        Violation { rule: format!("{source}/{rule}"), why: why.into(), instead: instead.into() }
    }

    /// For sentences.
    fn name(self) -> &'static str {
        match self {
            Self::Server => "the ceiling of this server",
            Self::Token => "the token of this connection",
        }
    }
}

impl Permissions {
    pub(crate) fn of(server: Arc<Ceiling>, grant: &Grant) -> Self {
        let token = match grant {
            Grant::Everything => None,
            Grant::Scope(scope) => Some(Arc::new(Ceiling::from(scope))),
        };
        Self { server, token }
    }

    fn ceilings(&self) -> impl Iterator<Item = (Source, &Ceiling)> {
        let token = self.token.iter().map(|token| (Source::Token, &**token));
        token.chain([(Source::Server, &*self.server)])
    }

    pub(crate) fn allow_method(&self, method: Method) -> Result<(), Violation> {
        let name = method.name();
        for (source, ceiling) in self.ceilings() {
            let Some(methods) = &ceiling.methods else { continue };
            if method != Method::Initialize && !methods.iter().any(|pattern| pattern.matches(name)) {
                let instead = match source {
                    Source::Server => "call another method, or have it named in the file of serve --policy",
                    Source::Token => "connect with one that does",
                };
                return Err(source.violation("methods", format!("{} does not permit {name}", source.name()), instead));
            }
        }
        Ok(())
    }

    /// What binds every file call and every sandbox of this connection.
    pub(crate) fn file_ceilings(&self) -> Vec<FileCeiling> {
        let ceiling = |(source, ceiling): (Source, &Ceiling)| {
            let rule = if ceiling.roots.is_some() { "roots" } else { "sandbox" };
            Some(FileCeiling { rule: source.violation(rule, "", "").rule, files: ceiling.file_policy()? })
        };
        self.ceilings().filter_map(ceiling).collect()
    }

    pub(crate) fn allow_start(&self, requested: &RequestedStart<'_>) -> Result<(), Violation> {
        self.ceilings().try_for_each(|(source, ceiling)| allow_start(source, ceiling, requested))
    }

    /// Whether a request may be made from the machine.
    pub(crate) fn allow_network(&self) -> Result<(), Violation> {
        match self.ceilings().find(|(_, ceiling)| !ceiling.network) {
            None => Ok(()),
            Some((source, _)) => {
                let why = format!("{} permits no network", source.name());
                Err(source.violation("network", why, "make the request from another machine"))
            }
        }
    }

    /// Whether a connection may be made to an address, or accepted there. A unix socket is a path that leads out of every
    /// root, to whatever listens there with the server's own rights, this server included: whoever is restricted in any way
    /// gets none.
    pub(crate) fn allow_stream(&self, address: &StreamAddress) -> Result<(), Violation> {
        self.allow_network()?;
        let StreamAddress::Unix { .. } = address else { return Ok(()) };
        let is_restricted = |ceiling: &Ceiling| ceiling.restricts_files() || ceiling.methods.is_some();
        match self.ceilings().find(|(_, ceiling)| is_restricted(ceiling)) {
            None => Ok(()),
            Some((source, _)) => {
                let why = format!("{} permits no unix sockets", source.name());
                Err(source.violation("network", why, "use a TCP port"))
            }
        }
    }

    /// What the token restricts a process to that is started now; `None` if to nothing.
    pub(crate) fn process_bounds(&self) -> Option<ProcessBounds> {
        let token = self.token.as_ref().filter(|token| token.restricts_files())?;
        Some(ProcessBounds { roots: token.roots.clone(), weakest_sandbox: token.weakest_sandbox })
    }

    /// Whether a process that was started within `started` may be told what to do. A session may be resumed with a token
    /// that permits less than the one before, and a shell that was started with that one would do more.
    pub(crate) fn allow_input(&self, started: Option<&ProcessBounds>) -> Result<(), Violation> {
        match self.process_bounds() {
            Some(bounds) if started != Some(&bounds) => {
                let why =
                    format!("{} restricts processes, and this one was started without that", Source::Token.name());
                Err(Source::Token.violation(
                    "roots",
                    why,
                    "start another one, or connect with the token that started it",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Tokens have none.
    pub(crate) fn process_limits(&self) -> ProcessLimits {
        ProcessLimits { per_session: self.server.processes_per_session, in_all: self.server.processes }
    }
}

fn allow_start(source: Source, ceiling: &Ceiling, requested: &RequestedStart<'_>) -> Result<(), Violation> {
    let name = source.name();
    let rules = match requested.sandbox.map(|sandbox| &sandbox.files) {
        Some(FilePolicy::Restricted { rules, .. }) => Some(rules),
        Some(FilePolicy::Unrestricted) | None => None,
    };
    let writes = rules.is_some_and(|rules| rules.iter().any(|rule| rule.access == FileAccess::Write));
    if let Some(weakest) = ceiling.weakest_sandbox
        && (rules.is_none() || (writes && weakest == WeakestSandbox::ReadOnly))
    {
        let weakest = weakest.name();
        let why = format!("{name} permits only processes in a sandbox that is at least {weakest}");
        return Err(source.violation("sandbox", why, format!("ask for the sandbox {weakest}, or a stricter one")));
    }
    if ceiling.roots.is_some() && rules.is_none() {
        let why = format!("{name} permits only processes in a sandbox that stays within its roots");
        return Err(source.violation("roots", why, "ask for a sandbox that reads and writes nothing else"));
    }
    let has_network = requested.sandbox.is_none_or(|sandbox| sandbox.network == NetworkPolicy::Enabled);
    if !ceiling.network && (has_network || requested.asks_for_network) {
        let why = format!("{name} permits only processes without network");
        return Err(source.violation("network", why, "ask for a sandbox whose network is restricted"));
    }
    if let (Some(most), Some(asked)) = (ceiling.spool_bytes, requested.spool_bytes)
        && asked > most
    {
        let why = format!("{name} permits a process to hold {most} bytes of output, and {asked} were asked for");
        return Err(source.violation("spoolBytes", why, format!("ask for at most {most}")));
    }
    Ok(())
}

/// The answer to a start that would be one process too many. Only the server counts processes.
pub(crate) fn too_many_processes(rule: &str, most: usize) -> Violation {
    let (whose, instead) = match rule {
        "processesPerSession" => ("of one session", "wait until one of the session's has ended, or end one"),
        _ => ("of all sessions together", "wait until one has ended"),
    };
    let why = format!("{} permits {most} processes {whose} at once", Source::Server.name());
    Source::Server.violation(rule, why, instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(read: &[&str], write: &[&str]) -> Option<Roots> {
        let parse = |roots: &[&str]| roots.iter().map(|root| root.parse().expect("a root")).collect();
        Some(Roots { read: parse(read), write: parse(write) })
    }

    fn refused_by(ceiling: Ceiling, sandbox: Option<&SandboxPolicy>) -> Option<String> {
        let permissions = Permissions::of(Arc::new(ceiling), &Grant::Everything);
        let requested = RequestedStart { sandbox, asks_for_network: false, spool_bytes: Some(1 << 20) };
        permissions.allow_start(&requested).err().map(|violation| violation.rule)
    }

    #[test]
    fn streams_need_the_network_and_unix_sockets_need_freedom() {
        let tcp = StreamAddress::loopback(80);
        let unix = StreamAddress::Unix { path: "/run/x".into() };
        let rules = |ceiling: Ceiling| {
            let permissions = Permissions::of(Arc::new(ceiling), &Grant::Everything);
            [&tcp, &unix].map(|address| permissions.allow_stream(address).err().map(|violation| violation.rule))
        };
        let forbidden = || Some("server/network".to_owned());
        assert_eq!(rules(Ceiling::default()), [None, None]);
        assert_eq!(rules(Ceiling { network: false, ..Ceiling::default() }), [forbidden(), forbidden()]);
        for restricted in [
            Ceiling { roots: roots(&["/"], &[]), ..Ceiling::default() },
            Ceiling { weakest_sandbox: Some(WeakestSandbox::WorkspaceWrite), ..Ceiling::default() },
            Ceiling { methods: Some(vec!["net/*".parse().expect("a pattern")]), ..Ceiling::default() },
        ] {
            assert_eq!(rules(restricted), [None, forbidden()]);
        }
    }

    #[test]
    fn a_start_that_asks_for_more_than_the_ceiling_is_refused_and_never_changed() {
        let offline = NetworkPolicy::Restricted;
        let read_only = SandboxPolicy::read_only(offline);
        let workspace = SandboxPolicy::workspace_write(&["/w".into()], offline);
        let online = SandboxPolicy::read_only(NetworkPolicy::Enabled);
        let only_offline = SandboxPolicy { files: FilePolicy::Unrestricted, network: offline };
        let at_least = |weakest| Ceiling { weakest_sandbox: Some(weakest), ..Ceiling::default() };
        let workspace_write = at_least(WeakestSandbox::WorkspaceWrite);
        let reading = at_least(WeakestSandbox::ReadOnly);
        let rooted = Ceiling { roots: roots(&["/"], &["/w"]), ..Ceiling::default() };
        let dark = Ceiling { network: false, ..Ceiling::default() };
        let small = Ceiling { spool_bytes: Some((1 << 20) - 1), ..Ceiling::default() };
        for (ceiling, sandbox, refused) in [
            (Ceiling::default(), None, None),
            (workspace_write.clone(), None, Some("server/sandbox")),
            (workspace_write.clone(), Some(&only_offline), Some("server/sandbox")),
            (workspace_write.clone(), Some(&workspace), None),
            (workspace_write, Some(&read_only), None),
            (reading.clone(), Some(&workspace), Some("server/sandbox")),
            (reading, Some(&read_only), None),
            (rooted.clone(), None, Some("server/roots")),
            (rooted, Some(&workspace), None),
            (dark.clone(), None, Some("server/network")),
            (dark.clone(), Some(&online), Some("server/network")),
            (dark.clone(), Some(&read_only), None),
            (dark, Some(&only_offline), None),
            (small, None, Some("server/spoolBytes")),
        ] {
            let told = refused_by(ceiling.clone(), sandbox);
            assert_eq!(told.as_deref(), refused, "{ceiling:?} {sandbox:?}");
        }
    }

    #[test]
    fn of_server_and_token_each_must_permit_it() {
        let server = Ceiling { methods: Some(vec!["fs/*".parse().expect("a pattern")]), ..Ceiling::default() };
        let methods = vec!["fs/read*".parse().expect("a pattern"), "process/*".parse().expect("a pattern")];
        let scope = TokenScope { methods, ..TokenScope::default() };
        let permissions = Permissions::of(Arc::new(server), &Grant::Scope(scope));
        for (method, refused) in [
            (Method::FsReadFile, None),
            (Method::FsWriteFile, Some("token/methods")),
            (Method::ProcessStart, Some("server/methods")),
            (Method::Initialize, None),
        ] {
            let told = permissions.allow_method(method).err().map(|violation| violation.rule);
            assert_eq!(told.as_deref(), refused, "{}", method.name());
        }
    }
}
