//! `fs cat`: files to stdout, of any size, in little memory.

use std::sync::Arc;

use exec_client::files::stream::Blocks;
use exec_env::files::{FileError, LinkPolicy, OpenMode};
use serde::Serialize;

use super::spots;
use crate::args::CatArgs;
use crate::paper::{self, Paper, Text};
use crate::site::{News, Plain, Sites, Spot};
use crate::trouble::Troubles;

/// Prints them; the code is 1 if one could not be read.
pub(super) async fn cat(args: &CatArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut news = sites.news(false);
    for spot in &spots {
        if let Err(error) = print(spot, args.common.json, &mut news).await? {
            troubles.at(spot, &error)?;
        }
    }
    drop(spots);
    sites.leave().await;
    Ok(troubles.code())
}

#[derive(Debug, Serialize)]
struct Line {
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
async fn print(spot: &Spot, json: bool, news: &mut News) -> anyhow::Result<Result<(), FileError>> {
    let file = match spot.files().open(&spot.path, OpenMode::Read, LinkPolicy::Follow).await {
        Ok(file) => Arc::from(file),
        Err(error) => return Ok(Err(error)),
    };
    let mut blocks = Blocks::new(file, 0);
    loop {
        let offset = blocks.passed_bytes();
        let bytes = match news.during(blocks.next()).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        match json {
            false => paper::write(bytes).await?,
            true => {
                let data = match Text::of(&bytes) {
                    Text::Plain(text) => Data::Text(text),
                    Text::Encoded { base64 } => Data::Base64(base64),
                };
                let mut paper = Paper::new();
                paper.put_json(&Line { path: Text::name(&spot.path), offset, data })?;
                paper.flush().await?;
            }
        }
    }
}
