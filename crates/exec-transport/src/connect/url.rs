//! URLs to connect to: `ws://`, `wss://`, `unix://`. They are parsed once, and not checked again.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hyper::Uri;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectUrl {
    /// `ws://` or `wss://`.
    WebSocket(WebSocketUrl),
    /// `unix://PATH`.
    Unix(PathBuf),
}

/// The parts of a `ws://` or `wss://` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketUrl {
    pub(crate) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host, and port if it was written: the `Host` header.
    pub(crate) authority: String,
    /// As written; at least `/`.
    pub(crate) path_and_query: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectUrlError {
    #[error("unsupported server URL `{0}`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`")]
    Unsupported(String),
    #[error("invalid server URL `{url}`: {problem}")]
    Invalid {
        /// Without a password.
        url: String,
        problem: &'static str,
    },
}

impl WebSocketUrl {
    /// Whether it is `wss://`.
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Whether nobody on the way can read what is sent: it is encrypted, or stays on this machine. A host name other than
    /// `localhost` may be that of any machine.
    pub fn keeps_secrets(&self) -> bool {
        let is_loopback = self.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        self.tls || is_loopback || self.host.eq_ignore_ascii_case("localhost")
    }
}

impl FromStr for ConnectUrl {
    type Err = ConnectUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem| ConnectUrlError::Invalid { url: text.to_owned(), problem };
        if let Some(path) = text.strip_prefix("unix://") {
            return match path {
                "" => Err(invalid("the path is missing")),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let tls = match scheme.as_deref() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(ConnectUrlError::Unsupported(text.to_owned())),
        };
        let uri: Uri = text.parse().map_err(|_| invalid("it is not a URL"))?;
        let authority = uri.authority().ok_or_else(|| invalid("the host is missing"))?;
        if authority.as_str().contains('@') {
            // The URL is not repeated: the part before the @ may be a password.
            let problem = "user names and passwords are not supported; use a bearer token";
            return Err(ConnectUrlError::Invalid { url: format!("{}://…", if tls { "wss" } else { "ws" }), problem });
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(invalid("the host is missing"));
        }
        if authority.as_str() != host && authority.port_u16().is_none() {
            return Err(invalid("the port is not a number below 65536"));
        }
        Ok(Self::WebSocket(WebSocketUrl {
            tls,
            host: bare.to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path_and_query: match uri.path_and_query().map(|path| path.as_str()) {
                None => "/".to_owned(),
                // The query follows the host directly; the path of a request must still begin with a slash.
                Some(query) if query.starts_with('?') => format!("/{query}"),
                Some(path) => path.to_owned(),
            },
        }))
    }
}

impl fmt::Display for ConnectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::WebSocket(url) => {
                let scheme = if url.tls { "wss" } else { "ws" };
                write!(f, "{scheme}://{}{}", url.authority, url.path_and_query)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn websocket(text: &str) -> WebSocketUrl {
        match text.parse() {
            Ok(ConnectUrl::WebSocket(url)) => url,
            other => panic!("{text} became {other:?}"),
        }
    }

    #[test]
    fn path_and_query_are_kept_as_written() {
        let url = websocket("ws://h:81/a%20b/c?d=e&f");
        assert_eq!((url.authority.as_str(), url.path_and_query.as_str()), ("h:81", "/a%20b/c?d=e&f"));
        assert_eq!(websocket("wss://h?x=1").path_and_query, "/?x=1");
        assert_eq!(websocket("ws://h").path_and_query, "/");
    }

    #[test]
    fn secrets_are_kept_by_encryption_and_by_the_loopback() {
        for (url, kept) in [
            ("wss://build.example", true),
            ("ws://127.0.0.1:1", true),
            ("ws://[::1]:1", true),
            ("ws://LocalHost", true),
            ("ws://build.example", false),
            ("ws://10.0.0.1", false),
            ("ws://localhost.example", false),
        ] {
            assert_eq!(websocket(url).keeps_secrets(), kept, "{url}");
        }
    }

    #[test]
    fn ports_default_by_scheme_and_addresses_lose_their_brackets() {
        assert_eq!(websocket("ws://h").port, 80);
        assert_eq!(websocket("WSS://h").port, 443);
        let url = websocket("ws://[::1]:9/");
        assert_eq!((url.host.as_str(), url.port, url.authority.as_str()), ("::1", 9, "[::1]:9"));
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        for (text, message) in [
            (
                "http://h",
                "unsupported server URL `http://h`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`",
            ),
            ("stdio", "unsupported server URL `stdio`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`"),
            ("unix://", "invalid server URL `unix://`: the path is missing"),
            ("ws://h:99999", "invalid server URL `ws://h:99999`: the port is not a number below 65536"),
            ("ws://", "invalid server URL `ws://`: it is not a URL"),
            (
                "wss://me:secret@h",
                "invalid server URL `wss://…`: user names and passwords are not supported; use a bearer token",
            ),
        ] {
            let error = text.parse::<ConnectUrl>().expect_err("refused");
            assert_eq!(error.to_string(), message);
        }
    }
}
