//! What a URL names, and the program that leads there.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use exec_transport::Program;

use crate::limits::{BOOTSTRAP_CONNECT_SECONDS, SSH_ALIVE_COUNT, SSH_ALIVE_SECONDS};

/// A machine or a container that a program leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootstrapTarget {
    /// `ssh://[USER@]HOST[:PORT]`. HOST may be an alias of ssh's configuration.
    #[allow(missing_docs)]
    Ssh { user: Option<String>, host: String, port: Option<u16> },
    /// `docker://[USER@]NAME` or `podman://[USER@]NAME`.
    #[allow(missing_docs)]
    Container { engine: Engine, user: Option<String>, name: String },
    /// `kubectl://POD[/CONTAINER][?namespace=NAMESPACE]`.
    #[allow(missing_docs)]
    Pod { pod: String, container: Option<String>, namespace: Option<String> },
}

/// What runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

/// Why a URL names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid URL `{url}`: {problem}")]
pub struct BootstrapTargetError {
    /// As it was written.
    pub url: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl BootstrapTarget {
    /// Whether the URL is of this kind at all, well written or not.
    pub fn is_meant_by(url: &str) -> bool {
        ["ssh", "docker", "podman", "kubectl"].contains(&scheme(url).0)
    }

    /// What a person writes: a URL, the short `docker:NAME`, or a host.
    pub fn from_words(text: &str) -> Result<Self, BootstrapTargetError> {
        match scheme(text) {
            ("docker" | "podman" | "kubectl", _) => text.parse(),
            ("ssh", rest) if rest.starts_with("//") => text.parse(),
            _ => format!("ssh://{text}").parse(),
        }
    }

    /// The program that leads there, and carries out `words` there. With `asks` it may ask the user something.
    pub(super) fn program(&self, words: &[String], asks: bool) -> Program {
        let mut line: Vec<String> = Vec::new();
        match self {
            Self::Ssh { user, host, port } => {
                line.extend(["ssh", "-T", "-o", "ClearAllForwardings=yes"].map(str::to_owned));
                line.extend(["-o".to_owned(), format!("ConnectTimeout={BOOTSTRAP_CONNECT_SECONDS}")]);
                line.extend(["-o".to_owned(), format!("ServerAliveInterval={SSH_ALIVE_SECONDS}")]);
                line.extend(["-o".to_owned(), format!("ServerAliveCountMax={SSH_ALIVE_COUNT}")]);
                if !asks {
                    line.extend(["-o".to_owned(), "BatchMode=yes".to_owned()]);
                }
                line.extend(user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
                line.extend(port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
                let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                line.extend(["--".to_owned(), host.clone(), quoted.join(" ")]);
            }
            Self::Container { engine, user, name } => {
                line.extend([engine.program(), "exec", "-i"].map(str::to_owned));
                line.extend(user.iter().flat_map(|user| ["-u".to_owned(), user.clone()]));
                line.push(name.clone());
                line.extend_from_slice(words);
            }
            Self::Pod { pod, container, namespace } => {
                line.extend(["kubectl", "exec", "-i"].map(str::to_owned));
                line.extend(namespace.iter().flat_map(|namespace| ["-n".to_owned(), namespace.clone()]));
                line.extend(container.iter().flat_map(|container| ["-c".to_owned(), container.clone()]));
                line.extend([pod.clone(), "--".to_owned()]);
                line.extend_from_slice(words);
            }
        }
        if asks {
            // It shares our process group, or it could not ask. Ctrl-C and Ctrl-Z are for us, who pass them on; the
            // connection must not end by them.
            let ignoring = ["sh", "-c", r#"trap "" INT QUIT TSTP; exec "$@""#, "sh"].map(str::to_owned);
            line.splice(0..0, ignoring);
        }
        let mut line = line.into_iter().map(OsString::from);
        let program = line.next().unwrap_or_default();
        Program { program, args: line.collect(), ..Program::default() }
    }

    /// The program that a user would call.
    pub(super) fn tool(&self) -> &'static str {
        match self {
            Self::Ssh { .. } => "ssh",
            Self::Container { engine, .. } => engine.program(),
            Self::Pod { .. } => "kubectl",
        }
    }
}

impl Engine {
    fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

impl FromStr for BootstrapTarget {
    type Err = BootstrapTargetError;

    fn from_str(url: &str) -> Result<Self, BootstrapTargetError> {
        let invalid = |problem| BootstrapTargetError { url: url.to_owned(), problem };
        let (scheme, rest) = scheme(url);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let engine = match scheme {
            "ssh" => return ssh(rest).map_err(invalid),
            "kubectl" => return pod(rest).map_err(invalid),
            "docker" => Engine::Docker,
            "podman" => Engine::Podman,
            _ => return Err(invalid("expected ssh://HOST, docker://NAME, podman://NAME or kubectl://POD")),
        };
        let (user, name) = user_and_rest(rest.trim_end_matches('/')).map_err(invalid)?;
        plain(name).map_err(invalid)?;
        Ok(Self::Container { engine, user, name: name.to_owned() })
    }
}

impl fmt::Display for BootstrapTarget {
    /// The URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = |user: &Option<String>| user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        match self {
            Self::Ssh { user: name, host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let port = port.map_or(String::new(), |port| format!(":{port}"));
                write!(f, "ssh://{}{host}{port}", user(name))
            }
            Self::Container { engine, user: account, name } => {
                write!(f, "{}://{}{name}", engine.program(), user(account))
            }
            Self::Pod { pod, container, namespace } => {
                let container = container.as_ref().map_or(String::new(), |container| format!("/{container}"));
                let namespace = namespace.as_ref().map_or(String::new(), |name| format!("?namespace={name}"));
                write!(f, "kubectl://{pod}{container}{namespace}")
            }
        }
    }
}

fn scheme(url: &str) -> (&str, &str) {
    url.split_once(':').unwrap_or(("", url))
}

fn ssh(rest: &str) -> Result<BootstrapTarget, &'static str> {
    let (user, rest) = user_and_rest(rest.trim_end_matches('/'))?;
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("after ] comes :PORT or nothing")?)),
        None => match rest.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err("an IPv6 address is written in brackets: [::1]"),
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = port.map(str::parse).transpose().map_err(|_| "the port is not a number below 65536")?;
    plain(host)?;
    Ok(BootstrapTarget::Ssh { user, host: host.to_owned(), port })
}

