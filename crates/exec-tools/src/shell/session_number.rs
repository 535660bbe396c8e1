//! The number by which a model knows a session, and the id of its process, which contains it.
//!
//! So a number is found again by listing processes, whoever has started them; nothing else has to be remembered.

use std::fmt;

use exec_core::ProcessId;
use exec_core::sandbox::SandboxPolicy;

const PREFIX: &str = "exec-";
const LEAST: u32 = 1_000;
const MOST: u32 = 99_999;

/// Four or five digits: short enough that a model repeats it without mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

impl fmt::Display for SessionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl SessionNumber {
    /// A random number that `taken` does not have. There are far more numbers than sessions.
    pub(super) fn unused(taken: impl Fn(SessionNumber) -> bool) -> Self {
        loop {
            let random = (uuid::Uuid::new_v4().as_u128() % u128::from(MOST - LEAST + 1)) as u32;
            let number = Self(LEAST + random);
            if !taken(number) {
                return number;
            }
        }
    }

    /// A process id with this number that no other process has ever had. It also says which sandbox the process is in, so
    /// that whoever finds it later can tell.
    pub(super) fn new_process_id(self, sandbox: Option<&SandboxPolicy>) -> ProcessId {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let sandbox = sandbox.map(|policy| format!("-{}", fingerprint(policy))).unwrap_or_default();
        ProcessId::new(format!("{PREFIX}{self}-{}{sandbox}", &unique[..16])).expect("it is far shorter than the bound")
    }

    /// The number in a process id of ours.
    pub fn of(id: &ProcessId) -> Option<Self> {
        let (number, unique) = id.as_str().strip_prefix(PREFIX)?.split_once('-')?;
        let number: u32 = number.parse().ok()?;
        ((LEAST..=MOST).contains(&number) && !unique.is_empty()).then_some(Self(number))
    }
}

/// Whether a process of ours was started in a sandbox.
pub(super) fn is_sandboxed(id: &ProcessId) -> bool {
    sandbox_of(id).is_some()
}

/// Whether a process of ours was started in exactly this sandbox.
pub(super) fn is_in_sandbox(id: &ProcessId, policy: &SandboxPolicy) -> bool {
    sandbox_of(id) == Some(&fingerprint(policy))
}

fn sandbox_of(id: &ProcessId) -> Option<&str> {
    let (_, unique) = id.as_str().strip_prefix(PREFIX)?.split_once('-')?;
    unique.split_once('-').map(|(_, sandbox)| sandbox)
}

/// Two versions of us may disagree about it. Then a process counts as one in another sandbox, which permits less.
fn fingerprint(policy: &SandboxPolicy) -> String {
    blake3::hash(format!("{policy:?}").as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use exec_core::sandbox::NetworkPolicy;

    use super::*;

    #[test]
    fn a_process_id_tells_its_number_and_others_have_none() {
        let number = SessionNumber::unused(|_| false);
        assert_eq!(SessionNumber::of(&number.new_process_id(None)), Some(number));
        for other in ["", "exec-", "exec-1234", "exec-999-x", "exec-100000-x", "exec-12a4-x", "make-1234-x"] {
            let id = ProcessId::new(other).expect("short");
            assert_eq!(SessionNumber::of(&id), None, "{other}");
        }
    }

    #[test]
    fn a_process_id_tells_in_which_sandbox_it_was_started() {
        let [narrow, wide] = [NetworkPolicy::Restricted, NetworkPolicy::Enabled].map(SandboxPolicy::read_only);
        let number = SessionNumber(4321);
        let (confined, free) = (number.new_process_id(Some(&narrow)), number.new_process_id(None));
        assert_eq!(SessionNumber::of(&confined), Some(number));
        assert!(is_sandboxed(&confined) && is_in_sandbox(&confined, &narrow) && !is_in_sandbox(&confined, &wide));
        assert!(!is_sandboxed(&free) && !is_in_sandbox(&free, &narrow));
    }

    #[test]
    fn a_number_that_is_taken_is_not_given_again() {
        let number = SessionNumber::unused(|number| number.0 != 4321);
        assert_eq!(number, SessionNumber(4321));
    }
}
