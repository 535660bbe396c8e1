//! Somebody swaps folders and files for links while verbs that refuse links are at work.
//!
//! A thread exchanges `gate` (a real folder) with a link to `outside`, and `gate/name` with a link to a file there, as
//! fast as it can. Whatever the verbs answer, nothing outside may change. How often: 10,000 times `EXEC_SOAK_ROUNDS`,
//! which is 5 unless set; a soak of 100 rounds is the million.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use exec_env::files::{CreateDirectoryOptions, Files, LinkPolicy, OpenMode, RemoveOptions, RenameOptions, WriteOptions};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

use super::{FilesBench, contents, names_in, soak_rounds};

fn races(bench: &FilesBench) -> u64 {
    u64::from(soak_rounds().unwrap_or(5).max(1)) * 10_000 / bench.fewer_races
}

/// The folders, and the thread that swaps them.
struct Swapper {
    inside: PathBuf,
    /// The real folder, wherever its name is just now.
    held: Arc<std::fs::File>,
    outside: PathBuf,
    /// How often the verb is to run.
    races: u64,
    swaps: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(bench: &FilesBench) -> Self {
        let outside = bench.folder("outside");
        bench.file("outside/name", "untouched");
        bench.file("outside/victim", "untouched");
        let gate = bench.folder("gate");
        let held = Arc::new(std::fs::File::open(&gate).expect("it was just made"));
        bench.file("gate/name", "inside");
        let decoy = bench.link("decoy", &outside);
        let name_decoy = bench.link("name-decoy", outside.join("name"));
        let (swaps, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (swaps, stop) = (Arc::clone(&swaps), Arc::clone(&stop));
            let (gate, name) = (gate.clone(), gate.join("name"));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    // Any of these may fail when a verb has just removed or moved its subject; then the next works.
                    let _gate = renameat_with(CWD, &gate, CWD, &decoy, RenameFlags::EXCHANGE);
                    let _gate = renameat_with(CWD, &gate, CWD, &decoy, RenameFlags::EXCHANGE);
                    let _name = renameat_with(CWD, &name, CWD, &name_decoy, RenameFlags::EXCHANGE);
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { inside: gate, held, outside, races: races(bench), swaps, stop, thread: Some(thread) }
    }

    /// Puts the name back, for verbs that take it away. By handle, or the test itself would escape.
    fn put_back(&self) -> impl Fn() + use<> {
        let held = Arc::clone(&self.held);
        move || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // It may be there, or be the decoy just now; either will do.
            let _there = openat(&*held, "name", flags, Mode::from_raw_mode(0o644));
        }
    }

    /// Lets `verb` run against the swapper, some at a time, and counts how often it went well.
    async fn race<'a>(
        mut self,
        files: &'a dyn Files,
        verb: impl Fn(&'a dyn Files, PathBuf, u64) -> BoxFuture<'a, bool>,
    ) {
        let (races, before) = (self.races, State::of(&self.outside));
        let inside = self.inside.clone();
        let won = futures_util::stream::iter(0..races)
            .map(|race| verb(files, inside.clone(), race))
            .buffer_unordered(8)
            .filter(|won| std::future::ready(*won))
            .count()
            .await;
        self.end();
        assert_eq!(State::of(&self.outside), before, "something outside was touched");
        assert!(won > 0, "the verb never succeeded, so nothing was judged");
        let swaps = self.swaps.load(Ordering::Relaxed);
        assert!(swaps > 0, "nothing was ever swapped, so nothing was judged");
        eprintln!("{races} races, {won} won, {swaps} swaps");
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

/// Everything outside that a verb could change.
#[derive(Debug, PartialEq, Eq)]
struct State {
    names: Vec<std::ffi::OsString>,
    contents: Vec<Vec<u8>>,
    modes: Vec<u32>,
}

impl State {
    fn of(outside: &Path) -> Self {
        let names = names_in(outside);
        let paths = || names.iter().map(|name| outside.join(name));
        let mode = |path: PathBuf| std::fs::symlink_metadata(path).expect("it was just listed").mode();
        Self { contents: paths().map(|path| contents(&path)).collect(), modes: paths().map(mode).collect(), names }
    }
}

/// Replace.
pub async fn no_race_lets_a_write_escape(bench: &FilesBench) {
    let options = WriteOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, _| {
            Box::pin(async move {
                let bytes = Bytes::from_static(b"written");
                files.write(&gate.join("name"), bytes, options).await.is_ok()
            })
        })
        .await;
}

/// In place, which a wrong link would lead anywhere.
pub async fn no_race_lets_an_append_escape(bench: &FilesBench) {
    let options = WriteOptions { append: true, links: LinkPolicy::Refuse, ..Default::default() };
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, _| {
            Box::pin(async move { files.write(&gate.join("name"), Bytes::from_static(b"."), options).await.is_ok() })
        })
        .await;
}

