//! `wheel`: the Python package as `pip` installs it, with the server's binary as the command `exec-server`.
//!
//! One wheel serves every Python from 3.10 on, because the library uses only what stays the same between them. Which Linux it is for
//! is what maturin finds out from the symbols that the library needs; it refuses one that needs too new ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, run_visible};

/// Known to build this package.
const MATURIN: &str = "maturin==1.16.0";

/// Builds the wheel around a binary and returns where it is, in `target/dist`.
pub(crate) fn build(workspace: &Workspace, binary: &Path, maturin_arguments: &[&str]) -> Result<PathBuf> {
    let package = workspace.root.join("sdk/python");
    let scripts = package.join("exec_server.data/scripts");
    fs::create_dir_all(&scripts).with_context(|| format!("cannot create {scripts:?}"))?;
    let packed = scripts.join("exec-server");
    fs::copy(binary, &packed).with_context(|| format!("cannot copy {binary:?} to {packed:?}"))?;

    let out = workspace.target.join("dist");
    let wheels = out.join("wheel");
    // Only what is built now is there afterwards, so that it need not be guessed which it is.
    let _ = fs::remove_dir_all(&wheels);
    let python = maturin(workspace)?;
    let mut build = Command::new(python);
    build.args(["-m", "maturin", "build", "--locked", "--manifest-path"]).arg(package.join("Cargo.toml"));
    build.arg("--out").arg(&wheels).args(maturin_arguments).current_dir(&workspace.root);
    let built = run_visible(&mut build);
    fs::remove_dir_all(package.join("exec_server.data")).context("cannot take the binary out of the sources again")?;
    built?;

    let mut found = fs::read_dir(&wheels).with_context(|| format!("cannot list {wheels:?}"))?;
    let wheel = found.next().context("maturin has built no wheel")??.path();
    let kept = out.join(wheel.file_name().context("a wheel has a name")?);
    fs::rename(&wheel, &kept).with_context(|| format!("cannot move {wheel:?}"))?;
    println!("wheel: {}", kept.display());
    Ok(kept)
}

/// `cargo xtask wheel`: with this binary, or with that of the release profile, which is built if it is not there.
pub(crate) fn run(workspace: &Workspace, binary: Option<PathBuf>, debug: bool) -> Result<()> {
    let binary = match binary {
        Some(binary) => binary,
        None => {
            run_visible(&mut workspace.cargo(&["build", "--release", "--locked", "-p", "exec-server-cli"]))?;
            workspace.target.join("release/exec-server")
        }
    };
    build(workspace, &binary, if debug { &[] } else { &["--release"] }).map(drop)
}

/// A Python that has maturin, in the target directory.
fn maturin(workspace: &Workspace) -> Result<PathBuf> {
    let environment = workspace.target.join("sdk/maturin");
    let python = environment.join("bin/python");
    let installed = environment.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == MATURIN) {
        return Ok(python);
    }
    run_visible(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", MATURIN]);
    run_visible(&mut install)?;
    fs::write(&installed, MATURIN).with_context(|| format!("cannot write {installed:?}"))?;
    Ok(python)
}
