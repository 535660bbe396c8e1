//! A sandbox context becomes a policy of the domain, and back.

use std::path::PathBuf;

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};

use super::{
    FileSystemPermissions, NetworkPermission, PermissionProfile, SandboxAccess, SandboxContext, SandboxEntry,
    SandboxOverride, SandboxPath, SpecialPath, WindowsSandboxLevel,
};
use crate::path_uri::{ForeignPath, PathUri, RelativePath};

/// A context that means nothing on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSandbox {
    /// A rule is relative to a directory that the context does not name.
    WithoutCwd,
    ForeignPath(ForeignPath),
}

impl From<ForeignPath> for BadSandbox {
    fn from(foreign: ForeignPath) -> Self {
        Self::ForeignPath(foreign)
    }
}

impl SandboxContext {
    /// The policy that the context asks for; `None` if it asks for none, or if another sandbox enforces it.
    pub fn policy(&self) -> Result<Option<SandboxPolicy>, BadSandbox> {
        self.policy_below(None)
    }

    /// The same for a process, whose own directory counts where the context names none.
    pub fn policy_of_process(&self, cwd: &PathUri) -> Result<Option<SandboxPolicy>, BadSandbox> {
        self.policy_below(Some(cwd))
    }

    fn policy_below(&self, process_cwd: Option<&PathUri>) -> Result<Option<SandboxPolicy>, BadSandbox> {
        let PermissionProfile::Managed { file_system, network } = &self.permissions else { return Ok(None) };
        let network = match network {
            NetworkPermission::Restricted => NetworkPolicy::Restricted,
            NetworkPermission::Enabled => NetworkPolicy::Enabled,
        };
        let files = match file_system {
            FileSystemPermissions::Unrestricted => FilePolicy::Unrestricted,
            FileSystemPermissions::Restricted { entries, glob_scan_max_depth } => {
                let mut rules = Vec::new();
                for entry in entries {
                    let access = match entry.access {
                        SandboxAccess::Read => FileAccess::Read,
                        SandboxAccess::Write => FileAccess::Write,
                        SandboxAccess::Deny => FileAccess::Deny,
                    };
                    let targets = self.targets(&entry.path, process_cwd)?;
                    rules.extend(targets.into_iter().map(|target| FileRule { target, access }));
                }
                // A path that exists on no machine of this kind was refused above, whether or not the rest matters.
                if writes_everywhere(&rules) {
                    FilePolicy::Unrestricted
                } else {
                    FilePolicy::Restricted { rules, glob_scan_depth: glob_scan_max_depth.map(usize::from) }
                }
            }
        };
        Ok(Some(SandboxPolicy { files, network }))
    }

    fn targets(&self, path: &SandboxPath, process_cwd: Option<&PathUri>) -> Result<Vec<RuleTarget>, BadSandbox> {
        match path {
            SandboxPath::Path { path } => Ok(vec![RuleTarget::Path(path.to_path()?)]),
            SandboxPath::GlobPattern { pattern } if pattern.starts_with('/') => {
                Ok(vec![RuleTarget::Glob(pattern.clone())])
            }
            SandboxPath::GlobPattern { pattern } => {
                let cwd = self.policy_cwd().or(process_cwd).ok_or(BadSandbox::WithoutCwd)?.to_path()?;
                let absolute = format!("{}/{pattern}", escape_glob(&cwd.to_string_lossy()).trim_end_matches('/'));
                Ok(vec![RuleTarget::Glob(absolute)])
            }
            SandboxPath::Special { value } => match value {
                SpecialPath::Root => Ok(vec![RuleTarget::Path(PathBuf::from("/"))]),
                SpecialPath::Minimal => Ok(vec![RuleTarget::SystemFiles]),
                SpecialPath::SlashTmp => Ok(vec![RuleTarget::Path(PathBuf::from("/tmp"))]),
                // Not `temporaryDirectories`: what a client says must not open a directory that is none here.
                SpecialPath::Tmpdir => Ok(vec![RuleTarget::TemporaryDirectory]),
                SpecialPath::ProjectRoots { subpath } => {
                    if self.policy_cwd().or(process_cwd).is_none() {
                        return Err(BadSandbox::WithoutCwd);
                    }
                    let below = |root: &PathUri| -> Result<RuleTarget, BadSandbox> {
                        let root = root.to_path()?;
                        Ok(RuleTarget::Path(subpath.as_ref().map_or_else(|| root.clone(), |below| root.join(below))))
                    };
                    self.policy_roots().iter().map(below).collect()
                }
                // A kind that only a newer client knows.
                SpecialPath::Unknown { .. } => Ok(Vec::new()),
            },
        }
    }

