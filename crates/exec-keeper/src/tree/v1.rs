//! Cgroups of version 1 that limit a tree, where that is what the host has: each controller is a hierarchy of its own, and
//! a child moves into its cgroups before its program runs.
//!
//! They limit and count; who belongs to a tree, and how it is killed, does not depend on them. They are made for one tree
//! and removed with it, and what a killed keeper has left is removed by the next one.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::cgroup::{OwnCgroups, pool_name, remove_below, remove_leftovers};

/// What a hierarchy of version 1 can limit or count for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Pids,
    CpuAccounting,
}

impl Controller {
    const ALL: [Controller; 3] = [Self::Memory, Self::Pids, Self::CpuAccounting];

    /// The kernel's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::CpuAccounting => "cpuacct",
        }
    }
}

/// Makes cgroups in the hierarchies of version 1.
#[derive(Debug)]
pub(super) struct V1Cgroups {
    embedded: bool,
    /// The directory of this keeper in each hierarchy that was needed so far.
    directories: Vec<(Controller, PathBuf)>,
    made: u64,
    /// Not empty when their tree was given back.
    dying: Vec<V1Cgroup>,
}

#[derive(Debug)]
pub(super) struct V1Cgroup {
    pub(super) controller: Controller,
    path: PathBuf,
    /// The file by which a child moves here.
    procs: OwnedFd,
}

impl V1Cgroups {
    /// Removes what killed keepers have left. Makes nothing before it is needed.
    pub(super) fn new(embedded: bool) -> Self {
        if let Some(own) = OwnCgroups::read() {
            let parents = Controller::ALL.into_iter().filter_map(|controller| own.v1(controller.name()));
            parents.for_each(|parent| remove_leftovers(&parent));
        }
        Self { embedded, directories: Vec::new(), made: 0, dying: Vec::new() }
    }

    /// A cgroup for one tree, with these contents of its files. The error says what is missing.
    pub(super) fn make(&mut self, controller: Controller, settings: &[Setting<'_>]) -> Result<V1Cgroup, String> {
        let directory = self.directory(controller)?;
        self.made += 1;
        let path = directory.join(self.made.to_string());
        fs::create_dir(&path).map_err(|error| format!("cannot make {path:?}: {error}"))?;
        set_up(controller, &path, settings).inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    pub(super) fn give_back(&mut self, cgroup: V1Cgroup) {
        // Fails as long as somebody is in it.
        remove_below(&cgroup.path);
        if cgroup.path.exists() {
            self.dying.push(cgroup);
        }
    }

    pub(super) fn prepare(&mut self) {
        for cgroup in std::mem::take(&mut self.dying) {
            self.give_back(cgroup);
        }
    }

    fn directory(&mut self, controller: Controller) -> Result<PathBuf, String> {
        if let Some((_, directory)) = self.directories.iter().find(|(of, _)| *of == controller) {
            return Ok(directory.clone());
        }
        let missing = || format!("there is no hierarchy of cgroups with the controller {}", controller.name());
        let own = OwnCgroups::read().and_then(|own| own.v1(controller.name()));
        let directory = own.ok_or_else(missing)?.join(pool_name(self.embedded));
        fs::create_dir(&directory).map_err(|error| format!("cannot make {directory:?}: {error}"))?;
        self.directories.push((controller, directory.clone()));
        Ok(directory)
    }
}

impl Drop for V1Cgroups {
    fn drop(&mut self) {
        for (_, directory) in &self.directories {
            remove_below(directory);
        }
    }
}

/// A file of a cgroup and what is written to it.
pub(super) struct Setting<'a> {
    pub(super) file: &'a str,
    pub(super) value: String,
    /// Not every kernel has the file.
    pub(super) optional: bool,
}

fn set_up(controller: Controller, path: &Path, settings: &[Setting<'_>]) -> Result<V1Cgroup, String> {
    for Setting { file, value, optional } in settings {
        match fs::write(path.join(file), value) {
            Err(error) if !optional => return Err(format!("cannot write {value} to {:?}: {error}", path.join(file))),
            _ => {}
        }
    }
    let procs = rustix::fs::open(path.join("cgroup.procs"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let procs = procs.and_then(crate::spawn::above_stdio).map_err(|errno| format!("cannot open its list: {errno}"))?;
    Ok(V1Cgroup { controller, path: path.to_owned(), procs })
}

impl V1Cgroup {
    pub(super) fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// The number behind a word in one of its files; 0 if there is none.
    pub(super) fn count(&self, file: &str, word: &str) -> u64 {
        super::cgroup::count_in(&self.path.join(file), word)
    }

    /// The number that is all of one of its files; 0 if it is none.
    pub(super) fn number(&self, file: &str) -> u64 {
        fs::read_to_string(self.path.join(file)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}
