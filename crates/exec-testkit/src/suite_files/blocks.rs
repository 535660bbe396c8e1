//! Files that stay open, block by block.

use bytes::Bytes;
use exec_env::files::limits::BLOCK_BYTES;
use exec_env::files::{FileBlock, FileReason, LinkPolicy, OpenMode};
use futures_util::future::join_all;

use super::{FilesTestEnvironment, contents, reason};

fn block(bytes: &'static [u8], eof: bool) -> FileBlock {
    FileBlock { bytes: Bytes::from_static(bytes), eof }
}

/// A block that ends exactly at the end of the file does not report the end.
pub async fn blocks_read_anywhere_and_know_the_end(env: &FilesTestEnvironment) {
    let path = env.file("file", "0123456789");
    let file = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!(file.size_bytes(), 10);
    for (offset, len, expected) in [
        (0, 4, block(b"0123", false)),
        (6, 4, block(b"6789", false)),
        (6, 5, block(b"6789", true)),
        (10, 1, block(b"", true)),
        (1 << 40, 1, block(b"", true)),
    ] {
        assert_eq!(file.read_block(offset, len).await, Ok(expected));
    }
    let beyond_every_file = file.read_block(u64::MAX, 1).await;
    assert_eq!(reason(beyond_every_file), Some(FileReason::Os(22)));
    file.close().await.expect("nothing can go wrong on a local disk");
}

pub async fn blocks_written_anywhere_leave_holes(env: &FilesTestEnvironment) {
    let path = env.path("file");
    let file = env.files().open(&path, OpenMode::Replace, LinkPolicy::Follow).await.expect("the directory is ours");
    file.write_block(6, Bytes::from_static(b"end")).await.expect("it is open for writing");
    file.write_block(0, Bytes::from_static(b"begin")).await.expect("it is open for writing");
    file.close().await.expect("nothing can go wrong on a local disk");
    assert_eq!(contents(&path), b"begin\0end");
}

/// Replacing block by block is not atomic; whoever wants that writes whole files.
pub async fn a_replaced_file_is_empty_at_once_and_an_appended_one_is_kept(env: &FilesTestEnvironment) {
    let path = env.file("file", "old text");
    let appended = env.files().open(&path, OpenMode::Append, LinkPolicy::Follow).await.expect("it is ours");
    assert_eq!(appended.size_bytes(), 8);
    for _twice_after_a_broken_connection in 0..2 {
        appended.write_block(8, Bytes::from_static(b" and new")).await.expect("it is open for writing");
    }
    assert_eq!(contents(&path), b"old text and new");
    let replaced = env.files().open(&path, OpenMode::Replace, LinkPolicy::Follow).await.expect("it is ours");
    assert_eq!((replaced.size_bytes(), contents(&path)), (0, Vec::new()));
    let new = env.files().open(&env.path("new"), OpenMode::Append, LinkPolicy::Follow).await;
    assert_eq!(new.expect("the directory is ours").size_bytes(), 0);
}

pub async fn a_block_may_not_be_empty_nor_too_long(env: &FilesTestEnvironment) {
    let path = env.file("file", "x");
    let read = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    for len in [0, BLOCK_BYTES + 1] {
        let error = read.read_block(0, len).await.expect_err("no such block");
        assert_eq!(error.reason, FileReason::ReadBlockLength);
        assert_eq!(error.reason.to_string(), "a block has 1 to 1048576 bytes");
    }
    let written = env.files().open(&path, OpenMode::Append, LinkPolicy::Follow).await.expect("it is there");
    for len in [0, BLOCK_BYTES + 1] {
        let outcome = written.write_block(0, Bytes::from(vec![0; len])).await;
        assert_eq!(reason(outcome), Some(FileReason::WriteBlockLength));
    }
    let largest = written.write_block(0, Bytes::from(vec![7; BLOCK_BYTES])).await;
    largest.expect("that is just allowed");
    let back = read.read_block(0, BLOCK_BYTES).await.expect("that is just allowed");
    assert_eq!((back.bytes.len(), back.eof), (BLOCK_BYTES, false));
}

pub async fn a_block_may_not_end_beyond_every_file(env: &FilesTestEnvironment) {
    let path = env.path("file");
    let file = env.files().open(&path, OpenMode::Replace, LinkPolicy::Follow).await.expect("the directory is ours");
    for offset in [i64::MAX as u64, u64::MAX] {
        let outcome = file.write_block(offset, Bytes::from_static(b"x")).await;
        assert_eq!(reason(outcome), Some(FileReason::WriteRange));
    }
}

/// EBADF, both ways.
pub async fn the_wrong_mode_is_a_bad_descriptor(env: &FilesTestEnvironment) {
    let path = env.file("file", "x");
    let read = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    let outcome = read.write_block(0, Bytes::from_static(b"y")).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(9)));
    let written = env.files().open(&path, OpenMode::Append, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!(reason(written.read_block(0, 1).await), Some(FileReason::Os(9)));
}

pub async fn reads_at_once_do_not_disturb_each_other(env: &FilesTestEnvironment) {
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 4096) as u8).collect();
    let path = env.file("file", &bytes);
    let file = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    let blocks = join_all((0..256).map(|at| file.read_block(at * 4096, 4096))).await;
    let joined: Vec<u8> = blocks.into_iter().flat_map(|block| block.expect("it is there").bytes).collect();
    assert!(joined == bytes);
}

pub async fn an_open_file_survives_its_name(env: &FilesTestEnvironment) {
    let path = env.file("file", "still here");
    let file = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("it is there");
    std::fs::remove_file(&path).expect("it is ours");
    assert_eq!(file.read_block(0, 10).await, Ok(block(b"still here", false)));
}

/// A directory that is to be written has an error of its own.
pub async fn only_regular_files_open(env: &FilesTestEnvironment) {
    let folder = env.directory("folder");
    let open = |mode| env.files().open(&folder, mode, LinkPolicy::Follow);
    assert_eq!(reason(open(OpenMode::Read).await), Some(FileReason::NotAFile));
    assert_eq!(reason(open(OpenMode::Replace).await), Some(FileReason::Os(21)));
    let missing = env.path("missing");
    let outcome = env.files().open(&missing, OpenMode::Read, LinkPolicy::Follow).await;
    assert_eq!(reason(outcome), Some(FileReason::Os(2)));
}