    /// The directory of relative patterns. A `policyContext` goes before the context's own members.
    fn policy_cwd(&self) -> Option<&PathUri> {
        self.policy_context.as_ref().and_then(|policy| policy.cwd.as_ref()).or(self.cwd.as_ref())
    }

    /// What `project_roots` stands for. A `policyContext` without roots has none, whatever stands beside it.
    fn policy_roots(&self) -> &[PathUri] {
        self.policy_context.as_ref().map_or(&self.workspace_roots, |policy| &policy.workspace_roots)
    }

    /// The context that asks for `policy`.
    pub fn of_policy(policy: &SandboxPolicy) -> Result<Self, RelativePath> {
        let file_system = match &policy.files {
            FilePolicy::Unrestricted => FileSystemPermissions::Unrestricted,
            FilePolicy::Restricted { rules, glob_scan_depth } => FileSystemPermissions::Restricted {
                entries: rules.iter().map(entry).collect::<Result<_, _>>()?,
                glob_scan_max_depth: glob_scan_depth.and_then(std::num::NonZeroUsize::new),
            },
        };
        let network = match policy.network {
            // What else there is to it is said beside the context, in `enforceManagedNetwork`.
            NetworkPolicy::Restricted | NetworkPolicy::ProxyOnly => NetworkPermission::Restricted,
            NetworkPolicy::Enabled => NetworkPermission::Enabled,
        };
        Ok(Self { permissions: PermissionProfile::Managed { file_system, network }, ..Self::unrestricted() })
    }

    /// The context that asks for no sandbox.
    pub fn unrestricted() -> Self {
        Self {
            permissions: PermissionProfile::Disabled,
            sandbox_override: SandboxOverride::NoOverride,
            policy_context: None,
            cwd: None,
            workspace_roots: Vec::new(),
            user_home_dir: None,
            temporary_directories: None,
            windows_sandbox_level: WindowsSandboxLevel::Disabled,
            windows_sandbox_proxy_settings_mode: None,
            use_legacy_landlock: false,
            run_as: None,
        }
    }
}

fn entry(rule: &FileRule) -> Result<SandboxEntry, RelativePath> {
    let path = match &rule.target {
        RuleTarget::Path(path) => SandboxPath::Path { path: PathUri::from_path(path)? },
        RuleTarget::Glob(pattern) => SandboxPath::GlobPattern { pattern: pattern.clone() },
        RuleTarget::SystemFiles => SandboxPath::Special { value: SpecialPath::Minimal },
        RuleTarget::TemporaryDirectory => SandboxPath::Special { value: SpecialPath::Tmpdir },
    };
    let access = match rule.access {
        FileAccess::Read => SandboxAccess::Read,
        FileAccess::Write => SandboxAccess::Write,
        FileAccess::Deny => SandboxAccess::Deny,
    };
    Ok(SandboxEntry { path, access, missing_path_behavior: None })
}

/// Whether `/` may be written and no rule takes anything away.
fn writes_everywhere(rules: &[FileRule]) -> bool {
    let root = |rule: &FileRule| matches!(&rule.target, RuleTarget::Path(path) if path.as_os_str() == "/");
    rules.iter().any(|rule| root(rule) && rule.access == FileAccess::Write)
        && rules.iter().all(|rule| rule.access == FileAccess::Write || (root(rule) && rule.access == FileAccess::Read))
}

