//! HTTP from this machine.
//!
//! The client is made with the first request, because making one reads the machine's certificate store. A machine
//! without such a store can still use plain HTTP. Beside the store (or what `SSL_CERT_FILE` names in its place) the
//! certificates in the file that `CODEX_CA_CERTIFICATE` names are trusted. Redirections are followed by `redirect`, not
//! by the library, because clients depend on their details. Deliberately absent: cookies, decompression, HTTP/2 (every
//! server still speaks 1.1), and any header of our own but `accept: */*` and what the protocol demands.

mod redirect;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use exec_env::BoxFuture;
use exec_env::http::{Http, HttpBody, HttpError, HttpRequest, HttpResponse, MAX_REDIRECTS, Redirects, RequestHeader};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use tokio::time::Instant;

use crate::descriptors::{DescriptorBudget, DescriptorPermit, DescriptorUse};
use redirect::OutgoingRequest;

/// How long an idle connection stays open for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle connections kept per host.
const IDLE_PER_HOST: usize = 8;

/// Names a PEM file with further certificates to trust.
const CA_VARIABLE: &str = "CODEX_CA_CERTIFICATE";

/// Where the values of variables come from.
type Lookup = Box<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// The HTTP client of this machine.
pub struct LocalHttp {
    clients: Clients,
    lookup: Lookup,
    descriptors: DescriptorBudget,
}

impl LocalHttp {
    /// A client that takes variables from our own environment.
    pub fn new() -> Self {
        Self::with_variables(|name| std::env::var_os(name))
    }

    /// A client that takes variables from `lookup`.
    pub fn with_variables(lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        let descriptors = DescriptorBudget::of_this_process();
        Self { clients: Clients::default(), lookup: Box::new(lookup), descriptors }
    }

