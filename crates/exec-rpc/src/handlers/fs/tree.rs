//! Names and trees: make, look, list, walk, remove, copy, rename, links, permissions, glob.

use std::sync::Arc;

use exec_env::files::tree::CopyProgress;
use exec_env::files::{Copied, CopyOptions, CreateDirectoryOptions, FileError, RemoveOptions, RenameOptions, FileVerb};
use exec_wire::error::RpcError;
use exec_wire::fs::{
    CanonicalizeParams, CanonicalizeResult, CopyParams, CopyProgressParams, CopyResult, CreateDirectoryParams,
    CreateDirectoryResult, CreateSymlinkParams, CreateSymlinkResult, GetMetadataParams, GetMetadataResult, GlobParams,
    GlobResult, ReadDirectoryParams, ReadDirectoryResult, ReadLinkParams, ReadLinkResult, RemoveParams, RemoveResult,
    RenameParams, RenameResult, SetPermissionsParams, SetPermissionsResult, SetTimesParams, SetTimesResult, WalkParams,
    WalkResult,
};
use exec_wire::text::OsText;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::permission::{self, Need};
use super::{Voice, native};
use crate::convert;
use crate::dispatch::{Counter, Done};
use crate::limits::{COPY_REPORTS, LISTING_BYTES, WALK_BYTES};
use crate::reply;

fn refuse(error: FileError) -> RpcError {
    reply::file_error(&error)
}

pub(crate) async fn create_directory(
    counter: Counter,
    params: CreateDirectoryParams,
) -> Result<Done<CreateDirectoryResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let options = CreateDirectoryOptions {
        recursive: params.recursive.unwrap_or(true),
        links: convert::links(params.follow_symlinks),
        mode: params.mode,
    };
    counter.files().create_directory(&path, options).await.map_err(refuse)?;
    Ok(CreateDirectoryResult {}.into())
}

pub(crate) async fn get_metadata(
    counter: Counter,
    params: GetMetadataParams,
) -> Result<Done<GetMetadataResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let found = counter.files().metadata(&path, convert::links(params.follow_symlinks)).await.map_err(refuse)?;
    Ok(convert::metadata(&found).into())
}

pub(crate) async fn canonicalize(
    counter: Counter,
    params: CanonicalizeParams,
) -> Result<Done<CanonicalizeResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let canonical = counter.files().canonicalize(&path).await.map_err(refuse)?;
    Ok(CanonicalizeResult { path: convert::uri(&canonical).unwrap_or_else(convert::root) }.into())
}

pub(crate) async fn read_directory(
    counter: Counter,
    params: ReadDirectoryParams,
) -> Result<Done<ReadDirectoryResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    // How long a listing is, nobody knows before; so it takes the room of a long one while it is made.
    let room = counter.desk.room(LISTING_BYTES).await;
    let entries = counter.files().read_directory(&path).await.map_err(refuse)?;
    let entries = entries.into_iter().map(|entry| convert::directory_entry(&path, entry)).collect();
    Ok(Done { bytes: room, ..ReadDirectoryResult { entries }.into() })
}

pub(crate) async fn walk(counter: Counter, params: WalkParams) -> Result<Done<WalkResult>, RpcError> {
    let options = convert::walk_options(params.options);
    // The original judges the numbers before it looks at the path.
    options.check().map_err(|reason| refuse(FileError::new(FileVerb::Walk, "", reason)))?;
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let room = counter.desk.room(WALK_BYTES).await;
    let walk = counter.files().walk(&path, options).await.map_err(refuse)?;
    Ok(Done { bytes: room, ..convert::walk(walk).into() })
}

pub(crate) async fn glob(counter: Counter, params: GlobParams) -> Result<Done<GlobResult>, RpcError> {
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let query = convert::glob_query(params).map_err(|foreign| reply::foreign_path(&foreign))?;
    let room = counter.desk.room(WALK_BYTES).await;
    let found = counter.files().glob(query).await.map_err(refuse)?;
    let paths = found.paths.iter().filter_map(|path| convert::uri(path)).collect();
    Ok(Done { bytes: room, ..GlobResult { paths, truncated: found.truncated }.into() })
}

