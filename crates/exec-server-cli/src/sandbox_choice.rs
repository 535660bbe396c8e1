//! The sandbox that the arguments of a command name, as a policy for a working directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use exec_core::SandboxPolicy;
use exec_core::sandbox::NetworkPolicy;
use exec_wire::PathUri;
use exec_wire::sandbox::{BadSandbox, SandboxContext};

use crate::args::{SandboxArgs, SandboxMode};

/// A sandbox. Files are read when it is made, so that nobody who is confined by it can change it.
#[derive(Debug, Clone)]
pub(crate) enum SandboxChoice {
    ReadOnly(NetworkPolicy),
    WorkspaceWrite {
        /// Beside the working directory; relative ones begin there.
        writable: Vec<PathBuf>,
        network: NetworkPolicy,
    },
    /// A policy as Codex writes it: a permission profile, or a context that has one.
    File {
        path: PathBuf,
        json: serde_json::Value,
    },
}

impl SandboxChoice {
    /// `None` if the arguments name none.
    pub(crate) fn load(args: &SandboxArgs) -> anyhow::Result<Option<Self>> {
        let network = if args.network { NetworkPolicy::Enabled } else { NetworkPolicy::Restricted };
        if let Some(path) = &args.policy {
            let named = || format!("policy {}", path.display());
            let text = std::fs::read(path).with_context(named)?;
            let json = serde_json::from_slice(&text).with_context(named)?;
            return Ok(Some(Self::File { path: path.clone(), json }));
        }
        Ok(match args.sandbox {
            None => None,
            Some(SandboxMode::ReadOnly) if !args.writable.is_empty() => {
                bail!("--writable goes with --sandbox workspace-write: with read-only nothing is")
            }
            Some(SandboxMode::ReadOnly) => Some(Self::ReadOnly(network)),
            Some(SandboxMode::WorkspaceWrite) => {
                Some(Self::WorkspaceWrite { writable: args.writable.clone(), network })
            }
        })
    }

    /// The policy of a program that starts in `cwd`; `None` if the file says that nothing confines it.
    pub(crate) fn policy(&self, cwd: &Path) -> anyhow::Result<Option<SandboxPolicy>> {
        match self {
            Self::ReadOnly(network) => Ok(Some(SandboxPolicy::read_only(*network))),
            Self::WorkspaceWrite { writable, network } => {
                let more = writable.iter().map(|root| cwd.join(root));
                let roots: Vec<PathBuf> = std::iter::once(cwd.to_owned()).chain(more).collect();
                Ok(Some(SandboxPolicy::workspace_write(&roots, *network)))
            }
            Self::File { path, json } => {
                policy_of_codex(json.clone(), cwd).with_context(|| format!("policy {}", path.display()))
            }
        }
    }

    /// In words, for people and models.
    pub(crate) fn words(&self) -> String {
        let network = |network: &NetworkPolicy| match network {
            NetworkPolicy::Enabled => "with network",
            NetworkPolicy::Restricted | NetworkPolicy::ProxyOnly => "without network",
        };
        match self {
            Self::ReadOnly(policy) => format!("all files can be read, none written, {}", network(policy)),
            Self::WorkspaceWrite { writable, network: policy } => {
                let more: String = writable.iter().map(|root| format!(", {}", root.display())).collect();
                format!(
                    "all files can be read; written only those in the project's directory (not .git){more}, and /tmp; {}",
                    network(policy)
                )
            }
            Self::File { path, .. } => format!("as {} says", path.display()),
        }
    }
}

/// What the profile calls project roots is the working directory, unless the file says otherwise.
fn policy_of_codex(mut json: serde_json::Value, cwd: &Path) -> anyhow::Result<Option<SandboxPolicy>> {
    if json.get("permissions").is_none() {
        json = serde_json::json!({ "permissions": json });
    }
    let members = json.as_object_mut().context("it is not a JSON object")?;
    let here = serde_json::to_value(PathUri::from_path(cwd)?)?;
    members.entry("windowsSandboxLevel").or_insert_with(|| "disabled".into());
    members.entry("cwd").or_insert_with(|| here.clone());
    members.entry("workspaceRoots").or_insert_with(|| [here].into_iter().collect());
    let context: SandboxContext = serde_json::from_value(json)?;
    context.policy().map_err(|bad| match bad {
        BadSandbox::WithoutCwd => anyhow::anyhow!("it needs a cwd"),
        BadSandbox::ForeignPath(foreign) => anyhow::anyhow!("{foreign}"),
    })
}
