//! `fuzz`: every fuzz target for a while, as many at a time as there are cores.
//!
//! The targets are a workspace of their own in `fuzz/`. They are built once, with the coverage that libFuzzer wants;
//! the flags are those of cargo-fuzz without its sanitizer, so the stable compiler is enough. What a run learns is kept
//! in `target/fuzz/corpus`, the input of a crash in `target/fuzz/crashes`. The seeds in the tree are only read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::ci::{log_path, run_logged};
use crate::workspace::{Workspace, last_output_line, run_visible};

/// How long each target runs in `ci`; `EXEC_FUZZ_SECONDS` says otherwise.
const SECONDS: u64 = 30;

/// A target and the directories its first inputs come from.
struct Target {
    name: &'static str,
    seeds: &'static [&'static str],
}

/// The most valuable first, in case the time is cut short.
const TARGETS: &[Target] = &[
    Target { name: "params", seeds: &["crates/exec-wire/golden"] },
    Target { name: "envelope", seeds: &["crates/exec-wire/golden", "fuzz/corpus-seeds/envelope"] },
    Target { name: "websocket", seeds: &["fuzz/corpus-seeds/websocket"] },
    Target { name: "path_uri", seeds: &["fuzz/corpus-seeds/path_uri"] },
    Target { name: "keeper_messages", seeds: &["fuzz/corpus-seeds/keeper_messages"] },
    Target { name: "spool_index", seeds: &["fuzz/corpus-seeds/spool_index"] },
    Target { name: "read_page", seeds: &["fuzz/corpus-seeds/read_page"] },
    Target { name: "output_frames", seeds: &["fuzz/corpus-seeds/output_frames"] },
    Target { name: "lines", seeds: &["fuzz/corpus-seeds/lines"] },
    Target { name: "environments", seeds: &["fuzz/corpus-seeds/environments"] },
    Target { name: "urls", seeds: &["fuzz/corpus-seeds/urls"] },
];

/// Compiler flags that report coverage to libFuzzer.
const COVERAGE: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The step of `ci`: all targets.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    run_targets(workspace, None, &[])
}

/// Builds all targets and runs those named (all, if none is), each for so many seconds.
pub(crate) fn run_targets(workspace: &Workspace, seconds: Option<u64>, names: &[String]) -> Result<()> {
    let seconds = match (seconds, std::env::var("EXEC_FUZZ_SECONDS")) {
        (Some(seconds), _) => seconds,
        (None, Ok(text)) => text.parse().with_context(|| format!("EXEC_FUZZ_SECONDS is no number: {text:?}"))?,
        (None, Err(_)) => SECONDS,
    };
    let selected = select(names)?;
    run_visible(&mut workspace.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    let programs = build(workspace)?;
    let queue = Mutex::new(selected.into_iter());
    let failures = Mutex::new(Vec::new());
    let worker = || {
        // Not `while let`, which would hold the queue's lock during the run.
        loop {
            let next = queue.lock().expect("taking the next target does not panic").next();
            let Some(target) = next else { break };
            if let Err(error) = fuzz(workspace, &programs, target, seconds) {
                failures.lock().expect("adding to the list does not panic").push(error);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(worker);
        }
    });
    match failures.into_inner().expect("all workers have ended in order") {
        failures if failures.is_empty() => Ok(()),
        failures => Err(anyhow!(failures.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\n"))),
    }
}

fn select(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| TARGETS.iter().find(|target| target.name == name.as_str());
    let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| find(name).with_context(|| format!("no fuzz target {name:?}; there are {}", known())))
        .collect()
}

/// Builds all targets and returns the directory of their programs.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let host = last_output_line(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let target = directory(workspace);
    let mut build = workspace.cargo(&["build", "--manifest-path", "fuzz/Cargo.toml", "--release", "--bins"]);
    // The target is named so that build scripts and macros are not built with coverage.
    build.args(["--target", &host]).arg("--target-dir").arg(&target);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", COVERAGE.join(" "));
    run_logged(workspace, "fuzz-build", &mut build)?;
    Ok(target.join(host).join("release"))
}

fn fuzz(workspace: &Workspace, programs: &Path, target: &Target, seconds: u64) -> Result<()> {
    let name = target.name;
    let corpus = directory(workspace).join("corpus").join(name);
    let crashes = directory(workspace).join("crashes").join(name);
    for directory in [&corpus, &crashes] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {directory:?}"))?;
    }
    let program = programs.join(name);
    let mut command = Command::new(&program);
    command.current_dir(&workspace.root).arg(&corpus);
    for seeds in target.seeds {
        ensure!(workspace.root.join(seeds).is_dir(), "the seeds of {name} are missing: no directory {seeds}");
        command.arg(seeds);
    }
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", crashes.display()));
    // One input that takes a minute is a hang even on a busy machine, and no small input may cost much memory.
    command.args(["-timeout=60", "-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"]);
    let log = format!("fuzz-{name}");
    if let Err(error) = run_logged(workspace, &log, &mut command) {
        bail!(
            "fuzz target {name} found something: {error:#}\n\
             the input is in {crashes}; again: {program} FILE; smaller: {program} -minimize_crash=1 -runs=100000 FILE",
            crashes = crashes.display(),
            program = program.display(),
        );
    }
    let output = std::fs::read(log_path(workspace, &log)).unwrap_or_default();
    let inputs = input_count(&String::from_utf8_lossy(&output)).unwrap_or("?").to_owned();
    println!("    {name:<16} {inputs:>12} inputs in {seconds} s");
    Ok(())
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("fuzz")
}

/// How many inputs libFuzzer says it has tried.
fn input_count(output: &str) -> Option<&str> {
    output.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_manifest_is_run_and_has_its_seeds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the root");
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("the targets have a manifest");
        let manifest: toml::Table = manifest.parse().expect("it is TOML");
        let bins = manifest["bin"].as_array().expect("it has targets");
        let mut there: Vec<&str> = bins.iter().map(|bin| bin["name"].as_str().expect("a target has a name")).collect();
        let mut run: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        there.sort_unstable();
        run.sort_unstable();
        assert_eq!(run, there);
        for seeds in TARGETS.iter().flat_map(|target| target.seeds) {
            let first = std::fs::read_dir(root.join(seeds)).ok().and_then(|mut files| files.next());
            assert!(first.is_some(), "{seeds} has no seed");
        }
    }

    #[test]
    fn a_target_nobody_knows_is_refused_by_name() {
        let error = select(&["envelop".to_owned()]).map(drop).expect_err("a misspelt name");
        assert!(error.to_string().starts_with("no fuzz target \"envelop\"; there are params, envelope,"), "{error}");
        assert_eq!(select(&[]).expect("none named means all").len(), TARGETS.len());
    }

    #[test]
    fn the_count_of_inputs_is_found_in_what_libfuzzer_says() {
        let output = "#2\tINITED\nstat::number_of_executed_units: 4711\nstat::average_exec_per_sec:     9\n";
        assert_eq!(input_count(output), Some("4711"));
        assert_eq!(input_count("killed"), None);
    }
}
