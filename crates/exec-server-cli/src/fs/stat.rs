//! `fs stat`: everything that is known about files.

use std::os::unix::ffi::OsStrExt;

use exec_client::files::stream::fingerprint;
use exec_env::files::{FileError, FileKind, LinkPolicy, Metadata};

use super::known::{self, Facts, Line};
use super::spots;
use crate::args::StatArgs;
use crate::paper::{Paper, Text, harmless};
use crate::site::{Plain, Sites, Spot};
use crate::table;
use crate::trouble::Troubles;

/// Tells it; the code is 1 if there is one of which nothing is known.
pub(super) async fn stat(args: &StatArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut paper = Paper::new();
    let mut first = true;
    for spot in &spots {
        match look(spot, args.hash).await {
            Ok(known) if args.common.json => paper.put_json(&known.line(spot))?,
            Ok(known) => {
                paper.put(if first { "" } else { "\n" });
                first = false;
                known.print(spot, &mut paper);
            }
            Err(error) => troubles.at(spot, &error)?,
        }
        paper.flush().await?;
    }
    drop(spots);
    sites.leave().await;
    Ok(troubles.code())
}

struct Known {
    /// `None` of a link that leads nowhere.
    found: Option<Metadata>,
    target: Option<Vec<u8>>,
    hash: Option<String>,
}

async fn look(spot: &Spot, hash: bool) -> Result<Known, FileError> {
    let found = spot.files().metadata(&spot.path, LinkPolicy::Follow).await;
    let may_be_link = found.as_ref().map_or(true, |found| found.is_symlink);
    let target = match may_be_link {
        true => spot.files().read_link(&spot.path, LinkPolicy::Follow).await.ok(),
        false => None,
    };
    let found = match found {
        // A link that leads nowhere is still something.
        Err(error) if target.is_none() => return Err(error),
        other => other.ok(),
    };
    let is_file = found.is_some_and(|found| found.kind == FileKind::File);
    let hash = match hash && is_file {
        true => Some(fingerprint(spot.files(), &spot.path, LinkPolicy::Follow).await?.to_string()),
        false => None,
    };
    Ok(Known { found, target: target.map(|target| target.as_os_str().as_bytes().to_vec()), hash })
}

impl Known {
    fn kind(&self) -> FileKind {
        self.found.map_or(FileKind::Symlink, |found| found.kind)
    }

    fn line(self, spot: &Spot) -> Line {
        Line {
            path: Text::name(&spot.path),
            environment: Some(spot.site.environment().to_owned()),
            kind: known::kind(self.kind()),
            is_symlink: self.target.is_some(),
            target: self.target.as_deref().map(Text::of),
            facts: self.found.as_ref().map(Facts::of),
            hash: self.hash,
        }
    }

    fn print(&self, spot: &Spot, paper: &mut Paper) {
        let mut row = |name: &str, value: String| paper.put(&format!("{name:>10}  {value}\n"));
        row("path", harmless(spot.word().as_bytes()));
        let kind = match self.kind() {
            FileKind::Symlink => "link that leads nowhere",
            FileKind::Special => "FIFO, socket or device",
            kind => known::kind(kind),
        };
        row("kind", kind.to_owned());
        if let Some(target) = &self.target {
            row("link to", harmless(target));
        }
        if let Some(found) = &self.found {
            row("size", format!("{} ({} bytes)", table::size(found.size_bytes), found.size_bytes));
            let letters = known::mode(found.kind, false, found.mode);
            row("mode", format!("{:04o} ({})", found.mode, &letters[1..]));
            row("owner", format!("uid {}, gid {}", found.uid, found.gid));
            let names = if found.nlink == 1 { "name" } else { "names" };
            row("inode", format!("{} on device {}, {} {names}", found.inode, found.device, found.nlink));
            row("modified", known::date(found.modified));
            row("accessed", known::date(found.accessed));
            row("changed", known::date(found.changed));
            if let Some(created) = found.created {
                row("created", known::date(created));
            }
        }
        if let Some(hash) = &self.hash {
            row("blake3", hash.clone());
        }
    }
}
