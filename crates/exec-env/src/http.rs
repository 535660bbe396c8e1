//! HTTP from where the environment is: one request, one answer, its body as it comes.
//!
//! A status of 400 or 500 is an answer, not an error. A header's value may end with a variable of the environment's
//! machine; which ones may be used is decided here, where the request is judged, and the value is looked up there.
//!
//! Deliberately absent: cookies, caches, decompression. What the server sends is what the caller gets.

use std::time::Duration;

use bytes::Bytes;

use crate::BoxFuture;

/// The verb.
pub trait Http: Send + Sync {
    /// Sends `request` and answers when the head of the answer is there.
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>>;
}

/// What to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Any token: `GET`, `PROPFIND` …
    pub method: String,
    /// `http:` or `https:`.
    pub url: String,
    /// In this order, repeats kept.
    pub headers: Vec<RequestHeader>,
    /// What to send along.
    pub body: Option<Bytes>,
    /// Time for all of it, the body of the answer included. `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// What to do with a redirection.
    pub redirects: Redirects,
}

/// A header to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// Its name.
    pub name: String,
    /// Its value, or the beginning of it.
    pub value: String,
    /// A variable of the environment's machine whose value follows `value`.
    pub value_env_var: Option<String>,
}

/// What to do with a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// Go there, up to [`MAX_REDIRECTS`] times.
    #[default]
    Follow,
    /// Answer with it.
    Stop,
}

/// How often a request is sent elsewhere before it fails.
pub const MAX_REDIRECTS: usize = 10;

/// What came back.
pub struct HttpResponse {
    /// 100 to 999.
    pub status: u16,
    /// Name in lower case, and value; in the order of the answer. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    /// The rest, as it comes.
    pub body: Box<dyn HttpBody>,
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// A body on its way. Nothing is read ahead of the caller but what the sockets hold; dropping it ends the transfer.
pub trait HttpBody: Send {
    /// The next bytes, never empty; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>>;
}

/// Why there is no answer, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Not a token.
    #[error("http/request method is invalid: {why}")]
    BadMethod {
        /// The parser's words.
        why: String,
    },
    /// Not a URL.
    #[error("http/request url is invalid: {why}")]
    BadUrl {
        /// The parser's words.
        why: String,
    },
    /// Another scheme.
    #[error("http/request only supports http and https URLs, got {scheme}")]
    BadScheme {
        /// That one.
        scheme: String,
    },
    /// Not a header name.
    #[error("http/request header name is invalid: {why}")]
    BadHeaderName {
        /// The parser's words.
        why: String,
    },
    /// Not a header value. The value itself may be a secret and is not told.
    #[error("http/request header value is invalid for {name}: {why}")]
    BadHeaderValue {
        /// Whose.
        name: String,
        /// The parser's words.
        why: String,
    },
    /// The variable is not set over there.
    #[error("http/request header {name} requires executor environment variable {variable}")]
    VariableMissing {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The variable is set to nothing.
    #[error("http/request header {name} requires a non-empty executor environment variable {variable}")]
    VariableEmpty {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The variable is one that never leaves the machine.
    #[error("http/request header {name} cannot use executor environment variable {variable}")]
    VariableRefused {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
    /// There was no answer in time.
    #[error("http/request failed: {why}: the time is over")]
    TimedOut {
        /// What did not come to its end.
        why: String,
    },
    /// No connection, no trust, or no answer.
    #[error("http/request failed: {why}{}{causes}", if causes.is_empty() { "" } else { ": " })]
    Failed {
        /// What happened, in the words existing clients know.
        why: String,
        /// What was behind it, the last cause last; empty if that is all.
        causes: String,
    },
    /// The answer broke off.
    #[error("failed to read http/request response body: {why}")]
    Body {
        /// What happened.
        why: String,
    },
    /// The place cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] crate::process::Unreachable),
}

/// Whether a header may carry this variable. Credentials of the machine itself may not leave it by a caller's wish.
pub fn variable_may_leave(variable: &str) -> bool {
    !KEPT_VARIABLES.iter().any(|kept| kept.eq_ignore_ascii_case(variable))
}

/// Variables no header may carry.
const KEPT_VARIABLES: [&str; 14] = [
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_machine_stay_whatever_their_case() {
        assert!(!variable_may_leave("openai_api_key"));
        assert!(!variable_may_leave("AWS_SECRET_ACCESS_KEY"));
        assert!(variable_may_leave("NODE_REPL_AUTH_TOKEN"));
        assert!(variable_may_leave("MY_SERVICE_TOKEN"));
    }
}
