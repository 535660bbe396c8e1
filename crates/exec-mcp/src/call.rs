//! What a tool needs of its request: the arguments, the right to report progress, and whether the client knows tasks.

use rmcp::model::{InputResponses, JsonObject, ProgressNotificationParam};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::limits::PROGRESS_INTERVAL;

/// One call of a tool.
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: JsonObject,
    /// Answers to what an earlier call of the same was answered with.
    pub(crate) input_responses: InputResponses,
    /// Of that earlier call.
    pub(crate) request_state: Option<String>,
    pub(crate) context: RequestContext<RoleServer>,
}

/// A call that its client has given up. Its process goes on.
pub(crate) struct Cancelled;

impl From<Cancelled> for ErrorData {
    fn from(_: Cancelled) -> Self {
        ErrorData::internal_error("the call was cancelled; what it started goes on, see list_sessions", None)
    }
}

impl Call {
    /// The arguments, or what is wrong with them, for the model.
    pub(crate) fn arguments<T: DeserializeOwned>(&self) -> Result<T, String> {
        let arguments = serde_json::Value::Object(self.arguments.clone());
        serde_json::from_value(arguments)
            .map_err(|error| format!("bad arguments for {}: {error}; see its input schema", self.name))
    }

    pub(crate) fn client_knows_tasks(&self) -> bool {
        self.context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
    }

    /// Whether the client can ask its user to accept or decline something.
    pub(crate) fn client_shows_forms(&self) -> bool {
        let elicitation = self.context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // Before there were modes, forms were all there was.
        elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
    }

    /// Does `work`, unless the client gives up the call.
    pub(crate) async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, Cancelled> {
        tokio::select! {
            done = work => Ok(done),
            () = self.context.ct.cancelled() => Err(Cancelled),
        }
    }

    /// Does `work`, and tells the client every second that it goes on, if it wants to know. Ends when the client gives up;
    /// what the work has started goes on.
    pub(crate) async fn attend<T>(&self, work: impl Future<Output = T>) -> Result<T, Cancelled> {
        let token = self.context.meta.get_progress_token();
        let begin = Instant::now();
        let mut ticks = tokio::time::interval_at(begin + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.context.ct.cancelled() => return Err(Cancelled),
                _ = ticks.tick(), if token.is_some() => {
                    let Some(token) = token.clone() else { continue };
                    let seconds = begin.elapsed().as_secs_f64();
                    let report = ProgressNotificationParam::new(token, seconds)
                        .with_message(format!("running for {seconds:.0} s"));
                    // A client that is gone will not have the result either.
                    let _ = self.context.peer.notify_progress(report).await;
                }
            }
        }
    }
}
