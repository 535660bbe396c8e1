//! Who decides what the proxies of processes leave open, and who hears of every decision.

use exec_core::ProcessId;
use exec_core::network::{NetworkAnswer, NetworkDecision, NetworkRequest};

use crate::BoxFuture;

/// Decides about the requests of processes that no rule of their proxy allows, and hears of all decisions, its own and
/// those of the rules. An environment has at most one: whoever owns it.
pub trait NetworkDecider: Send + Sync {
    /// Whether the process may reach that. Asked for every request anew; what comes too late counts as no.
    fn decide<'a>(&'a self, process: &'a ProcessId, request: NetworkRequest) -> BoxFuture<'a, NetworkAnswer>;

    /// What became of a request. Must not wait.
    fn decided(&self, process: &ProcessId, decision: NetworkDecision);
}
