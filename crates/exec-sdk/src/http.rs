//! HTTP requests that the machine makes.

use std::sync::Arc;

use exec_server::SharedEnvironment;
use exec_server::http::{HttpBody, HttpRequest, Redirects, RequestHeader};
use tokio::sync::Mutex;

use crate::limits::BODY_BYTES;
use crate::object::What;
use crate::{Arguments, Call, Failure, FailureKind, Object, Value};

/// The body of a response, to be read piece by piece.
pub(crate) struct Body(Mutex<Box<dyn HttpBody>>);

/// Sends a request. The response comes with its whole body, or with `stream` as something to read it from.
pub(crate) fn request(machine: SharedEnvironment, mut arguments: Arguments) -> Result<Call, Failure> {
    let headers = arguments.pairs("headers")?.into_iter().filter_map(|(name, value)| {
        let value = value?.into_string().map_err(|_| Failure::bad_argument("headers", "a value must be text"));
        Some(value.map(|value| RequestHeader { name, value, value_env_var: None }))
    });
    let request = HttpRequest {
        method: arguments.optional_text("method")?.unwrap_or_else(|| "GET".to_owned()),
        url: arguments.text("url")?,
        headers: headers.collect::<Result<_, _>>()?,
        body: arguments.optional_bytes("body")?,
        timeout: arguments.duration("timeout")?,
        redirects: if arguments.flag("follow_redirects", true)? { Redirects::Follow } else { Redirects::Stop },
    };
    let stream = arguments.flag("stream", false)?;
    arguments.finish()?;
    Ok(Call::begin(async move {
        let mut response = machine.http().request(request).await?;
        let body = if stream {
            Object::new(What::Body(Arc::new(Body(Mutex::new(response.body))))).into()
        } else {
            read_whole(&mut *response.body).await?
        };
        let headers = response.headers.into_iter().map(|(name, value)| Value::list([name, value]));
        Ok(Value::map([("status", response.status.into()), ("headers", Value::list(headers)), ("body", body)]))
    }))
}

async fn read_whole(body: &mut dyn HttpBody) -> Result<Value, Failure> {
    let mut whole = Vec::new();
    while let Some(bytes) = body.next().await? {
        if whole.len() + bytes.len() > BODY_BYTES {
            let why = format!("the body is larger than {BODY_BYTES} bytes: read it in pieces, with `stream`");
            return Err(Failure::new(FailureKind::Other, why));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.into())
}

impl Body {
    pub(crate) fn call(self: &Arc<Self>, method: &str, arguments: Arguments) -> Result<Call, Failure> {
        if method != "next" {
            return Err(Failure::bad_argument("method", &format!("a body has no `{method}`")));
        }
        arguments.finish()?;
        let body = Arc::clone(self);
        Ok(Call::begin(async move { Ok(body.0.lock().await.next().await?.into()) }))
    }
}
