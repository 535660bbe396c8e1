//! Which environment a request is for, and which a process is in.
//!
//! The environments themselves are known to an [`EnvironmentRegistry`]. Beside it, this remembers which of them have, or may
//! have, processes of ours: those are looked after by the housekeeping, and those of an earlier server that could not be
//! asked yet may still have processes that a client asks for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exec_env::registry::{EnvironmentState, EnvironmentStatus};
use exec_env::{EnvironmentRegistry, Processes, SharedEnvironment};
use exec_wire::environment::{EnvironmentEntry, StatusResult};
use exec_wire::error::RpcError;
use tokio::sync::watch;

use crate::network::NetworkFront;
use crate::reply;

/// An environment and its id. Whoever holds it reaches that environment, even if its id means another by now.
#[derive(Clone)]
pub(crate) struct NamedEnvironment {
    pub(crate) id: Arc<str>,
    pub(crate) environment: SharedEnvironment,
}

impl NamedEnvironment {
    pub(crate) fn processes(&self) -> &dyn Processes {
        self.environment.processes()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.environment, &other.environment)
    }
}

impl std::fmt::Debug for NamedEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NamedEnvironment({})", self.id)
    }
}

/// The environments of a server.
pub(crate) struct Routing {
    registry: Arc<dyn EnvironmentRegistry>,
    state: Mutex<RoutingState>,
    /// How many environments are still to be asked for the processes of an earlier server.
    unasked: watch::Sender<usize>,
}

#[derive(Default)]
struct RoutingState {
    /// Those that were asked for; each has our decider. At most as many as the registry has.
    known: HashMap<Arc<str>, NamedEnvironment>,
    /// Those in which processes were started, or found.
    used: HashMap<Arc<str>, NamedEnvironment>,
    /// Those that may have processes of an earlier server, and why they could not be asked yet.
    unasked: BTreeMap<Arc<str>, String>,
}

impl Routing {
    pub(crate) fn new(registry: Arc<dyn EnvironmentRegistry>) -> Self {
        Self { registry, state: Mutex::default(), unasked: watch::Sender::new(0) }
    }

    pub(crate) fn registry(&self) -> &dyn EnvironmentRegistry {
        &*self.registry
    }

    /// The environment that a request names, or the default.
    pub(crate) fn find(&self, id: Option<&str>, decider: NetworkFront) -> Result<NamedEnvironment, RpcError> {
        let Some(id) = id.map(str::to_owned).or_else(|| self.registry.default_id()) else {
            return Err(reply::no_default_environment(&self.ids()));
        };
        let Some(environment) = self.registry.get(&id) else {
            return Err(reply::unknown_environment(&id, &self.ids()));
        };
        let named = NamedEnvironment { id: id.into(), environment };
        let mut state = self.lock();
        if let Some(known) = state.known.get(&named.id).filter(|known| known.is_same(&named)) {
            return Ok(known.clone());
        }
        named.processes().set_network_decider(Arc::new(decider));
        let registry = &self.registry;
        state.known.retain(|id, _| registry.get(id).is_some());
        state.known.insert(named.id.clone(), named.clone());
        Ok(named)
    }

    fn ids(&self) -> Vec<String> {
        self.registry.list().into_iter().map(|environment| environment.id).collect()
    }

    /// Whether clients must be told which environment something is in.
    pub(crate) fn has_several(&self) -> bool {
        self.registry.count() > 1
    }

    /// The housekeeping looks after this environment from now on.
    pub(crate) fn record_use(&self, environment: &NamedEnvironment) {
        let mut state = self.lock();
        if !state.used.get(&environment.id).is_some_and(|used| used.is_same(environment)) {
            state.used.insert(environment.id.clone(), environment.clone());
        }
    }

    /// The environments in which there may be processes of ours.
    pub(crate) fn used(&self) -> Vec<NamedEnvironment> {
        let mut state = self.lock();
        let registry = &self.registry;
        state.used.retain(|id, _| registry.get(id).is_some());
        state.used.values().cloned().collect()
    }

    /// Not yet asked for the processes of an earlier server.
    pub(crate) fn set_unasked(&self, id: &Arc<str>, why: &str) {
        let mut state = self.lock();
        state.unasked.insert(id.clone(), why.to_owned());
        self.unasked.send_replace(state.unasked.len());
    }

    pub(crate) fn set_asked(&self, id: &str) {
        let mut state = self.lock();
        state.unasked.remove(id);
        self.unasked.send_replace(state.unasked.len());
    }

    /// The environments that may have processes which nobody here knows yet, and why they could not be asked.
    pub(crate) fn unasked(&self) -> Vec<(Arc<str>, String)> {
        self.lock().unasked.iter().map(|(id, why)| (id.clone(), why.clone())).collect()
    }

    /// Waits until every environment was asked.
    pub(crate) async fn all_asked(&self) {
        let mut unasked = self.unasked.subscribe();
        // The sender is ours, so it is there as long as this is.
        let _ = unasked.wait_for(|count| *count == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, RoutingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words, the reason and the time of the wire.
pub(crate) fn status_result(status: Option<EnvironmentStatus>) -> StatusResult {
    let result = |status: &str| StatusResult { status: status.to_owned(), error: None, unreachable_ms: None };
    match status.map(|status| status.state) {
        None => result("unknown"),
        Some(EnvironmentState::Ready) => result("ready"),
        Some(EnvironmentState::Pending) => result("pending"),
        Some(EnvironmentState::Disconnected { since, why }) => {
            StatusResult { error: Some(why), unreachable_ms: Some(since.as_millis() as u64), ..result("disconnected") }
        }
    }
}

pub(crate) fn entry(status: EnvironmentStatus) -> EnvironmentEntry {
    let (environment_id, is_default, place) = (status.id.clone(), status.is_default, status.place.clone());
    let StatusResult { status, error, unreachable_ms } = status_result(Some(status));
    EnvironmentEntry { environment_id, is_default, place, status, error, unreachable_ms }
}

#[cfg(test)]
pub(crate) mod tests {
    use exec_env::{Environment, Files, Http, MachineInfo, Streams};

    use super::*;

    /// An environment that is nowhere, for tests that only need its id.
    struct Nowhere;

    impl Environment for Nowhere {
        fn processes(&self) -> &dyn Processes {
            unreachable!("nobody asks it")
        }

        fn files(&self) -> &dyn Files {
            unreachable!("nobody asks it")
        }

        fn files_for_caller(&self) -> Arc<dyn Files> {
            unreachable!("nobody asks it")
        }

        fn http(&self) -> &dyn Http {
            unreachable!("nobody asks it")
        }

        fn streams(&self) -> &dyn Streams {
            unreachable!("nobody asks it")
        }

        fn info(&self) -> &MachineInfo {
            unreachable!("nobody asks it")
        }
    }

    pub(crate) fn nowhere() -> NamedEnvironment {
        NamedEnvironment { id: "nowhere".into(), environment: Arc::new(Nowhere) }
    }
}
