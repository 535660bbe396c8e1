//! Watches: our own, which reports every change, and that of Codex's server, which reports once that a missing path has
//! appeared.

use std::path::PathBuf;

use exec_env::files::{ChangeStream, MissingPathWatch, WatchOptions};
use exec_wire::PathUri;
use exec_wire::fs::{
    ChangedParams, MissingChangedParams, UnwatchParams, UnwatchResult, WatchMissingParams, WatchMissingResult,
    WatchParams, WatchResult,
};

use super::native_path;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::handlers::notifications::{NotificationSender, spawn_after_response};
use crate::limits::{CHANGES_PER_NOTIFICATION, WATCH_OR_SEARCH_ID_BYTES};
use crate::reply;

pub(crate) async fn watch(context: RequestContext, params: WatchParams) -> HandlerResult<WatchResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let watch_id = params.watch_id;
    if watch_id.len() > WATCH_OR_SEARCH_ID_BYTES {
        return Err(reply::bad_params(format!("watchId must not exceed {WATCH_OR_SEARCH_ID_BYTES} bytes")));
    }
    let reservation = context.connection.resources.watches.reserve(&watch_id);
    let reservation = reservation.map_err(|error| reply::source_refused("watchId", &watch_id, "watches", error))?;
    let options = WatchOptions { recursive: params.recursive.unwrap_or(true), ignore_files: params.ignore_files };
    let changes = files.watch(&path, options).await.map_err(reply::file_error)?;
    let (stop, id) = (reservation.stop_token(), watch_id.clone());
    let then =
        spawn_after_response(&context, stop, reservation, |sender| send_changes(sender, id, params.path, changes));
    Ok(Response { then: Some(then), ..WatchResult { watch_id }.into() })
}

async fn send_changes(sender: NotificationSender, watch_id: String, root: PathUri, mut changes: Box<dyn ChangeStream>) {
    let notification =
        |changes, overflow, ended| ChangedParams { watch_id: watch_id.clone(), changes, overflow, ended };
    while let Some(next) = sender.unless_stopped(changes.next()).await {
        let batch = match next {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                sender.send(&notification(Vec::new(), None, true)).await;
                return;
            }
            Err(error) => {
                tracing::info!(watch = watch_id, %error, "the watch ends");
                sender.send(&notification(Vec::new(), Some(root), true)).await;
                return;
            }
        };
        let (mut changed, overflow) = convert::changes(batch);
        // Only the last piece says whether changes were lost, because then all others were sent.
        while changed.len() > CHANGES_PER_NOTIFICATION {
            let rest = changed.split_off(CHANGES_PER_NOTIFICATION);
            if !sender.send(&notification(std::mem::replace(&mut changed, rest), None, false)).await {
                return;
            }
        }
        if !sender.send(&notification(changed, overflow, false)).await {
            return;
        }
    }
}

pub(crate) async fn unwatch(context: RequestContext, params: UnwatchParams) -> HandlerResult<UnwatchResult> {
    context.connection.resources.watches.stop(&params.watch_id).await;
    Ok(UnwatchResult {}.into())
}

pub(crate) async fn watch_missing(
    context: RequestContext,
    params: WatchMissingParams,
) -> HandlerResult<WatchMissingResult> {
    let not_watching = || WatchMissingResult { watching: false }.into();
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let Some(stop) = context.connection.resources.missing.replace(params.watch_id) else { return Ok(not_watching()) };
    let missing = params.missing.iter().map(native_path).collect::<Result<Vec<PathBuf>, _>>();
    let present = params.present.as_ref().map(native_path).transpose();
    // A path that cannot exist on this machine will never appear.
    let (Ok(missing), Ok(present)) = (missing, present) else { return Ok(not_watching()) };
    let watch = match files.watch_missing(&missing, present.as_deref()).await {
        Ok(Some(watch)) => watch,
        Ok(None) => return Ok(not_watching()),
        Err(error) => {
            // Codex's server has no error here: a client that is not notified looks for itself.
            tracing::debug!(%error, "cannot watch for what is missing");
            return Ok(not_watching());
        }
    };
    let then = spawn_after_response(&context, stop, (), move |sender| send_appearance(sender, params.watch_id, watch));
    Ok(Response { then: Some(then), ..WatchMissingResult { watching: true }.into() })
}

async fn send_appearance(sender: NotificationSender, watch_id: u64, mut watch: Box<dyn MissingPathWatch>) {
    if sender.unless_stopped(watch.changed()).await.is_some() {
        sender.send(&MissingChangedParams { watch_id }).await;
    }
}
