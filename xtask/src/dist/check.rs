//! `dist --check`: what was built is judged by others than us, and tried where neither Rust nor a compiler is.
//!
//! A step is a function that fails with a reason. Roots of old systems are made by debootstrap once and kept in
//! `target/check`; every use works on a copy. Needs root, for chroot and mounts, and the network, for the roots and for the
//! judges (lintian, kubernetes-validate).

mod npm;
mod packages;
mod roots;
mod wheel;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{PRODUCTS, Release, SUMS, binary, hex_digest, run_quietly};
use crate::setup;
use crate::workspace::{Workspace, last_output_line};

/// A workspace, what was built of it, and a folder for what the checks make.
struct Checked<'a> {
    workspace: &'a Workspace,
    release: &'a Release,
    folder: PathBuf,
}

type Step = fn(&Checked<'_>) -> Result<()>;

const STEPS: &[(&str, Step)] = &[
    ("small", is_small),
    ("digests", digests_are_right),
    ("units", packages::units_are_valid),
    ("sockets", packages::systemd_passes_its_socket),
    ("lintian", packages::lintian_is_content),
    ("kubernetes", packages::manifests_are_valid),
    ("image", packages::image_runs),
    ("roots", roots::packages_run_on_old_systems),
    ("wheel", the_wheel_is_the_whole_set_up),
    ("npm", the_npm_package_is_the_whole_set_up),
    ("reproducible", is_reproducible),
];

pub(super) fn run(workspace: &Workspace, release: &Release) -> Result<()> {
    let folder = prepare(workspace)?;
    setup::install_packages(&[
        ("lintian", &["lintian"]),
        ("shellcheck", &["shellcheck"]),
        ("systemd-socket-activate", &["systemd"]),
    ])?;
    let checked = Checked { workspace, release, folder };
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        let started = Instant::now();
        let result = step(&checked);
        println!(
            "{:<12} {} in {:.1} s",
            name,
            if result.is_ok() { "ok" } else { "FAILED" },
            started.elapsed().as_secs_f64()
        );
        if let Err(error) = result {
            println!("{error:#}");
            failed.push(*name);
        }
    }
    ensure!(failed.is_empty(), "of what was built, this does not hold: {}", failed.join(", "));
    Ok(())
}

/// A wheel alone, without the rest of a release.
pub(crate) fn try_wheel(workspace: &Workspace, wheel: &Path) -> Result<()> {
    let folder = prepare(workspace)?;
    wheel::wheel_is_the_whole_set_up(&folder, &workspace.root, wheel)
}

/// The same for an npm package.
pub(crate) fn try_npm_package(workspace: &Workspace, package: &Path) -> Result<()> {
    let folder = prepare(workspace)?;
    npm::package_is_the_whole_set_up(&folder, package)
}

/// The folder for what the checks make, on a machine that can make roots.
fn prepare(workspace: &Workspace) -> Result<PathBuf> {
    ensure!(last_output_line(Command::new("id").arg("-u"))? == "0", "this check needs root, for chroot and mounts");
    setup::install_packages(&[("debootstrap", &["debootstrap"])])?;
    let folder = workspace.target.join("check");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn the_wheel_is_the_whole_set_up(checked: &Checked<'_>) -> Result<()> {
    let wheel = packages::find(&checked.release.target.join("wheel"), ".whl")?;
    wheel::wheel_is_the_whole_set_up(&checked.folder, &checked.workspace.root, &wheel)
}

fn the_npm_package_is_the_whole_set_up(checked: &Checked<'_>) -> Result<()> {
    let release = checked.release;
    let name = format!("exec-server-{}.tgz", release.version);
    npm::package_is_the_whole_set_up(&checked.folder, &release.directory.join(name))
}

fn is_small(checked: &Checked<'_>) -> Result<()> {
    let length = checked.release.binary.len() as u64;
    ensure!(length <= binary::MAX_BYTES, "the binary has {length} bytes, more than {}", binary::MAX_BYTES);
    Ok(())
}

fn digests_are_right(checked: &Checked<'_>) -> Result<()> {
    let sums =
        Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(&checked.release.directory).output();
    let sums = sums.context("cannot run sha256sum")?;
    ensure!(sums.status.success(), "{}", String::from_utf8_lossy(&sums.stdout));
    run_quietly(
        Command::new("shellcheck")
            .args(["--severity=info", "packaging/install.sh"])
            .current_dir(&checked.workspace.root),
    )?;
    Ok(())
}

/// The same sources in another folder, built into another folder, give the same bytes; and so do all packages made of them.
fn is_reproducible(checked: &Checked<'_>) -> Result<()> {
    let release = checked.release;
    for product in PRODUCTS {
        let (name, content) = product(release)?;
        let first = std::fs::read(release.directory.join(&name)).with_context(|| format!("cannot read {name}"))?;
        ensure!(first == content, "{name} is another one when it is made again");
    }
    let elsewhere = checked.folder.join("elsewhere/deep/er");
    copy_sources(&checked.workspace.root, &elsewhere)?;
    let workspace = Workspace { root: elsewhere.clone(), ..checked.workspace.clone() };
    let built = binary::build(&workspace, &checked.folder.join("second-target"))?;
    let built = std::fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let (first, second) = (hex_digest(&release.binary), hex_digest(&built));
    ensure!(first == second, "built in two folders, the binary is {first} and {second}");
    println!("built twice: {first}");
    Ok(())
}

/// All files that git knows or would add, and no others. What is there already is left alone, so that a second check
/// compiles only what has changed.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(from);
    let listed = run_quietly(&mut git)?;
    let mut wanted = BTreeSet::new();
    for name in listed.split('\0').filter(|name| !name.is_empty() && from.join(name).is_file()) {
        let content = std::fs::read(from.join(name)).with_context(|| format!("cannot read {name}"))?;
        let target = to.join(name);
        if std::fs::read(&target).ok().as_ref() != Some(&content) {
            let folder = target.parent().context("a file is in a folder")?;
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            std::fs::write(&target, content).with_context(|| format!("cannot write {}", target.display()))?;
        }
        wanted.insert(target);
    }
    let found = run_quietly(Command::new("find").arg(to).args(["-type", "f"]))?;
    for path in found.lines().map(PathBuf::from).filter(|path| !wanted.contains(path)) {
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Runs a shell script inside a root, in process, mount and network namespaces of its own, with `/proc`; what it started
/// ends with it.
fn in_root(root: &Path, user: u32, script: &str) -> Result<String> {
    let inside = format!("exec chroot --userspec={user}:{user} {} /bin/sh -euc \"$1\"", root.display());
    let outside = format!(
        "ip link set lo up 2>/dev/null || busybox ip link set lo up 2>/dev/null || true; \
         mount -t proc proc {0}/proc && mount -t tmpfs tmpfs {0}/run && mkdir -p {0}/dev && \
         mount -t tmpfs tmpfs {0}/dev && for d in null zero urandom random tty; do \
           : > {0}/dev/$d; mount --bind /dev/$d {0}/dev/$d; done && mkdir {0}/dev/pts {0}/dev/shm && chmod 1777 {0}/dev/shm && \
         mount -t devpts -o newinstance,ptmxmode=0666 devpts {0}/dev/pts && ln -s pts/ptmx {0}/dev/ptmx && {inside}",
        root.display()
    );
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--fork",
        "--kill-child",
        "sh",
        "-euc",
        &outside,
        "sh",
        script,
    ]);
    command
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root");
    let output = command.output().context("cannot run unshare")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("in {}: {}\n{stdout}{stderr}", root.display(), output.status);
    }
    Ok(stdout.into_owned())
}
