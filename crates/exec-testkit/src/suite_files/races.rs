//! A thread swaps directories and files for links while calls that refuse links are under way.
//!
//! It exchanges `swapped` (a real directory) with a link to `outside`, and `swapped/name` with a link to a file there,
//! as fast as it can. Whatever the calls answer, nothing outside may change. Each call is made 10,000 times
//! `EXEC_SOAK_ROUNDS`, which is 5 unless set.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use exec_env::files::{CreateDirectoryOptions, LinkPolicy, OpenMode, RemoveOptions, RenameOptions, WriteOptions};
use futures_util::StreamExt;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

use super::{FilesTestEnvironment, contents, names_in, soak_rounds};

fn races(env: &FilesTestEnvironment) -> u64 {
    u64::from(soak_rounds().unwrap_or(5).max(1)) * 10_000 / env.fewer_races
}

/// The directories, and the thread that swaps them.
struct Swapper {
    swapped: PathBuf,
    /// The real directory, whatever its name is at the moment.
    real: Arc<std::fs::File>,
    outside: PathBuf,
    races: u64,
    swaps: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(env: &FilesTestEnvironment) -> Self {
        let outside = env.directory("outside");
        env.file("outside/name", "untouched");
        env.file("outside/victim", "untouched");
        let swapped = env.directory("swapped");
        let real = Arc::new(std::fs::File::open(&swapped).expect("it was just made"));
        env.file("swapped/name", "inside");
        let decoy = env.link("decoy", &outside);
        let name_decoy = env.link("name-decoy", outside.join("name"));
        let (swaps, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (swaps, stop) = (Arc::clone(&swaps), Arc::clone(&stop));
            let (swapped, name) = (swapped.clone(), swapped.join("name"));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    // Any of these may fail when a call has just removed or moved its subject; then the next works.
                    let _swapped = renameat_with(CWD, &swapped, CWD, &decoy, RenameFlags::EXCHANGE);
                    let _swapped = renameat_with(CWD, &swapped, CWD, &decoy, RenameFlags::EXCHANGE);
                    let _name = renameat_with(CWD, &name, CWD, &name_decoy, RenameFlags::EXCHANGE);
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { swapped, real, outside, races: races(env), swaps, stop, thread: Some(thread) }
    }

    /// Creates `name` again, for calls that remove it. By handle, or the test itself would follow the link.
    fn put_back(&self) -> impl Fn() + use<> {
        let real = Arc::clone(&self.real);
        move || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // It may be there, or be the decoy just now; either will do.
            let _there = openat(&*real, "name", flags, Mode::from_raw_mode(0o644));
        }
    }

