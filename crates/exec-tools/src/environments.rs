//! Which environment a call means: an id, or the default.
//!
//! A [`TargetEnvironment`] is an environment with what a command gets there if its caller says nothing: the directory and the
//! variables. Deliberately absent: how an environment is reached; whoever implements [`Environments`] knows that.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use exec_core::environ::Environ;
use exec_core::sandbox::SandboxPolicy;
use exec_env::{BoxFuture, EnvironmentRegistry, Files, SharedEnvironment};

/// Environments by id, one of which is the default.
pub trait Environments: Send + Sync + 'static {
    /// The environment of that id, or the default if `None`. May have to connect first.
    fn find<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>>;

    /// All ids, the default first.
    fn ids(&self) -> Vec<String>;

    /// The id of the default, if there is one.
    fn default_id(&self) -> Option<String>;
}

/// An environment, and what commands get there by default.
#[derive(Clone)]
pub struct TargetEnvironment {
    /// Its id.
    pub id: String,
    /// The environment itself.
    pub environment: SharedEnvironment,
    /// Where commands run that name no directory, and where relative ones begin. `None`: as the environment says.
    pub workdir: Option<PathBuf>,
    /// The variables of commands, before the caller's own.
    pub environ: Environ,
    /// What commands and file tools may reach there; everything that the account may, if `None`.
    pub sandbox: Option<SandboxPolicy>,
}

/// There is no such environment, or nobody answers for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum EnvironmentUnavailable {
    /// Nobody has configured it.
    #[error("there is no environment {id:?}: use one of {}", known.join(", "))]
    Unknown { id: String, known: Vec<String> },
    /// None was named, and none is the default.
    #[error("no environment is the default: name one as environment_id: {}", known.join(", "))]
    NoDefault { known: Vec<String> },
    /// It is configured, but cannot be used now.
    #[error("environment {id:?} cannot be used now: {why}")]
    Unreachable { id: String, why: String },
}

/// One environment, which is the default.
#[derive(Clone)]
pub struct SingleEnvironment(pub TargetEnvironment);

/// The environments of a registry.
pub struct RegisteredEnvironments {
    registry: Arc<dyn EnvironmentRegistry>,
    /// What commands get in those where it is not what their server has.
    defaults: HashMap<String, CommandDefaults>,
}

/// What commands get if their caller says nothing.
#[derive(Debug, Clone)]
pub struct CommandDefaults {
    /// See [`TargetEnvironment::workdir`].
    pub workdir: Option<PathBuf>,
    /// See [`TargetEnvironment::environ`].
    pub environ: Environ,
}

impl TargetEnvironment {
    /// `environment` under `id`; commands get the directory and the variables of its server.
    pub fn new(id: impl Into<String>, environment: SharedEnvironment) -> Self {
        let nothing: [(&str, &str); 0] = [];
        Self { id: id.into(), environment, workdir: None, environ: Environ::inherit_and(nothing), sandbox: None }
    }

    /// Its files, as far as its sandbox lets a caller reach them.
    pub fn files(&self) -> Arc<dyn Files> {
        let files = self.environment.files_for_caller();
        match &self.sandbox {
            Some(policy) => files.under_policy(Arc::new(policy.clone())),
            None => files,
        }
    }

    /// `path` as an absolute one: relative ones begin at the environment's directory.
    pub fn resolve(&self, path: Option<&str>) -> PathBuf {
        let info = self.environment.info();
        let base = self.workdir.as_ref().or(info.cwd.as_ref()).or(info.home.as_ref());
        let base = base.cloned().unwrap_or_else(|| PathBuf::from("/"));
        match path {
            Some(path) => base.join(path),
            None => base,
        }
    }
}

impl Environments for SingleEnvironment {
    fn find<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>> {
        let found = match id {
            Some(id) if id != self.0.id => {
                Err(EnvironmentUnavailable::Unknown { id: id.to_owned(), known: self.ids() })
            }
            _ => Ok(self.0.clone()),
        };
        Box::pin(std::future::ready(found))
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.clone()]
    }

    fn default_id(&self) -> Option<String> {
        Some(self.0.id.clone())
    }
}

impl RegisteredEnvironments {
    /// Those of `registry`; commands get the directory and the variables of their server, but for those in `defaults`.
    pub fn new(registry: Arc<dyn EnvironmentRegistry>, defaults: HashMap<String, CommandDefaults>) -> Self {
        Self { registry, defaults }
    }

    async fn target(&self, id: Option<&str>) -> Result<TargetEnvironment, EnvironmentUnavailable> {
        let Some(id) = id.map(str::to_owned).or_else(|| self.registry.default_id()) else {
            return Err(EnvironmentUnavailable::NoDefault { known: self.ids() });
        };
        let Some(environment) = self.registry.get(&id) else {
            return Err(EnvironmentUnavailable::Unknown { id, known: self.ids() });
        };
        // Directories and shells are asked for next, so the machine must be known.
        if let Some(Err(unreachable)) = self.registry.info(&id).await {
            return Err(EnvironmentUnavailable::Unreachable { id, why: unreachable.why });
        }
        let target = TargetEnvironment::new(id, environment);
        Ok(match self.defaults.get(&target.id).cloned() {
            Some(CommandDefaults { workdir, environ }) => TargetEnvironment { workdir, environ, ..target },
            None => target,
        })
    }
}

impl Environments for RegisteredEnvironments {
    fn find<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<TargetEnvironment, EnvironmentUnavailable>> {
        Box::pin(self.target(id))
    }

    fn ids(&self) -> Vec<String> {
        let mut listed = self.registry.list();
        // The sort is stable, so the others keep their order.
        listed.sort_by_key(|environment| !environment.is_default);
        listed.into_iter().map(|environment| environment.id).collect()
    }

    fn default_id(&self) -> Option<String> {
        self.registry.default_id()
    }
}
