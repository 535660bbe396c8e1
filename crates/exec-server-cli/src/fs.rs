//! `exec-server fs`: one file per verb, or per small family of verbs.
//!
//! Each verb is a function over the `Files` of a site. What they share is here: how they begin and end.

mod cat;
mod change;
mod find;
mod grep;
mod known;
mod ls;
mod stat;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::FsVerb;
use crate::paper::NobodyReads;
use crate::site::{Sites, Spot};
use crate::{errand, exit_code};

/// Calls about files at one time: enough to hide the way there and back.
const AT_ONCE: usize = 16;

/// Does what is asked.
pub(crate) fn main(verb: &FsVerb) -> ExitCode {
    let failed = match verb {
        // As grep has it: 1 is "nothing found".
        FsVerb::Grep(_) => exit_code::MISUNDERSTOOD,
        _ => exit_code::FAILED,
    };
    errand::run(quietly(carry_out(verb)), failed)
}

async fn carry_out(verb: &FsVerb) -> anyhow::Result<u8> {
    match verb {
        FsVerb::Ls(args) => ls::ls(args).await,
        FsVerb::Cat(args) => cat::cat(args).await,
        FsVerb::Stat(args) => stat::stat(args).await,
        FsVerb::Rm(args) => change::rm(args).await,
        FsVerb::Mkdir(args) => change::mkdir(args).await,
        FsVerb::Mv(args) => change::mv(args).await,
        FsVerb::Find(args) => find::find(args).await,
        FsVerb::Grep(args) => grep::grep(args).await,
        FsVerb::Watch(args) => watch::watch(args).await,
    }
}

/// A reader that has left is told to the shell, and to nobody else.
pub(crate) async fn quietly(work: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    match work.await {
        Err(error) if error.is::<NobodyReads>() => Ok(exit_code::NOBODY_READS),
        other => other,
    }
}

/// The files that are meant. All are known before anything is done: a slip in one must not cost half of them.
async fn spots(sites: &mut Sites<'_>, words: &[OsString]) -> anyhow::Result<Vec<Spot>> {
    let mut spots = Vec::with_capacity(words.len());
    for word in words {
        spots.push(sites.spot(word).await?);
    }
    Ok(spots)
}
