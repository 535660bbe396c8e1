//! `npm`: the package for Node as `npm` installs it, with the server's binary as the command `exec-server`.
//!
//! TypeScript is compiled by the compiler that its manifest names, the library is that of the workspace, and `npm pack` puts it
//! all together. `cargo xtask dist` makes the package that is shipped, around the portable binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dist::check::try_npm_package;
use crate::workspace::{Workspace, last_output_line, run_visible};

/// `cargo xtask npm`: with this binary, or with that of the release profile, which is built if it is not there. It is put into
/// `target/dist`.
pub(crate) fn run(workspace: &Workspace, binary: Option<PathBuf>, debug: bool, check: bool) -> Result<()> {
    let profile: &[&str] = if debug { &[] } else { &["--release"] };
    let built = workspace.target.join(if debug { "debug" } else { "release" });
    run_visible(workspace.cargo(&["build", "--locked", "-p", "exec-server-node"]).args(profile))?;
    let binary = match binary {
        Some(binary) => binary,
        None => {
            run_visible(workspace.cargo(&["build", "--locked", "-p", "exec-server-cli"]).args(profile))?;
            built.join("exec-server")
        }
    };
    let package = build(&workspace.root, &workspace.target, &built.join(LIBRARY), &binary, &[])?;
    println!("npm package: {}", package.display());
    if check { try_npm_package(workspace, &package) } else { Ok(()) }
}

/// What cargo calls the library.
pub(crate) const LIBRARY: &str = "libexec_server_node.so";

/// Packs the package around a library and a binary, with these lists of what is in them, and returns where it is, in
/// `target/dist`.
pub(crate) fn build(
    root: &Path,
    target: &Path,
    library: &Path,
    binary: &Path,
    lists: &[(&str, &str)],
) -> Result<PathBuf> {
    let sources = root.join("sdk/typescript");
    let out = target.join("dist");
    let package = out.join("npm");
    if package.exists() {
        // Nothing of an earlier build may get in.
        fs::remove_dir_all(&package).with_context(|| format!("cannot remove {package:?}"))?;
    }
    for folder in ["native", "bin", "sbom"] {
        fs::create_dir_all(package.join(folder)).with_context(|| format!("cannot create {package:?}"))?;
    }
    for name in ["package.json", "README.md"] {
        copy(&sources.join(name), &package.join(name), 0o644)?;
    }
    copy(&root.join("LICENSE"), &package.join("LICENSE"), 0o644)?;
    copy(library, &package.join("native/exec_server.node"), 0o644)?;
    copy(binary, &package.join("bin/exec-server"), 0o755)?;
    for (name, list) in lists {
        fs::write(package.join("sbom").join(name), list).with_context(|| format!("cannot write {name}"))?;
    }
    compile(&sources, target, &package.join("dist"))?;
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--pack-destination"]).arg(&out).current_dir(&package);
    Ok(out.join(last_output_line(&mut pack)?))
}

fn compile(sources: &Path, target: &Path, out: &Path) -> Result<()> {
    let modules = node_modules(sources, target)?;
    let mut compiler = Command::new(modules.join(".bin/tsc"));
    compiler.arg("--project").arg(sources).arg("--outDir").arg(out).arg("--typeRoots").arg(modules.join("@types"));
    run_visible(&mut compiler)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {from:?} to {to:?}"))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot change the mode of {to:?}"))
}

/// The `node_modules` with what the manifest names for building, in the target directory.
fn node_modules(sources: &Path, target: &Path) -> Result<PathBuf> {
    let directory = target.join("sdk/npm-build");
    let (manifest, copied) = (sources.join("package.json"), directory.join("package.json"));
    let wanted = fs::read(&manifest).with_context(|| format!("cannot read {manifest:?}"))?;
    let installed = directory.join("installed");
    if fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(directory.join("node_modules"));
    }
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {directory:?}"))?;
    fs::write(&copied, &wanted).with_context(|| format!("cannot write {copied:?}"))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(&directory);
    run_visible(&mut npm)?;
    fs::write(&installed, wanted).with_context(|| format!("cannot write {installed:?}"))?;
    Ok(directory.join("node_modules"))
}
