//! The control API: sandboxes are made, found, listed, given more time and ended.
//!
//! Paths are those of the SDKs of 2024 to 2026, with and without `/v2`. What needs a machine per sandbox (pausing, snapshots,
//! templates, volumes, secrets) is refused in words, as is what this server does not know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::envd::measure;
use crate::error::{Code, ServiceError};
use crate::limits::{DEFAULT_TIMEOUT, LIST_PAGE, MAX_TIMEOUT, SANDBOX_TEXT_BYTES};
use crate::record::Record;
use crate::request_body::RequestBody;
use crate::response::{self, HttpResponse};
use crate::sandbox::Sandbox;
use crate::sandboxes::{E2bServer, NewSandbox};
use crate::server::ListenOptions;
use exec_core::timestamp::rfc3339;

/// The version of envd whose calls are served. The SDKs turn features on by it.
const ENVD_VERSION: &str = "0.6.13";

/// E2B's own answer has one; nobody reads it.
const CLIENT_ID: &str = "exec-server";

pub(crate) async fn answer(
    request: Request<RequestBody>,
    server: &Arc<E2bServer>,
    options: &ListenOptions,
) -> HttpResponse {
    match route(request, server, options).await {
        Ok(response) => response,
        Err(error) => response::json(error.code.status(), &error.rest_json()),
    }
}

async fn route(
    request: Request<RequestBody>,
    server: &Arc<E2bServer>,
    options: &ListenOptions,
) -> Result<HttpResponse, ServiceError> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/health" && head.method == Method::GET {
        return Ok(response::empty(StatusCode::NO_CONTENT));
    }
    check_key(&head.headers, server)?;
    let query = head.uri.query().unwrap_or_default();
    let unversioned = path.strip_prefix("/v2").unwrap_or(&path);
    let segments: Vec<&str> = unversioned.trim_start_matches('/').split('/').collect();
    match (&head.method, &segments[..]) {
        (&Method::POST, ["sandboxes"]) => {
            let key = head.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
            create(server, read_json(server, body).await?, key, options).await
        }
        (&Method::GET, ["sandboxes"]) => list(server, query),
        (&Method::GET, ["sandboxes", id]) => {
            let sandbox = find(server, id)?;
            Ok(response::json(StatusCode::OK, &detail(&sandbox)))
        }
        (&Method::DELETE, ["sandboxes", id]) => {
            let (server, wanted) = (Arc::clone(server), id.to_string());
            match to_the_end(async move { Ok(server.kill(&wanted).await) }).await? {
                true => Ok(response::empty(StatusCode::NO_CONTENT)),
                false => Err(not_found(id)),
            }
        }
        (&Method::POST, ["sandboxes", id, "connect"]) => {
            let wanted: ConnectRequest = read_json(server, body).await?;
            let sandbox = find(server, id)?;
            // Whoever connects does not shorten the time that somebody else has asked for.
            server.set_timeout(&sandbox, timeout_of(wanted.timeout)?, true)?;
            Ok(response::json(StatusCode::OK, &created(&sandbox, options)))
        }
        (&Method::POST, ["sandboxes", id, "timeout"]) => {
            let wanted: TimeoutRequest = read_json(server, body).await?;
            server.set_timeout(&*find(server, id)?, timeout_of(Some(wanted.timeout))?, false)?;
            Ok(response::empty(StatusCode::NO_CONTENT))
        }
        (&Method::POST, ["sandboxes", id, "refreshes"]) => {
            let wanted: RefreshRequest = read_json(server, body).await?;
            server.set_timeout(&*find(server, id)?, timeout_of(wanted.duration)?, true)?;
            Ok(response::empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["sandboxes", id, "metrics"]) => {
            let sandbox = find(server, id)?;
            Ok(response::json(StatusCode::OK, &metrics(&sandbox).await))
        }
        (_, ["sandboxes", id, what @ ("pause" | "resume" | "fork" | "snapshots" | "network" | "logs")]) => {
            find(server, id)?;
            Err(ServiceError::unimplemented(format!("exec-server has no {what} of sandboxes: see docs/e2b.md")))
        }
        _ => Err(ServiceError::unimplemented(format!(
            "exec-server does not serve {} {path}: see docs/e2b.md for what it does",
            head.method
        ))),
    }
}