/// Emptying and creating.
pub async fn no_race_lets_an_open_escape(bench: &FilesBench) {
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, race| {
            Box::pin(async move {
                let name = if race % 2 == 0 { "name" } else { "another" };
                let Ok(file) = files.open(&gate.join(name), OpenMode::Replace, LinkPolicy::Refuse).await else {
                    return false;
                };
                file.write_block(0, Bytes::from_static(b"x")).await.is_ok()
            })
        })
        .await;
}

/// Two levels, so that the way down is raced, too.
pub async fn no_race_lets_a_folder_escape(bench: &FilesBench) {
    let options = CreateDirectoryOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, race| {
            Box::pin(async move {
                let path = gate.join(format!("{}/{race}", race % 64));
                files.create_directory(&path, options).await.is_ok()
            })
        })
        .await;
}

/// `victim` is only outside.
pub async fn no_race_lets_a_removal_escape(bench: &FilesBench) {
    let options = RemoveOptions { recursive: false, force: false, links: LinkPolicy::Refuse };
    let swapper = Swapper::start(bench);
    let put_back = swapper.put_back();
    swapper
        .race(bench.files(), |files, gate, race| {
            put_back();
            Box::pin(async move {
                let name = if race % 2 == 0 { "name" } else { "victim" };
                files.remove(&gate.join(name), options).await.is_ok()
            })
        })
        .await;
}

/// Neither out of the outside nor into it.
pub async fn no_race_lets_a_rename_escape(bench: &FilesBench) {
    let options = RenameOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let elsewhere = bench.folder("elsewhere");
    let swapper = Swapper::start(bench);
    let put_back = swapper.put_back();
    swapper
        .race(bench.files(), |files, gate, race| {
            put_back();
            let elsewhere = elsewhere.clone();
            Box::pin(async move {
                let (from, to) = match race % 3 {
                    0 => (gate.join("name"), elsewhere.join("taken")),
                    1 => (gate.join("victim"), elsewhere.join("stolen")),
                    _ => (elsewhere.join("taken"), gate.join("planted")),
                };
                files.rename(&from, &to, options).await.is_ok()
            })
        })
        .await;
    assert!(!elsewhere.join("stolen").exists());
}

/// A mode for the link's target would be an escape.
pub async fn no_race_lets_permissions_escape(bench: &FilesBench) {
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, _| {
            Box::pin(async move { files.set_permissions(&gate.join("name"), 0o4777, LinkPolicy::Refuse).await.is_ok() })
        })
        .await;
}

/// A planted link is as bad as a planted file.
pub async fn no_race_lets_a_link_escape(bench: &FilesBench) {
    let swapper = Swapper::start(bench);
    swapper
        .race(bench.files(), |files, gate, race| {
            Box::pin(async move {
                let path = gate.join(format!("link-{race}"));
                files.create_symlink("anywhere".as_ref(), &path, LinkPolicy::Refuse).await.is_ok()
            })
        })
        .await;
}
