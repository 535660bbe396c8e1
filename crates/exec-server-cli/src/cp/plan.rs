//! Decides what is copied where: one job per source. It looks at both ends and changes nothing.

use std::path::{Path, PathBuf};

use exec_env::files::{FileError, FileKind, FileReason, LinkPolicy, Metadata};
use libc::ENOENT;

use super::error::{AtLocation, CopyError};
use crate::location::{FilePath, Location};

#[derive(Debug)]
pub(super) enum CopyJob {
    /// A regular file. If a path was a link to it, the path here is that of the file.
    File { from: PathBuf, to: PathBuf, metadata: Box<Metadata> },
    /// A link, copied as a link.
    Link { from: PathBuf, to: PathBuf },
    /// A directory with everything in it. Both paths are without links; of a new directory, all but the last name is.
    Tree { from: PathBuf, to: PathBuf, is_new: bool },
}

pub(super) struct Destination<'a> {
    file: &'a FilePath,
    /// `None` if it does not exist.
    metadata: Option<Metadata>,
    /// The path that the user named; without links, if [`Self::links`] are refused.
    path: PathBuf,
    /// What happens to links beneath the path. If a server sends what is written here, they are refused by the kernel:
    /// the server may have sent a link first, which leads wherever it likes.
    links: LinkPolicy,
}

/// What has the name of a copy already.
enum Existing {
    Nothing,
    Found(Metadata),
    /// A link that must not be followed.
    Link,
}

impl<'a> Destination<'a> {
    /// Several sources, or a slash at the end, need a directory.
    pub(super) async fn inspect(file: &'a FilePath, sources: &[FilePath]) -> Result<Self, CopyError> {
        let metadata = metadata_if_exists(&file.location, &file.path).await?;
        let is_directory = metadata.is_some_and(|metadata| metadata.kind == FileKind::Directory);
        // A tree may create the directory that ends with a slash; for a file it must exist.
        if !is_directory && (sources.len() > 1 || (metadata.is_some() && file.must_be_directory())) {
            return Err(CopyError::NoDirectory { path: file.as_written().to_owned() });
        }
        let from_a_server = sources.iter().any(|source| !source.location.is_local());
        if !(from_a_server && file.location.is_local()) {
            return Ok(Self { file, metadata, path: file.path.clone(), links: LinkPolicy::Follow });
        }
        let path = match metadata {
            Some(_) => canonical(&file.location, &file.path).await?,
            None => match canonical_parent(&file.location, &file.path).await {
                // The write will fail, and say so.
                Err(CopyError::Files { error, .. }) if error.is_not_found() => file.path.clone(),
                other => other?,
            },
        };
        Ok(Self { file, metadata, path, links: LinkPolicy::Refuse })
    }

    /// See the field.
    pub(super) fn links(&self) -> LinkPolicy {
        self.links
    }

    pub(super) async fn job_for(&self, source: &FilePath, recursive: bool) -> Result<CopyJob, CopyError> {
        let location = &*source.location;
        let path = || source.as_written().to_owned();
        let metadata = match source.files().metadata(&source.path, LinkPolicy::Follow).await {
            // A link that leads nowhere can still be copied as a link.
            Err(error) if error.is_not_found() && recursive => {
                let is_link = source.files().read_link(&source.path, LinkPolicy::Follow).await.is_ok();
                let to = self.path_for(source);
                return if is_link {
                    Ok(CopyJob::Link { from: source.path.clone(), to })
                } else {
                    Err(source_error(source, error))
                };
            }
            other => other.map_err(|error| source_error(source, error))?,
        };
        match metadata.kind {
            FileKind::Directory if !recursive => Err(CopyError::NeedsRecursive { path: path() }),
            FileKind::Special => Err(CopyError::Special { path: path() }),
            _ if recursive && metadata.is_symlink && !source.must_be_directory() => {
                Ok(CopyJob::Link { from: source.path.clone(), to: self.path_for(source) })
            }
            FileKind::Directory => self.tree_job(source, &metadata).await,
            FileKind::File | FileKind::Symlink => {
                if self.metadata.is_none() && self.file.must_be_directory() {
                    return Err(CopyError::NoDirectory { path: self.file.as_written().to_owned() });
                }
                let from = match metadata.is_symlink {
                    true => canonical(location, &source.path).await?,
                    false => source.path.clone(),
                };
                let to = self.file_destination(source, &metadata).await?;
                Ok(CopyJob::File { from, to, metadata: Box::new(metadata) })
            }
        }
    }