/// Finishes what was begun, also if the client hangs up meanwhile: half a sandbox is of no use to anybody.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, ServiceError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(ServiceError::new(Code::Internal, "the server failed: its log says how")))
}

/// Compared in a time that tells nothing about where they differ.
fn check_key(headers: &HeaderMap, server: &E2bServer) -> Result<(), ServiceError> {
    let sent = headers.get("x-api-key").map(HeaderValue::as_bytes).unwrap_or_default();
    match sent.ct_eq(server.options.api_key.as_bytes()).into() {
        true => Ok(()),
        false => Err(ServiceError::new(
            Code::Unauthenticated,
            "the API key is missing or wrong: set E2B_API_KEY to what `exec-server e2b` prints",
        )),
    }
}

async fn read_json<T: DeserializeOwned>(server: &E2bServer, body: RequestBody) -> Result<T, ServiceError> {
    let held = server.budget.read(body).await?;
    crate::connect::decode(&held.bytes)
}

fn find(server: &E2bServer, id: &str) -> Result<Arc<Sandbox>, ServiceError> {
    server.find(id).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ServiceError {
    ServiceError::new(Code::NotFound, format!("sandbox {id:?} not found: it was killed, or its time is over"))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewSandboxRequest {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    variables: Option<BTreeMap<String, String>>,
    allow_internet_access: Option<bool>,
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(rename = "autoResume")]
    auto_resume: Option<Value>,
    network: Option<Value>,
    mcp: Option<Value>,
    iam: Option<Value>,
    #[serde(rename = "volumeMounts")]
    volume_mounts: Option<Vec<Value>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConnectRequest {
    timeout: Option<u64>,
}

#[derive(Deserialize)]
struct TimeoutRequest {
    timeout: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RefreshRequest {
    duration: Option<u64>,
}

async fn create(
    server: &Arc<E2bServer>,
    request: NewSandboxRequest,
    idempotency_key: Option<String>,
    options: &ListenOptions,
) -> Result<HttpResponse, ServiceError> {
    refuse_what_is_not_served(&request)?;
    let templates = &server.options.templates;
    if !templates.contains(&request.template) {
        let known = templates.join(", ");
        return Err(ServiceError::new(
            Code::NotFound,
            format!("template {:?} not found: this server has {known}; name others with --template", request.template),
        ));
    }
    let timeout = timeout_of(request.timeout)?;
    let (metadata, variables) = (request.metadata.unwrap_or_default(), request.variables.unwrap_or_default());
    let bytes: usize = metadata.iter().chain(&variables).map(|(name, value)| name.len() + value.len()).sum();
    if bytes > SANDBOX_TEXT_BYTES {
        return Err(ServiceError::invalid(format!(
            "metadata and envVars have {bytes} bytes, more than {SANDBOX_TEXT_BYTES}: write them to a file"
        )));
    }
    if variables.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(ServiceError::invalid("envVars: a name is empty, or has `=` or NUL"));
    }
    let new = NewSandbox {
        template: request.template,
        metadata,
        variables,
        idempotency_key,
        offline: request.allow_internet_access == Some(false),
        timeout,
    };
    let maker = Arc::clone(server);
    let sandbox = to_the_end(async move { maker.create(new).await }).await?;
    Ok(response::json(StatusCode::CREATED, &created(&sandbox, options)))
}

/// What a client relies on and does not get is told, rather than left out.
fn refuse_what_is_not_served(request: &NewSandboxRequest) -> Result<(), ServiceError> {
    let is_asked_for = |value: &Option<Value>| match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(members)) => members.values().any(|value| !value.is_null()),
        Some(_) => true,
    };
    let resumes = |value: &Value| value.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    let asked = [
        ("autoPause", request.auto_pause == Some(true)),
        ("autoResume", request.auto_resume.as_ref().is_some_and(|value| !value.is_null() && resumes(value))),
        ("network", is_asked_for(&request.network)),
        ("mcp", is_asked_for(&request.mcp)),
        ("iam", is_asked_for(&request.iam)),
        ("volumeMounts", request.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty())),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((what, _)) => Err(ServiceError::unimplemented(format!(
            "exec-server makes no sandboxes with {what}: leave it out (docs/e2b.md says what there is)"
        ))),
    }
}

