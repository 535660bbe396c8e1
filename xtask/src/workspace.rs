//! The workspace as cargo describes it, and commands that run at its root.
//!
//! `cargo metadata --no-deps` is asked once; it neither builds nor resolves, so it answers even when
//! a crate does not compile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The root, the target directory and the members of the workspace.
#[derive(Clone, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) repository: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// Something a member builds: a library, a binary, an example.
#[derive(Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// One line of a member's dependency tables.
#[derive(Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `"dev"` or `"build"`: cargo's own encoding.
    pub(crate) kind: Option<String>,
}

impl Dependency {
    /// Whether it is compiled into tests only.
    pub(crate) fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Workspace {
    /// Asks cargo about the workspace this program was built from.
    pub(crate) fn find() -> Result<Self> {
        // `cargo run` sets the variable; the path known at compile time is right until the directory is moved.
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR");
        let xtask = xtask.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let output = Command::new(cargo_program())
            .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
            .arg(xtask.join("Cargo.toml"))
            .output()
            .context("cannot run `cargo metadata`")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("cannot parse the output of `cargo metadata`")
    }

    /// A cargo command at the root.
    pub(crate) fn cargo<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(cargo_program());
        command.current_dir(&self.root);
        command.args(arguments.iter().map(AsRef::as_ref));
        command
    }

    /// The path as people write it: from the root, with slashes.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().replace('\\', "/")
    }
}

/// Runs a command with its output shown to the user; an exit code other than 0 is an error that names the command.
pub(crate) fn run_visible(command: &mut Command) -> Result<()> {
    let shown = command_line(command);
    let status = command.status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns the last line it printed, trimmed.
pub(crate) fn last_output_line(command: &mut Command) -> Result<String> {
    let shown = command_line(command);
    let output = command.output().with_context(|| format!("cannot run `{shown}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}:\n{}", output.status, stderr.trim_end());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last() {
        Some(line) if !line.trim().is_empty() => Ok(line.trim().to_owned()),
        _ => bail!("`{shown}` printed nothing"),
    }
}

/// The command as someone would type it.
fn command_line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The cargo that runs us, so that a `+toolchain` reaches every step.
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
