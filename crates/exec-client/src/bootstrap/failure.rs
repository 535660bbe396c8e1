//! What people are told when there is no way in: what happened, what the program said last, and what to do.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::binary::FarBinary;
use super::script::Refusal;
use super::target::BootstrapTarget;

/// How far it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Looking { system: String },
    Sending,
    Starting,
}

/// What went wrong.
#[derive(Debug)]
pub(super) enum Problem {
    /// The program ended.
    Ended,
    /// It said nothing for so long.
    Silent(Duration),
    /// The script, or the binary there, said no.
    Refused(Refusal),
    /// It answered something else than what was asked.
    OutOfStep,
    /// The login shell prints, and does not end.
    TooMuchJunk,
    /// Our own file can no longer be read.
    OwnBinary(std::io::Error),
}

/// All that is known of a failure.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) stage: Stage,
    pub(super) problem: Problem,
    pub(super) status: Option<ExitStatus>,
    pub(super) stderr: Vec<String>,
    pub(super) junk: Vec<u8>,
}

/// Lines of stderr that are told.
const LINES: usize = 6;

/// How much is told of what a login shell prints.
const JUNK_CHARS: usize = 200;

impl Told {
    /// Whether the next attempt will end the same way. What ssh says may be different when the network is back.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self.problem, Problem::Refused(Refusal::System | Refusal::Sha256 | Refusal::Home))
    }
}

/// What to say if the program is not there.
pub(super) fn tool_is_missing(target: &BootstrapTarget) -> String {
    let tool = target.tool();
    let package = if tool == "ssh" { " (Debian: openssh-client)" } else { "" };
    format!("the program `{tool}` is not on the PATH here: install it{package}")
}

pub(super) fn explain(target: &BootstrapTarget, binary: &FarBinary, told: &Told) -> String {
    let tool = target.tool();
    let mut text = match (&told.problem, &told.stage) {
        (Problem::Refused(refusal), stage) => refused(refusal, stage, binary),
        (Problem::Silent(after), stage) => format!("{} took longer than {after:?}", doing(stage)),
        (Problem::OutOfStep, _) => "it answered out of step: is a newer exec-server there? Update this one".to_owned(),
        (Problem::TooMuchJunk, _) => "its login shell prints without an end".to_owned(),
        (Problem::OwnBinary(error), _) => format!("cannot read the binary that is sent there: {error}"),
        (Problem::Ended, stage) => {
            let how = match told.status {
                Some(status) => match (status.code(), status.signal()) {
                    (Some(code), _) => format!("{tool} ended with exit code {code}"),
                    (None, Some(signal)) => format!("{tool} was ended by signal {signal}"),
                    (None, None) => format!("{tool} ended"),
                },
                None => format!("{tool} ended"),
            };
            match stage {
                Stage::Connecting => how,
                stage => format!("{how} while {}", doing(stage)),
            }
        }
    };
    let lines: Vec<&str> = told.stderr.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() {
        text += &format!(": {}", lines[lines.len().saturating_sub(LINES)..].join(" / "));
    }
    if told.stage == Stage::Connecting && !told.junk.is_empty() {
        let junk = String::from_utf8_lossy(&told.junk);
        let junk: String = junk.trim().chars().take(JUNK_CHARS).collect();
        text += &format!("; instead of running our command, its login shell printed {junk:?}");
    }
    match advice(target, told, &lines.join("\n")) {
        Some(advice) => format!("{text}. {advice}"),
        None => text,
    }
}

fn doing(stage: &Stage) -> &'static str {
    match stage {
        Stage::Connecting => "logging in",
        Stage::Looking { .. } => "looking for exec-server there",
        Stage::Sending => "sending exec-server there",
        Stage::Starting => "starting exec-server there",
    }
}

fn refused(refusal: &Refusal, stage: &Stage, binary: &FarBinary) -> String {
    match refusal {
        Refusal::Home => {
            "the account there has no home folder: set HOME or XDG_CACHE_HOME for it to a folder it may write"
                .to_owned()
        }
        Refusal::System => {
            let system = match stage {
                Stage::Looking { system } if !system.is_empty() => system,
                _ => "another system",
            };
            format!(
                "that is {system}, and this exec-server is for {}: bring one that runs there with --binary FILE \
                 (`server_binary` in a program, or EXEC_SERVER_BINARY), or put `exec-server` on its PATH",
                binary.system
            )
        }
        Refusal::Sha256 => "nothing there can verify what is sent: install sha256sum (coreutils, busybox), shasum or \
                            openssl there"
            .to_owned(),
        Refusal::Folder(folder) => format!("cannot make the folder {folder} there"),
        Refusal::Write(folder) => format!("cannot write exec-server to {folder} there"),
        Refusal::Sum => "what arrived there is not what was sent: try again".to_owned(),
        Refusal::Server(why) => format!("its server does not start: {why}"),
        Refusal::Unknown(said) => format!("it said {said:?}, which this exec-server does not know: update it"),
    }
}

