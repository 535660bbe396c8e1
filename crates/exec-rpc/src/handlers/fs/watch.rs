//! Changes, told as they happen: ours, and the original's one-shot watch for something to appear.

use std::path::PathBuf;

use exec_env::files::{ChangeStream, MissingPathWatch, WatchOptions};
use exec_wire::PathUri;
use exec_wire::error::RpcError;
use exec_wire::fs::{
    ChangedParams, MissingChangedParams, UnwatchParams, UnwatchResult, WatchMissingParams, WatchMissingResult,
    WatchParams, WatchResult,
};

use super::permission::{self, FileAccess};
use super::{DeferredSender, NotificationSender, native_path};
use crate::convert;
use crate::dispatch::{RequestContext, Response};
use crate::limits::{CHANGES_PER_NOTIFICATION, WATCH_OR_SEARCH_ID_BYTES};
use crate::reply;
use crate::resources::SourceReservation;

pub(crate) async fn watch(context: RequestContext, params: WatchParams) -> Result<Response<WatchResult>, RpcError> {
    let path = native_path(&params.path)?;
    permission::check(params.sandbox.as_ref(), FileAccess::Read)?;
    let watch_id = params.watch_id;
    if watch_id.len() > WATCH_OR_SEARCH_ID_BYTES {
        return Err(reply::bad_params(format!("watchId must not exceed {WATCH_OR_SEARCH_ID_BYTES} bytes")));
    }
    let resources = context.connection.resources();
    let reservation = resources.watches.reserve(&watch_id);
    let reservation = reservation.map_err(|refusal| reply::source_refused("watchId", &watch_id, "watches", refusal))?;
    let options = WatchOptions { recursive: params.recursive.unwrap_or(true), ignore_files: params.ignore_files };
    let changes = context.files().watch(&path, options).await.map_err(|error| reply::file_error(&error))?;
    let (deferred, begin) = NotificationSender::after_response(context.connection.clone(), reservation.stop());
    resources.run(send_changes(deferred, reservation, params.path, changes));
    Ok(Response { then: Some(begin), ..WatchResult { watch_id }.into() })
}

async fn send_changes(
    deferred: DeferredSender,
    reservation: SourceReservation,
    root: PathUri,
    changes: Box<dyn ChangeStream>,
) {
    let Some(sender) = deferred.wait_for_response().await else { return };
    send_until_stopped(&sender, &reservation, root, changes).await;
    sender.flush().await;
}

async fn send_until_stopped(
    sender: &NotificationSender,
    reservation: &SourceReservation,
    root: PathUri,
    mut changes: Box<dyn ChangeStream>,
) {
    let notification =
        |changes, overflow, ended| ChangedParams { watch_id: reservation.id().to_owned(), changes, overflow, ended };
    while let Some(next) = sender.unless_stopped(changes.next()).await {
        let batch = match next {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                sender.send(&notification(Vec::new(), None, true)).await;
                return;
            }
            Err(error) => {
                tracing::info!(watch = reservation.id(), error = error.sentence(), "the watch ends");
                sender.send(&notification(Vec::new(), Some(root), true)).await;
                return;
            }
        };
        let (mut changed, overflow) = convert::changes(batch);
        // The last piece says whether something was missed: by then everything that was not missed is told.
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

pub(crate) async fn unwatch(
    context: RequestContext,
    params: UnwatchParams,
) -> Result<Response<UnwatchResult>, RpcError> {
    context.connection.resources().watches.stop(&params.watch_id).await;
    Ok(UnwatchResult {}.into())
}

pub(crate) async fn watch_missing(
    context: RequestContext,
    params: WatchMissingParams,
) -> Result<Response<WatchMissingResult>, RpcError> {
    let not_watching = || WatchMissingResult { watching: false }.into();
    let resources = context.connection.resources();
    let Some(stop) = resources.missing.replace(params.watch_id) else { return Ok(not_watching()) };
    let missing = params.missing.iter().map(native_path).collect::<Result<Vec<PathBuf>, _>>();
    let present = params.present.as_ref().map(native_path).transpose();
    // What no path of this machine is called will never be there.
    let (Ok(missing), Ok(present)) = (missing, present) else { return Ok(not_watching()) };
    let watch = match context.files().watch_missing(&missing, present.as_deref()).await {
        Ok(Some(watch)) => watch,
        Ok(None) => return Ok(not_watching()),
        Err(error) => {
            // The original has no error here: whoever cannot be told looks for himself.
            tracing::debug!(error = error.sentence(), "cannot watch for what is missing");
            return Ok(not_watching());
        }
    };
    let (deferred, begin) = NotificationSender::after_response(context.connection.clone(), stop);
    resources.run(send_appearance(deferred, params.watch_id, watch));
    Ok(Response { then: Some(begin), ..WatchMissingResult { watching: true }.into() })
}

async fn send_appearance(deferred: DeferredSender, watch_id: u64, mut watch: Box<dyn MissingPathWatch>) {
    let Some(sender) = deferred.wait_for_response().await else { return };
    if sender.unless_stopped(watch.changed()).await.is_some() {
        sender.send(&MissingChangedParams { watch_id }).await;
    }
}
