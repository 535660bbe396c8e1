//! Changes, told as they happen: ours, and the original's one-shot watch for something to appear.

use std::path::PathBuf;

use exec_env::files::{ChangeStream, MissingPathWatch, WatchOptions};
use exec_wire::PathUri;
use exec_wire::error::RpcError;
use exec_wire::fs::{
    ChangedParams, MissingChangedParams, UnwatchParams, UnwatchResult, WatchMissingParams, WatchMissingResult,
    WatchParams, WatchResult,
};

use super::permission::{self, Need};
use super::{Later, Voice, native};
use crate::belongings::Place;
use crate::convert;
use crate::dispatch::{Counter, Done};
use crate::limits::{CHANGES_PER_NOTICE, SOURCE_ID_BYTES};
use crate::reply;

pub(crate) async fn watch(counter: Counter, params: WatchParams) -> Result<Done<WatchResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let watch_id = params.watch_id;
    if watch_id.len() > SOURCE_ID_BYTES {
        return Err(reply::bad_params(format!("watchId must not exceed {SOURCE_ID_BYTES} bytes")));
    }
    let belongings = counter.desk.belongings();
    let place = belongings.watches.reserve(&watch_id);
    let place = place.map_err(|refusal| reply::no_place("watchId", &watch_id, "watches", refusal))?;
    let options = WatchOptions { recursive: params.recursive.unwrap_or(true), ignore_files: params.ignore_files };
    let changes = counter.files().watch(&path, options).await.map_err(|error| reply::file_error(&error))?;
    let (later, begin) = Voice::after_the_answer(counter.desk.clone(), place.stop());
    belongings.run(tell_changes(later, place, params.path, changes));
    Ok(Done { then: Some(begin), ..WatchResult { watch_id }.into() })
}

async fn tell_changes(later: Later, place: Place, root: PathUri, changes: Box<dyn ChangeStream>) {
    let Some(voice) = later.begin().await else { return };
    tell_until_stopped(&voice, &place, root, changes).await;
    voice.settle().await;
}

async fn tell_until_stopped(voice: &Voice, place: &Place, root: PathUri, mut changes: Box<dyn ChangeStream>) {
    let notice = |changes, overflow, ended| ChangedParams { watch_id: place.id().to_owned(), changes, overflow, ended };
    while let Some(next) = voice.unless_stopped(changes.next()).await {
        let batch = match next {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                voice.say(&notice(Vec::new(), None, true)).await;
                return;
            }
            Err(error) => {
                tracing::info!(watch = place.id(), error = error.sentence(), "the watch ends");
                voice.say(&notice(Vec::new(), Some(root), true)).await;
                return;
            }
        };
        let (mut changed, overflow) = convert::changes(batch);
        // The last piece says whether something was missed: by then everything that was not missed is told.
        while changed.len() > CHANGES_PER_NOTICE {
            let rest = changed.split_off(CHANGES_PER_NOTICE);
            if !voice.say(&notice(std::mem::replace(&mut changed, rest), None, false)).await {
                return;
            }
        }
        if !voice.say(&notice(changed, overflow, false)).await {
            return;
        }
    }
}

pub(crate) async fn unwatch(counter: Counter, params: UnwatchParams) -> Result<Done<UnwatchResult>, RpcError> {
    counter.desk.belongings().watches.stop(&params.watch_id).await;
    Ok(UnwatchResult {}.into())
}

pub(crate) async fn watch_missing(
    counter: Counter,
    params: WatchMissingParams,
) -> Result<Done<WatchMissingResult>, RpcError> {
    let not_watching = || WatchMissingResult { watching: false }.into();
    let belongings = counter.desk.belongings();
    let Some(stop) = belongings.missing.replace(params.watch_id) else { return Ok(not_watching()) };
    let missing = params.missing.iter().map(native).collect::<Result<Vec<PathBuf>, _>>();
    let present = params.present.as_ref().map(native).transpose();
    // What no path of this machine is called will never be there.
    let (Ok(missing), Ok(present)) = (missing, present) else { return Ok(not_watching()) };
    let watch = match counter.files().watch_missing(&missing, present.as_deref()).await {
        Ok(Some(watch)) => watch,
        Ok(None) => return Ok(not_watching()),
        Err(error) => {
            // The original has no error here: whoever cannot be told looks for himself.
            tracing::debug!(error = error.sentence(), "cannot watch for what is missing");
            return Ok(not_watching());
        }
    };
    let (later, begin) = Voice::after_the_answer(counter.desk.clone(), stop);
    belongings.run(tell_appearance(later, params.watch_id, watch));
    Ok(Done { then: Some(begin), ..WatchMissingResult { watching: true }.into() })
}

async fn tell_appearance(later: Later, watch_id: u64, mut watch: Box<dyn MissingPathWatch>) {
    let Some(voice) = later.begin().await else { return };
    if voice.unless_stopped(watch.changed()).await.is_some() {
        voice.say(&MissingChangedParams { watch_id }).await;
    }
}