    /// The path of the copy: in the destination if that is a directory, else the destination itself.
    fn path_for(&self, source: &FilePath) -> PathBuf {
        let is_directory = self.metadata.is_some_and(|metadata| metadata.kind == FileKind::Directory);
        match source.path.file_name() {
            Some(name) if is_directory && !source.names_contents() => self.path.join(name),
            _ => self.path.clone(),
        }
    }

    async fn existing_at(&self, path: &Path) -> Result<Existing, CopyError> {
        let location = &*self.file.location;
        let found = match (path == self.path, self.links) {
            (true, _) => self.metadata,
            (false, LinkPolicy::Follow) => metadata_if_exists(location, path).await?,
            (false, LinkPolicy::Refuse) => match location.files().metadata(path, LinkPolicy::Refuse).await {
                Err(error) if error.errno() == Some(ENOENT) => None,
                Err(FileError { reason: FileReason::SymlinkInPath, .. }) => return Ok(Existing::Link),
                other => Some(other.at(location)?),
            },
        };
        Ok(found.map_or(Existing::Nothing, Existing::Found))
    }

    /// The path that a file is written to; if there is a link that may be followed, the file that it leads to.
    async fn file_destination(&self, source: &FilePath, metadata: &Metadata) -> Result<PathBuf, CopyError> {
        let location = &*self.file.location;
        let to = self.path_for(source);
        let Existing::Found(existing) = self.existing_at(&to).await? else { return Ok(to) };
        match existing.kind {
            _ if is_same(metadata, &existing) => Err(CopyError::OntoItself { path: source.as_written().to_owned() }),
            FileKind::Directory => Err(CopyError::DirectoryInTheWay { path: location.display_path(&to) }),
            FileKind::Special => Err(CopyError::Special { path: location.display_path(&to) }),
            FileKind::File | FileKind::Symlink if existing.is_symlink && self.links == LinkPolicy::Follow => {
                canonical(location, &to).await
            }
            FileKind::File | FileKind::Symlink => Ok(to),
        }
    }

    async fn tree_job(&self, source: &FilePath, metadata: &Metadata) -> Result<CopyJob, CopyError> {
        let location = &*self.file.location;
        let from = canonical(&source.location, &source.path).await?;
        let to = self.path_for(source);
        let existing = match self.existing_at(&to).await? {
            Existing::Found(existing) if existing.kind == FileKind::Directory => Some(existing),
            Existing::Found(_) | Existing::Link => {
                return Err(CopyError::InTheWay { path: location.display_path(&to) });
            }
            Existing::Nothing => None,
        };
        let to = match (self.links, existing) {
            (LinkPolicy::Refuse, _) => to,
            (LinkPolicy::Follow, Some(_)) => canonical(location, &to).await?,
            (LinkPolicy::Follow, None) => canonical_parent(location, &to).await?,
        };
        // Compared by inode, not by path: a server may serve this very machine.
        for above in to.ancestors() {
            if let Ok(above) = location.files().metadata(above, LinkPolicy::Follow).await
                && is_same(metadata, &above)
            {
                let path = source.as_written().to_owned();
                let onto = existing.is_some_and(|existing| is_same(metadata, &existing));
                return Err(if onto { CopyError::OntoItself { path } } else { CopyError::IntoItself { path } });
            }
        }
        Ok(CopyJob::Tree { from, to, is_new: existing.is_none() })
    }
}

/// `None` if nothing exists there. A link that leads nowhere is an error: writing through it would create what it names.
async fn metadata_if_exists(location: &Location, path: &Path) -> Result<Option<Metadata>, CopyError> {
    match location.files().metadata(path, LinkPolicy::Follow).await {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.errno() == Some(ENOENT) => match location.files().read_link(path, LinkPolicy::Follow).await
        {
            Ok(_) => Err(CopyError::Dangling { path: location.display_path(path) }),
            Err(_) => Ok(None),
        },
        Err(error) => Err(CopyError::at(location, error)),
    }
}

/// The path with its directory canonical, for something that does not exist yet.
async fn canonical_parent(location: &Location, path: &Path) -> Result<PathBuf, CopyError> {
    let parent = canonical(location, path.parent().unwrap_or(Path::new("/"))).await?;
    Ok(parent.join(path.file_name().unwrap_or_default()))
}

async fn canonical(location: &Location, path: &Path) -> Result<PathBuf, CopyError> {
    location.files().canonicalize(path).await.at(location)
}

fn source_error(source: &FilePath, error: FileError) -> CopyError {
    CopyError::Files { path: source.as_written().to_owned(), error }
}

/// Whether the two are one file. Two machines may use the same device and inode numbers, but hardly with the same times of
/// creation and change, to the nanosecond.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    one.inode != 0
        && (one.device, one.inode, one.created, one.changed)
            == (other.device, other.inode, other.created, other.changed)
}
