//! What a shell does at the far end, and how its answers are told from what a login shell prints by itself.
//!
//! ssh hands its words to the login shell of the account as one line, whatever shell that is. So the script is one word in
//! single quotes without anything that bash, dash, zsh, fish and tcsh read differently there: no quote, no backslash, no
//! exclamation mark, no line end. A test looks for them.
//!
//! Both sides take turns, so that nothing is read ahead that is for the next program. The binary is written to a name of
//! its own and renamed: another client never sees half of it.

use super::binary::FarBinary;
use crate::session::random_seed;

/// `$1` the mark, `$2` the digest, `$3` the bytes, `$4` the system that the binary is for.
///
/// A binary of the PATH will do if it is the very same. Where the system is another one, so will any that is there already:
/// somebody has brought it by hand or with --binary. `head -c` reads no more than it is told. Files are private here; what the
/// server runs gets the account's own mask.
const SCRIPT: &[&str] = &[
    r#"m=$1; d=$2; n=$3; u=$(uname -sm)"#,
    r#"say() { echo "$m $*"; }"#,
    r#"fail() { say failed "$@"; exit 4; }"#,
    r#"say system "$u""#,
    r#"k=$(umask); umask 077"#,
    r#"b=${XDG_CACHE_HOME:-$HOME/.cache}/exec-server"#,
    r#"case $b in /?*/?*) ;; *) fail home ;; esac"#,
    r#"p=$(command -v exec-server 2>/dev/null)"#,
    r#"run() { umask "$k"; say have; exec "$1" relay "$m"; }"#,
    r#"if [ "$u" != "$4" ]; then for f in "$p" $(ls -t "$b"/*/exec-server 2>/dev/null); do if [ -x "$f" ]; then run "$f"; fi; done; fail system; fi"#,
    r#"if echo | sha256sum >/dev/null 2>&1; then s=sha256sum; elif echo | shasum -a 256 >/dev/null 2>&1; then s="shasum -a 256"; elif echo | openssl dgst -sha256 -r >/dev/null 2>&1; then s="openssl dgst -sha256 -r"; else fail sha256; fi"#,
    r#"is() { [ -f "$1" ] && [ "$(wc -c <"$1")" -eq "$n" ] && h=$($s <"$1") && [ "${h%% *}" = "$d" ]; }"#,
    r#"f=$b/$d/exec-server"#,
    r#"for c in "$p" "$f"; do if is "$c"; then run "$c"; fi; done"#,
    r#"mkdir -p "$b/$d" || fail folder "$b""#,
    r#"t=$b/$d/.new.$m"#,
    r#"find "$b" -name ".new.*" -mtime +1 -exec rm -f {} + 2>/dev/null"#,
    r#"say want"#,
    r#"head -c "$n" >"$t" || { rm -f "$t"; fail write "$b"; }"#,
    r#"chmod 700 "$t""#,
    r#"is "$t" || { rm -f "$t"; fail sum; }"#,
    r#"mv -f "$t" "$f" || { rm -f "$t"; fail write "$b"; }"#,
    r#"run "$f""#,
];

/// The words of a program that carries out the script.
pub(super) fn words(mark: &Mark, binary: &FarBinary) -> [String; 8] {
    let script = SCRIPT.join("; ");
    let bytes = binary.bytes.to_string();
    ["sh".into(), "-c".into(), script, "sh".into(), mark.0.clone(), binary.digest.clone(), bytes, binary.system.clone()]
}

/// Begins each line that is for us. It is random, so that nothing that the machine prints is taken for an answer.
pub(super) struct Mark(String);

/// An answer of the script, or of the `relay` that it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// As `uname -sm` prints it.
    System(String),
    /// The binary is there and is being started.
    Have,
    /// The binary is to be sent.
    Want,
    /// From here on the stream is the server's.
    Ready,
}

/// Why the script does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no home.
    Home,
    /// The binary is for another system, and there is none for this one.
    System,
    /// Nothing there can verify the binary.
    Sha256,
    /// The folder cannot be made.
    Folder(String),
    /// The binary cannot be written.
    Write(String),
    /// What arrived is not what was sent.
    Sum,
    /// The server of the account does not start.
    Server(String),
    /// Some word of a newer binary.
    Unknown(String),
}

impl Mark {
    pub(super) fn random() -> Self {
        Self(format!("exec-server-{:016x}", random_seed()))
    }

    /// What the line says, if it is for us.
    pub(super) fn read(&self, line: &[u8]) -> Option<Result<Reply, Refusal>> {
        let line = String::from_utf8_lossy(line);
        // A prompt or a colour may stand before it, on the same line.
        let at = line.find(&self.0)?;
        let said = line[at + self.0.len()..].trim();
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        Some(match word {
            "system" => Ok(Reply::System(rest.to_owned())),
            "have" => Ok(Reply::Have),
            "want" => Ok(Reply::Want),
            "ready" => Ok(Reply::Ready),
            _ => {
                let (why, detail) = rest.split_once(' ').unwrap_or((rest, ""));
                Err(match why {
                    "home" => Refusal::Home,
                    "system" => Refusal::System,
                    "sha256" => Refusal::Sha256,
                    "folder" => Refusal::Folder(detail.to_owned()),
                    "write" => Refusal::Write(detail.to_owned()),
                    "sum" => Refusal::Sum,
                    "server" => Refusal::Server(detail.to_owned()),
                    _ => Refusal::Unknown(said.to_owned()),
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_nothing_that_login_shells_read_differently() {
        let script = SCRIPT.join("; ");
        // `!=` is an operator of `test` here: tcsh takes an exclamation mark before `=` for what it is.
        let bare = script.replace("!= ", "");
        assert_eq!(bare.find(['\'', '!', '\\', '\n', '\r']), None);
    }

    #[test]
    fn only_marked_lines_are_answers() {
        let mark = Mark("m-1".to_owned());
        assert_eq!(mark.read(b"welcome"), None);
        assert_eq!(mark.read(b"m-2 ready"), None);
        assert_eq!(mark.read(b"m-1 system Linux x86_64"), Some(Ok(Reply::System("Linux x86_64".to_owned()))));
        assert_eq!(mark.read(b"\x1b[0m$ m-1 ready\r"), Some(Ok(Reply::Ready)));
        assert_eq!(mark.read(b"m-1 failed write /home/u x"), Some(Err(Refusal::Write("/home/u x".to_owned()))));
    }
}
