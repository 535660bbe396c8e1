//! `bench`: measurements. Nothing fails here; numbers that are promised in GUARANTEES.md have tests.
//!
//! `local` runs the benchmark of the embedded library, `files` one of large files, `forward` one of forwarded ports,
//! `sdks` one of other languages, `views` one of views, screens and observers. `wire` compares our server with others
//! by xbench, a separate program that speaks the protocol and shares no code with ours.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::workspace::{Workspace, last_output_line, run_visible};
use crate::{npm, setup};

#[derive(Subcommand)]
pub(crate) enum Benchmark {
    /// The library embedded, without a server
    Local {
        /// Passed on to the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Echoes beside a large file on the same connection (CODEX_BIN: Codex, to be compared with)
    Files,
    /// A forwarded port beside a bare socket, and the echo of a process beside a forwarded flood
    Forward,
    /// The output of a process in Python and Node beside the Rust client
    Sdks,
    /// Views of a long log beside `rg`, the screen of a long recording beside the bare engine, and observers of a flood
    Views {
        /// Only these: grep, screens, observers
        only: Vec<String>,
    },
    /// The server beside others, over the wire (XBENCH_SRC: directory of xbench; CODEX_BIN: Codex)
    Wire {
        /// Workloads, separated by commas; all of them unless given
        #[arg(long)]
        work: Option<String>,
        /// Rounds of each workload
        #[arg(long, default_value_t = 3)]
        reps: u32,
    },
}

pub(crate) fn run(workspace: &Workspace, benchmark: Benchmark) -> Result<()> {
    match benchmark {
        Benchmark::Local { arguments } => local(workspace, &arguments),
        Benchmark::Files => files(workspace),
        Benchmark::Forward => forward(workspace),
        Benchmark::Sdks => sdks(workspace),
        Benchmark::Views { only } => views(workspace, &only),
        Benchmark::Wire { work, reps } => wire(workspace, work.as_deref(), reps),
    }
}

fn local(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let mut bench = workspace.cargo(&["run", "--release", "-p", "exec-testkit"]);
    bench.args(["--bin", "bench-local", "--"]).args(arguments);
    run_visible(&mut bench)
}

fn files(workspace: &Workspace) -> Result<()> {
    run_visible(&mut workspace.cargo(&["build", "--release", "-p", "exec-server-cli"]))?;
    run_visible(&mut workspace.cargo(&["bench", "-p", "exec-testkit", "--bench", "files"]))
}

fn forward(workspace: &Workspace) -> Result<()> {
    run_visible(&mut workspace.cargo(&["build", "--release", "-p", "exec-server-cli"]))?;
    run_visible(&mut workspace.cargo(&["bench", "-p", "exec-testkit", "--bench", "forward"]))
}

fn sdks(workspace: &Workspace) -> Result<()> {
    let mut build = workspace.cargo(&["build", "--release", "-p", "exec-server-cli"]);
    run_visible(build.args(["-p", "exec-server-node", "-p", "exec-server-python"]))?;
    let built = workspace.target.join("release");
    let folder = workspace.target.join("bench-sdks");
    let [python, node] = ["python", "node"].map(|language| folder.join(language));
    for folder in [python.join("exec_server"), node.join("node_modules")] {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
    }
    let mut copy = Command::new("cp");
    copy.arg("-rT").arg(workspace.root.join("sdk/python/exec_server")).arg(python.join("exec_server"));
    run_visible(&mut copy)?;
    let native = python.join("exec_server/_native.abi3.so");
    std::fs::copy(built.join("libexec_server_python.so"), &native)
        .with_context(|| format!("cannot write {native:?}"))?;
    npm::build(&workspace.root, &workspace.target, &built.join(npm::LIBRARY), &built.join("exec-server"), &[])?;
    let mut link = Command::new("ln");
    link.arg("-sfnT").arg(workspace.target.join("dist/npm")).arg(node.join("node_modules/exec-server"));
    run_visible(&mut link)?;
    let mut bench = workspace.cargo(&["bench", "-p", "exec-sdk", "--bench", "throughput"]);
    run_visible(bench.env("EXEC_SDK_PYTHON", python).env("EXEC_SDK_NODE", node))
}

fn views(workspace: &Workspace, only: &[String]) -> Result<()> {
    setup::install_packages(&[("rg", &["ripgrep"])])?;
    run_visible(&mut workspace.cargo(&["build", "--release", "-p", "exec-server-cli"]))?;
    run_visible(workspace.cargo(&["bench", "-p", "exec-testkit", "--bench", "views", "--"]).args(only))
}

fn wire(workspace: &Workspace, work: Option<&str>, reps: u32) -> Result<()> {
    let source = xbench_source(workspace)?;
    let target = workspace.target.join("xbench");
    let mut build = workspace.cargo(&["build", "--release", "--locked"]);
    run_visible(build.current_dir(&source).arg("--target-dir").arg(&target))?;
    run_visible(&mut workspace.cargo(&["build", "--release", "-p", "exec-server-cli"]))?;

    let xbench = target.join("release/xbench");
    let results = target.join("wire.jsonl");
    // xbench appends to its results, and the report is about this run only.
    if results.exists() {
        std::fs::remove_file(&results).with_context(|| format!("cannot remove {results:?}"))?;
    }
    let mut run = Command::new(&xbench);
    run.env("CODEX_BIN", codex(&source)?);
    run.args(["run", "--peers", &peers(&workspace.target.join("release/exec-server"))]);
    run.args(["--reps", &reps.to_string()]).arg("--out").arg(&results);
    if let Some(work) = work {
        run.args(["--work", work]);
    }
    run_visible(&mut run)?;
    run_visible(Command::new(&xbench).arg("report").arg(&results))
}

/// What is compared: no server at all, the bare probe, Codex, and our server.
fn peers(ours: &Path) -> String {
    format!("direct,ref,codex,ours={} serve --listen ws://127.0.0.1:0", ours.display())
}

fn xbench_source(workspace: &Workspace) -> Result<PathBuf> {
    let named = std::env::var_os("XBENCH_SRC").map(PathBuf::from);
    let source = named.unwrap_or_else(|| workspace.root.join("../shared/bench"));
    if !source.join("Cargo.toml").is_file() {
        bail!("no xbench in {}; set XBENCH_SRC to the directory of its sources", source.display());
    }
    Ok(source)
}

/// The Codex binary: the one named, else the release that xbench's own script installs.
fn codex(source: &Path) -> Result<OsString> {
    match std::env::var_os("CODEX_BIN") {
        Some(named) => Ok(named),
        None => Ok(last_output_line(&mut Command::new(source.join("get-codex")))?.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_server_is_the_last_peer_and_listens_on_a_free_port() {
        assert_eq!(
            peers(Path::new("t/exec-server")),
            "direct,ref,codex,ours=t/exec-server serve --listen ws://127.0.0.1:0"
        );
    }
}
