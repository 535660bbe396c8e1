//! `fs cat`: files to stdout, of any size, in little memory.

use std::sync::Arc;

use exec_client::files::stream::Blocks;
use exec_env::files::{LinkPolicy, OpenMode};
use exec_wire::text::OsText;
use serde::Serialize;

use super::{FsContext, with_files};
use crate::args::CatArgs;
use crate::location::FilePath;
use crate::output::{self, TextOrBase64, os_text};

pub(super) async fn cat(args: &CatArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        for file in files {
            let printed = print(file, context).await;
            context.failures.report_outcome(file, printed)?;
        }
        Ok(())
    })
    .await
}

#[derive(Debug, Serialize)]
struct BlockJson<'a> {
    path: OsText,
    offset: u64,
    #[serde(flatten)]
    contents: TextOrBase64<'a>,
}

pub(crate) async fn print(file: &FilePath, context: &mut FsContext) -> anyhow::Result<()> {
    let opened = file.files().open(&file.path, OpenMode::Read, LinkPolicy::Follow).await?;
    let mut blocks = Blocks::new(Arc::from(opened), 0);
    let mut offset = 0;
    while let Some(bytes) = context.links.report_during(blocks.next()).await? {
        match context.json {
            false => output::write_stdout(bytes).await?,
            true => {
                let block = BlockJson { path: os_text(&file.path), offset, contents: TextOrBase64::new(&bytes) };
                context.stdout.push_json(&block)?;
                context.stdout.flush().await?;
            }
        }
        offset = blocks.passed_bytes();
    }
    Ok(())
}
