//! What goes where: from the words to one job per source. Looks at both ends and changes nothing.

use std::path::{Path, PathBuf};

use exec_env::files::{FileError, FileKind, LinkPolicy, Metadata};

use super::error::CopyError;
use crate::site::{Site, Spot};
use crate::trouble::ENOENT;

/// One source, and where it goes.
#[derive(Debug)]
pub(super) enum Job {
    /// A regular file, links on the way to it already followed.
    File { from: PathBuf, to: PathBuf, found: Box<Metadata>, links: LinkPolicy },
    /// A link, as a link.
    Link { from: PathBuf, to: PathBuf },
    /// A directory with everything in it. Both paths are without links, but for the last name of a new one.
    Tree { from: PathBuf, to: PathBuf, is_new: bool },
}

/// The destination.
pub(super) struct Target<'a> {
    spot: &'a Spot,
    /// `None` if there is nothing yet.
    found: Option<Metadata>,
}

impl<'a> Target<'a> {
    /// Looks at it. Several sources, or a slash at its end, need a directory.
    pub(super) async fn look(spot: &'a Spot, sources: usize) -> Result<Self, CopyError> {
        let found = look(&spot.site, &spot.path).await?;
        let is_directory = found.is_some_and(|found| found.kind == FileKind::Directory);
        // A tree may make the directory that a slash speaks of; for a file it must be there.
        if !is_directory && (sources > 1 || (found.is_some() && spot.must_be_directory())) {
            return Err(CopyError::NoDirectory { shown: spot.word().to_owned() });
        }
        Ok(Self { spot, found })
    }

    /// What is to be done with one source.
    pub(super) async fn job(&self, source: &Spot, recursive: bool) -> Result<Job, CopyError> {
        let site = &*source.site;
        let shown = || source.word().to_owned();
        let found = match source.files().metadata(&source.path, LinkPolicy::Follow).await {
            // A link that leads nowhere can be copied as what it is.
            Err(error) if error.is_not_found() && recursive => {
                let is_link = source.files().read_link(&source.path, LinkPolicy::Follow).await.is_ok();
                let to = self.within(source);
                return if is_link { Ok(Job::Link { from: source.path.clone(), to }) } else { Err(at(source, error)) };
            }
            other => other.map_err(|error| at(source, error))?,
        };
        match found.kind {
            FileKind::Directory if !recursive => Err(CopyError::NeedsRecursive { shown: shown() }),
            FileKind::Special => Err(CopyError::Special { shown: shown() }),
            _ if recursive && found.is_symlink && !source.must_be_directory() => {
                Ok(Job::Link { from: source.path.clone(), to: self.within(source) })
            }
            FileKind::Directory => self.tree(source, &found).await,
            FileKind::File | FileKind::Symlink => {
                if self.found.is_none() && self.spot.must_be_directory() {
                    return Err(CopyError::NoDirectory { shown: self.spot.word().to_owned() });
                }
                let from = match found.is_symlink {
                    true => canonical(site, &source.path).await?,
                    false => source.path.clone(),
                };
                let to = self.file_place(source, &found).await?;
                Ok(Job::File { from, to, found: Box::new(found), links: LinkPolicy::Follow })
            }
        }
    }

    /// In the directory, or as the new name.
    fn within(&self, source: &Spot) -> PathBuf {
        let is_directory = self.found.is_some_and(|found| found.kind == FileKind::Directory);
        match source.path.file_name() {
            Some(name) if is_directory && !source.names_contents() => self.spot.path.join(name),
            _ => self.spot.path.clone(),
        }
    }

    /// Where a file's contents go: what a link leads to, if there is one.
    async fn file_place(&self, source: &Spot, found: &Metadata) -> Result<PathBuf, CopyError> {
        let site = &*self.spot.site;
        let to = self.within(source);
        let there = match to == self.spot.path {
            true => self.found,
            false => look(site, &to).await?,
        };
        let Some(there) = there else { return Ok(to) };
        match there.kind {
            _ if is_same(found, &there) => Err(CopyError::OntoItself { shown: source.word().to_owned() }),
            FileKind::Directory => Err(CopyError::shown(site, &to, |shown| CopyError::DirectoryInTheWay { shown })),
            FileKind::Special => Err(CopyError::shown(site, &to, |shown| CopyError::Special { shown })),
            FileKind::File | FileKind::Symlink if there.is_symlink => canonical(site, &to).await,
            FileKind::File | FileKind::Symlink => Ok(to),
        }
    }

    async fn tree(&self, source: &Spot, found: &Metadata) -> Result<Job, CopyError> {
        let site = &*self.spot.site;
        let from = canonical(&source.site, &source.path).await?;
        let to = self.within(source);
        let there = match to == self.spot.path {
            true => self.found,
            false => look(site, &to).await?,
        };
        let to = match there {
            Some(there) if there.kind == FileKind::Directory => canonical(site, &to).await?,
            Some(_) => return Err(CopyError::shown(site, &to, |shown| CopyError::InTheWay { shown })),
            None => {
                let parent = to.parent().unwrap_or(Path::new("/"));
                let parent = canonical(site, parent).await?;
                parent.join(to.file_name().unwrap_or_default())
            }
        };
        // Known by what it is, not by its path: a server may serve this very machine.
        for above in to.ancestors() {
            if let Some(above) = look_quietly(site, above).await
                && is_same(found, &above)
            {
                let shown = source.word().to_owned();
                let onto = there.is_some_and(|there| is_same(found, &there));
                return Err(if onto { CopyError::OntoItself { shown } } else { CopyError::IntoItself { shown } });
            }
        }
        Ok(Job::Tree { from, to, is_new: there.is_none() })
    }
}

/// What is there; `None` if nothing is. A link that leads nowhere is refused: what would be written through it?
async fn look(site: &Site, path: &Path) -> Result<Option<Metadata>, CopyError> {
    match site.files().metadata(path, LinkPolicy::Follow).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.errno() == Some(ENOENT) => match site.files().read_link(path, LinkPolicy::Follow).await {
            Ok(_) => Err(CopyError::shown(site, path, |shown| CopyError::Dangling { shown })),
            Err(_) => Ok(None),
        },
        Err(error) => Err(CopyError::at(site, error)),
    }
}

async fn look_quietly(site: &Site, path: &Path) -> Option<Metadata> {
    site.files().metadata(path, LinkPolicy::Follow).await.ok()
}

async fn canonical(site: &Site, path: &Path) -> Result<PathBuf, CopyError> {
    site.files().canonicalize(path).await.map_err(|error| CopyError::at(site, error))
}

fn at(source: &Spot, error: FileError) -> CopyError {
    CopyError::Files { shown: source.word().to_owned(), error }
}

/// Whether the two are one file. Numbers of devices and inodes are each machine's own; that the time of the last change
/// is the same to the nanosecond as well does not happen by chance.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    one.inode != 0
        && (one.device, one.inode, one.created, one.changed)
            == (other.device, other.inode, other.created, other.changed)
}