/// What can be done about it, by what the program said.
fn advice(target: &BootstrapTarget, told: &Told, said: &str) -> Option<String> {
    let has = |needle: &str| said.contains(needle);
    let code = told.status.and_then(|status| status.code());
    let by_hand = match target {
        BootstrapTarget::Ssh { user, host, port } => {
            let port = port.map_or(String::new(), |port| format!("-p {port} "));
            let user = user.as_ref().map_or(String::new(), |user| format!("{user}@"));
            format!("ssh {port}{user}{host} true")
        }
        BootstrapTarget::Container { name, .. } => format!("{} exec {name} true", target.tool()),
        BootstrapTarget::Pod { pod, .. } => format!("kubectl exec {pod} -- true"),
    };
    Some(match told.stage {
        _ if has("No space left on device") || has("Disk quota exceeded") => {
            "Its disk is full: make room there, or set XDG_CACHE_HOME there to a folder on another one".to_owned()
        }
        _ if has("Read-only file system") => {
            "Its home cannot be written: set XDG_CACHE_HOME there to a folder that can, or put this `exec-server` on its \
             PATH"
                .to_owned()
        }
        Stage::Starting if has("GLIBC_") => {
            "Its C library is older than the one this exec-server was built for: send a portable build with --binary \
             FILE (`server_binary` in a program, or EXEC_SERVER_BINARY); `cargo xtask dist` makes one"
                .to_owned()
        }
        Stage::Starting if code == Some(126) => {
            "Programs in ~/.cache may not be run there (is it mounted noexec?): make ~/.cache/exec-server a link to a \
             folder where they may, or put this `exec-server` on its PATH"
                .to_owned()
        }
        Stage::Connecting if has("REMOTE HOST IDENTIFICATION HAS CHANGED") => format!(
            "Its host key is not the one that ssh remembers. If you know why, remove the old one (`ssh-keygen -R`) and \
             try `{by_hand}`"
        ),
        Stage::Connecting if has("Host key verification failed") => {
            format!("Its host key is not known here: run `{by_hand}` once by hand, look at the key and accept it")
        }
        Stage::Connecting if has("Permission denied") => format!(
            "It lets nobody in with what was shown: check the user name, and that `{by_hand}` works without a question \
             (`ssh-add -l` lists the keys of your agent)"
        ),
        Stage::Connecting if has("Could not resolve hostname") => {
            "There is no such name: check it, and Host entries in ~/.ssh/config".to_owned()
        }
        Stage::Connecting if has("Connection refused") => {
            "No ssh server listens there: check the port, and that sshd runs".to_owned()
        }
        Stage::Connecting if has("timed out") || has("No route to host") || has("Network is unreachable") => {
            "It cannot be reached: check the network, and whether the machine is up".to_owned()
        }
        Stage::Connecting if has("No such container") || has("is not running") || has("NotFound") => {
            format!("Check that it runs: `{by_hand}`")
        }
        Stage::Connecting if has("executable file not found") || has("\"sh\"") => {
            "There is no shell in it, which is needed to bring exec-server: put exec-server into its image, and name it in \
             environments.toml as `program`"
                .to_owned()
        }
        Stage::Connecting => format!("`{by_hand}` must work by itself, and print nothing wrong"),
        Stage::Looking { .. } | Stage::Sending | Stage::Starting => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary() -> FarBinary {
        // Any program of this machine will do.
        let path = Some("/proc/self/exe".into());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(FarBinary::find(path, None)).expect("it can be read")
    }

    fn explained(stage: Stage, code: i32, stderr: &str) -> String {
        let target: BootstrapTarget = "ssh://me@build:2222".parse().expect("well written");
        let stderr = stderr.lines().map(str::to_owned).collect();
        let status = Some(ExitStatus::from_raw(code << 8));
        let told = Told { stage, problem: Problem::Ended, status, stderr, junk: Vec::new() };
        explain(&target, &binary(), &told)
    }

    #[test]
    fn a_failure_tells_the_exit_code_the_last_words_and_what_to_do() {
        assert_eq!(
            explained(Stage::Connecting, 255, "me@build: Permission denied (publickey)."),
            "ssh ended with exit code 255: me@build: Permission denied (publickey).. It lets nobody in with what was \
             shown: check the user name, and that `ssh -p 2222 me@build true` works without a question (`ssh-add -l` \
             lists the keys of your agent)"
        );
        let noexec = explained(Stage::Starting, 126, "sh: 1: exec: /h/.cache/exec-server/x: Permission denied");
        assert!(noexec.contains("while starting exec-server there") && noexec.contains("noexec"), "{noexec}");
        let full = explained(Stage::Sending, 4, "head: error writing 'standard output': No space left on device");
        assert!(full.contains("Its disk is full"), "{full}");
    }

    #[test]
    fn a_login_shell_that_prints_instead_is_quoted() {
        let target: BootstrapTarget = "ssh://build".parse().expect("well written");
        let junk = b"This account is currently not available.\n".to_vec();
        let status = Some(ExitStatus::from_raw(1 << 8));
        let told = Told { stage: Stage::Connecting, problem: Problem::Ended, status, stderr: Vec::new(), junk };
        let text = explain(&target, &binary(), &told);
        assert!(text.contains("its login shell printed \"This account is currently not available.\""), "{text}");
    }
}
