//! `fs head`: the beginning of files. Nothing after it is read, but for what was under way.

use std::sync::Arc;

use exec_client::files::stream::Blocks;
use exec_env::files::{LinkPolicy, OpenMode};

use super::{FsContext, with_files};
use crate::args::HeadArgs;
use crate::location::FilePath;
use crate::output::{self, visible};

/// Blocks that are read ahead: most heads are in the first.
const WINDOW: usize = 1;

/// How much is still to be printed.
enum Left {
    Lines(u64),
    Bytes(u64),
}

pub(super) async fn head(args: &HeadArgs) -> anyhow::Result<u8> {
    with_files(&args.common, &args.paths, async |files, context| {
        for (index, file) in files.iter().enumerate() {
            if files.len() > 1 {
                let gap = if index == 0 { "" } else { "\n" };
                let name = visible(file.as_written().as_encoded_bytes());
                output::write_stdout(format!("{gap}==> {name} <==\n").into()).await?;
            }
            let left = args.bytes.map_or(Left::Lines(args.lines), Left::Bytes);
            let printed = print(file, left, context).await;
            context.failures.report_outcome(file, printed)?;
        }
        Ok(())
    })
    .await
}

async fn print(file: &FilePath, mut left: Left, context: &mut FsContext) -> anyhow::Result<()> {
    let opened = file.files().open(&file.path, OpenMode::Read, LinkPolicy::Follow).await?;
    let mut blocks = Blocks::new(Arc::from(opened), 0).with_window(WINDOW);
    while !matches!(left, Left::Lines(0) | Left::Bytes(0)) {
        let Some(mut bytes) = context.links.report_during(blocks.next()).await? else { break };
        let wanted = left.take(&bytes);
        bytes.truncate(wanted);
        output::write_stdout(bytes).await?;
    }
    Ok(())
}

impl Left {
    /// How many of these bytes are wanted.
    fn take(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Bytes(left) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= wanted as u64;
                wanted
            }
            Self::Lines(left) => {
                let mut end = 0;
                while *left > 0 {
                    match memchr::memchr(b'\n', &bytes[end..]) {
                        Some(at) => end += at + 1,
                        None => return bytes.len(),
                    }
                    *left -= 1;
                }
                end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Left;

    fn taken(mut left: Left, blocks: &[&str]) -> String {
        blocks.iter().map(|block| &block[..left.take(block.as_bytes())]).collect()
    }

    #[test]
    fn lines_and_bytes_are_counted_over_blocks() {
        assert_eq!(taken(Left::Lines(2), &["a\nb", "c\nd\n", "e"]), "a\nbc\n");
        assert_eq!(taken(Left::Lines(9), &["a\n", "b"]), "a\nb");
        assert_eq!(taken(Left::Bytes(3), &["a\n", "bc", "d"]), "a\nb");
        assert_eq!(taken(Left::Lines(0), &["a\n"]), "");
    }
}
