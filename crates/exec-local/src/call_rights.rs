//! Whose rights a file call has: those of this process, the same without capabilities, or those of another user.
//!
//! A process in a sandbox has no capabilities, so a call under the same policy has none either: root's way past owners
//! and modes is not part of what a policy grants. For the kernel the capabilities of a thread are its own, so the
//! thread that makes the call puts them down for as long as it takes. It keeps them permitted, and a guard takes them
//! up again, also when the call panics. What is resolved before the call (the links in the rules of its policy) has the
//! rights of this process.

use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::user_rights::UserRights;

#[derive(Debug, Clone, Default)]
pub(crate) enum CallRights {
    #[default]
    OfServer,
    WithoutCapabilities,
    OfUser(Arc<UserRights>),
}

impl CallRights {
    /// Does `work` with these rights. Fails, with nothing done, if the kernel does not give them.
    pub(crate) fn perform<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match self {
            Self::OfServer => Ok(work()),
            Self::WithoutCapabilities => {
                let _until_it_ends = WithoutCapabilities::begin()?;
                Ok(work())
            }
            Self::OfUser(rights) => rights.perform(work),
        }
    }

    /// Whether the kernel gives these rights, found out once: a filter of system calls may forbid it. Those of a user
    /// were tried when the user was named.
    pub(crate) fn are_given(&self) -> Result<(), Errno> {
        static TRIED: OnceLock<Result<(), Errno>> = OnceLock::new();
        match self {
            Self::OfServer | Self::OfUser(_) => Ok(()),
            Self::WithoutCapabilities => *TRIED.get_or_init(|| {
                let sets = capabilities(None)?;
                // As they are: who may do this may also take up what is permitted.
                set_capabilities(None, sets)?;
                WithoutCapabilities::begin().map(drop)
            }),
        }
    }
}

/// The calling thread has no effective capabilities until this is dropped.
struct WithoutCapabilities {
    /// `None` if it had none anyway.
    before: Option<CapabilitySets>,
    /// It must be dropped by the thread that made it.
    _of_this_thread: PhantomData<*const ()>,
}

impl WithoutCapabilities {
    fn begin() -> Result<Self, Errno> {
        let before = Some(capabilities(None)?).filter(|sets| !sets.effective.is_empty());
        if let Some(sets) = before {
            set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?;
        }
        Ok(Self { before, _of_this_thread: PhantomData })
    }
}

impl Drop for WithoutCapabilities {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set_capabilities(None, before).expect("a thread may always take up what it is permitted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> CapabilitySet {
        capabilities(None).expect("a thread may ask for its own").effective
    }

    #[test]
    fn a_call_without_capabilities_has_none_and_its_thread_has_them_again_afterwards() {
        let before = effective();
        let rights = CallRights::WithoutCapabilities;
        assert_eq!(rights.are_given(), Ok(()));
        assert_eq!(rights.perform(effective).expect("they are given"), CapabilitySet::empty());
        assert_eq!(effective(), before);
        let panicked = std::panic::catch_unwind(|| rights.perform(|| panic!("as the test wants it")));
        assert!(panicked.is_err());
        assert_eq!(effective(), before);
    }

    #[test]
    fn what_the_call_starts_has_no_capabilities_either() {
        let within = CallRights::WithoutCapabilities.perform(|| std::thread::spawn(effective).join());
        assert_eq!(within.expect("they are given").expect("it does not panic"), CapabilitySet::empty());
    }
}
