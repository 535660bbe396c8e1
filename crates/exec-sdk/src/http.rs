//! HTTP requests that the machine makes.

use std::sync::Arc;

use exec_server::SharedEnvironment;
use exec_server::http::{HttpBody, HttpRequest, Redirects, RequestHeader};
use futures_util::future::BoxFuture;

use crate::call::{Outcome, Work};
use crate::environment::Environment;
use crate::limits::BODY_BYTES;
use crate::pages::{Pages, ReadPages};
use crate::{Arguments, Failure, FailureKind, Value};

/// The body of a response, to be read piece by piece.
struct Body(Box<dyn HttpBody>);

/// Sends a request. The response comes with its whole body, or with `stream` as something to read it from.
pub(crate) fn request(
    machine: SharedEnvironment,
    mut arguments: Arguments,
    environment: Arc<Environment>,
) -> Result<Work, Failure> {
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
    Ok(Work::new(async move {
        let mut response = machine.http().request(request).await?;
        let body = if stream {
            Pages::object("body", Body(response.body), environment)
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

impl ReadPages for Body {
    fn next(&mut self) -> BoxFuture<'_, Outcome> {
        Box::pin(async { Ok(self.0.next().await?.into()) })
    }
}
