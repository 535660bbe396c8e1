//! Sandbox policies and permission profiles as policies of the domain.
//!
//! A command without either is confined as Codex confines it in a fresh home: it reads everything, writes nothing and has no
//! network. Where the network is out of reach, a variable says so, as Codex's does; programs look at it.

use std::path::{Path, PathBuf};

use exec_core::SandboxPolicy;
use exec_core::sandbox::{FilePolicy, NetworkPolicy, RuleTarget};
use exec_wire::RpcError;

use crate::reply;
use crate::shapes::{NetworkAccess, SandboxPolicyShape};

/// Set to `1` for a command that shall have no network, also where somebody else enforces that.
pub(crate) const NETWORK_DISABLED: &str = "CODEX_SANDBOX_NETWORK_DISABLED";

/// What confines a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confinement {
    /// What we enforce; nothing if `None`.
    pub(crate) policy: Option<SandboxPolicy>,
    pub(crate) network: bool,
}

impl Confinement {
    pub(crate) fn none() -> Self {
        Self { policy: None, network: true }
    }

    fn read_only(network: bool) -> Self {
        Self { policy: Some(SandboxPolicy::read_only(network_policy(network))), network }
    }

    fn workspace_write(roots: &[PathBuf], network: bool) -> Self {
        Self { policy: Some(SandboxPolicy::workspace_write(roots, network_policy(network))), network }
    }

    /// `server_cwd` is the workspace of a policy, `command_cwd` that of a profile: Codex's choice.
    pub(crate) fn choose(
        policy: Option<&SandboxPolicyShape>,
        profile: Option<&str>,
        server_cwd: &Path,
        command_cwd: &Path,
    ) -> Result<Self, RpcError> {
        match (policy, profile) {
            (Some(policy), _) => Ok(Self::of_policy(policy, server_cwd)),
            (None, Some(profile)) => Self::of_profile(profile, command_cwd),
            (None, None) => Ok(Self::read_only(false)),
        }
    }

    fn of_policy(policy: &SandboxPolicyShape, server_cwd: &Path) -> Self {
        match policy {
            SandboxPolicyShape::DangerFullAccess => Self::none(),
            SandboxPolicyShape::ReadOnly { network_access, .. } => Self::read_only(*network_access),
            SandboxPolicyShape::ExternalSandbox { network_access } => {
                Self { policy: None, network: *network_access == NetworkAccess::Enabled }
            }
            SandboxPolicyShape::WorkspaceWrite {
                writable_roots,
                network_access,
                exclude_tmpdir_env_var,
                exclude_slash_tmp,
                ..
            } => {
                let given = writable_roots.iter().map(|root| root.as_path().to_owned());
                let roots: Vec<_> = std::iter::once(server_cwd.to_owned()).chain(given).collect();
                let mut confinement = Self::workspace_write(&roots, *network_access);
                confinement.exclude(|target| match target {
                    RuleTarget::TemporaryDirectory => *exclude_tmpdir_env_var,
                    RuleTarget::Path(path) => *exclude_slash_tmp && path == Path::new("/tmp") && !roots.contains(path),
                    RuleTarget::Glob(_) | RuleTarget::SystemFiles => false,
                });
                confinement
            }
        }
    }

    /// Removes rules.
    fn exclude(&mut self, excluded: impl Fn(&RuleTarget) -> bool) {
        if let Some(SandboxPolicy { files: FilePolicy::Restricted { rules, .. }, .. }) = &mut self.policy {
            rules.retain(|rule| !excluded(&rule.target));
        }
    }

    /// The built-in profiles. Others would be those of a configuration, which this server has not.
    fn of_profile(profile: &str, command_cwd: &Path) -> Result<Self, RpcError> {
        let why = match profile {
            ":read-only" => return Ok(Self::read_only(false)),
            ":workspace" => return Ok(Self::workspace_write(&[command_cwd.to_owned()], false)),
            ":danger-full-access" => return Ok(Self::none()),
            unknown if unknown.starts_with(':') => {
                format!("default_permissions refers to unknown built-in profile `{unknown}`")
            }
            _ => "default_permissions requires a `[permissions]` table".to_owned(),
        };
        Err(reply::refused(format!("invalid permission profile: {why}")))
    }
}

fn network_policy(network: bool) -> NetworkPolicy {
    match network {
        true => NetworkPolicy::Enabled,
        false => NetworkPolicy::Restricted,
    }
}

#[cfg(test)]
mod tests {
    use exec_core::sandbox::FileAccess;

    use super::*;

    fn writable(policy: &str) -> Vec<RuleTarget> {
        let policy: SandboxPolicyShape = serde_json::from_str(policy).expect("a policy");
        let confinement = Confinement::of_policy(&policy, Path::new("/srv"));
        let Some(SandboxPolicy { files: FilePolicy::Restricted { rules, .. }, .. }) = confinement.policy else {
            panic!("it is confined")
        };
        rules.into_iter().filter(|rule| rule.access == FileAccess::Write).map(|rule| rule.target).collect()
    }

    #[test]
    fn the_workspace_of_a_policy_is_the_servers_folder_and_the_given_roots() {
        let path = |path: &str| RuleTarget::Path(path.into());
        assert_eq!(
            writable(r#"{"type":"workspaceWrite","writableRoots":["/w/../x"]}"#),
            [path("/tmp"), RuleTarget::TemporaryDirectory, path("/srv"), path("/x")]
        );
        assert_eq!(
            writable(r#"{"type":"workspaceWrite","excludeSlashTmp":true,"excludeTmpdirEnvVar":true}"#),
            [path("/srv")]
        );
    }

    #[test]
    fn temporary_files_that_are_a_root_stay_writable_though_they_are_excluded() {
        let policy = r#"{"type":"workspaceWrite","writableRoots":["/tmp"],"excludeSlashTmp":true}"#;
        assert!(writable(policy).contains(&RuleTarget::Path("/tmp".into())));
    }
}
