//! Names and trees: create, metadata, list, walk, glob, remove, copy, rename, links, permissions, times, attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use exec_env::files::tree::CopyProgress;
use exec_env::files::{Copied, CopyOptions, CreateDirectoryOptions, FileError, FileVerb, RemoveOptions, RenameOptions};
use exec_wire::fs::{
    Attribute, AttributeChange, CanonicalizeParams, CanonicalizeResult, CopyParams, CopyProgressParams, CopyResult,
    CreateDirectoryParams, CreateDirectoryResult, CreateSymlinkParams, CreateSymlinkResult, GetAttributesParams,
    GetAttributesResult, GetMetadataParams, GetMetadataResult, GlobParams, GlobResult, ReadDirectoryParams,
    ReadDirectoryResult, ReadLinkParams, ReadLinkResult, RemoveParams, RemoveResult, RenameParams, RenameResult,
    SetAttributesParams, SetAttributesResult, SetPermissionsParams, SetPermissionsResult, SetTimesParams,
    SetTimesResult, WalkParams, WalkResult,
};
use exec_wire::text::OsText;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::native_path;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::handlers::notifications::NotificationSender;
use crate::limits::{COPY_PROGRESS_REPORTS, DIRECTORY_PAGE_ENTRIES, LISTING_BYTES, WALK_BYTES};
use crate::reply;

pub(crate) async fn create_directory(
    context: RequestContext,
    params: CreateDirectoryParams,
) -> HandlerResult<CreateDirectoryResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let options = CreateDirectoryOptions {
        recursive: params.recursive.unwrap_or(true),
        links: convert::links(params.follow_symlinks),
        mode: params.mode,
    };
    files.create_directory(&path, options).await.map_err(reply::file_error)?;
    Ok(CreateDirectoryResult {}.into())
}

pub(crate) async fn get_metadata(
    context: RequestContext,
    params: GetMetadataParams,
) -> HandlerResult<GetMetadataResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let found = files.metadata(&path, convert::links(params.follow_symlinks)).await.map_err(reply::file_error)?;
    Ok(convert::metadata(&found).into())
}

pub(crate) async fn canonicalize(
    context: RequestContext,
    params: CanonicalizeParams,
) -> HandlerResult<CanonicalizeResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let canonical = files.canonicalize(&path).await.map_err(reply::file_error)?;
    Ok(CanonicalizeResult { path: convert::uri(&canonical).unwrap_or_else(convert::root) }.into())
}

pub(crate) async fn read_directory(
    context: RequestContext,
    params: ReadDirectoryParams,
) -> HandlerResult<ReadDirectoryResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    // The length of a listing is not known before, so it reserves the memory of a long one.
    let memory = context.connection.reserve_response_memory(LISTING_BYTES).await;
    let result = match (&params.cursor, params.max_entries) {
        (None, None) => {
            let entries = files.read_directory(&path).await.map_err(reply::file_error)?;
            let count = entries.len();
            convert::whole_listing(&path, entries).ok_or_else(|| reply::listing_too_large(count))?
        }
        (cursor, max_entries) => {
            let after = cursor.as_ref().map(|cursor| OsStr::from_bytes(&cursor.0));
            let max_entries = max_entries.unwrap_or(DIRECTORY_PAGE_ENTRIES).min(DIRECTORY_PAGE_ENTRIES);
            let page = files.read_directory_page(&path, after, max_entries).await;
            convert::directory_page(&path, page.map_err(reply::file_error)?)
        }
    };
    Ok(Response { memory, ..result.into() })
}

pub(crate) async fn walk(context: RequestContext, params: WalkParams) -> HandlerResult<WalkResult> {
    let options = convert::walk_options(params.options);
    // Codex's server checks the numbers before the path.
    options.check().map_err(|reason| reply::file_error(FileError::new(FileVerb::Walk, "", reason)))?;
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let memory = context.connection.reserve_response_memory(WALK_BYTES).await;
    let result = match &params.cursor {
        None => convert::walk(files.walk(&path, options).await.map_err(reply::file_error)?),
        Some(cursor) => {
            let after = convert::walk_position(cursor).map_err(|()| reply::bad_params("cursor is none of ours"))?;
            let page = files.walk_page(&path, options, after).await;
            convert::walk_page(page.map_err(reply::file_error)?)
        }
    };
    Ok(Response { memory, ..result.into() })
}

pub(crate) async fn glob(context: RequestContext, params: GlobParams) -> HandlerResult<GlobResult> {
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let query = convert::glob_query(params).map_err(reply::foreign_path)?;
    let memory = context.connection.reserve_response_memory(WALK_BYTES).await;
    let found = files.glob(query).await.map_err(reply::file_error)?;
    Ok(Response { memory, ..convert::glob_matches(&found).into() })
}

