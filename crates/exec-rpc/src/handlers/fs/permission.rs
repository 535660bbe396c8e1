//! Whether a call may run under the permission profile that comes with it. Pure.
//!
//! There is no sandbox here. If the profile would not restrict the call, the call runs; otherwise it is refused, because a
//! client relies on what it was granted.

use exec_wire::error::RpcError;
use exec_wire::sandbox::{
    FileSystemPermissions, PermissionProfile, SandboxAccess, SandboxContext, SandboxEntry, SandboxPath, SpecialPath,
};

use crate::reply;

/// What a call does to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
}

/// Refuses a call whose profile would have to be enforced, or is not valid.
pub(crate) fn check(sandbox: Option<&SandboxContext>, access: FileAccess) -> Result<(), RpcError> {
    let Some(context) = sandbox else { return Ok(()) };
    let PermissionProfile::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } =
        &context.permissions
    else {
        return Ok(());
    };
    check_well_formed(context, entries)?;
    let root =
        |access: &[SandboxAccess]| entries.iter().any(|entry| access.contains(&entry.access) && is_root(&entry.path));
    let granted = match access {
        FileAccess::Read => {
            let denies = entries.iter().any(|entry| entry.access == SandboxAccess::Deny);
            root(&[SandboxAccess::Read, SandboxAccess::Write]) && !denies
        }
        FileAccess::Write => {
            let restricts = |entry: &SandboxEntry| entry.access != SandboxAccess::Write && !is_root(&entry.path);
            root(&[SandboxAccess::Write]) && !root(&[SandboxAccess::Deny]) && !entries.iter().any(restricts)
        }
    };
    if granted { Ok(()) } else { Err(reply::file_sandbox_not_enforceable()) }
}

/// What Codex's server checks before it asks whether anything must be enforced.
fn check_well_formed(context: &SandboxContext, entries: &[SandboxEntry]) -> Result<(), RpcError> {
    let has_cwd = context.cwd.is_some() || context.policy_context.as_ref().is_some_and(|policy| policy.cwd.is_some());
    for entry in entries {
        match &entry.path {
            SandboxPath::Special { value: SpecialPath::ProjectRoots { .. } } if !has_cwd => {
                return Err(reply::sandbox_without_cwd());
            }
            SandboxPath::GlobPattern { pattern } if !has_cwd && !pattern.starts_with('/') => {
                return Err(reply::sandbox_without_cwd());
            }
            SandboxPath::Path { path } => {
                path.to_path().map_err(reply::foreign_sandbox_path)?;
            }
            SandboxPath::Special { .. } | SandboxPath::GlobPattern { .. } => {}
        }
    }
    Ok(())
}

fn is_root(path: &SandboxPath) -> bool {
    match path {
        SandboxPath::Special { value } => *value == SpecialPath::Root,
        SandboxPath::Path { path } => path.to_path().is_ok_and(|path| path.as_os_str() == "/"),
        SandboxPath::GlobPattern { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use exec_wire::RawJson;

    use super::*;

    /// What a reading and a writing call are refused with: code and message.
    fn asked(context: &str) -> [Option<(i64, String)>; 2] {
        let text = format!(r#"{{"id":1,"method":"m","params":{context}}}"#);
        let Ok(exec_wire::Incoming::Request(request)) = exec_wire::envelope::decode(&text) else {
            panic!("the test's JSON is good");
        };
        let raw: RawJson<'_> = request.params;
        let context: SandboxContext = raw.decode().expect("the test's context is good");
        [FileAccess::Read, FileAccess::Write]
            .map(|access| check(Some(&context), access).err().map(|error| (error.code, error.message)))
    }

    fn restricted(entries: &str, rest: &str) -> [Option<(i64, String)>; 2] {
        asked(&format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},"network":"restricted"}},"windowsSandboxLevel":"disabled"{rest}}}"#
        ))
    }

    fn special(kind: &str, access: &str) -> String {
        format!(r#"{{"path":{{"type":"special","value":{{"kind":"{kind}"}}}},"access":"{access}"}}"#)
    }

    fn path(path: &str, access: &str) -> String {
        format!(r#"{{"path":{{"type":"path","path":"{path}"}},"access":"{access}"}}"#)
    }

    fn not_enforceable() -> Option<(i64, String)> {
        Some((-32600, "filesystem sandbox cannot be enforced on this executor".to_owned()))
    }

    #[test]
    fn profiles_that_restrict_nothing_are_granted() {
        for profile in [
            r#"{"type":"disabled"}"#,
            r#"{"type":"external","network":"restricted"}"#,
            r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}"#,
        ] {
            let context = format!(r#"{{"permissions":{profile},"windowsSandboxLevel":"disabled"}}"#);
            assert_eq!(asked(&context), [None, None], "{profile}");
        }
        assert_eq!(restricted(&special("root", "write"), ""), [None, None]);
        assert_eq!(check(None, FileAccess::Write), Ok(()));
    }

    #[test]
    fn a_profile_that_reads_everything_may_look_but_not_change() {
        let entries = [special("root", "read"), special("project_roots", "write")].join(",");
        assert_eq!(restricted(&entries, r#","cwd":"file:///w""#), [None, not_enforceable()]);
        assert_eq!(restricted(&path("file:///", "read"), ""), [None, not_enforceable()]);
        let protected = [special("root", "write"), path("file:///w/.git", "read")].join(",");
        assert_eq!(restricted(&protected, ""), [None, not_enforceable()]);
    }

    #[test]
    fn a_deny_or_a_limited_set_grants_nothing() {
        let denied = [special("root", "write"), path("file:///etc/shadow", "none")].join(",");
        assert_eq!(restricted(&denied, ""), [not_enforceable(), not_enforceable()]);
        assert_eq!(restricted("", ""), [not_enforceable(), not_enforceable()]);
        assert_eq!(restricted(&path("file:///w", "write"), ""), [not_enforceable(), not_enforceable()]);
    }

    #[test]
    fn project_roots_need_a_cwd_and_paths_must_be_of_this_machine() {
        let entries = [special("root", "read"), special("project_roots", "write")].join(",");
        let text = "file system sandbox context with dynamic permissions requires cwd";
        let without = Some((-32602, text.to_owned()));
        assert_eq!(restricted(&entries, ""), [without.clone(), without]);
        let policy = r#","policyContext":{"cwd":"file:///w","workspaceRoots":[]}"#;
        assert_eq!(restricted(&entries, policy), [None, not_enforceable()]);
        let text = "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'";
        let foreign = Some((-32600, text.to_owned()));
        assert_eq!(restricted(&path("file:///C:/x", "write"), ""), [foreign.clone(), foreign]);
    }
}
