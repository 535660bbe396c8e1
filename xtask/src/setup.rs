//! `setup`: brings a Debian machine that has a Rust toolchain and a C compiler up to what the checks
//! need, and says what it does. What is present is left alone, whatever its version.
//!
//! Without the cargo tools no check can run, so failing to install one is an error. Debian packages
//! are needed by single tests only; what cannot be installed is named here, and the tests that need
//! it fail on their own with their own words.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, in_view, last_line_of};

/// A version known to build with the project's Rust; any version already installed will do.
const NEXTEST_VERSION: &str = "0.9.143";

/// Programs that tests start, and the Debian packages that bring them.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("tmux", &["tmux"]),
    ("bwrap", &["bubblewrap"]),
    ("socat", &["socat"]),
    ("npm", &["nodejs", "npm"]),
    // Builds libFuzzer, for `cargo xtask fuzz`.
    ("c++", &["g++"]),
];

/// Installs what is missing.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    components(workspace)?;
    nextest(workspace)?;
    packages()
}

/// rustfmt and clippy, which a minimal toolchain lacks.
fn components(workspace: &Workspace) -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if answers(&mut workspace.cargo(&[subcommand, "--version"])) {
            continue;
        }
        println!("setup: {component} is missing; adding it with rustup");
        in_view(Command::new("rustup").args(["component", "add", component]))
            .with_context(|| format!("cannot add {component}; add it to the toolchain by hand"))?;
    }
    Ok(())
}

fn nextest(workspace: &Workspace) -> Result<()> {
    if answers(&mut workspace.cargo(&["nextest", "--version"])) {
        return Ok(());
    }
    println!("setup: cargo-nextest is missing; building version {NEXTEST_VERSION}, a few minutes");
    let mut install = workspace.cargo(&["install", "cargo-nextest", "--locked"]);
    install.args(["--version", NEXTEST_VERSION]);
    // No self-update (it brings a TLS stack) and little optimisation: it is built once and mostly
    // waits for tests, and the build is most of a first run.
    install.args(["--no-default-features", "--features", "default-no-update"]);
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    in_view(&mut install).context("cannot install cargo-nextest; see https://nexte.st")
}

fn packages() -> Result<()> {
    let missing = missing_packages(on_path);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !on_path("apt-get") {
        println!("setup: please install {names} with this system's packages; some tests need them");
        return Ok(());
    }
    if last_line_of(Command::new("id").arg("-u"))? != "0" {
        println!("setup: not root, so please run: sudo apt-get install {names}");
        println!("setup: going on; the tests that need them will fail");
        return Ok(());
    }
    println!("setup: installing {names} with apt-get");
    // An update that fails (one dead mirror) may still leave a usable list.
    let updated = in_view(apt_get().args(["update", "-qq"]));
    let installed = in_view(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&missing));
    for error in [updated, installed].into_iter().filter_map(Result::err) {
        println!("setup: {error:#}; going on, the tests that need {names} will fail");
    }
    Ok(())
}

/// The packages of all programs that `present` does not find.
fn missing_packages(present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    PROGRAMS
        .iter()
        .filter(|(program, _)| !present(program))
        .flat_map(|(_, packages)| packages.iter().copied())
        .collect()
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether the command runs at all and ends well, in silence.
fn answers(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder: std::path::PathBuf| is_file(&folder.join(program)))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_asked_for() {
        assert_eq!(missing_packages(|_| true), Vec::<&str>::new());
        assert_eq!(missing_packages(|program| program != "npm"), ["nodejs", "npm"]);
        assert_eq!(missing_packages(|program| program != "bwrap"), ["bubblewrap"]);
    }
}
