//! What a call may reach, and where it is.
//!
//! A call under a policy goes from `/` to its file one handle after the other and never lets the kernel follow a link
//! (`resolve/under_policy`), so it knows the path without links of every handle: its [`PolicyPath`]. The rules are asked about
//! that path, and then the call acts on that handle, or on a name in it without following a link. Nothing is looked at by
//! one path and used by another. For a call without a policy all of this is empty and costs nothing.
//!
//! Somebody may move a directory between the decision and the act, and the act then takes place where the directory is
//! now. That gains nothing: whoever moves a directory needs to write both where it was and where it goes, and could have
//! done there itself what the call does. Who is confined by the same policy can write neither what the policy protects nor
//! what is outside, so it cannot move a directory there, or from there to where the policy allows more. Names that it
//! swaps in the directory itself change nothing either: the rules know the name, not what has it.
//!
//! Nothing of procfs is reachable under a policy. It has the memory, the environment and the descriptors of the server,
//! and links that lead past every path.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use exec_core::sandbox::PROTECTED_NAMES;
use exec_env::files::FileReason;
use exec_sandbox::path_rules::{PathAccess, PathRules};
use rustix::fs::{PROC_SUPER_MAGIC, fstatfs};
use rustix::io::Errno;

/// What a call may reach: everything, or what the rules of a policy allow.
#[derive(Clone, Default)]
pub(super) struct CallPolicy(Option<Arc<CallRules>>);

struct CallRules {
    /// What the policy and all ceilings allow together.
    rules: PathRules,
    /// Each alone, to tell whoever is refused by which.
    ceilings: Vec<CeilingRules>,
    /// The first refusal of this call that a ceiling is the reason for.
    refused: OnceLock<Refusal>,
}

/// What a ceiling allows.
pub(super) struct CeilingRules {
    pub(super) rule: String,
    pub(super) rules: PathRules,
}

struct Refusal {
    rule: String,
    wanted: Wanted,
    path: PathBuf,
}

/// What a call does to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Read,
    Write,
}

impl CallPolicy {
    pub(super) fn new(rules: PathRules, ceilings: Vec<CeilingRules>) -> Self {
        let is_restricted = rules.is_restricted();
        Self(is_restricted.then(|| Arc::new(CallRules { rules, ceilings, refused: OnceLock::new() })))
    }

    /// The same where nothing of procfs may be reached, even if the rules restrict nothing.
    pub(super) fn without_procfs(rules: PathRules, ceilings: Vec<CeilingRules>) -> Self {
        Self(Some(Arc::new(CallRules { rules, ceilings, refused: OnceLock::new() })))
    }

    /// Whether a ceiling has refused something of this call.
    pub(super) fn has_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|rules| rules.refused.get().is_some())
    }

    /// Why a call failed: a ceiling, if one has refused something of it. Whatever the kernel said after that is a consequence.
    pub(super) fn explain(&self, reason: FileReason) -> FileReason {
        let refused = self.0.as_ref().and_then(|rules| rules.refused.get());
        match (reason, refused) {
            (FileReason::Os(_), Some(refused)) => {
                let verb = if refused.wanted == Wanted::Write { "write" } else { "read" };
                let path = refused.path.display();
                let why = format!("it would {verb} {path}, which is outside the roots that are allowed here");
                FileReason::Forbidden { rule: refused.rule.clone(), why }
            }
            (reason, _) => reason,
        }
    }

    pub(super) fn is_restricted(&self) -> bool {
        self.0.is_some()
    }

    /// `path`, as the rules know it; it goes through no link.
    pub(super) fn policy_path(&self, path: &Path) -> PolicyPath {
        PolicyPath(self.0.as_ref().map(|rules| KnownPath { rules: Arc::clone(rules), path: path.to_owned() }))
    }
}

/// Where a file is, as far as a policy has to know it.
#[derive(Clone, Default)]
pub(super) struct PolicyPath(Option<KnownPath>);

