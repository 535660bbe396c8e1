//! Disks that are full, file systems that are read-only, files that are mounted. Needs root for the mounts; without it
//! the behaviours print that they tested nothing.

use std::path::PathBuf;

use bytes::Bytes;
use exec_env::files::{CopyOptions, FileReason, WriteOptions};

use super::{FilesTestEnvironment, contents, names_in, reason};
use crate::mount::Mount;

fn small_disk(env: &FilesTestEnvironment) -> Option<(Mount, PathBuf)> {
    let folder = env.directory("disk");
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "none"], &folder)?;
    Some((mount, folder))
}

/// ENOSPC, and no temporary file.
pub async fn a_full_disk_leaves_the_old_contents(env: &FilesTestEnvironment) {
    let Some((_mount, disk)) = small_disk(env) else { return };
    let path = disk.join("file");
    std::fs::write(&path, "old").expect("there is room for that");
    let large = Bytes::from(vec![1; 2 << 20]);
    let wrote = env.files().write(&path, large.clone(), WriteOptions::default()).await;
    let error = wrote.expect_err("there is no room for that");
    assert_eq!((error.reason, error.path), (FileReason::Os(28), path.clone()));
    let synced = WriteOptions { sync: true, ..Default::default() };
    assert_eq!(reason(env.files().write(&disk.join("new"), large.clone(), synced).await), Some(FileReason::Os(28)));
    let source = env.file("large", &large);
    let copied = env.files().copy(&source, &path, CopyOptions::default()).await;
    assert_eq!(reason(copied), Some(FileReason::Os(28)));
    assert_eq!((contents(&path), names_in(&disk)), (b"old".to_vec(), vec!["file".into()]));
}

pub async fn a_full_disk_takes_an_append_back(env: &FilesTestEnvironment) {
    let Some((_mount, disk)) = small_disk(env) else { return };
    let path = disk.join("file");
    std::fs::write(&path, "old").expect("there is room for that");
    let options = WriteOptions { append: true, ..Default::default() };
    let wrote = env.files().write(&path, Bytes::from(vec![1; 2 << 20]), options).await;
    assert_eq!((reason(wrote), contents(&path)), (Some(FileReason::Os(28)), b"old".to_vec()));
}

/// EROFS, for a new file and for an existing one.
pub async fn a_read_only_file_system_is_told(env: &FilesTestEnvironment) {
    let disk = env.directory("disk");
    env.file("disk/file", "old");
    let Some(_mount) = Mount::new(&["--bind", "-o", "ro", &disk.to_string_lossy()], &disk) else { return };
    for name in ["file", "new"] {
        let wrote = env.files().write(&disk.join(name), Bytes::from_static(b"x"), WriteOptions::default()).await;
        assert_eq!(reason(wrote), Some(FileReason::Os(30)), "{name}");
    }
}

/// Like /etc/hosts in a container; a rename over it fails with EBUSY.
pub async fn a_file_that_is_mounted_is_written_in_place(env: &FilesTestEnvironment) {
    let (real, mounted) = (env.file("real", "old"), env.file("mounted", "hidden"));
    let Some(_mount) = Mount::new(&["--bind", &real.to_string_lossy()], &mounted) else { return };
    let wrote = env.files().write(&mounted, Bytes::from_static(b"new"), WriteOptions::default()).await;
    assert_eq!((reason(wrote), contents(&real)), (None, b"new".to_vec()));
    assert_eq!(names_in(&env.scratch()), ["mounted", "real"]);
}