fn timeout_of(seconds: Option<u64>) -> Result<Duration, ServiceError> {
    let timeout = seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    match timeout <= MAX_TIMEOUT {
        true => Ok(timeout),
        false => {
            let most = MAX_TIMEOUT.as_secs();
            Err(ServiceError::invalid(format!("a timeout is at most {most} seconds; it can be set again later")))
        }
    }
}

/// The answer to `create` and `connect`.
fn created(sandbox: &Sandbox, options: &ListenOptions) -> Value {
    let record = sandbox.record();
    let mut created = json!({
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "alias": record.template,
    });
    if let Some(token) = record.access_token {
        created["envdAccessToken"] = json!(token);
    }
    if let Some(domain) = &options.domain {
        created["domain"] = json!(domain);
    }
    created
}

/// A sandbox in a list.
fn listed(sandbox: &Sandbox) -> Value {
    let (record, machine) = (sandbox.record(), &sandbox.first_measured);
    let at = |millis| rfc3339(UNIX_EPOCH + Duration::from_millis(millis));
    // One without an end is said to end as late as one may.
    let end = record.end_ms.unwrap_or(crate::record::millis(SystemTime::now() + MAX_TIMEOUT));
    json!({
        "templateID": record.template,
        "sandboxID": record.id,
        "clientID": CLIENT_ID,
        "alias": record.template,
        "startedAt": at(record.started_ms),
        "endAt": at(end),
        "cpuCount": machine.cpus,
        "memoryMB": machine.memory_bytes >> 20,
        "diskSizeMB": machine.disk_bytes >> 20,
        "state": "running",
        "envdVersion": ENVD_VERSION,
        "metadata": record.metadata,
    })
}

/// A sandbox for whoever asks for one.
fn detail(sandbox: &Sandbox) -> Value {
    let mut detail = listed(sandbox);
    let record = sandbox.record();
    if let Some(token) = record.access_token {
        detail["envdAccessToken"] = json!(token);
    }
    detail["allowInternetAccess"] = json!(!record.offline);
    detail
}

async fn metrics(sandbox: &Sandbox) -> Value {
    let (measured, cpu) = measure(sandbox).await;
    let now = SystemTime::now();
    json!([{
        "timestamp": rfc3339(now),
        "timestampUnix": crate::record::millis(now) / 1000,
        "cpuCount": measured.cpus,
        "cpuUsedPct": cpu,
        "memUsed": measured.memory_used_bytes,
        "memTotal": measured.memory_bytes,
        "memCache": measured.memory_cache_bytes,
        "diskUsed": measured.disk_used_bytes,
        "diskTotal": measured.disk_bytes,
    }])
}

