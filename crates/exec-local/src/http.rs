//! HTTP from this machine.
//!
//! There is one client that follows redirections and one that does not. They are made at the first request, because
//! making one reads the machine's trust store. A machine without one still speaks plain HTTP. Deliberately absent: cookies, decompression, HTTP/2 (every
//! server still speaks 1.1), and any header of our own but `accept: */*` and what the protocol demands.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::http::{Body, Header, Http, HttpError, REDIRECTS, Redirects, Request, Response, variable_may_leave};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use tokio::time::Instant;

/// How long a connection nobody uses stays open for the next request.
const IDLE: Duration = Duration::from_secs(30);

/// Connections kept per host for the next request.
const IDLE_PER_HOST: usize = 8;

/// Where values of variables come from.
type Lookup = Box<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// This machine's HTTP.
pub struct LocalHttp {
    following: Clients,
    stopping: Clients,
    lookup: Lookup,
}

impl LocalHttp {
    /// One that takes variables from our own environment.
    pub fn new() -> Self {
        Self::with_variables(|name| std::env::var_os(name))
    }

    /// One that takes variables from `lookup`.
    pub fn with_variables(lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        Self {
            following: Clients::new(|| Policy::limited(REDIRECTS)),
            stopping: Clients::new(Policy::none),
            lookup: Box::new(lookup),
        }
    }

    async fn send(&self, request: Request) -> Result<Response, HttpError> {
        let deadline = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let clients = match request.redirects {
            Redirects::Follow => &self.following,
            Redirects::Stop => &self.stopping,
        };
        let outgoing = self.outgoing(request)?;
        let client = clients.take(outgoing.url().scheme() == "https").await?;
        let sent = before(deadline, client.execute(outgoing)).await;
        let answer = sent.ok_or(HttpError::TimedOut)?.map_err(|error| {
            if error.is_timeout() { HttpError::TimedOut } else { HttpError::Failed { why: with_causes(&error) } }
        })?;
        let headers = answer.headers().iter();
        let headers = headers.filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        });
        Ok(Response {
            status: answer.status().as_u16(),
            headers: headers.collect(),
            body: Box::new(LocalBody { answer, deadline }),
        })
    }

    /// Judges the request. The order of the checks is part of the contract: the first thing that is wrong is told.
    fn outgoing(&self, request: Request) -> Result<reqwest::Request, HttpError> {
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|error| HttpError::BadMethod { why: error.to_string() })?;
        let url = Url::parse(&request.url).map_err(|error| HttpError::BadUrl { why: error.to_string() })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(HttpError::BadScheme { scheme: url.scheme().to_owned() });
        }
        let mut outgoing = reqwest::Request::new(method, url);
        let mut headers = HeaderMap::with_capacity(request.headers.len());
        for header in request.headers {
            let name = HeaderName::from_bytes(header.name.as_bytes())
                .map_err(|error| HttpError::BadHeaderName { why: error.to_string() })?;
            let value = self.value_of(&header)?;
            let mut value = HeaderValue::from_bytes(&value)
                .map_err(|error| HttpError::BadHeaderValue { name: header.name, why: error.to_string() })?;
            // What came from a variable is likely a secret: no log of any library may show it.
            value.set_sensitive(header.value_env_var.is_some());
            headers.append(name, value);
        }
        *outgoing.headers_mut() = headers;
        *outgoing.body_mut() = request.body.map(reqwest::Body::from);
        Ok(outgoing)
    }

    fn value_of(&self, header: &Header) -> Result<Vec<u8>, HttpError> {
        let mut value = header.value.clone().into_bytes();
        let Some(variable) = header.value_env_var.clone() else {
            return Ok(value);
        };
        let name = header.name.clone();
        if !variable_may_leave(&variable) {
            return Err(HttpError::VariableRefused { name, variable });
        }
        match (self.lookup)(&variable) {
            None => Err(HttpError::VariableMissing { name, variable }),
            Some(found) if found.is_empty() => Err(HttpError::VariableEmpty { name, variable }),
            Some(found) => {
                value.extend_from_slice(found.as_encoded_bytes());
                Ok(value)
            }
        }
    }
}

/// The client for one way to treat redirections.
struct Clients {
    policy: fn() -> Policy,
    trusting: OnceLock<reqwest::Client>,
    /// Where the machine trusts nobody: good for plain HTTP, and TLS always fails.
    plain: OnceLock<reqwest::Client>,
}

impl Clients {
    fn new(policy: fn() -> Policy) -> Self {
        Self { policy, trusting: OnceLock::new(), plain: OnceLock::new() }
    }

    /// The client for a request, made now if it is the first. Two first requests at once may both make one; the
    /// loser's is dropped.
    async fn take(&self, needs_trust: bool) -> Result<&reqwest::Client, HttpError> {
        if let Some(client) = self.trusting.get() {
            return Ok(client);
        }
        if !needs_trust && let Some(client) = self.plain.get() {
            return Ok(client);
        }
        match build(self.policy, true).await {
            Ok(client) => Ok(self.trusting.get_or_init(|| client)),
            Err(error) if needs_trust => Err(error),
            Err(_) => {
                let client = build(self.policy, false).await?;
                Ok(self.plain.get_or_init(|| client))
            }
        }
    }
}

/// Makes a client, off the runtime: reading the trust store takes milliseconds of disk.
async fn build(policy: fn() -> Policy, trusting: bool) -> Result<reqwest::Client, HttpError> {
    let built = tokio::task::spawn_blocking(move || {
        let builder =
            reqwest::Client::builder().redirect(policy()).pool_idle_timeout(IDLE).pool_max_idle_per_host(IDLE_PER_HOST);
        if trusting { builder.build() } else { builder.tls_certs_only([]).build() }
    });
    match built.await {
        Ok(built) => built.map_err(|error| HttpError::Failed { why: with_causes(&error) }),
        Err(error) => Err(HttpError::Failed { why: error.to_string() }),
    }
}

impl Default for LocalHttp {
    fn default() -> Self {
        Self::new()
    }
}

impl Http for LocalHttp {
    fn request(&self, request: Request) -> BoxFuture<'_, Result<Response, HttpError>> {
        Box::pin(self.send(request))
    }
}

/// The rest of an answer, straight from the connection: what is not asked for is not read.
struct LocalBody {
    answer: reqwest::Response,
    deadline: Option<Instant>,
}

impl Body for LocalBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>> {
        Box::pin(async move {
            loop {
                let chunk = before(self.deadline, self.answer.chunk()).await;
                let chunk = chunk.ok_or_else(|| HttpError::Body { why: "route-aware request timed out".to_owned() })?;
                match chunk {
                    Ok(Some(bytes)) if bytes.is_empty() => {}
                    Ok(bytes) => return Ok(bytes),
                    Err(error) => {
                        return Err(HttpError::Body { why: error.to_string() });
                    }
                }
            }
        })
    }
}

/// `None`: the deadline came first.
async fn before<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

/// What happened and what was behind it; the first part is what existing clients know.
fn with_causes(error: &reqwest::Error) -> String {
    let mut why = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        why.push_str(": ");
        why.push_str(&error.to_string());
        cause = error.source();
    }
    why
}