pub(crate) async fn remove(counter: Counter, params: RemoveParams) -> Result<Done<RemoveResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let options = RemoveOptions {
        recursive: params.recursive.unwrap_or(true),
        force: params.force.unwrap_or(true),
        links: convert::links(params.follow_symlinks),
    };
    counter.files().remove(&path, options).await.map_err(refuse)?;
    Ok(RemoveResult {}.into())
}

pub(crate) async fn copy(counter: Counter, params: CopyParams) -> Result<Done<CopyResult>, RpcError> {
    let (source, destination) = (native(&params.source_path)?, native(&params.destination_path)?);
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let (reports, told) = mpsc::channel(COPY_REPORTS);
    let progress = params.progress_id.is_some().then(|| -> CopyProgress {
        Arc::new(move |copied: &Copied| {
            // One that does not fit is left out; the answer has the last.
            let _ = reports.try_send(*copied);
        })
    });
    let options = CopyOptions { recursive: params.recursive, keep_times: params.keep_times, progress };
    let copying = counter.files().copy(&source, &destination, options);
    let (copied, ()) = tokio::join!(copying, tell_progress(&counter, params.progress_id, told));
    let copied = copied.map_err(refuse)?;
    Ok(CopyResult { copied: params.report.then(|| convert::copied(&copied)) }.into())
}

/// Ends with the copy, which alone can report.
async fn tell_progress(counter: &Counter, progress_id: Option<String>, mut told: mpsc::Receiver<Copied>) {
    let Some(progress_id) = progress_id else { return };
    let voice = Voice::before_the_answer(counter.desk.clone(), CancellationToken::new());
    while let Some(copied) = told.recv().await {
        let notice = CopyProgressParams { progress_id: progress_id.clone(), copied: convert::copied(&copied) };
        voice.say(&notice).await;
    }
    voice.settle().await;
}

pub(crate) async fn rename(counter: Counter, params: RenameParams) -> Result<Done<RenameResult>, RpcError> {
    let (from, to) = (native(&params.source_path)?, native(&params.destination_path)?);
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let options = RenameOptions { no_replace: params.no_replace, links: convert::links(params.follow_symlinks) };
    counter.files().rename(&from, &to, options).await.map_err(refuse)?;
    Ok(RenameResult {}.into())
}

pub(crate) async fn set_permissions(
    counter: Counter,
    params: SetPermissionsParams,
) -> Result<Done<SetPermissionsResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let links = convert::links(params.follow_symlinks);
    counter.files().set_permissions(&path, params.mode, links).await.map_err(refuse)?;
    Ok(SetPermissionsResult {}.into())
}

pub(crate) async fn set_times(counter: Counter, params: SetTimesParams) -> Result<Done<SetTimesResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let times = convert::times(params.accessed_ns, params.modified_ns);
    counter.files().set_times(&path, times, convert::links(params.follow_symlinks)).await.map_err(refuse)?;
    Ok(SetTimesResult {}.into())
}

pub(crate) async fn read_link(counter: Counter, params: ReadLinkParams) -> Result<Done<ReadLinkResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Read)?;
    let links = convert::links(params.follow_symlinks);
    let target = counter.files().read_link(&path, links).await.map_err(refuse)?;
    Ok(ReadLinkResult { target: OsText(target.into_os_string()) }.into())
}

pub(crate) async fn create_symlink(
    counter: Counter,
    params: CreateSymlinkParams,
) -> Result<Done<CreateSymlinkResult>, RpcError> {
    let path = native(&params.path)?;
    permission::check(params.sandbox.as_ref(), Need::Write)?;
    let (target, links) = (std::path::PathBuf::from(params.target.0), convert::links(params.follow_symlinks));
    counter.files().create_symlink(&target, &path, links).await.map_err(refuse)?;
    Ok(CreateSymlinkResult {}.into())
}
