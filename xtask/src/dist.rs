//! `dist`: the release binary, in `target/dist`, with its size and digest.
//!
//! The release profile strips; nothing is signed, packed or uploaded here.

use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, last_output_line, run_visible};

/// Builds, copies and describes the binary.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    run_visible(&mut workspace.cargo(&["build", "--release", "--locked", "-p", "exec-server-cli"]))?;
    let directory = workspace.target.join("dist");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {directory:?}"))?;
    let built = workspace.target.join("release/exec-server");
    let binary = directory.join("exec-server");
    let bytes = std::fs::copy(&built, &binary).with_context(|| format!("cannot copy {built:?} to {binary:?}"))?;
    let digest = last_output_line(Command::new("sha256sum").arg(&binary))?;
    let digest = digest.split_whitespace().next().unwrap_or_default();
    println!("{}", binary.display());
    println!("  {bytes} bytes ({:.1} MiB)", bytes as f64 / f64::from(1 << 20));
    println!("  sha256 {digest}");
    Ok(())
}
