//! `setup`: brings a Debian machine that has a Rust toolchain and a C compiler up to what the checks
//! need, and says what it does. What is present is left alone, whatever its version.
//!
//! Without the cargo tools no check can run, so failing to install one is an error. Debian packages
//! are needed by single tests only; what cannot be installed is named here, and the tests that need
//! it fail on their own and say why.

use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, last_output_line, run_visible};

/// A cargo subcommand from crates.io.
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    /// Known to build with the project's Rust; any version that is already installed will do.
    pub(crate) version: &'static str,
    pub(crate) install_arguments: &'static [&'static str],
}

const NEXTEST: CargoTool = CargoTool {
    name: "nextest",
    version: "0.9.143",
    // Without self-update, which would bring a TLS stack along.
    install_arguments: &["--no-default-features", "--features", "default-no-update"],
};

/// A program, and the Debian packages that bring it.
pub(crate) type DebianProgram = (&'static str, &'static [&'static str]);

/// Programs that tests start, and the Debian packages that bring them.
const PROGRAMS: &[DebianProgram] = &[
    ("tmux", &["tmux"]),
    ("bwrap", &["bubblewrap"]),
    ("socat", &["socat"]),
    ("curl", &["curl"]),
    ("python3", &["python3", "python3-venv"]),
    ("sshd", &["openssh-server"]),
    // Login shells that read a command line differently.
    ("fish", &["fish"]),
    ("tcsh", &["tcsh"]),
    ("chromium", &["chromium"]),
    ("npm", &["nodejs", "npm"]),
    // Builds libFuzzer, for `cargo xtask fuzz`.
    ("c++", &["g++"]),
];

/// Installs what is missing.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    components(workspace)?;
    install_cargo_tool(workspace, &NEXTEST)?;
    install_packages(PROGRAMS)
}

/// rustfmt and clippy, which a minimal toolchain lacks.
fn components(workspace: &Workspace) -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if succeeds(&mut workspace.cargo(&[subcommand, "--version"])) {
            continue;
        }
        println!("setup: {component} is missing; adding it with rustup");
        run_visible(Command::new("rustup").args(["component", "add", component]))
            .with_context(|| format!("cannot add {component}; add it to the toolchain by hand"))?;
    }
    Ok(())
}

/// Installs a cargo subcommand, unless some version of it is there.
pub(crate) fn install_cargo_tool(workspace: &Workspace, tool: &CargoTool) -> Result<()> {
    if succeeds(&mut workspace.cargo(&[tool.name, "--version"])) {
        return Ok(());
    }
    let package = format!("cargo-{}", tool.name);
    println!("setup: {package} is missing; building version {}, a few minutes", tool.version);
    let mut install = workspace.cargo(&["install", &package, "--locked", "--version", tool.version]);
    install.args(tool.install_arguments);
    // Little optimisation: the tool mostly waits for others, and building it is most of a first run.
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    run_visible(&mut install).with_context(|| format!("cannot install {package}"))
}

/// Installs the packages of those programs that are missing, or says which they are.
pub(crate) fn install_packages(programs: &[DebianProgram]) -> Result<()> {
    let missing = missing_packages(programs, on_path);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !on_path("apt-get") {
        println!("setup: please install {names} with this system's packages; they are needed");
        return Ok(());
    }
    if last_output_line(Command::new("id").arg("-u"))? != "0" {
        println!("setup: not root, so please run: sudo apt-get install {names}");
        println!("setup: going on; what needs them will fail");
        return Ok(());
    }
    println!("setup: installing {names} with apt-get");
    // An update that fails (one dead mirror) may still leave a usable list.
    let updated = run_visible(apt_get().args(["update", "-qq"]));
    let installed = run_visible(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&missing));
    for error in [updated, installed].into_iter().filter_map(Result::err) {
        println!("setup: {error:#}; going on, what needs {names} will fail");
    }
    Ok(())
}

/// The packages of all programs that are not installed.
fn missing_packages(programs: &[DebianProgram], is_installed: impl Fn(&str) -> bool) -> Vec<&'static str> {
    programs
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .flat_map(|(_, packages)| packages.iter().copied())
        .collect()
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether the command can be run and succeeds; shows nothing of its output.
fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_asked_for() {
        assert_eq!(missing_packages(PROGRAMS, |_| true), Vec::<&str>::new());
        assert_eq!(missing_packages(PROGRAMS, |program| program != "npm"), ["nodejs", "npm"]);
        assert_eq!(missing_packages(PROGRAMS, |program| program != "bwrap"), ["bubblewrap"]);
    }
}
