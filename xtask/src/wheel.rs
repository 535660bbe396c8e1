//! `wheel`: the Python package as `pip` installs it, with the server's binary as the command `exec-server`.
//!
//! One wheel serves every Python from 3.10 on, because the library uses only what stays the same between them. Which
//! Linux it is for is what maturin finds out from the symbols that the library needs, and writes into the wheel's name;
//! the binary must need no newer ones. `cargo xtask dist` makes the wheel that is shipped, around the portable binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dist::check::try_wheel;
use crate::workspace::{Workspace, run_visible};

/// Known to build this package.
const MATURIN: &str = "maturin==1.16.0";

/// `cargo xtask wheel`: with this binary, or with that of the release profile, which is built if it is not there.
pub(crate) fn run(workspace: &Workspace, binary: Option<PathBuf>, debug: bool, check: bool) -> Result<()> {
    let binary = match binary {
        Some(binary) => binary,
        None => {
            run_visible(&mut workspace.cargo(&["build", "--release", "--locked", "-p", "exec-server-cli"]))?;
            workspace.target.join("release/exec-server")
        }
    };
    let built = build(&workspace.root, &workspace.target, &binary, |maturin| {
        maturin.args(if debug { &[][..] } else { &["--release"] });
        Ok(())
    })?;
    println!("wheel: {}", built.display());
    if check { try_wheel(workspace, &built) } else { Ok(()) }
}

/// Builds the wheel around a binary, with arguments and variables of maturin that `configure` adds, and returns where it is, in
/// `target/wheel`.
pub(crate) fn build(
    root: &Path,
    target: &Path,
    binary: &Path,
    configure: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<PathBuf> {
    let package = root.join("sdk/python");
    let python = maturin(target)?;
    let wheels = target.join("wheel");
    if wheels.exists() {
        // Only what is built now is there afterwards, so that it need not be guessed which it is.
        fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {wheels:?}"))?;
    }
    let data = package.join("exec_server.data");
    let packed = data.join("scripts/exec-server");
    fs::create_dir_all(data.join("scripts")).with_context(|| format!("cannot create {data:?}"))?;
    fs::copy(binary, &packed).with_context(|| format!("cannot copy {binary:?} to {packed:?}"))?;

    let mut command = Command::new(python);
    command.args(["-m", "maturin", "build", "--locked", "--manifest-path"]).arg(package.join("Cargo.toml"));
    command.arg("--out").arg(&wheels).current_dir(root);
    let built = configure(&mut command).and_then(|()| run_visible(&mut command));
    fs::remove_dir_all(&data).context("cannot take the binary out of the sources again")?;
    built?;

    let found = fs::read_dir(&wheels).with_context(|| format!("cannot list {wheels:?}"))?;
    let found = found.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut found = found.with_context(|| format!("cannot list {wheels:?}"))?;
    ensure!(found.len() == 1, "maturin has built {} wheels", found.len());
    Ok(found.remove(0))
}

/// A Python that has maturin, in the target directory.
fn maturin(target: &Path) -> Result<PathBuf> {
    install_python_packages(&target.join("sdk/maturin"), &[MATURIN])
}

/// A Python of its own with these packages, in this folder. It is made again if they are others than last time.
pub(crate) fn install_python_packages(environment: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    let installed = environment.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    run_visible(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run_visible(&mut install)?;
    fs::write(&installed, wanted).with_context(|| format!("cannot write {installed:?}"))?;
    Ok(python)
}
