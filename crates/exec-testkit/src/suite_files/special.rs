//! FIFOs, devices, /proc: nothing there hangs or kills a call.

use std::path::Path;

use bytes::Bytes;
use exec_env::files::limits::READ_BYTES;
use exec_env::files::{FileKind, FileReason, LinkPolicy, OpenMode, WriteOptions};

use super::{FilesTestEnvironment, contents, reason};

/// A plain open would wait for ever.
pub async fn a_fifo_without_a_writer_does_not_hang_a_read(env: &FilesTestEnvironment) {
    let fifo = env.fifo("fifo");
    let error = env.files().read(&fifo, LinkPolicy::Follow).await.expect_err("it is no file");
    assert_eq!(error.to_string(), format!("cannot read {fifo:?}: it is no regular file"));
    assert_eq!(reason(env.files().read(&fifo, LinkPolicy::Refuse).await), Some(FileReason::NotRegular));
    let opened = env.files().open(&fifo, OpenMode::Read, LinkPolicy::Follow).await;
    assert_eq!(reason(opened), Some(FileReason::NotAFile));
    let metadata = env.files().metadata(&fifo, LinkPolicy::Follow).await.expect("it is there");
    assert_eq!(metadata.kind, FileKind::Special);
}

/// ENXIO: nobody reads it.
pub async fn a_fifo_without_a_reader_does_not_hang_a_write(env: &FilesTestEnvironment) {
    let fifo = env.fifo("fifo");
    let wrote = env.files().write(&fifo, Bytes::from_static(b"x"), WriteOptions::default()).await;
    assert_eq!(reason(wrote), Some(FileReason::Os(6)));
    let opened = env.files().open(&fifo, OpenMode::Replace, LinkPolicy::Follow).await;
    assert_eq!(reason(opened), Some(FileReason::Os(6)));
}

/// They must not be replaced by files.
pub async fn devices_are_not_files_but_can_be_written(env: &FilesTestEnvironment) {
    for device in ["/dev/zero", "/dev/null", "/dev/tty"] {
        let outcome = env.files().read(Path::new(device), LinkPolicy::Follow).await;
        assert_eq!(reason(outcome), Some(FileReason::NotAFile), "{device}");
    }
    let null = Path::new("/dev/null");
    let wrote = env.files().write(null, Bytes::from(vec![0; 1 << 20]), WriteOptions::default()).await;
    assert_eq!(reason(wrote), None);
    let metadata = env.files().metadata(null, LinkPolicy::Follow).await.expect("every Linux has it");
    assert_eq!(metadata.kind, FileKind::Special);
    let full = env.files().write(Path::new("/dev/full"), Bytes::from_static(b"x"), WriteOptions::default()).await;
    assert_eq!(reason(full), Some(FileReason::Os(28)));
}

/// Also larger ones than a page.
pub async fn files_of_proc_are_read_though_they_say_they_are_empty(env: &FilesTestEnvironment) {
    for path in ["/proc/version", "/proc/filesystems", "/proc/kallsyms"] {
        let read = env.files().read(Path::new(path), LinkPolicy::Follow).await;
        assert_eq!(read.expect("root or not, it can be read").len(), contents(Path::new(path)).len(), "{path}");
    }
}

/// There can be no temporary file beside them.
pub async fn files_of_sys_and_proc_are_written_in_place(env: &FilesTestEnvironment) {
    let path = Path::new("/proc/self/comm");
    let before = contents(path);
    let wrote = env.files().write(path, Bytes::from_static(b"tested"), WriteOptions::default()).await;
    // Where the files are those of another process, its name changed, not ours; either way it must be possible.
    assert_eq!(reason(wrote), None);
    let restored = env.files().write(path, Bytes::from(before), WriteOptions::default()).await;
    assert_eq!(reason(restored), None);
}

/// Before anything is read.
pub async fn a_file_too_large_to_read_is_told_with_the_limit(env: &FilesTestEnvironment) {
    let path = env.path("large");
    let file = std::fs::File::create(&path).expect("the directory is ours");
    file.set_len(READ_BYTES + 1).expect("a hole takes no room");
    let error = env.files().read(&path, LinkPolicy::Follow).await.expect_err("that is too large");
    assert_eq!(error.reason.to_string(), "it is larger than 536870912 bytes");
    let opened = env.files().open(&path, OpenMode::Read, LinkPolicy::Follow).await.expect("blocks are small");
    let block = opened.read_block(READ_BYTES, 2).await.expect("it is there");
    assert_eq!((block.bytes.len(), block.eof), (1, true));
}
