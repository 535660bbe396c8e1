//! HTTP requests that the environment's machine makes: one request, one response, its body as it arrives.
//!
//! A status of 400 or 500 is a response, not an error. A header's value may end with the value of a variable of the
//! environment's machine, if that is not one which the machine keeps to itself.
//!
//! Deliberately absent: cookies, caches, decompression. What the web server sends is what the caller gets.

use std::time::Duration;

use bytes::Bytes;

use crate::BoxFuture;

/// Making HTTP requests.
pub trait Http: Send + Sync {
    /// Sends `request` and returns when the head of the response has arrived.
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>>;
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Any token: `GET`, `PROPFIND` …
    pub method: String,
    /// `http:` or `https:`.
    pub url: String,
    /// Sent in this order; a name may be repeated.
    pub headers: Vec<RequestHeader>,
    /// `None`: no body.
    pub body: Option<Bytes>,
    /// For the whole exchange, the body of the response included. `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// What to do with a redirection.
    pub redirects: Redirects,
}

/// A header to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// In any case.
    pub name: String,
    /// The value, or its beginning if there is a variable.
    pub value: String,
    /// A variable of the environment's machine whose value is appended to `value`.
    pub value_env_var: Option<String>,
}

/// What to do with a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// Follow it, up to [`MAX_REDIRECTS`] times.
    #[default]
    Follow,
    /// Return it as the response.
    Stop,
}

/// How many redirections a request follows before it fails.
pub const MAX_REDIRECTS: usize = 10;

/// The response to a request.
pub struct HttpResponse {
    /// 100 to 999.
    pub status: u16,
    /// Names in lower case, and values; in the order of the response. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    /// Read as it arrives.
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

/// The body of a response. Nothing is read ahead of the caller but what the sockets hold; dropping it ends the
/// transfer.
pub trait HttpBody: Send {
    /// The next bytes, never empty; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>>;
}

/// Why there is no response, or no more of its body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields of variants: their names and the message beside them say it")]
pub enum HttpError {
    /// The method is not a token.
    #[error("the method is not valid: {why}")]
    BadMethod { why: String },
    /// The URL does not parse.
    #[error("the URL is not valid: {why}")]
    BadUrl { why: String },
    /// The URL is neither `http:` nor `https:`.
    #[error("the URL must be http: or https:, not {scheme}:")]
    BadScheme { scheme: String },
    /// The name of a header is not a token.
    #[error("the name of a header is not valid: {why}")]
    BadHeaderName { why: String },
    /// The value of a header has a character that no header may have. It may be a secret, so the message leaves it out.
    #[error("the value of header {name} is not valid: {why}")]
    BadHeaderValue { name: String, why: String },
    /// The variable is not set on the environment's machine.
    #[error("header {name} needs variable {variable}, which is not set there")]
    VariableMissing { name: String, variable: String },
    /// The variable is set to the empty string.
    #[error("header {name} needs variable {variable}, which is empty there")]
    VariableEmpty { name: String, variable: String },
    /// The variable is one that never leaves the machine.
    #[error("header {name} may not have the value of variable {variable}")]
    VariableRefused { name: String, variable: String },
    /// There was no response in time.
    #[error("the request failed: {why}: the time is over")]
    TimedOut { why: String },
    /// The time was over before the request, or what a redirection made of it, was sent.
    #[error("the request failed: no time was left to send it")]
    NoTimeLeft,
    /// A redirection leads to a URL that is neither `http:` nor `https:`.
    #[error("the request failed: it was redirected to a URL that is {scheme}:, not http: or https:")]
    RedirectedTo { scheme: String },
    /// There were more than [`MAX_REDIRECTS`].
    #[error("the request failed: it was redirected more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    /// No connection, no trusted certificate, or no response. `causes` has the last cause last, and is empty if `why`
    /// is all there is to say.
    #[error("the request failed: {why}{}{causes}", if causes.is_empty() { "" } else { ": " })]
    Failed { why: String, causes: String },
    /// The connection failed before the body was complete.
    #[error("the body of the response is not complete: {why}")]
    Body { why: String },
    /// See [`crate::process::Unreachable`].
    #[error(transparent)]
    Unreachable(#[from] crate::process::Unreachable),
}
