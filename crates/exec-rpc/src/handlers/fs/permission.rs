//! The files that a call may reach under the permission profile that comes with it.
//!
//! A profile that restricts no files leaves them as they are and costs nothing. Any other becomes a view on which every
//! verb, and every handle that is opened through it, is bound by it.

use std::sync::Arc;

use exec_core::sandbox::{FilePolicy, SandboxPolicy};
use exec_env::Files;
use exec_wire::error::RpcError;
use exec_wire::sandbox::SandboxContext;

use crate::reply;

/// Also returns whether the profile restricts them.
pub(crate) fn files_under(
    files: &Arc<dyn Files>,
    sandbox: Option<&SandboxContext>,
) -> Result<(Arc<dyn Files>, bool), RpcError> {
    Ok(match policy(sandbox)? {
        Some(policy) => (files.under_policy(Arc::new(policy)), true),
        None => (Arc::clone(files), false),
    })
}

/// What the profile restricts, if it restricts files. One that means nothing on this machine is refused.
fn policy(sandbox: Option<&SandboxContext>) -> Result<Option<SandboxPolicy>, RpcError> {
    let policy = sandbox.map(SandboxContext::policy).transpose().map_err(reply::bad_sandbox)?.flatten();
    Ok(policy.filter(|policy| policy.files != FilePolicy::Unrestricted))
}

#[cfg(test)]
mod tests {
    use exec_wire::RawJson;

    use super::*;

    /// Whether a call is bound by the profile, or what it is refused with: code and message.
    fn asked(context: &str) -> Result<bool, (i64, String)> {
        let text = format!(r#"{{"id":1,"method":"m","params":{context}}}"#);
        let Ok(exec_wire::Incoming::Request(request)) = exec_wire::envelope::decode(&text) else {
            panic!("the test's JSON is good");
        };
        let raw: RawJson<'_> = request.params;
        let context: SandboxContext = raw.decode().expect("the test's context is good");
        policy(Some(&context)).map(|policy| policy.is_some()).map_err(|error| (error.code, error.message))
    }

    fn restricted(entries: &str, rest: &str) -> Result<bool, (i64, String)> {
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

    #[test]
    fn profiles_that_restrict_no_files_bind_nothing() {
        for profile in [
            r#"{"type":"disabled"}"#,
            r#"{"type":"external","network":"restricted"}"#,
            r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}"#,
        ] {
            let context = format!(r#"{{"permissions":{profile},"windowsSandboxLevel":"disabled"}}"#);
            assert_eq!(asked(&context), Ok(false), "{profile}");
        }
        assert_eq!(restricted(&special("root", "write"), ""), Ok(false));
        assert_eq!(policy(None), Ok(None));
    }

    #[test]
    fn any_other_profile_binds_the_call() {
        let protected = [special("root", "write"), path("file:///w/.git", "read")].join(",");
        for entries in ["", &special("root", "read"), &path("file:///w", "write"), &protected] {
            assert_eq!(restricted(entries, ""), Ok(true), "{entries}");
        }
    }

    #[test]
    fn project_roots_need_a_cwd_and_paths_must_be_of_this_machine() {
        let entries = [special("root", "read"), special("project_roots", "write")].join(",");
        let text = "file system sandbox context with dynamic permissions requires cwd";
        assert_eq!(restricted(&entries, ""), Err((-32602, text.to_owned())));
        let policy = r#","policyContext":{"cwd":"file:///w","workspaceRoots":[]}"#;
        assert_eq!(restricted(&entries, policy), Ok(true));
        let text = "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'";
        assert_eq!(restricted(&path("file:///C:/x", "write"), ""), Err((-32600, text.to_owned())));
    }
}
