//! A thread swaps directories and files for links, and moves them about, while calls under a policy are under way.
//!
//! `w` may be written, but not `w/.git`; `outside` may only be read, and `denied` not at all. The thread does what a
//! process under the same policy could do: it exchanges `w/dir` with links to the others and with another directory, and
//! `w/dir/name` with links to files there. Whatever the calls answer, nothing but `w` may change, and nothing that is
//! denied may be read. Each call is made 10,000 times `EXEC_SOAK_ROUNDS`, which is 1 unless set: five kinds of calls are
//! 50,000 races.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use exec_core::sandbox::FileAccess;
use exec_env::files::{CopyOptions, Files, LinkPolicy, OpenMode, RemoveOptions, RenameOptions, WriteOptions};
use futures_util::StreamExt;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};

use super::policies::under;
use super::{FilesTestEnvironment, contents, names_in, soak_rounds};

const SECRET: &[u8] = b"secret";

struct Swapper {
    files: Arc<dyn Files>,
    work: PathBuf,
    guarded: Vec<PathBuf>,
    races: u64,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(env: &FilesTestEnvironment) -> Self {
        let work = env.directory("w");
        let guarded: Vec<PathBuf> = ["w/.git", "outside", "denied"].map(|dir| env.directory(dir)).into();
        for dir in ["w/.git", "outside", "denied"] {
            env.file(format!("{dir}/name"), if dir == "denied" { SECRET } else { b"untouched" });
            env.file(format!("{dir}/victim"), if dir == "denied" { SECRET } else { b"untouched" });
        }
        for dir in ["w/dir", "w/other"] {
            env.file(format!("{dir}/name"), "inside");
            env.file(format!("{dir}/sub/name"), "inside");
        }
        let links: Vec<PathBuf> =
            guarded.iter().enumerate().map(|(i, to)| env.link(format!("w/link-{i}"), to)).collect();
        let names: Vec<PathBuf> =
            guarded.iter().enumerate().map(|(i, to)| env.link(format!("w/name-{i}"), to.join("name"))).collect();
        let files = under(
            env,
            &[
                ("/".into(), FileAccess::Read),
                (work.clone(), FileAccess::Write),
                (guarded[0].clone(), FileAccess::Read),
                (guarded[2].clone(), FileAccess::Deny),
            ],
        );
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (stop, dir, other) = (Arc::clone(&stop), work.join("dir"), work.join("other"));
            move || {
                // Any of these may fail when a call has just removed or moved its subject; then the next works.
                let swap = |a: &PathBuf, b: &PathBuf| _ = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
                while !stop.load(Ordering::Relaxed) {
                    for (link, name) in links.iter().zip(&names) {
                        swap(&dir, link);
                        swap(&dir, link);
                        swap(&dir.join("name"), name);
                        swap(&dir.join("name"), name);
                        swap(&dir, &other);
                    }
                }
            }
        });
        let races = u64::from(soak_rounds().unwrap_or(1).max(1)) * 10_000 / env.fewer_races;
        Self { files, work, guarded, races, stop, thread: Some(thread) }
    }

    fn state(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = self.guarded.iter().flat_map(|dir| names_in(dir).into_iter().map(|name| dir.join(name)));
        paths.map(|path| (path.clone(), contents(&path))).collect()
    }

    /// Makes `call` again and again, eight at a time. It gets the path of `w/dir` and the number of the race, and returns
    /// whether it succeeded.
    async fn race(mut self, call: impl AsyncFn(Arc<dyn Files>, PathBuf, u64) -> bool) {
        let before = self.state();
        let dir = self.work.join("dir");
        let won = futures_util::stream::iter(0..self.races)
            .map(|race| call(Arc::clone(&self.files), dir.clone(), race))
            .buffer_unordered(8)
            .filter(|won| std::future::ready(*won))
            .count()
            .await;
        self.end();
        assert_eq!(self.state(), before, "something that is protected was changed");
        assert!(won > 0, "the call never succeeded, so nothing was tested");
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the swapper does not panic");
        }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whole, in blocks, and through a listing.
