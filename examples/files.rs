//! Files of an environment: write and read, guard against somebody else's change, copy a tree, find things in it.
//!
//! The same calls work on this machine and on a remote one.
//!
//!     cargo run -p exec-server --example files --features search

use std::error::Error;
use std::path::{Path, PathBuf};

use exec_server::files::{
    CopyOptions, CreateDirectoryOptions, ExpectedFile, GlobQuery, LinkPolicy, OpenMode, RemoveOptions, WriteOptions,
};
use exec_server::{Bytes, Environment, Files};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let machine = exec_server::open_local().await?;
    let files = machine.files();
    let root = machine.info().temp_dir.join(format!("exec-server-files-{}", std::process::id()));
    files.create_directory(&root, CreateDirectoryOptions::default()).await?;

    let shown = show(files, &root).await;

    files.remove(&root, RemoveOptions::default()).await?; // with everything in it
    machine.end().await;
    shown
}

async fn show(files: &dyn Files, root: &Path) -> Result<(), Box<dyn Error>> {
    write_and_read(files, &root.join("notes.txt")).await?;
    read_in_blocks(files, &root.join("large.bin")).await?;
    copy_a_tree(files, root).await
}

/// A write replaces the whole file or nothing, and can be told what it expects to replace.
async fn write_and_read(files: &dyn Files, path: &Path) -> Result<(), Box<dyn Error>> {
    files.write(path, Bytes::from("first draft\n"), WriteOptions::default()).await?;
    assert_eq!(files.read(path, LinkPolicy::Follow).await?, "first draft\n");

    // Somebody else would have made this file, if it were not there already.
    let only_new = WriteOptions { expect: ExpectedFile::Absent, ..WriteOptions::default() };
    let refused = files.write(path, Bytes::from("mine\n"), only_new).await;
    println!("a guarded write was refused: {}", refused.as_ref().err().ok_or("the guard must hold")?);
    assert_eq!(files.read(path, LinkPolicy::Follow).await?, "first draft\n");

    let append = WriteOptions { append: true, ..WriteOptions::default() };
    files.write(path, Bytes::from("second thought\n"), append).await?;
    let metadata = files.metadata(path, LinkPolicy::Follow).await?;
    println!("{} has {} bytes, mode {:o}", path.display(), metadata.size_bytes, metadata.mode & 0o777);
    assert_eq!(metadata.size_bytes, 27);
    Ok(())
}

/// Large files pass in blocks, in any order, so that neither side holds all of it in memory.
async fn read_in_blocks(files: &dyn Files, path: &Path) -> Result<(), Box<dyn Error>> {
    const BLOCK_BYTES: usize = 256 * 1024;
    let file = files.open(path, OpenMode::Replace, LinkPolicy::Follow).await?;
    for index in 0..4_u8 {
        let offset = u64::from(index) * BLOCK_BYTES as u64;
        file.write_block(offset, Bytes::from(vec![index; BLOCK_BYTES])).await?;
    }
    file.close().await?;

    let file = files.open(path, OpenMode::Read, LinkPolicy::Follow).await?;
    let mut offset = 0;
    loop {
        let block = file.read_block(offset, BLOCK_BYTES).await?;
        let index = offset / BLOCK_BYTES as u64;
        assert!(block.bytes.iter().all(|byte| u64::from(*byte) == index));
        offset += block.bytes.len() as u64;
        if block.eof {
            break;
        }
    }
    file.close().await?;
    println!("{offset} bytes written and read back in blocks");
    assert_eq!(offset, 4 * BLOCK_BYTES as u64);
    Ok(())
}

/// Copies a directory with its files, links and modes, and looks for files in the copy.
async fn copy_a_tree(files: &dyn Files, root: &Path) -> Result<(), Box<dyn Error>> {
    let source = root.join("project");
    files.create_directory(&source.join("src/parser"), CreateDirectoryOptions::default()).await?;
    for name in ["README.md", "src/main.rs", "src/parser/lexer.rs"] {
        files.write(&source.join(name), Bytes::from(format!("this is {name}\n")), WriteOptions::default()).await?;
    }
    files.create_symlink(Path::new("src/main.rs"), &source.join("entry"), LinkPolicy::Follow).await?;

    let copy = root.join("copy");
    let options = CopyOptions { recursive: true, keep_times: true, progress: None };
    let copied = files.copy(&source, &copy, options).await?;
    println!("copied {} files, {} directories, {} links", copied.files, copied.directories, copied.symlinks);
    assert_eq!((copied.files, copied.symlinks, copied.skipped), (3, 1, 0));
    assert_eq!(files.read_link(&copy.join("entry"), LinkPolicy::Follow).await?, Path::new("src/main.rs"));

    let found = files.glob(GlobQuery::new(&copy, "**/*.rs")).await?;
    let names: Vec<PathBuf> =
        found.paths.iter().filter_map(|path| path.strip_prefix(&copy).ok()).map(Into::into).collect();
    println!("sources in the copy: {names:?}");
    assert_eq!(names, [Path::new("src/main.rs"), Path::new("src/parser/lexer.rs")]);
    Ok(())
}