    /// Makes `call` again and again against the swapper, eight at a time, and checks that nothing outside has changed.
    /// `call` gets the path of `swapped` and the number of the race, and returns whether it succeeded.
    async fn race(mut self, call: impl AsyncFn(PathBuf, u64) -> bool) {
        let (races, before) = (self.races, OutsideState::of(&self.outside));
        let swapped = self.swapped.clone();
        let won = futures_util::stream::iter(0..races)
            .map(|race| call(swapped.clone(), race))
            .buffer_unordered(8)
            .filter(|won| std::future::ready(*won))
            .count()
            .await;
        self.end();
        assert_eq!(OutsideState::of(&self.outside), before, "something outside was touched");
        assert!(won > 0, "the call never succeeded, so nothing was tested");
        let swaps = self.swaps.load(Ordering::Relaxed);
        assert!(swaps > 0, "nothing was ever swapped, so nothing was tested");
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

/// Everything outside that a call could change.
#[derive(Debug, PartialEq, Eq)]
struct OutsideState {
    names: Vec<std::ffi::OsString>,
    contents: Vec<Vec<u8>>,
    modes: Vec<u32>,
}

impl OutsideState {
    fn of(outside: &Path) -> Self {
        let names = names_in(outside);
        let paths = || names.iter().map(|name| outside.join(name));
        let mode = |path: PathBuf| std::fs::symlink_metadata(path).expect("it was just listed").mode();
        Self { contents: paths().map(|path| contents(&path)).collect(), modes: paths().map(mode).collect(), names }
    }
}

pub async fn no_race_lets_a_write_escape(env: &FilesTestEnvironment) {
    let options = WriteOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let write = async |swapped: PathBuf, _| {
        env.files().write(&swapped.join("name"), Bytes::from_static(b"written"), options).await.is_ok()
    };
    Swapper::start(env).race(write).await;
}

pub async fn no_race_lets_an_append_escape(env: &FilesTestEnvironment) {
    let options = WriteOptions { append: true, links: LinkPolicy::Refuse, ..Default::default() };
    let append = async |swapped: PathBuf, _| {
        env.files().write(&swapped.join("name"), Bytes::from_static(b"."), options).await.is_ok()
    };
    Swapper::start(env).race(append).await;
}

/// Both truncating and creating.
pub async fn no_race_lets_an_open_escape(env: &FilesTestEnvironment) {
    let open_and_write = async |swapped: PathBuf, race| {
        let name = if race % 2 == 0 { "name" } else { "another" };
        match env.files().open(&swapped.join(name), OpenMode::Replace, LinkPolicy::Refuse).await {
            Ok(file) => file.write_block(0, Bytes::from_static(b"x")).await.is_ok(),
            Err(_) => false,
        }
    };
    Swapper::start(env).race(open_and_write).await;
}

/// Two levels, so that the way down is raced, too.
pub async fn no_race_lets_a_folder_escape(env: &FilesTestEnvironment) {
    let options = CreateDirectoryOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let create = async |swapped: PathBuf, race| {
        let path = swapped.join(format!("{}/{race}", race % 64));
        env.files().create_directory(&path, options).await.is_ok()
    };
    Swapper::start(env).race(create).await;
}

/// `victim` exists only outside.
pub async fn no_race_lets_a_removal_escape(env: &FilesTestEnvironment) {
    let options = RemoveOptions { recursive: false, force: false, links: LinkPolicy::Refuse };
    let swapper = Swapper::start(env);
    let put_back = swapper.put_back();
    let remove = async |swapped: PathBuf, race| {
        put_back();
        let name = if race % 2 == 0 { "name" } else { "victim" };
        env.files().remove(&swapped.join(name), options).await.is_ok()
    };
    swapper.race(remove).await;
}

/// Neither out of `outside` nor into it.
pub async fn no_race_lets_a_rename_escape(env: &FilesTestEnvironment) {
    let options = RenameOptions { links: LinkPolicy::Refuse, ..Default::default() };
    let elsewhere = env.directory("elsewhere");
    let swapper = Swapper::start(env);
    let put_back = swapper.put_back();
    let rename = async |swapped: PathBuf, race| {
        put_back();
        let (from, to) = match race % 3 {
            0 => (swapped.join("name"), elsewhere.join("taken")),
            1 => (swapped.join("victim"), elsewhere.join("stolen")),
            _ => (elsewhere.join("taken"), swapped.join("planted")),
        };
        env.files().rename(&from, &to, options).await.is_ok()
    };
    swapper.race(rename).await;
    assert!(!elsewhere.join("stolen").exists());
}

pub async fn no_race_lets_permissions_escape(env: &FilesTestEnvironment) {
    let set = async |swapped: PathBuf, _| {
        env.files().set_permissions(&swapped.join("name"), 0o4777, LinkPolicy::Refuse).await.is_ok()
    };
    Swapper::start(env).race(set).await;
}

pub async fn no_race_lets_a_link_escape(env: &FilesTestEnvironment) {
    let create = async |swapped: PathBuf, race| {
        let path = swapped.join(format!("link-{race}"));
        env.files().create_symlink("anywhere".as_ref(), &path, LinkPolicy::Refuse).await.is_ok()
    };
    Swapper::start(env).race(create).await;
}
