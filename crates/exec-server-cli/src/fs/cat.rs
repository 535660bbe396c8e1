//! `fs cat`: files to stdout, of any size, in little memory.

use std::sync::Arc;

use exec_client::files::stream::Blocks;
use exec_env::files::{FileError, LinkPolicy, OpenMode};
use serde::Serialize;

use super::resolve_all;
use crate::args::CatArgs;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, LinkMonitors, Locations};
use crate::output::{self, StdoutBuffer, Text};

/// Prints them; the code is 1 if one could not be read.
pub(super) async fn cat(args: &CatArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let files = resolve_all(&mut locations, &args.paths).await?;
    let mut failures = Failures::new(args.common.json);
    let mut links = locations.link_monitors(false);
    for file in &files {
        if let Err(error) = print(file, args.common.json, &mut links).await? {
            failures.report_file_error(file, &error)?;
        }
    }
    drop(files);
    locations.close().await;
    Ok(failures.exit_code())
}

#[derive(Debug, Serialize)]
struct BlockJson {
    path: Text,
    offset: u64,
    #[serde(flatten)]
    data: Data,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Data {
    Text(String),
    Base64(String),
}

/// The outer failure is of stdout, the inner one of the file.
async fn print(file: &FilePath, json: bool, links: &mut LinkMonitors) -> anyhow::Result<Result<(), FileError>> {
    let opened = match file.files().open(&file.path, OpenMode::Read, LinkPolicy::Follow).await {
        Ok(opened) => Arc::from(opened),
        Err(error) => return Ok(Err(error)),
    };
    let mut blocks = Blocks::new(opened, 0);
    loop {
        let offset = blocks.passed_bytes();
        let bytes = match links.report_during(blocks.next()).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        match json {
            false => output::write_stdout(bytes).await?,
            true => {
                let data = match Text::of(&bytes) {
                    Text::Plain(text) => Data::Text(text),
                    Text::Encoded { base64 } => Data::Base64(base64),
                };
                let mut stdout = StdoutBuffer::new();
                stdout.push_json(&BlockJson { path: Text::name(&file.path), offset, data })?;
                stdout.flush().await?;
            }
        }
    }
}
