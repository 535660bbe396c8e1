//! Which variables a child gets.
//!
//! The child's environment is exactly the computed map (on a terminal, with `SHELL` if that has none). The steps and
//! the names are those of Codex's exec-server, so that a policy means the same here and there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::command::{BadCommand, CommandField, no_nul};

pub type Variables = BTreeMap<OsString, OsString>;

/// What the child's environment is made of: a policy over the machine's own variables, and the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environ {
    /// What is inherited from the machine; nothing without a policy.
    pub policy: Option<EnvPolicy>,
    /// The caller's own. They are never filtered, and override everything else.
    pub vars: Variables,
}

/// What is inherited from the environment of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvPolicy {
    pub inherit: Inherit,
    /// Keep names that look like secrets.
    pub ignore_default_excludes: bool,
    /// Names to drop, as wildcards.
    pub exclude: Vec<String>,
    /// Variables to set after the drops.
    pub set: Variables,
    /// If not empty: keep only these, as wildcards.
    pub include_only: Vec<String>,
}

/// How much of the machine's environment a policy begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherit {
    All,
    /// The few names every program expects.
    Core,
    None,
}

const CORE: [&str; 11] =
    ["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"];
const SECRET_LOOKING: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];
/// Credentials of the server itself and of agents' servers that run it, which no child gets, even if the caller sets them.
const NEVER: [&str; 6] = [
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
];

impl Environ {
    /// Exactly these variables and nothing else.
    pub fn exactly(vars: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>) -> Self {
        Self { policy: None, vars: vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The machine's environment, overridden by these.
    pub fn inherit_and(vars: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>) -> Self {
        Self { policy: Some(EnvPolicy::everything()), ..Self::exactly(vars) }
    }

    /// The child's environment, given the machine's.
    pub fn resolve(&self, machine: impl IntoIterator<Item = (OsString, OsString)>) -> Variables {
        let mut vars = match &self.policy {
            Some(policy) => policy.apply(machine),
            None => Variables::new(),
        };
        vars.extend(self.vars.iter().map(|(name, value)| (name.clone(), value.clone())));
        vars.retain(|name, _| !NEVER.iter().any(|never| name.as_bytes().eq_ignore_ascii_case(never.as_bytes())));
        vars
    }

    /// Names are not checked further: environments have entries that begin with `=`, and a client that passes on its
    /// own must not fail because of them.
    pub(crate) fn check(&self) -> Result<(), BadCommand> {
        for (name, value) in self.given() {
            no_nul(name.as_bytes(), CommandField::Environment)?;
            no_nul(value.as_bytes(), CommandField::Environment)?;
        }
        Ok(())
    }

    /// What the caller's variables take. Those of the machine fit, because it started us with them.
    pub(crate) fn bytes(&self) -> usize {
        self.given().map(|(name, value)| name.len() + value.len() + 2).sum()
    }

    fn given(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.policy.iter().flat_map(|policy| &policy.set).chain(&self.vars)
    }
}

impl EnvPolicy {
    pub fn everything() -> Self {
        Self {
            inherit: Inherit::All,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: Variables::new(),
            include_only: Vec::new(),
        }
    }

    fn apply(&self, machine: impl IntoIterator<Item = (OsString, OsString)>) -> Variables {
        let mut vars: Variables = match self.inherit {
            Inherit::All => machine.into_iter().collect(),
            Inherit::Core => machine.into_iter().filter(|(name, _)| matches_any(&CORE, name)).collect(),
            Inherit::None => Variables::new(),
        };
        if !self.ignore_default_excludes {
            vars.retain(|name, _| !matches_any(&SECRET_LOOKING, name));
        }
        vars.retain(|name, _| !matches_any(&self.exclude, name));
        vars.extend(self.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        if !self.include_only.is_empty() {
            vars.retain(|name, _| matches_any(&self.include_only, name));
        }
        vars
    }
}

fn matches_any(patterns: &[impl AsRef<str>], name: &OsStr) -> bool {
    patterns.iter().any(|pattern| wildcard(pattern.as_ref().as_bytes(), name.as_bytes()))
}

/// Case-insensitive match of `*` and `?`. Linear in practice: on a mismatch only the last star moves on.
fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted.eq_ignore_ascii_case(&text[from]) => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, tried)) = star else {
                    return false;
                };
                star = Some((star_at, tried + 1));
                at = star_at + 1;
                from = tried + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<(OsString, OsString)> {
        [
            ("PATH", "/bin"),
            ("HOME", "/root"),
            ("MY_API_KEY", "k"),
            ("Github_Token", "t"),
            ("EDITOR", "vi"),
            ("lang", "C"),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
    }

    fn names(environ: &Environ) -> Vec<String> {
        environ.resolve(machine()).into_keys().map(|name| name.into_string().expect("ascii")).collect()
    }

    fn policy(change: impl FnOnce(&mut EnvPolicy)) -> Environ {
        let mut policy = EnvPolicy::everything();
        change(&mut policy);
        Environ { policy: Some(policy), vars: Variables::new() }
    }

    #[test]
    fn without_a_policy_nothing_is_inherited() {
        assert_eq!(names(&Environ::exactly([("A", "1")])), ["A"]);
    }

    #[test]
    fn core_is_matched_whatever_the_case() {
        assert_eq!(names(&policy(|policy| policy.inherit = Inherit::Core)), ["HOME", "PATH", "lang"]);
    }

    #[test]
    fn names_that_look_like_secrets_are_dropped_by_default() {
        assert_eq!(names(&policy(|policy| policy.ignore_default_excludes = false)), ["EDITOR", "HOME", "PATH", "lang"]);
    }

    #[test]
    fn include_only_also_filters_what_was_set_but_not_the_callers_own() {
        let mut environ = policy(|policy| {
            policy.set.insert("EXTRA".into(), "1".into());
            policy.include_only = vec!["P*".into()];
        });
        environ.vars.insert("OWN_KEY".into(), "1".into());
        assert_eq!(names(&environ), ["OWN_KEY", "PATH"]);
    }

    #[test]
    fn the_servers_own_credentials_never_reach_a_child() {
        let environ = Environ::exactly([("openai_identity_token_file", "x"), ("OK", "1")]);
        assert_eq!(names(&environ), ["OK"]);
    }

    #[test]
    fn wildcards_backtrack_over_stars() {
        assert!(wildcard(b"*a*b?c", b"xxaybZC") && !wildcard(b"*a*b?c", b"xxaybc"));
        assert!(wildcard(b"", b"") && wildcard(b"***", b"") && !wildcard(b"", b"x"));
    }
}