    /// The same client, whose requests share the descriptors of this process with others.
    pub fn with_descriptors(self, descriptors: DescriptorBudget) -> Self {
        Self { descriptors, ..self }
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (timeout, redirects) = (request.timeout, request.redirects);
        let mut outgoing = self.validate(request)?;
        let permit = self.descriptors.take(DescriptorUse::Connections, 1);
        let permit = permit.map_err(|full| HttpError::Failed { why: full.to_string(), causes: String::new() })?;
        // The caller's timeout does not include making the client.
        self.client(&outgoing).await?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&outgoing, deadline).await?;
            if redirects == Redirects::Follow && outgoing.redirect(response.status(), response.headers())? {
                continue;
            }
            let headers = response.headers().iter();
            let headers = headers.filter_map(|(name, value)| {
                let value = value.to_str().ok()?;
                Some((name.as_str().to_owned(), value.to_owned()))
            });
            let (status, headers) = (response.status().as_u16(), headers.collect());
            return Ok(HttpResponse { status, headers, body: Box::new(LocalHttpBody { response, _permit: permit }) });
        }
        Err(HttpError::TooManyRedirects)
    }

    async fn client(&self, outgoing: &OutgoingRequest) -> Result<&reqwest::Client, HttpError> {
        let ca_file = (self.lookup)(CA_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.clients.get(outgoing.url.scheme() == "https", ca_file).await
    }

    /// Sends it once. The deadline covers the body of the response, too.
    async fn send_once(
        &self,
        outgoing: &OutgoingRequest,
        deadline: Option<Instant>,
    ) -> Result<reqwest::Response, HttpError> {
        let client = self.client(outgoing).await?;
        // The builder turns a name and a password in the URL into a header.
        let mut request =
            client.request(outgoing.method.clone(), outgoing.url.clone()).headers(outgoing.headers.clone());
        if let Some(body) = &outgoing.body {
            request = request.body(body.clone());
        }
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HttpError::NoTimeLeft);
            }
            request = request.timeout(left);
        }
        request.send().await.map_err(|error| match error.is_timeout() {
            true => HttpError::TimedOut { why: error.to_string() },
            false => request_failed(&error),
        })
    }

    /// Checks the request. Clients depend on the order of the checks: the first thing that is wrong is reported.
    fn validate(&self, request: HttpRequest) -> Result<OutgoingRequest, HttpError> {
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|error| HttpError::BadMethod { why: error.to_string() })?;
        let url = Url::parse(&request.url).map_err(|error| HttpError::BadUrl { why: error.to_string() })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(HttpError::BadScheme { scheme: url.scheme().to_owned() });
        }
        let mut headers = HeaderMap::with_capacity(request.headers.len());
        for header in request.headers {
            let name = HeaderName::from_bytes(header.name.as_bytes())
                .map_err(|error| HttpError::BadHeaderName { why: error.to_string() })?;
            let value = self.header_value(&header)?;
            let mut value = HeaderValue::from_bytes(&value)
                .map_err(|error| HttpError::BadHeaderValue { name: header.name, why: error.to_string() })?;
            // The value of a variable is likely a secret, which must not appear in the log of any library.
            value.set_sensitive(header.value_env_var.is_some());
            headers.append(name, value);
        }
        Ok(OutgoingRequest { method, url, headers, body: request.body })
    }

    fn header_value(&self, header: &RequestHeader) -> Result<Vec<u8>, HttpError> {
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

/// The client; it follows no redirection by itself.
#[derive(Default)]
struct Clients {
    trusting: OnceLock<reqwest::Client>,
    /// For a machine without certificates: plain HTTP works, and TLS always fails.
    plain: OnceLock<reqwest::Client>,
}

impl Clients {
    /// The client for a request, made now if it is the first. Two first requests may both make one; one of them is then
    /// dropped.
    async fn get(&self, needs_trust: bool, ca_file: Option<PathBuf>) -> Result<&reqwest::Client, HttpError> {
        if let Some(client) = self.trusting.get() {
            return Ok(client);
        }
        if !needs_trust && let Some(client) = self.plain.get() {
            return Ok(client);
        }
        match build_client(true, ca_file).await {
            Ok(client) => Ok(self.trusting.get_or_init(|| client)),
            Err(error) if needs_trust => Err(error),
            Err(_) => {
                let client = build_client(false, None).await?;
                Ok(self.plain.get_or_init(|| client))
            }
        }
    }
}

/// Makes a client on a blocking thread, because reading the certificate store takes milliseconds.
async fn build_client(trusting: bool, ca_file: Option<PathBuf>) -> Result<reqwest::Client, HttpError> {
    let built = tokio::task::spawn_blocking(move || {
        let further = ca_file.as_deref().map(read_certificates).transpose()?.unwrap_or_default();
        let builder = reqwest::Client::builder().redirect(Policy::none());
        let builder = builder.pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(IDLE_PER_HOST);
        let builder = if trusting { builder.tls_certs_merge(further) } else { builder.tls_certs_only([]) };
        builder.build().map_err(|error| request_failed(&error))
    });
    built.await.unwrap_or_else(|error| Err(HttpError::Failed { why: error.to_string(), causes: String::new() }))
}

/// A file that was named and cannot be used is an error: whoever named it would look for the reason elsewhere.
fn read_certificates(path: &Path) -> Result<Vec<reqwest::Certificate>, HttpError> {
    let failed = |problem: String| HttpError::Failed {
        why: format!("the certificates in {} ({CA_VARIABLE}) cannot be used", path.display()),
        causes: problem,
    };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    match reqwest::Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if certificates.is_empty() => Err(failed("there is none in it".to_owned())),
        other => other.map_err(|error| failed(error.to_string())),
    }
}

impl Default for LocalHttp {
    fn default() -> Self {
        Self::new()
    }
}

impl Http for LocalHttp {
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(self.send(request))
    }
}

/// The body of a response, read from the connection only when it is asked for.
struct LocalHttpBody {
    response: reqwest::Response,
    _permit: DescriptorPermit,
}

impl HttpBody for LocalHttpBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, HttpError>> {
        Box::pin(async move {
            loop {
                match self.response.chunk().await {
                    Ok(Some(bytes)) if bytes.is_empty() => {}
                    Ok(bytes) => return Ok(bytes),
                    Err(error) => return Err(HttpError::Body { why: error.to_string() }),
                }
            }
        })
    }
}

/// What happened, in the words of the library, and its causes.
fn request_failed(error: &reqwest::Error) -> HttpError {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    HttpError::Failed { why: error.to_string(), causes: causes.join(": ") }
}

/// Whether a header may contain this variable. Credentials of the machine itself may not leave it at a caller's
/// request.
fn variable_may_leave(variable: &str) -> bool {
    !MACHINE_CREDENTIALS.iter().any(|credential| credential.eq_ignore_ascii_case(variable))
}

/// Variables in which agents, cloud machines and their tools keep their own credentials.
const MACHINE_CREDENTIALS: [&str; 14] = [
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
