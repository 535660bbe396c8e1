//! `fs write`: our stdin to a file; `fs chmod`: other permissions.

use anyhow::bail;
use exec_env::files::{FileKind, LinkPolicy};

use super::change::report;
use super::with_files;
use crate::args::{ChmodArgs, WriteArgs};
use crate::cp::from_stdin::{self, StdinEnd, StdinOptions};
use crate::{exit_code, messages};

pub(super) async fn write(args: &WriteArgs) -> anyhow::Result<u8> {
    let mut interrupted = None;
    let code = with_files(&args.common, std::slice::from_ref(&args.path), async |files, context| {
        let [file] = files else { bail!("there is nothing to write to") };
        let options = StdinOptions { append: args.append, mode: args.mode };
        match from_stdin::write(file, options, &mut context.links).await {
            Ok(StdinEnd::Written { .. }) => report(context, file, Ok(()), "written", None).await,
            Ok(StdinEnd::Interrupted(number)) => {
                interrupted = Some(number);
                Ok(())
            }
            Err(error) => context.failures.report_outcome(file, Err(error)),
        }
    })
    .await?;
    match interrupted {
        Some(number) => {
            messages::print_note("stopped: the file is as it was");
            Ok(exit_code::of_signal(number))
        }
        None => Ok(code),
    }
}

pub(super) async fn chmod(args: &ChmodArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        for file in files {
            let changed = async {
                let metadata = file.files().metadata(&file.path, LinkPolicy::Follow).await?;
                let mode = args.mode.apply(metadata.mode & 0o7777, metadata.kind == FileKind::Directory);
                file.files().set_permissions(&file.path, mode, LinkPolicy::Follow).await
            };
            report(context, file, changed.await, "changed", None).await?;
        }
        Ok(())
    })
    .await
}
