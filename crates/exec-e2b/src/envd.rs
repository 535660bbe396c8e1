//! The calls to one sandbox, as envd serves them in E2B's machines: which sandbox, whether the caller may, and which call.
//!
//! - [`process`]: commands and terminals; `process_stream`: what is told of one.
//! - [`filesystem`]: names and what is known of them; `entry`; [`watch`]: changes.
//! - [`files`]: contents, by plain HTTP; `multipart`, `signature`.

mod entry;
mod files;
mod filesystem;
mod multipart;
mod process;
mod process_stream;
mod signature;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{AUTHORIZATION, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use subtle::ConstantTimeEq;

use crate::connect::{self, CallKind, EnvelopeReader};
use crate::error::{Code, ServiceError};
use crate::machine::Measured;
use crate::record::millis;
use crate::request_body::{BodyPieces, RequestBody};
use crate::response::{self, HttpResponse};
use crate::sandbox::Sandbox;
use crate::sandboxes::{DEBUG_SANDBOX, E2bServer};
use crate::server::host_name;

pub(crate) async fn answer(request: Request<RequestBody>, server: &Arc<E2bServer>) -> HttpResponse {
    let path = request.uri().path().to_owned();
    match (request.method(), path.as_str()) {
        (&Method::GET, "/files") | (&Method::POST, "/files") => rest(files::answer(request, server).await),
        (&Method::GET, "/health") => {
            rest(named_sandbox(request.headers(), server).await.map(|_| response::empty(StatusCode::NO_CONTENT)))
        }
        (&Method::GET, "/metrics") => rest(metrics(request.headers(), server).await),
        (&Method::GET, "/envs") => rest(variables(request.headers(), server).await),
        (&Method::POST, _) => match path.trim_start_matches('/').split_once('/') {
            Some((service, method)) if !service.is_empty() && !method.contains('/') => {
                rpc(request, server, service, method).await
            }
            _ => rest(Err(unknown(&path))),
        },
        _ => rest(Err(unknown(&path))),
    }
}

fn unknown(path: &str) -> ServiceError {
    let message = format!("exec-server does not serve {path:?}: see docs/e2b.md for what it does");
    ServiceError::unimplemented(message)
}

fn rest(result: Result<HttpResponse, ServiceError>) -> HttpResponse {
    result.unwrap_or_else(|error| response::json(error.code.status(), &error.rest_json()))
}

/// A call of Connect.
async fn rpc(request: Request<RequestBody>, server: &Arc<E2bServer>, service: &str, method: &str) -> HttpResponse {
    let kind = match (service, method) {
        ("process.Process", "Start" | "Connect" | "StreamInput") | ("filesystem.Filesystem", "WatchDir") => {
            CallKind::Stream
        }
        _ => CallKind::Unary,
    };
    let (head, body) = request.into_parts();
    let called = async {
        connect::check_content_type(&head.headers, kind)?;
        let sandbox = authorized_sandbox(&head.headers, server).await?;
        let user = basic_user(&head.headers)?;
        Ok((sandbox, user))
    };
    let (sandbox, user) = match (called.await, kind) {
        (Ok(called), _) => called,
        (Err(error), CallKind::Unary) => return connect::unary_response(Err(error)),
        (Err(error), CallKind::Stream) => return connect::failed_stream(&error),
    };
    let call = Call { server: Arc::clone(server), sandbox, user, headers: head.headers };
    match kind {
        CallKind::Stream => {
            let answered = match method {
                "Start" => process::start(call, body).await,
                "Connect" => process::connect(call, body).await,
                "StreamInput" => process::stream_input(call, body).await,
                _ => watch::watch_dir(call, body).await,
            };
            answered.unwrap_or_else(|error| connect::failed_stream(&error))
        }
        CallKind::Unary => connect::unary_response(unary(call, body, service, method).await),
    }
}

async fn unary(call: Call, body: RequestBody, service: &str, method: &str) -> Result<serde_json::Value, ServiceError> {
    let deadline = connect::deadline(&call.headers)?;
    let held = call.server.budget.read(body).await?;
    let message = &held.bytes;
    let answered = async {
        match (service, method) {
            ("process.Process", "List") => process::list(&call).await,
            ("process.Process", "SendInput") => process::send_input(&call, connect::decode(message)?).await,
            ("process.Process", "SendSignal") => process::send_signal(&call, connect::decode(message)?).await,
            ("process.Process", "CloseStdin") => process::close_stdin(&call, connect::decode(message)?).await,
            ("process.Process", "Update") => process::update(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "Stat") => filesystem::stat(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "ListDir") => filesystem::list_dir(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "MakeDir") => filesystem::make_dir(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "Move") => filesystem::rename(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "Remove") => filesystem::remove(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "CreateWatcher") => watch::create(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "GetWatcherEvents") => watch::poll(&call, connect::decode(message)?).await,
            ("filesystem.Filesystem", "RemoveWatcher") => watch::remove(&call, connect::decode(message)?).await,
            _ => Err(unknown(&format!("/{service}/{method}"))),
        }
    };
    match deadline {
        None => answered.await,
        Some(deadline) => tokio::time::timeout(deadline, answered).await.unwrap_or_else(|_| {
            let message = format!("{method} was not done within its {} ms", deadline.as_millis());
            Err(ServiceError::new(Code::DeadlineExceeded, message))
        }),
    }
}

/// What every call has.
pub(crate) struct Call {
    pub(crate) server: Arc<E2bServer>,
    pub(crate) sandbox: Arc<Sandbox>,
    /// The user that it names.
    pub(crate) user: Option<String>,
    pub(crate) headers: HeaderMap,
}

impl Call {
    /// The messages of its body.
    pub(crate) fn messages(&self, pieces: BodyPieces) -> EnvelopeReader {
        EnvelopeReader::new(pieces, self.server.budget.clone())
    }
}

/// The sandbox that a request names by its header or by its host. Without a name, that of debug mode is meant.
pub(crate) async fn named_sandbox(headers: &HeaderMap, server: &E2bServer) -> Result<Arc<Sandbox>, ServiceError> {
    match sandbox_name(headers) {
        None => server.debug_sandbox().await,
        Some(DEBUG_SANDBOX) => server.debug_sandbox().await,
        Some(id) => server.find(id).ok_or_else(|| ServiceError::sandbox_gone(id)),
    }
}

/// `None` if the request names none.
pub(crate) fn sandbox_name(headers: &HeaderMap) -> Option<&str> {
    if let Some(id) = headers.get("e2b-sandbox-id") {
        // What is no text is no id.
        return Some(id.to_str().unwrap_or("?"));
    }
    let host = host_name(headers.get(HOST)?.to_str().ok()?);
    let (first, _) = host.split_once('.')?;
    let (port, id) = first.split_once('-')?;
    port.parse::<u16>().ok().map(|_| id)
}

/// The same, if the request carries what its sandbox asks for.
async fn authorized_sandbox(headers: &HeaderMap, server: &E2bServer) -> Result<Arc<Sandbox>, ServiceError> {
    let sandbox = named_sandbox(headers, server).await?;
    match carries_token(headers, &sandbox) {
        true => Ok(sandbox),
        false => Err(unauthorized()),
    }
}

pub(crate) fn unauthorized() -> ServiceError {
    ServiceError::new(
        Code::Unauthenticated,
        "the sandbox's access token is missing or wrong: send it as X-Access-Token",
    )
}

/// Compared in a time that tells nothing about where they differ. A sandbox without a token asks for none.
pub(crate) fn carries_token(headers: &HeaderMap, sandbox: &Sandbox) -> bool {
    let Some(token) = sandbox.access_token() else { return true };
    let sent = headers.get("x-access-token").map(|sent| sent.as_bytes()).unwrap_or_default();
    sent.ct_eq(token.as_bytes()).into()
}

/// The SDKs name a user as that of Basic authentication, without a password.
fn basic_user(headers: &HeaderMap) -> Result<Option<String>, ServiceError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let bad = || ServiceError::invalid("the Authorization header is not `Basic` with a user name in base64");
    let encoded = value.to_str().ok().and_then(|value| value.strip_prefix("Basic ")).ok_or_else(bad)?;
    let decoded = base64_simd::forgiving_decode_to_vec(encoded.trim().as_bytes()).map_err(|_| bad())?;
    let decoded = String::from_utf8(decoded).map_err(|_| bad())?;
    let name = decoded.split(':').next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

async fn metrics(headers: &HeaderMap, server: &E2bServer) -> Result<HttpResponse, ServiceError> {
    let sandbox = authorized_sandbox(headers, server).await?;
    let (measured, cpu) = measure(&sandbox).await;
    Ok(response::json(
        StatusCode::OK,
        &serde_json::json!({
            "ts": millis(SystemTime::now()) / 1000,
            "cpu_count": measured.cpus,
            "cpu_used_pct": cpu,
            "mem_total": measured.memory_bytes,
            "mem_used": measured.memory_used_bytes,
            "mem_cache": measured.memory_cache_bytes,
            "disk_total": measured.disk_bytes,
            "disk_used": measured.disk_used_bytes,
        }),
    ))
}

/// The machine now, and how busy it was since it was last measured for this sandbox.
pub(crate) async fn measure(sandbox: &Sandbox) -> (Measured, f64) {
    let measured = Measured::take(sandbox.environment(), &sandbox.record().home).await;
    let mut last = sandbox.last_measured.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cpu = measured.cpu_used_percent(&last);
    *last = measured;
    (measured, cpu)
}

async fn variables(headers: &HeaderMap, server: &E2bServer) -> Result<HttpResponse, ServiceError> {
    let sandbox = authorized_sandbox(headers, server).await?;
    Ok(response::json(StatusCode::OK, &serde_json::json!(sandbox.record().variables)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn a_sandbox_is_named_by_the_header_or_by_the_host() {
        assert_eq!(sandbox_name(&headers(&[("e2b-sandbox-id", "abc"), ("host", "49983-x.y.z")])), Some("abc"));
        assert_eq!(sandbox_name(&headers(&[("host", "49983-abc.e2b.test:443")])), Some("abc"));
        for host in ["127.0.0.1:49983", "localhost:49983", "x-abc.e2b.test", "[::1]:1"] {
            assert_eq!(sandbox_name(&headers(&[("host", host)])), None, "{host}");
        }
    }

    #[test]
    fn a_user_is_named_as_the_sdks_do() {
        assert_eq!(basic_user(&headers(&[("authorization", "Basic cm9vdDo=")])), Ok(Some("root".to_owned())));
        assert_eq!(basic_user(&headers(&[("authorization", "Basic Og==")])), Ok(None));
        assert_eq!(basic_user(&headers(&[])), Ok(None));
        assert!(basic_user(&headers(&[("authorization", "Basic !!")])).is_err());
        assert!(basic_user(&headers(&[("authorization", "Bearer x")])).is_err());
    }
}