fn list(server: &E2bServer, query: &str) -> Result<HttpResponse, ServiceError> {
    let query = ListQuery::parse(query)?;
    let sandboxes = server.list();
    let records: Vec<Record> = sandboxes.iter().map(|sandbox| sandbox.record()).collect();
    let (chosen, next) = query.choose(&records);
    let page: Vec<Value> = chosen.into_iter().map(|index| listed(&sandboxes[index])).collect();
    let mut answer = response::json(StatusCode::OK, &Value::Array(page));
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

/// Which sandboxes a list is to have.
#[derive(Debug, PartialEq, Eq, Default)]
struct ListQuery {
    metadata: BTreeMap<String, String>,
    /// Others than running there are none of.
    only_paused: bool,
    template: Option<String>,
    descending: bool,
    limit: usize,
    /// The last one of the page before.
    after: Option<String>,
}

impl ListQuery {
    fn parse(query: &str) -> Result<Self, ServiceError> {
        let mut parsed = Self { limit: LIST_PAGE, ..Self::default() };
        let mut states = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            match name {
                // Escaped twice: as a query within a query, whose parts are escaped themselves.
                "metadata" => {
                    let pairs = value.split('&').filter_map(|pair| pair.split_once('='));
                    parsed.metadata.extend(pairs.map(|(name, value)| (decode(&decode(name)), decode(&decode(value)))));
                }
                "state" => states.extend(value.split(',').map(str::to_owned)),
                "template" => parsed.template = Some(value),
                "order" => parsed.descending = value == "desc",
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIST_PAGE).contains(limit));
                    let bad = || ServiceError::invalid(format!("limit is a number from 1 to {LIST_PAGE}"));
                    parsed.limit = limit.ok_or_else(bad)?;
                }
                "nextToken" => parsed.after = Some(value),
                "startedAfter" => {
                    return Err(ServiceError::unimplemented(
                        "a list by time of start is not served: filter it yourself",
                    ));
                }
                _ => {}
            }
        }
        parsed.only_paused = !states.is_empty() && !states.iter().any(|state| state == "running");
        Ok(parsed)
    }

    /// The indexes of a page, and the token of the next. `records` are in the order of their start.
    fn choose(&self, records: &[Record]) -> (Vec<usize>, Option<String>) {
        if self.only_paused {
            return (Vec::new(), None);
        }
        let wanted = |record: &Record| {
            let has = |(name, value): (&String, &String)| record.metadata.get(name) == Some(value);
            self.metadata.iter().all(has) && self.template.as_ref().is_none_or(|wanted| *wanted == record.template)
        };
        let mut all: Vec<usize> = (0..records.len()).filter(|index| wanted(&records[*index])).collect();
        if self.descending {
            all.reverse();
        }
        // The token is a place in the order, so one whose sandbox has ended meanwhile still works.
        if let Some((started, id)) = self.after.as_ref().and_then(|token| token.split_once('-')) {
            let place = (started.parse::<u64>().unwrap_or_default(), id);
            all.retain(|index| {
                let this = (records[*index].started_ms, records[*index].id.as_str());
                if self.descending { this < place } else { this > place }
            });
        }
        let more = all.len() > self.limit;
        all.truncate(self.limit);
        let last = all.last().filter(|_| more).map(|index| &records[*index]);
        let next = last.map(|record| format!("{}-{}", record.started_ms, record.id));
        (all, next)
    }
}

fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, started_ms: u64, user: &str) -> Record {
        Record {
            id: id.to_owned(),
            template: "base".to_owned(),
            metadata: BTreeMap::from([("user".to_owned(), user.to_owned())]),
            variables: BTreeMap::new(),
            access_token: None,
            idempotency_key: None,
            offline: false,
            session: None,
            home: "/h".into(),
            started_ms,
            end_ms: None,
        }
    }

    #[test]
    fn metadata_is_escaped_as_the_sdk_does() {
        // urlencode({quote("a b"): quote("x&y")}), and once more as a value of the query.
        let query =
            ListQuery::parse("metadata=a%252520b%3Dx%252526y&limit=2&state=running%2Cpaused").expect("well formed");
        assert_eq!(query.metadata, BTreeMap::from([("a b".to_owned(), "x&y".to_owned())]));
        assert_eq!((query.limit, query.only_paused), (2, false));
        assert!(ListQuery::parse("limit=0").is_err() && ListQuery::parse("limit=101").is_err());
        assert!(ListQuery::parse("state=paused").expect("well formed").only_paused);
    }

    #[test]
    fn pages_have_each_sandbox_once_also_when_one_ends_in_between() {
        let mut records = vec![record("c", 1, "u"), record("a", 2, "u"), record("b", 2, "v"), record("d", 3, "u")];
        let first = ListQuery { limit: 2, ..ListQuery::default() };
        let (chosen, next) = first.choose(&records);
        assert_eq!((chosen, next.as_deref()), (vec![0, 1], Some("2-a")));
        records.remove(1);
        let second = ListQuery { limit: 2, after: next, ..ListQuery::default() };
        assert_eq!(second.choose(&records), (vec![1, 2], None));
        let of_u = ListQuery {
            metadata: BTreeMap::from([("user".to_owned(), "u".to_owned())]),
            limit: 9,
            descending: true,
            ..ListQuery::default()
        };
        assert_eq!(of_u.choose(&records), (vec![2, 0], None));
    }
}
