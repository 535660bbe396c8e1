//! Changes what a path leads to while it is used, again and again: somebody who looks at a path and then uses it looks at
//! one file and changes another. What must not change is compared by the test that runs this.
//!
//! `prober race ROUNDS KEY=VALUE…` prints how many uses of a path got through, and how many were refused. In every kind of
//! race both must happen, or nothing raced.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, renameat_with};

use crate::attempt::Failure;
use crate::system_call::call;
use crate::targets::Targets;

/// What is raced for. `prepare` makes it in every directory that must not change, and so do we in those that may.
pub(crate) const VICTIM: &str = "raced";

/// A kind of race: what one thread does to paths, and what another does with them.
struct Race {
    name: &'static str,
    /// Two paths that one thread exchanges.
    swapped: [PathBuf; 2],
    /// What the other thread uses, by the round.
    using: Box<dyn Fn(usize) -> Result<(), Failure> + Sync>,
}

pub(crate) fn run(rounds: usize, keys: &[String]) -> Result<String, Failure> {
    let targets = Targets::new("race", keys);
    let arena = targets.own_missing()?;
    fs::create_dir(&arena)?;
    let mut races = Vec::new();
    let forbidden =
        [targets.get("outside")?.into(), targets.in_workspace(".git")?, targets.in_workspace("project/.git")?];
    for (at, forbidden) in forbidden.into_iter().enumerate() {
        races.push(links_to_directories(&arena.join(format!("d{at}")), &forbidden)?);
        races.push(links_to_files(&arena.join(format!("f{at}")), &forbidden)?);
    }
    races.push(moved_directories(&arena.join("m"), &targets.in_workspace("moved")?)?);
    let each = rounds / (races.len() + 1);
    let mut told = Vec::new();
    for race in &races {
        told.push(run_race(race, each));
    }
    told.push(run_memory_race(&targets, each)?);
    Ok(told.join("\n"))
}

/// A directory changes places with a link to one that must not change.
fn links_to_directories(arena: &Path, forbidden: &Path) -> Result<Race, Failure> {
    let swapped = [arena.join("at"), arena.join("other")];
    fs::create_dir_all(&swapped[0])?;
    symlink(forbidden, &swapped[1])?;
    let at = swapped[0].clone();
    let own = arena.join("own");
    let using = move |round: usize| {
        let victim = at.join(VICTIM);
        match round % 9 {
            0 => OpenOptions::new().write(true).create(true).truncate(true).open(&victim).map(drop)?,
            1 => fs::create_dir(at.join("made"))?,
            2 => fs::remove_dir(at.join("made"))?,
            3 => fs::set_permissions(&victim, fs::Permissions::from_mode(0o640))?,
            4 => symlink("anywhere", at.join("link"))?,
            5 => fs::remove_file(at.join("link"))?,
            6 => {
                fs::write(&own, "x")?;
                fs::rename(&own, at.join("moved"))?;
            }
            7 => fs::rename(at.join("moved"), &own)?,
            _ => rustix::fs::utimensat(CWD, &victim, &times(), AtFlags::empty())?,
        }
        Ok(())
    };
    Ok(Race { name: "directory-or-link", swapped, using: Box::new(using) })
}

/// A file changes places with a link to one that must not change.
fn links_to_files(arena: &Path, forbidden: &Path) -> Result<Race, Failure> {
    let swapped = [arena.join("at"), arena.join("other")];
    fs::create_dir_all(arena)?;
    fs::write(&swapped[0], "own")?;
    symlink(forbidden.join(VICTIM), &swapped[1])?;
    let (at, arena) = (swapped[0].clone(), arena.to_owned());
    let using = move |round: usize| {
        match round % 6 {
            0 => OpenOptions::new().write(true).truncate(true).open(&at).map(drop)?,
            1 => OpenOptions::new().append(true).create(true).open(&at).map(drop)?,
            2 => drop(call!(libc::SYS_truncate, c_string(&at).as_ptr(), 1)?),
            3 => fs::set_permissions(&at, fs::Permissions::from_mode(0o640))?,
            4 => rustix::fs::utimensat(CWD, &at, &times(), AtFlags::empty())?,
            _ => {
                let linked = arena.join("linked");
                let made = rustix::fs::linkat(CWD, &at, CWD, &linked, AtFlags::SYMLINK_FOLLOW);
                let written = OpenOptions::new().write(true).open(&linked).map(drop);
                let _ = fs::remove_file(&linked);
                made?;
                written?;
            }
        }
        Ok(())
    };
    Ok(Race { name: "file-or-link", swapped, using: Box::new(using) })
}

/// A directory is moved to where its parent has something protected, which `..` then leads to.
fn moved_directories(arena: &Path, beside_protected: &Path) -> Result<Race, Failure> {
    let swapped = [arena.join("deep"), beside_protected.to_owned()];
    for directory in &swapped {
        fs::create_dir_all(directory)?;
    }
    fs::create_dir(arena.join(".git"))?;
    fs::write(arena.join(".git").join(VICTIM), "own")?;
    let handle = File::open(&swapped[0])?;
    let using = move |round: usize| {
        let victim = format!("../.git/{VICTIM}");
        match round % 3 {
            0 => drop(rustix::fs::openat(&handle, &victim, OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?),
            1 => rustix::fs::utimensat(&handle, &victim, &times(), AtFlags::empty())?,
            _ => drop(rustix::fs::openat(&handle, "../.git/new", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR)?),
        }
        Ok(())
    };
    Ok(Race { name: "moved-directory", swapped, using: Box::new(using) })
}

fn run_race(race: &Race, rounds: usize) -> String {
    let done = AtomicBool::new(false);
    let (mut through, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let [one, other] = &race.swapped;
                let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
        });
        for round in 0..rounds {
            match (race.using)(round) {
                Ok(()) => through += 1,
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    format!("{} through {through} refused {refused}", race.name)
}

/// The path itself is changed in memory while the kernel, or somebody else, reads it: from a name in the workspace to one in
/// its `.git`, and back.
fn run_memory_race(targets: &Targets<'_>, rounds: usize) -> Result<String, Failure> {
    let harmless = targets.in_workspace("_git")?;
    fs::create_dir(&harmless)?;
    fs::write(harmless.join(VICTIM), "own")?;
    let path = c_string(&harmless.join(VICTIM));
    let at = harmless.as_os_str().len() - "_git".len();
    let bytes: Vec<AtomicU8> = path.as_bytes_with_nul().iter().map(|byte| AtomicU8::new(*byte)).collect();
    let done = AtomicBool::new(false);
    let (mut through, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bytes[at].store(b'.', Ordering::Relaxed);
                bytes[at].store(b'_', Ordering::Relaxed);
            }
        });
        for round in 0..rounds {
            let result = match round % 3 {
                0 => call!(libc::SYS_openat, libc::AT_FDCWD, bytes.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC).map(
                    |file| {
                        // Nothing is written: what counts is the modification by the next calls, and that this one ends.
                        let _ = call!(libc::SYS_close, file);
                    },
                ),
                1 => call!(libc::SYS_truncate, bytes.as_ptr(), 2).map(drop),
                _ => call!(libc::SYS_fchmodat, libc::AT_FDCWD, bytes.as_ptr(), 0o640).map(drop),
            };
            match result {
                Ok(()) => through += 1,
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    Ok(format!("memory through {through} refused {refused}"))
}

fn times() -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths of tests contain no NUL")
}