pub async fn no_race_reads_what_is_denied(env: &FilesTestEnvironment) {
    let read = async |files: Arc<dyn Files>, dir: PathBuf, race| match race % 3 {
        0 => files.read(&dir.join("name"), LinkPolicy::Follow).await.is_ok_and(|bytes| {
            assert_ne!(bytes, SECRET);
            true
        }),
        1 => match files.open(&dir.join("name"), OpenMode::Read, LinkPolicy::Follow).await {
            Ok(file) => file.read_block(0, 16).await.is_ok_and(|block| {
                assert_ne!(block.bytes, SECRET);
                true
            }),
            Err(_) => false,
        },
        // `victim` is only where the links lead, and `sub` only where they do not.
        _ => files.read(&dir.join("victim"), LinkPolicy::Follow).await.is_ok_and(|bytes| {
            assert_ne!(bytes, SECRET);
            true
        }),
    };
    Swapper::start(env).race(read).await;
}

/// Replacing, appending and opening.
pub async fn no_race_writes_what_is_protected(env: &FilesTestEnvironment) {
    let write = async |files: Arc<dyn Files>, dir: PathBuf, race| {
        let name = dir.join(if race % 2 == 0 { "name" } else { "victim" });
        let append = WriteOptions { append: true, ..WriteOptions::default() };
        let bytes = Bytes::from_static(b"written");
        match race % 3 {
            0 => files.write(&name, bytes, WriteOptions::default()).await.is_ok(),
            1 => files.write(&name, bytes, append).await.is_ok(),
            _ => match files.open(&name, OpenMode::Replace, LinkPolicy::Follow).await {
                Ok(file) => file.write_block(0, bytes).await.is_ok(),
                Err(_) => false,
            },
        }
    };
    Swapper::start(env).race(write).await;
}

/// Single files, and trees.
pub async fn no_race_removes_what_is_protected(env: &FilesTestEnvironment) {
    let remove = async |files: Arc<dyn Files>, dir: PathBuf, race| {
        let options = RemoveOptions { recursive: true, force: false, links: LinkPolicy::Follow };
        match race % 4 {
            0 => files.remove(&dir.join("name"), options).await.is_ok(),
            1 => files.remove(&dir.join("victim"), options).await.is_ok(),
            2 => files.remove(&dir.join("sub"), options).await.is_ok(),
            _ => {
                let made = files.create_directory(&dir.join("sub/deep"), Default::default()).await;
                made.is_ok() && files.write(&dir.join("name"), Bytes::new(), WriteOptions::default()).await.is_ok()
            }
        }
    };
    Swapper::start(env).race(remove).await;
}

/// Neither what is denied out, nor anything into what is protected.
pub async fn no_race_copies_from_or_to_what_is_protected(env: &FilesTestEnvironment) {
    let taken = env.path("w/taken");
    let copy = async |files: Arc<dyn Files>, dir: PathBuf, race| {
        let tree = CopyOptions { recursive: true, ..CopyOptions::default() };
        let (from, to) = match race % 4 {
            0 => (dir.join("name"), taken.clone()),
            1 => (dir.join("victim"), taken.clone()),
            2 => (dir.join("sub"), dir.join("copied")),
            _ => (taken.clone(), dir.join("planted")),
        };
        let copied = files.copy(&from, &to, tree).await.is_ok();
        // A link may be copied, as text: what it leads to stays closed.
        assert!(content_without_links(&taken).is_none_or(|bytes| bytes != SECRET));
        copied
    };
    Swapper::start(env).race(copy).await;
}

/// `None` if there is no file, or a link.
fn content_without_links(path: &Path) -> Option<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

pub async fn no_race_renames_what_is_protected(env: &FilesTestEnvironment) {
    let taken = env.path("w/taken");
    let rename = async |files: Arc<dyn Files>, dir: PathBuf, race| {
        let (from, to) = match race % 3 {
            0 => (dir.join("sub/name"), taken.clone()),
            1 => (dir.join("victim"), taken.clone()),
            _ => (taken.clone(), dir.join("sub/name")),
        };
        files.rename(&from, &to, RenameOptions::default()).await.is_ok()
    };
    Swapper::start(env).race(rename).await;
}