fn pod(rest: &str) -> Result<BootstrapTarget, &'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let namespace = match query.split_once('=') {
        Some(("namespace", namespace)) => Some(namespace.to_owned()),
        _ if query.is_empty() => None,
        _ => return Err("the one thing after ? is namespace=NAME"),
    };
    let (pod, container) = match path.trim_end_matches('/').split_once('/') {
        Some((pod, container)) => (pod, Some(container.to_owned())),
        None => (path.trim_end_matches('/'), None),
    };
    for name in std::iter::once(pod).chain(container.as_deref()).chain(namespace.as_deref()) {
        plain(name)?;
    }
    Ok(BootstrapTarget::Pod { pod: pod.to_owned(), container, namespace })
}

fn user_and_rest(text: &str) -> Result<(Option<String>, &str), &'static str> {
    let Some((user, rest)) = text.rsplit_once('@') else { return Ok((None, text)) };
    if user.contains(':') {
        return Err("a password has no place in a URL");
    }
    plain(user)?;
    Ok((Some(user.to_owned()), rest))
}

/// A name that no program takes for an option, and no shell for something else.
fn plain(name: &str) -> Result<(), &'static str> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/'\"\\`$;&|<>(){}*?!#".contains(c);
    match name {
        "" => Err("the name is missing"),
        name if name.starts_with('-') => Err("a name cannot begin with -"),
        name if name.contains(odd) => Err("there is a character in it that names do not have"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        for url in [
            "ssh://build",
            "ssh://me@build.example:2222",
            "ssh://[::1]:22",
            "docker://web-1",
            "podman://root@db",
            "kubectl://agent-0",
            "kubectl://agent-0/main?namespace=dev",
        ] {
            let target: BootstrapTarget = url.parse().expect("well written");
            assert_eq!(target.to_string(), url);
        }
    }

    #[test]
    fn people_write_less() {
        let url = |text: &str| BootstrapTarget::from_words(text).expect("well written").to_string();
        assert_eq!(url("build"), "ssh://build");
        assert_eq!(url("me@build:22"), "ssh://me@build:22");
        assert_eq!(url("docker:web"), "docker://web");
        assert_eq!(url("kubectl:pod/main"), "kubectl://pod/main");
    }

    #[test]
    fn what_could_be_an_option_or_a_command_is_refused() {
        for url in [
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@host",
            "ssh://a b",
            "ssh://a;b",
            "ssh://me:secret@host",
            "ssh://host:99999",
            "ssh://::1",
            "docker://--privileged",
            "kubectl://pod?x=y",
            "http://x",
        ] {
            assert!(url.parse::<BootstrapTarget>().is_err(), "{url}");
        }
    }

    #[test]
    fn ssh_never_asks_unless_it_may_and_never_hangs_in_silence() {
        let target: BootstrapTarget = "ssh://me@h:22".parse().expect("well written");
        let line = |asks| {
            let program = target.program(&["sh".to_owned(), "a b".to_owned()], asks);
            let words = std::iter::once(program.program).chain(program.args);
            words.map(|word| word.into_string().expect("plain")).collect::<Vec<_>>()
        };
        let quiet = line(false);
        assert!(quiet.contains(&"BatchMode=yes".to_owned()) && quiet[0] == "ssh", "{quiet:?}");
        assert!(quiet.iter().any(|word| word.starts_with("ServerAliveInterval=")), "{quiet:?}");
        assert_eq!(quiet[quiet.len() - 7..], ["-l", "me", "-p", "22", "--", "h", "'sh' 'a b'"]);
        assert!(!line(true).contains(&"BatchMode=yes".to_owned()));
    }
}
