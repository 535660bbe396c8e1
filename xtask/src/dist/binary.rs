//! The portable binary: static, so that it asks nothing of the machine it starts on but a kernel, and the same to the byte
//! wherever it was built. See docs/decisions/0020-portable-binary.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, run_visible};

/// The only target that is built and tried. On aarch64 the same steps are expected to work; nobody has tried them.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What a copy to another machine may cost, in bytes.
pub(crate) const MAX_BYTES: u64 = 14_000_000;

/// What makes a program static.
const STATIC: [&str; 2] = [
    // No library of the machine is used, and the program can still be loaded anywhere in memory.
    "-Ctarget-feature=+crt-static",
    // Relocations of a position-independent program, a bit each instead of 24 bytes.
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
];

/// Builds it in the target directory and returns the path of a stripped copy.
pub(crate) fn build(workspace: &Workspace, target_directory: &Path) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(&["build", "--profile", "dist", "--locked", "-p", "exec-server-cli"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(target_directory);
    make_reproducible(&mut cargo, &workspace.root, target_directory, &STATIC)?;
    run_visible(&mut cargo)?;
    let built = target_directory.join(TARGET).join("dist/exec-server");
    let stripped = target_directory.join("exec-server");
    let mut strip = Command::new("strip");
    // The list of compilers tells nobody anything, and differs between machines of the same compiler.
    strip.args(["--strip-all", "--remove-section=.comment", "-o"]).args([&stripped, &built]);
    run_visible(&mut strip)?;
    check_is_static(&stripped)?;
    Ok(stripped)
}

/// Variables for a build of the same bytes in whatever folder: `flags` are for rustc, beside those that every such build has.
pub(crate) fn make_reproducible(
    command: &mut Command,
    root: &Path,
    target_directory: &Path,
    flags: &[&str],
) -> Result<()> {
    let home = cargo_home()?;
    let mut all: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    all.extend(path_flags(root, target_directory, &home));
    command.env("CARGO_ENCODED_RUSTFLAGS", all.join("\x1f"));
    command.env("CFLAGS", c_flags(target_directory, &home));
    // The first two would add to the flags above, or replace them. No time is in the binary, and with another one in the
    // environment the C parts would be compiled again.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_RUSTFLAGS").env_remove("SOURCE_DATE_EPOCH");
    Ok(())
}

/// Paths of this machine are replaced: they would be in the binary (in messages of panics) and in the names of symbols.
fn path_flags(root: &Path, target_directory: &Path, cargo_home: &Path) -> Vec<String> {
    let remap = |path: &Path, name: &str| format!("--remap-path-prefix={}={name}", path.display());
    vec![
        remap(root, "/exec-server"),
        remap(&cargo_home.join("registry/src"), "/crates"),
        // Later ones win, and this one is often below the root.
        remap(target_directory, "/target"),
    ]
}

/// For the C of aws-lc and blake3. Both are built small by themselves where the profile says so.
fn c_flags(target_directory: &Path, cargo_home: &Path) -> String {
    let remap = |path: &Path, name: &str| format!("-ffile-prefix-map={}={name}", path.display());
    [remap(&cargo_home.join("registry/src"), "/crates"), remap(target_directory, "/target")].join(" ")
}

fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("cannot tell where cargo's home is")
}

/// A program that names an interpreter or a library does not start on every machine.
fn check_is_static(binary: &Path) -> Result<()> {
    let output = Command::new("readelf").args(["-ldW"]).arg(binary).output().context("cannot run readelf")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text.contains("LOAD"), "readelf cannot read {}", binary.display());
    let needs: Vec<&str> = text.lines().filter(|line| line.contains("INTERP") || line.contains("(NEEDED)")).collect();
    ensure!(needs.is_empty(), "{} is not static: {}", binary.display(), needs.join("; "));
    Ok(())
}