pub(crate) async fn remove(context: RequestContext, params: RemoveParams) -> HandlerResult<RemoveResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let options = RemoveOptions {
        recursive: params.recursive.unwrap_or(true),
        force: params.force.unwrap_or(true),
        links: convert::links(params.follow_symlinks),
    };
    files.remove(&path, options).await.map_err(reply::file_error)?;
    Ok(RemoveResult {}.into())
}

pub(crate) async fn copy(context: RequestContext, params: CopyParams) -> HandlerResult<CopyResult> {
    let (source, destination) = (native_path(&params.source_path)?, native_path(&params.destination_path)?);
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let (reporter, progress_reports) = mpsc::channel(COPY_PROGRESS_REPORTS);
    let progress = params.progress_id.is_some().then(|| -> CopyProgress {
        Arc::new(move |copied: &Copied| {
            // A report that does not fit is left out; the response has the final numbers.
            let _ = reporter.try_send(*copied);
        })
    });
    let options = CopyOptions { recursive: params.recursive, keep_times: params.keep_times, progress };
    let copying = files.copy(&source, &destination, options);
    let (copied, ()) = tokio::join!(copying, send_progress(&context, params.progress_id, progress_reports));
    let copied = copied.map_err(reply::file_error)?;
    Ok(CopyResult { copied: params.report.then(|| convert::copied(&copied)) }.into())
}

/// Ends with the copy, which holds the only sender of reports.
async fn send_progress(
    context: &RequestContext,
    progress_id: Option<String>,
    mut progress_reports: mpsc::Receiver<Copied>,
) {
    let Some(progress_id) = progress_id else { return };
    let sender = NotificationSender::new(context.connection.clone(), CancellationToken::new());
    while let Some(copied) = progress_reports.recv().await {
        let notification = CopyProgressParams { progress_id: progress_id.clone(), copied: convert::copied(&copied) };
        sender.send(&notification).await;
    }
    sender.flush().await;
}

pub(crate) async fn rename(context: RequestContext, params: RenameParams) -> HandlerResult<RenameResult> {
    let (from, to) = (native_path(&params.source_path)?, native_path(&params.destination_path)?);
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let options = RenameOptions { no_replace: params.no_replace, links: convert::links(params.follow_symlinks) };
    files.rename(&from, &to, options).await.map_err(reply::file_error)?;
    Ok(RenameResult {}.into())
}

pub(crate) async fn set_permissions(
    context: RequestContext,
    params: SetPermissionsParams,
) -> HandlerResult<SetPermissionsResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let links = convert::links(params.follow_symlinks);
    files.set_permissions(&path, params.mode, links).await.map_err(reply::file_error)?;
    Ok(SetPermissionsResult {}.into())
}

pub(crate) async fn set_times(context: RequestContext, params: SetTimesParams) -> HandlerResult<SetTimesResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let times = convert::times(params.accessed_ns, params.modified_ns);
    files.set_times(&path, times, convert::links(params.follow_symlinks)).await.map_err(reply::file_error)?;
    Ok(SetTimesResult {}.into())
}

pub(crate) async fn get_attributes(
    context: RequestContext,
    params: GetAttributesParams,
) -> HandlerResult<GetAttributesResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let found = files.attributes(&path, convert::links(params.follow_symlinks)).await.map_err(reply::file_error)?;
    let attribute = |(name, value): (OsString, Bytes)| Attribute { name: OsText(name), data_base64: value.into() };
    Ok(GetAttributesResult { attributes: found.into_iter().map(attribute).collect() }.into())
}

pub(crate) async fn set_attributes(
    context: RequestContext,
    params: SetAttributesParams,
) -> HandlerResult<SetAttributesResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let change = |change: AttributeChange| (change.name.0, change.data_base64.map(|value| value.0));
    let changes = params.attributes.into_iter().map(change).collect();
    let links = convert::links(params.follow_symlinks);
    files.set_attributes(&path, changes, links).await.map_err(reply::file_error)?;
    Ok(SetAttributesResult {}.into())
}

pub(crate) async fn read_link(context: RequestContext, params: ReadLinkParams) -> HandlerResult<ReadLinkResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let links = convert::links(params.follow_symlinks);
    let target = files.read_link(&path, links).await.map_err(reply::file_error)?;
    Ok(ReadLinkResult { target: OsText(target.into_os_string()) }.into())
}

pub(crate) async fn create_symlink(
    context: RequestContext,
    params: CreateSymlinkParams,
) -> HandlerResult<CreateSymlinkResult> {
    let path = native_path(&params.path)?;
    let files = context.files_under(params.sandbox.as_ref()).await?;
    let (target, links) = (std::path::PathBuf::from(params.target.0), convert::links(params.follow_symlinks));
    files.create_symlink(&target, &path, links).await.map_err(reply::file_error)?;
    Ok(CreateSymlinkResult {}.into())
}