#[derive(Clone)]
struct KnownPath {
    rules: Arc<CallRules>,
    /// Absolute and without links.
    path: PathBuf,
}

impl KnownPath {
    fn leads_to_something(&self) -> bool {
        !self.path.starts_with("/proc") && self.rules.rules.leads_to_something(&self.path)
    }

    /// Remembers which ceiling it was, if it was one that refused this.
    fn note_refusal(&self, wanted: Wanted) {
        let needed = if wanted == Wanted::Write { PathAccess::Write } else { PathAccess::Read };
        if let Some(ceiling) = self.rules.ceilings.iter().find(|ceiling| ceiling.rules.access(&self.path) < needed) {
            let refusal = || Refusal { rule: ceiling.rule.clone(), wanted, path: self.path.clone() };
            self.rules.refused.get_or_init(refusal);
        }
    }
}

impl PolicyPath {
    pub(super) fn policy(&self) -> CallPolicy {
        CallPolicy(self.0.as_ref().map(|known| Arc::clone(&known.rules)))
    }

    /// Nothing without a policy.
    pub(super) fn path(&self) -> Option<&Path> {
        self.0.as_ref().map(|known| known.path.as_path())
    }

    /// The path of a name in this directory.
    pub(super) fn name(&self, name: &OsStr) -> Self {
        let mut policy_path = self.clone();
        policy_path.enter(name);
        policy_path
    }

    pub(super) fn enter(&mut self, name: &OsStr) {
        if let Some(known) = self.0.as_mut().filter(|_| name != ".") {
            known.path.push(name);
        }
    }

    pub(super) fn leave(&mut self) {
        if let Some(known) = &mut self.0 {
            known.path.pop();
        }
    }

    /// Fails as the kernel does where a file is on a read-only file system, without permission, or not there at all.
    pub(super) fn require(&self, wanted: Wanted) -> Result<(), Errno> {
        let required = self.would_require(wanted);
        if let (Err(_), Some(known)) = (required, &self.0) {
            known.note_refusal(wanted);
        }
        required
    }

    fn would_require(&self, wanted: Wanted) -> Result<(), Errno> {
        match (self.access(), wanted) {
            (PathAccess::Write, _) | (PathAccess::Read, Wanted::Read) => Ok(()),
            (PathAccess::Read, Wanted::Write) => Err(Errno::ROFS),
            (PathAccess::Denied, _) if self.is_beside_something_open() => Err(Errno::NOENT),
            (PathAccess::Denied, _) => Err(Errno::ACCESS),
            (PathAccess::Hidden, _) => Err(Errno::NOENT),
        }
    }

    /// Whether this is in a denied directory with something below that may be used. A process finds nothing but the way
    /// to that there.
    fn is_beside_something_open(&self) -> bool {
        let Some(known) = &self.0 else { return false };
        let mut above = known.path.ancestors().skip(1);
        above.any(|path| {
            known.rules.rules.access(path) == PathAccess::Denied && known.rules.rules.leads_to_something(path)
        })
    }

    pub(super) fn may_be_written(&self) -> bool {
        self.access() == PathAccess::Write
    }

    /// Whether this is protected in a writable directory, so that for a process it is a directory even if it is missing.
    pub(super) fn is_protected_directory(&self) -> bool {
        let is_protected = |path: &Path| PROTECTED_NAMES.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
        let mut parent = self.clone();
        parent.leave();
        self.path().is_some_and(is_protected)
            && self.access() == PathAccess::Read
            && parent.access() == PathAccess::Write
    }

    /// Whether this may be told from what does not exist, though it may not be read: the top of what is denied, whose name is
    /// listed, or a directory on the way to something that may be read.
    pub(super) fn is_only_a_name(&self) -> bool {
        let Some(known) = &self.0 else { return false };
        let mut parent = self.clone();
        parent.leave();
        match self.access() {
            PathAccess::Denied => parent.access() >= PathAccess::Read || self.is_on_the_way(),
            PathAccess::Hidden => known.leads_to_something(),
            PathAccess::Read | PathAccess::Write => false,
        }
    }

