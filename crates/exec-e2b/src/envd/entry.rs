//! What is told of a file: `EntryInfo` of the service `filesystem.Filesystem`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use exec_env::files::{FileError, FileKind, LinkPolicy, Metadata};
use serde_json::{Value, json};

use crate::accounts::Accounts;
use crate::error::ServiceError;
use crate::sandbox::{Sandbox, UserFiles};
use exec_core::timestamp::rfc3339;

/// What is at `path` now.
pub(super) async fn entry(sandbox: &Sandbox, files: &UserFiles, path: &Path) -> Result<Value, ServiceError> {
    let accounts = sandbox.accounts().await;
    Ok(entry_with(files, path, &accounts).await?)
}

/// The same for callers that ask for many.
pub(super) async fn entry_with(files: &UserFiles, path: &Path, accounts: &Accounts) -> Result<Value, FileError> {
    match files.metadata(path, LinkPolicy::Follow).await {
        Ok(metadata) => {
            let target = match metadata.is_symlink {
                true => files.canonicalize(path).await.ok(),
                false => None,
            };
            let mut entry = entry_json(path, &metadata, target.as_deref(), accounts);
            let attributes = user_metadata(files, path).await;
            if !attributes.is_empty() {
                entry["metadata"] = json!(attributes);
            }
            Ok(entry)
        }
        // It may be a link to nothing, in a circle, or through what is no directory.
        Err(error) => match files.read_link(path, LinkPolicy::Follow).await {
            Ok(text) => Ok(broken_link_json(path, &text)),
            Err(_) => Err(error),
        },
    }
}

/// How the names of attributes begin that are metadata of E2B's; `user.` comes before it.
pub(super) const METADATA_PREFIX: &str = "e2b.";

/// What was set with an upload, or by `setfattr -n user.e2b.NAME`. A file system without attributes has none.
async fn user_metadata(files: &UserFiles, path: &Path) -> BTreeMap<String, String> {
    let attributes = files.attributes(path, LinkPolicy::Follow).await.unwrap_or_default();
    let text = |(name, value): (OsString, Bytes)| {
        let name = name.to_str()?.strip_prefix(METADATA_PREFIX)?.to_owned();
        Some((name, String::from_utf8_lossy(&value).into_owned()))
    };
    attributes.into_iter().filter_map(text).collect()
}

/// The environment knows no more of a link that leads nowhere than its text.
fn broken_link_json(path: &Path, text: &Path) -> Value {
    json!({
        "name": name_of(path),
        "type": "FILE_TYPE_SYMLINK",
        "path": path.to_string_lossy(),
        "size": text.as_os_str().len().to_string(),
        "mode": 0o777,
        "permissions": "lrwxrwxrwx",
        "modifiedTime": rfc3339(SystemTime::UNIX_EPOCH),
        "symlinkTarget": text.to_string_lossy(),
        "isSymlink": true,
    })
}

fn entry_json(path: &Path, metadata: &Metadata, target: Option<&Path>, accounts: &Accounts) -> Value {
    let kind = match (metadata.is_symlink, metadata.kind) {
        // Later versions of envd say here what a link leads to, which the SDK for JavaScript takes for the thing itself.
        (true, _) | (_, FileKind::Symlink) => "FILE_TYPE_SYMLINK",
        (_, FileKind::File) => "FILE_TYPE_FILE",
        (_, FileKind::Directory) => "FILE_TYPE_DIRECTORY",
        (_, FileKind::Special) => "FILE_TYPE_UNSPECIFIED",
    };
    let mut entry = json!({
        "name": name_of(path),
        "type": kind,
        "path": path.to_string_lossy(),
        // 64 bits are a string in protobuf's JSON.
        "size": metadata.size_bytes.to_string(),
        "mode": metadata.mode & 0o7777,
        "permissions": permissions(metadata),
        "owner": accounts.user_name(metadata.uid),
        "group": accounts.group_name(metadata.gid),
        "modifiedTime": rfc3339(metadata.modified.max(SystemTime::UNIX_EPOCH)),
    });
    if metadata.is_symlink {
        entry["isSymlink"] = json!(true);
    }
    if let Some(target) = target {
        entry["symlinkTarget"] = json!(target.to_string_lossy());
    }
    entry
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// As `ls -l` shows them.
fn permissions(metadata: &Metadata) -> String {
    let kind = match (metadata.is_symlink, metadata.kind) {
        (true, _) | (_, FileKind::Symlink) => 'l',
        (_, FileKind::Directory) => 'd',
        (_, FileKind::File | FileKind::Special) => '-',
    };
    let bits = (0..9).map(|bit| match metadata.mode & (0o400 >> bit) {
        0 => '-',
        _ => ['r', 'w', 'x'][bit % 3],
    });
    std::iter::once(kind).chain(bits).collect()
}
