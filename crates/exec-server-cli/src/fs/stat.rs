//! `fs stat`: everything that is known about files.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use exec_client::files::stream::fingerprint;
use exec_env::files::{FileError, FileKind, LinkPolicy, Metadata};

use super::file_info::{self, FileJson, MetadataJson};
use super::with_files;
use crate::args::StatArgs;
use crate::location::FilePath;
use crate::output::{StdoutBuffer, os_text, visible};
use crate::table;

pub(super) async fn stat(args: &StatArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        let stdout = &mut context.stdout;
        let mut first = true;
        for file in files {
            match read_details(file, args.hash).await {
                Ok(details) if args.common.json => stdout.push_json(&details.to_json(file))?,
                Ok(details) => {
                    stdout.push(if first { "" } else { "\n" });
                    first = false;
                    details.print(file, stdout);
                }
                Err(error) => context.failures.report_file_error(file, &error)?,
            }
            stdout.flush().await?;
        }
        Ok(())
    })
    .await
}

struct FileDetails {
    /// `None` for a link that leads nowhere.
    metadata: Option<Metadata>,
    target: Option<PathBuf>,
    hash: Option<String>,
}

async fn read_details(file: &FilePath, hash: bool) -> Result<FileDetails, FileError> {
    let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await;
    let may_be_link = metadata.as_ref().map_or(true, |metadata| metadata.is_symlink);
    let target = match may_be_link {
        true => file.files().read_link(&file.path, LinkPolicy::Follow).await.ok(),
        false => None,
    };
    let metadata = match metadata {
        // There is no metadata of a link that leads nowhere, but its text can be read.
        Err(error) if target.is_none() => return Err(error),
        other => other.ok(),
    };
    let is_file = metadata.is_some_and(|metadata| metadata.kind == FileKind::File);
    let hash = match hash && is_file {
        true => Some(fingerprint(file.files(), &file.path, LinkPolicy::Follow).await?.to_string()),
        false => None,
    };
    Ok(FileDetails { metadata, target, hash })
}

impl FileDetails {
    fn kind(&self) -> FileKind {
        self.metadata.map_or(FileKind::Symlink, |metadata| metadata.kind)
    }

    fn to_json<'a>(&self, file: &'a FilePath) -> FileJson<'a> {
        FileJson {
            target: self.target.as_ref().map(os_text),
            metadata: self.metadata.as_ref().map(MetadataJson::new),
            hash: self.hash.clone(),
            ..FileJson::new(&file.location, &file.path, self.kind(), self.target.is_some())
        }
    }

    fn print(&self, file: &FilePath, stdout: &mut StdoutBuffer) {
        let mut row = |name: &str, value: String| {
            stdout.push_text(&format!("{name:>10}  {value}"));
            stdout.push("\n");
        };
        row("path", visible(file.as_written().as_bytes()));
        let kind = match self.kind() {
            FileKind::Symlink => "link that leads nowhere",
            FileKind::Special => "FIFO, socket or device",
            FileKind::File => "file",
            FileKind::Directory => "directory",
        };
        row("kind", kind.to_owned());
        if let Some(target) = &self.target {
            row("link to", visible(target.as_os_str().as_bytes()));
        }
        if let Some(metadata) = &self.metadata {
            row("size", format!("{} ({} bytes)", table::size(metadata.size_bytes), metadata.size_bytes));
            let letters = file_info::mode_string(metadata.kind, false, metadata.mode);
            row("mode", format!("{:04o} ({})", metadata.mode, &letters[1..]));
            row("owner", format!("uid {}, gid {}", metadata.uid, metadata.gid));
            let names = if metadata.nlink == 1 { "name" } else { "names" };
            row("inode", format!("{} on device {}, {} {names}", metadata.inode, metadata.device, metadata.nlink));
            row("modified", file_info::format_date(metadata.modified));
            row("accessed", file_info::format_date(metadata.accessed));
            row("changed", file_info::format_date(metadata.changed));
            if let Some(created) = metadata.created {
                row("created", file_info::format_date(created));
            }
        }
        if let Some(hash) = &self.hash {
            row("blake3", hash.clone());
        }
    }
}