    /// Whether a directory may be listed. Of one that is only on the way, that shows what lies on the way.
    pub(super) fn require_listing(&self) -> Result<(), Errno> {
        if self.is_on_the_way() { Ok(()) } else { self.require(Wanted::Read) }
    }

    fn is_on_the_way(&self) -> bool {
        let leads_on = self.0.as_ref().is_some_and(KnownPath::leads_to_something);
        leads_on
            && match self.access() {
                PathAccess::Hidden => true,
                // What is denied itself is not listed, and what is in it is.
                PathAccess::Denied => self.is_beside_something_open(),
                PathAccess::Read | PathAccess::Write => false,
            }
    }

    /// Whether this directory, to which `handle` leads, may be gone through on the way to something else.
    pub(super) fn require_entering(&self, handle: impl AsFd) -> Result<(), Errno> {
        if let Some(known) = &self.0
            && !known.leads_to_something()
        {
            self.require(Wanted::Read)?;
        }
        self.require_outside_procfs(handle)
    }

    /// Whether this link may be followed.
    pub(super) fn require_following(&self) -> Result<(), Errno> {
        match &self.0 {
            Some(known) if known.rules.rules.leads_through_link(&known.path) => Ok(()),
            _ => self.require(Wanted::Read),
        }
    }

    /// Whether this name may come into being as something else: as a link, or with all that is below it.
    pub(super) fn require_replacing(&self) -> Result<(), Errno> {
        self.require(Wanted::Write)?;
        match self.require_removing() {
            Err(Errno::BUSY) => Err(Errno::ROFS),
            other => other,
        }
    }

    /// Whether this name may go away, with all that is below it.
    pub(super) fn require_removing(&self) -> Result<(), Errno> {
        let Some(known) = &self.0 else { return Ok(()) };
        let mut parent = self.clone();
        parent.leave();
        // What a rule takes away from a writable directory stays in it as a mount does, and a mount is busy.
        let is_taken_away = matches!(self.access(), PathAccess::Read | PathAccess::Denied);
        match self.require(Wanted::Write) {
            Err(_) if is_taken_away && parent.access() == PathAccess::Write => return Err(Errno::BUSY),
            // A denied name in a directory that may be read is that of a mount as well, and the directory is read-only.
            Err(Errno::ACCESS) if parent.access() == PathAccess::Read => return Err(Errno::ROFS),
            permitted => permitted?,
        }
        // A writable directory in a read-only one is written, but stays, as a mount does: its name belongs to the other.
        if parent.access() != PathAccess::Write {
            let _ = parent.require(Wanted::Write);
            return Err(Errno::BUSY);
        }
        match known.rules.rules.has_lesser_rule_below(&known.path) {
            true => Err(Errno::ROFS),
            false => Ok(()),
        }
    }

    /// Whether something below may be denied though nothing says so by its path.
    pub(super) fn may_deny_below(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.rules.rules.may_deny_below(&known.path))
    }

    /// Whether a name of this directory is listed. A denied one is, as it is for a process in a sandbox: what is in it
    /// stays closed.
    pub(super) fn shows(&self, name: &OsStr) -> bool {
        let named = self.name(name);
        self.0.is_none() || named.is_on_the_way() || named.would_require(Wanted::Read) != Err(Errno::NOENT)
    }

    /// The file system tells what procfs is, wherever it is mounted.
    pub(super) fn require_outside_procfs(&self, handle: impl AsFd) -> Result<(), Errno> {
        match self.0.is_some() && fstatfs(handle)?.f_type == PROC_SUPER_MAGIC {
            true => Err(Errno::NOENT),
            false => Ok(()),
        }
    }

    fn access(&self) -> PathAccess {
        match &self.0 {
            None => PathAccess::Write,
            Some(known) if known.path.starts_with("/proc") => PathAccess::Hidden,
            Some(known) => known.rules.rules.access(&known.path),
        }
    }
}
