//! Several environments, each known by its id: what a front serves when it serves more than one machine.
//!
//! A front asks for an environment by the id that a request names, or for the default. Getting one never waits: an
//! environment that is far away connects when it is first used, and fails its own calls while it cannot be reached. Where
//! they are, and how they are reached, is known to whoever implements this.

use std::sync::Arc;
use std::time::Duration;

use crate::process::Unreachable;
use crate::{BoxFuture, MachineInfo, SharedEnvironment};

/// The id of the machine that a server itself runs on.
pub const LOCAL: &str = "local";

/// The environments that somebody serves.
pub trait EnvironmentRegistry: Send + Sync + 'static {
    /// The environment that is meant where none is named; `None` if every request must name one.
    fn default_id(&self) -> Option<String>;

    /// The environment with this id. An id means the same environment for as long as it is listed.
    fn get(&self, id: &str) -> Option<SharedEnvironment>;

    /// How many there are.
    fn count(&self) -> usize;

    /// All of them, in a stable order.
    fn list(&self) -> Vec<EnvironmentStatus>;

    /// Whether one can be reached, as far as it is known; asks nobody. `None` if there is none of that id.
    fn status(&self, id: &str) -> Option<EnvironmentStatus> {
        self.list().into_iter().find(|environment| environment.id == id)
    }

    /// What the machine is. Connects if it must. `None` if there is none of that id.
    fn info<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Result<MachineInfo, Unreachable>>>;

    /// Adds an environment, or puts it in the place of the one with that id. Does not connect.
    fn add(&self, id: &str, place: NewEnvironment) -> Result<(), AddEnvironmentError>;

    /// Takes an environment away. What runs there goes on; nobody reaches it through here any more.
    fn remove(&self, id: &str) -> Result<(), RemoveEnvironmentError>;
}

/// A server to be added as an environment.
#[derive(Clone, PartialEq, Eq)]
pub struct NewEnvironment {
    /// `ws://`, `wss://`.
    pub url: String,
    /// Sent to that server, and shown to nobody.
    pub bearer_token: Option<String>,
    /// How long connecting may take; as usual if `None`.
    pub connect_timeout: Option<Duration>,
}

impl std::fmt::Debug for NewEnvironment {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewEnvironment").field("url", &self.url).finish_non_exhaustive()
    }
}

/// One environment, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentStatus {
    /// Its id.
    pub id: String,
    /// Whether it is the default.
    pub is_default: bool,
    /// Where it is, for people; never a secret.
    pub place: String,
    /// Whether it can be reached.
    pub state: EnvironmentState,
    /// Whether an earlier server with the same state directory has used it, so that it may have processes of that one.
    pub was_used: bool,
}

/// Whether an environment can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentState {
    /// Calls are answered.
    Ready,
    /// Nobody has asked it for anything yet, or it is being connected to for the first time.
    Pending,
    /// It could be reached, or should have been, and cannot.
    Disconnected {
        /// For how long.
        since: Duration,
        /// What happened, for people.
        why: String,
    },
}

/// Why an environment was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields of variants: the message beside them says what they are")]
pub enum AddEnvironmentError {
    /// The id, the URL or the token is not one that may be used; the message says which and why.
    #[error("{why}")]
    Invalid { why: String },
    /// There are too many.
    #[error("there are {limit} environments already: remove some")]
    Full { limit: usize },
    /// Whoever serves these never has others.
    #[error("this server has one environment and takes no others: start it with --environments")]
    Fixed,
}

/// Why an environment was not taken away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields of variants: the message beside them says what they are")]
pub enum RemoveEnvironmentError {
    /// There is none of that id.
    #[error("there is no environment `{id}`")]
    Unknown { id: String },
    /// It is the default, or the machine of the server itself.
    #[error("environment `{id}` stays: it is {what}")]
    Needed { id: String, what: &'static str },
}

/// One environment, as the only one and the default.
pub struct OnlyEnvironment {
    id: String,
    environment: SharedEnvironment,
}

impl OnlyEnvironment {
    /// Under the id [`LOCAL`].
    pub fn new(environment: SharedEnvironment) -> Arc<Self> {
        Arc::new(Self { id: LOCAL.to_owned(), environment })
    }
}

impl EnvironmentRegistry for OnlyEnvironment {
    fn default_id(&self) -> Option<String> {
        Some(self.id.clone())
    }

    fn get(&self, id: &str) -> Option<SharedEnvironment> {
        (id == self.id).then(|| Arc::clone(&self.environment))
    }

    fn count(&self) -> usize {
        1
    }

    fn list(&self) -> Vec<EnvironmentStatus> {
        vec![EnvironmentStatus {
            id: self.id.clone(),
            is_default: true,
            place: "this machine".to_owned(),
            state: EnvironmentState::Ready,
            was_used: true,
        }]
    }

    fn info<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Result<MachineInfo, Unreachable>>> {
        Box::pin(async move { self.get(id).map(|environment| Ok(environment.info().clone())) })
    }

    fn add(&self, _id: &str, _place: NewEnvironment) -> Result<(), AddEnvironmentError> {
        Err(AddEnvironmentError::Fixed)
    }

    fn remove(&self, id: &str) -> Result<(), RemoveEnvironmentError> {
        match id == self.id {
            true => Err(RemoveEnvironmentError::Needed { id: id.to_owned(), what: "the only one" }),
            false => Err(RemoveEnvironmentError::Unknown { id: id.to_owned() }),
        }
    }
}
