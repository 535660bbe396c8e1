//! File calls with the rights of another user.
//!
//! For the kernel the rights of a thread are its own, though libc pretends otherwise. So the call is made by a thread that takes
//! the user's rights and ends with the call: nothing has to be given back, nothing can be forgotten when a call panics, and
//! no thread that serves others ever has them. What such a thread starts has the user's rights as well.
//!
//! Only the effective ids change. The real and the saved user stay ours, so that programs of the user can neither
//! signal nor trace the thread, whose memory is ours. With the effective user all effective capabilities go; to change
//! only the user that the kernel asks about files (`setfsuid`) would leave some, and there are files (those of
//! `/proc/sys`) that ask for the effective user instead.

use std::io;
use std::panic::resume_unwind;

use exec_keeper::protocol::Identity;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// The rights of a user of this machine.
#[derive(Debug)]
pub(crate) struct UserRights {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl UserRights {
    pub(crate) fn of(identity: &Identity) -> Self {
        let groups = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        Self { uid: Uid::from_raw(identity.uid), gid: Gid::from_raw(identity.gid), groups }
    }

    /// Does `work` on a thread of its own that has these rights, and waits for it. Fails, with nothing done, if there is no such
    /// thread or the kernel does not give it these rights.
    pub(crate) fn perform<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("as-user".to_owned());
            let thread = thread.spawn_scoped(scope, || {
                self.take()?;
                Ok(work())
            })?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Gives the calling thread these rights, for good.
    fn take(&self) -> Result<(), Errno> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(None, self.gid, None)?;
        set_thread_res_uid(None, self.uid, None)?;
        // A process that was told to keep its capabilities when its user changes (a "securebit") would have them still.
        let sets = capabilities(None)?;
        if !sets.effective.is_empty() {
            set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?;
        }
        // The kernel does this, too, unless the machine says otherwise (`fs.suid_dumpable`): what is in procfs about a
        // thread belongs to its effective user, while it can be dumped.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody() -> Option<UserRights> {
        // Another account has nothing to take rights from.
        let identity = Identity { uid: 65_534, gid: 65_534, groups: vec![65_534] };
        rustix::process::geteuid().is_root().then(|| UserRights::of(&identity))
    }

    /// Ids and effective capabilities of the calling thread, as the kernel tells them.
    fn status() -> Vec<String> {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs is mounted");
        let told =
            status.lines().filter(|line| ["Uid:", "Gid:", "Groups:", "CapEff:"].iter().any(|n| line.starts_with(n)));
        told.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn only_the_thread_of_the_work_has_the_rights_and_only_the_effective_ids_change() {
        let Some(rights) = nobody() else { return };
        let before = status();
        let within = rights.perform(status).expect("root may");
        assert_eq!(
            within,
            ["Uid: 0 65534 0 65534", "Gid: 0 65534 0 65534", "Groups: 65534", "CapEff: 0000000000000000"]
        );
        assert_eq!(status(), before);
    }

    #[test]
    fn a_panic_of_the_work_is_the_callers_who_keeps_its_own_rights() {
        let Some(rights) = nobody() else { return };
        let before = status();
        let panicked = std::panic::catch_unwind(|| rights.perform(|| panic!("as the test wants it")));
        assert!(panicked.is_err());
        assert_eq!(status(), before);
    }

    #[test]
    fn what_the_work_starts_has_the_rights_as_well() {
        let Some(rights) = nobody() else { return };
        let within =
            rights.perform(|| std::thread::spawn(status).join()).expect("root may").expect("it does not panic");
        assert_eq!(within[0], "Uid: 0 65534 0 65534");
    }
}