/// The text as a pattern that matches only itself.
fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "*?[]{}\\!".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn context(json: &str) -> SandboxContext {
        serde_json::from_str(json).expect("the test's context is good")
    }

    const WORKSPACE_WRITE: &str = r#"{"permissions":{"type":"managed","network":"restricted","file_system":{"type":"restricted","entries":[
        {"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
        {"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},
        {"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},
        {"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},
        {"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}]}},
        "windowsSandboxLevel":"disabled","cwd":"file:///w/sub","workspaceRoots":["file:///w","file:///v"]}"#;

    #[test]
    fn codexs_preset_becomes_rules_for_each_root() {
        let policy = context(WORKSPACE_WRITE).policy().expect("it is good").expect("it asks for a sandbox");
        let rule = |path: &str, access| FileRule { target: RuleTarget::Path(path.into()), access };
        let rules = vec![
            rule("/", FileAccess::Read),
            rule("/w", FileAccess::Write),
            rule("/v", FileAccess::Write),
            rule("/tmp", FileAccess::Write),
            FileRule { target: RuleTarget::TemporaryDirectory, access: FileAccess::Write },
            rule("/w/.git", FileAccess::Read),
            rule("/v/.git", FileAccess::Read),
        ];
        let files = FilePolicy::Restricted { rules, glob_scan_depth: None };
        assert_eq!(policy, SandboxPolicy { files, network: NetworkPolicy::Restricted });
    }

    /// The rules for the preset with these members beside the permissions.
    fn rules_of_preset(members: &str, process_cwd: Option<&str>) -> Result<Vec<FileRule>, BadSandbox> {
        let own = r#""cwd":"file:///w/sub","workspaceRoots":["file:///w","file:///v"]"#;
        let json = WORKSPACE_WRITE.replace(own, members);
        let cwd = process_cwd.map(|cwd| PathUri::from_path(Path::new(cwd)).expect("it is absolute"));
        let policy = match &cwd {
            None => context(&json).policy(),
            Some(cwd) => context(&json).policy_of_process(cwd),
        };
        let policy = policy?.expect("it asks for a sandbox");
        let FilePolicy::Restricted { rules, .. } = policy.files else { panic!("it restricts files") };
        Ok(rules)
    }

    fn writes(rules: &[FileRule], path: &str) -> bool {
        rules.contains(&FileRule { target: RuleTarget::Path(path.into()), access: FileAccess::Write })
    }

    #[test]
    fn a_policy_context_goes_before_the_members_beside_it() {
        let beside = r#""cwd":"file:///w","workspaceRoots":["file:///w"]"#;
        let both = format!(r#"{beside},"policyContext":{{"cwd":"file:///p","workspaceRoots":["file:///p"]}}"#);
        let rules = rules_of_preset(&both, None).expect("it is good");
        assert!(writes(&rules, "/p") && !writes(&rules, "/w"));

        let without_roots = format!(r#"{beside},"policyContext":{{"cwd":"file:///p"}}"#);
        let rules = rules_of_preset(&without_roots, None).expect("it is good");
        assert!(!writes(&rules, "/p") && !writes(&rules, "/w"));
    }

    #[test]
    fn only_a_process_has_a_directory_of_its_own_for_a_context_without_one() {
        let roots = r#""workspaceRoots":["file:///w"]"#;
        assert_eq!(rules_of_preset(roots, None), Err(BadSandbox::WithoutCwd));
        assert!(writes(&rules_of_preset(roots, Some("/elsewhere")).expect("it is good"), "/w"));
    }

    #[test]
    fn temporary_directories_of_a_client_open_nothing() {
        let members = r#""cwd":"file:///w","workspaceRoots":[],"temporaryDirectories":["file:///t"]"#;
        let rules = rules_of_preset(members, None).expect("it is good");
        let own = FileRule { target: RuleTarget::TemporaryDirectory, access: FileAccess::Write };
        assert!(!writes(&rules, "/t") && rules.contains(&own));
    }

    #[test]
    fn a_policy_that_a_client_sends_is_the_policy_that_the_server_reads() {
        let policy = context(WORKSPACE_WRITE).policy().expect("it is good").expect("it asks for a sandbox");
        let sent = serde_json::to_string(&SandboxContext::of_policy(&policy).expect("its paths are absolute"));
        let read = context(&sent.expect("it can be written")).policy();
        assert_eq!(read, Ok(Some(policy)));
    }

    #[test]
    fn a_relative_glob_is_below_the_working_directory() {
        let json = WORKSPACE_WRITE
            .replace(
                r#"{"type":"special","value":{"kind":"slash_tmp"}},"access":"write""#,
                r#"{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny""#,
            )
            .replace("/w/sub", "/w/s*b");
        let policy = context(&json).policy().expect("it is good").expect("it asks for a sandbox");
        let FilePolicy::Restricted { rules, .. } = policy.files else { panic!("it restricts files") };
        assert!(
            rules
                .contains(&FileRule { target: RuleTarget::Glob("/w/s\\*b/**/*.env".into()), access: FileAccess::Deny })
        );
    }
}
