//! The service `filesystem.Filesystem`, but for watches: names, and what is known of them.

use std::path::Path;

use exec_env::files::{CreateDirectoryOptions, FileKind, LinkPolicy, RemoveOptions, RenameOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Call;
use super::entry::{entry, entry_with};
use crate::error::{Code, ServiceError};
use crate::limits::{LISTED_DEPTH, LISTED_ENTRIES};
use crate::sandbox::UserFiles;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PathRequest {
    path: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct MoveRequest {
    source: String,
    destination: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ListDirRequest {
    path: String,
    depth: usize,
}

impl Call {
    /// The files with the rights of the call.
    pub(super) async fn files(&self) -> Result<UserFiles, ServiceError> {
        self.sandbox.files_of(self.user.as_deref()).await
    }
}

pub(super) async fn stat(call: &Call, request: PathRequest) -> Result<Value, ServiceError> {
    let files = call.files().await?;
    let path = files.resolve(&request.path).await?;
    Ok(json!({ "entry": entry(&call.sandbox, &files, &path).await? }))
}

/// A directory that exists is told, because the SDKs answer `false` for it.
pub(super) async fn make_dir(call: &Call, request: PathRequest) -> Result<Value, ServiceError> {
    let files = call.files().await?;
    let path = files.resolve(&request.path).await?;
    match files.metadata(&path, LinkPolicy::Follow).await {
        Ok(metadata) if metadata.kind == FileKind::Directory => {
            let message = format!("directory already exists: {}", path.display());
            return Err(ServiceError::new(Code::AlreadyExists, message));
        }
        Ok(_) => return Err(ServiceError::invalid(format!("{} exists, and is no directory", path.display()))),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    files.create_directory(&path, CreateDirectoryOptions::default()).await?;
    Ok(json!({ "entry": entry(&call.sandbox, &files, &path).await? }))
}

pub(super) async fn rename(call: &Call, request: MoveRequest) -> Result<Value, ServiceError> {
    let files = call.files().await?;
    let (source, destination) = (files.resolve(&request.source).await?, files.resolve(&request.destination).await?);
    // What is missing is the source, and the destination's directory is made. A link is there, wherever it leads.
    if let Err(error) = files.metadata(&source, LinkPolicy::Follow).await
        && files.read_link(&source, LinkPolicy::Follow).await.is_err()
    {
        return Err(error.into());
    }
    make_parents(&files, &destination).await?;
    files.rename(&source, &destination, RenameOptions::default()).await?;
    Ok(json!({ "entry": entry(&call.sandbox, &files, &destination).await? }))
}

pub(super) async fn make_parents(files: &UserFiles, path: &Path) -> Result<(), ServiceError> {
    if let Some(parent) = path.parent() {
        files.create_directory(parent, CreateDirectoryOptions::default()).await?;
    }
    Ok(())
}

/// A path that does not exist is no error.
pub(super) async fn remove(call: &Call, request: PathRequest) -> Result<Value, ServiceError> {
    let files = call.files().await?;
    let path = files.resolve(&request.path).await?;
    if path == Path::new("/") {
        return Err(ServiceError::invalid("the root of the machine's files is not removed"));
    }
    files.remove(&path, RemoveOptions::default()).await?;
    Ok(json!({}))
}

/// The directory's entries and, with a depth of more than one, those of directories below; links are not followed.
pub(super) async fn list_dir(call: &Call, request: ListDirRequest) -> Result<Value, ServiceError> {
    let files = call.files().await?;
    let root = files.resolve(&request.path).await?;
    let metadata = files.metadata(&root, LinkPolicy::Follow).await?;
    if metadata.kind != FileKind::Directory {
        return Err(ServiceError::invalid(format!("path is not a directory: {}", root.display())));
    }
    let depth = request.depth.clamp(1, LISTED_DEPTH);
    let accounts = call.sandbox.accounts().await;
    let mut entries = Vec::new();
    let mut waiting = vec![(root, 1)];
    while let Some((directory, level)) = waiting.pop() {
        let mut names = match files.read_directory(&directory).await {
            Ok(names) => names,
            // One below that may not be read, or is gone by now, hides nothing of the others.
            Err(_) if level > 1 => continue,
            Err(error) => return Err(error.into()),
        };
        names.sort_by(|a, b| a.name.cmp(&b.name));
        for found in names {
            if entries.len() >= LISTED_ENTRIES {
                let message = format!("there are more than {LISTED_ENTRIES} entries: list a part, or with less depth");
                return Err(ServiceError::new(Code::ResourceExhausted, message));
            }
            let path = directory.join(&found.name);
            // It may be gone by now.
            let Ok(entry) = entry_with(&files, &path, &accounts).await else { continue };
            entries.push(entry);
            if found.kind == FileKind::Directory && !found.is_symlink && level < depth {
                waiting.push((path, level + 1));
            }
        }
    }
    entries.sort_by(|a, b| a["path"].as_str().cmp(&b["path"].as_str()));
    Ok(json!({ "entries": entries }))
}
