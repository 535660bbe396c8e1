//! Systems of the last ten years, as their distributions ship them: what we ship is installed and used there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Checked, in_root, packages};
use crate::dist::{Release, run_quietly};

/// Those of 2016 and 2021, older than any that is still served elsewhere; the newest is the machine that builds.
const SYSTEMS: [System; 2] = [
    System {
        name: "xenial",
        suite: "xenial",
        glibc: "2.23",
        // Debian does not have Ubuntu's keys. The root is only ever run in namespaces of its own.
        arguments: &["--no-check-gpg"],
    },
    System { name: "bullseye", suite: "bullseye", glibc: "2.31", arguments: &[] },
];

/// A system and the version of its C library. debootstrap knows where it comes from.
pub(super) struct System {
    /// The folder in which it is kept: the same release with other packages is another system.
    pub(super) name: &'static str,
    pub(super) suite: &'static str,
    pub(super) glibc: &'static str,
    pub(super) arguments: &'static [&'static str],
}

/// Runs, is killed, comes back, and has lost nothing.
const USE: &str = r#"
for absent in cc gcc clang rustc cargo; do if command -v $absent; then exit 1; fi; done
exec-server --version
test "$(exec-server run -- uname -s)" = Linux
exec-server run -- uname -a
test "$(seq 3 | exec-server run -- tac | tr '\n' ' ')" = '3 2 1 '
test "$(exec-server run --tty -- sh -c 'test -t 0 && echo terminal' | tr -d '\r')" = terminal
exec-server run --connect nowhere://x -- true 2>/dev/null && exit 1
cd "$(mktemp -d)"
export EXEC_SERVER_HOME=$PWD/home
serve() { rm -f url; exec-server serve --listen unix://$PWD/s --state-dir $PWD/state > url 2> log & until test -s url; do sleep 0.1; done; server=$!; }
serve
id=$(exec-server run --connect unix://$PWD/s --detach --quiet -- sh -c 'echo before; read x; echo after $x; exit 7')
until exec-server logs $id | grep -q before; do sleep 0.1; done
kill -9 $server; wait $server || true
serve
code=0; echo it | exec-server attach $id > out || code=$?
test "$(cat out)" = "before
after it"
test $code = 7
# Names are looked up without the modules of the machine, which a static program cannot use.
exec-server run --connect ws://localhost:1 -- true 2> refused && exit 1
grep -qi refused refused
kill $server; wait $server || true
echo used
"#;

pub(super) fn packages_run_on_old_systems(checked: &Checked<'_>) -> Result<()> {
    for system in &SYSTEMS {
        let root = fresh_root(&checked.folder, system)?;
        let tried = try_system(checked, system, &root);
        std::fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
        tried.with_context(|| format!("on {}", system.name))?;
    }
    Ok(())
}

fn try_system(checked: &Checked<'_>, system: &System, root: &Path) -> Result<()> {
    let release = checked.release;
    let shipped = root.join("shipped");
    std::fs::create_dir(&shipped).with_context(|| format!("cannot create {}", shipped.display()))?;
    for entry in std::fs::read_dir(&release.directory).context("cannot list what was built")?.flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), shipped.join(entry.file_name())).context("cannot copy what was built")?;
        }
    }
    // Modules that the system has, and that are of another C library than ours.
    std::fs::write(root.join("etc/nsswitch.conf"), "hosts: nis hesiod files dns\npasswd: nis compat files\n")
        .context("cannot write nsswitch.conf")?;
    std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").context("cannot write hosts")?;
    // The Debian package, as root; it starts nothing and leaves nothing when it is removed.
    in_root(
        root,
        0,
        "dpkg -i /shipped/exec-server_*.deb >&2; dpkg --verify exec-server; test -e /lib/systemd/system/exec-server.socket",
    )?;
    let said = in_root(root, 0, USE).context("with the Debian package, as root")?;
    println!(
        "{:<9} glibc {}: {}",
        system.name,
        system.glibc,
        said.lines().find(|line| line.contains("Linux ")).unwrap_or("")
    );
    in_root(root, 0, "dpkg --purge exec-server >&2; if command -v exec-server; then exit 1; fi")?;
    // The archive, by install.sh, as somebody without rights.
    in_root(root, 0, "mkdir -p /home/somebody && chown 1234:1234 /home/somebody && chmod 1777 /tmp")?;
    let account = "export HOME=/home/somebody PATH=/home/somebody/.local/bin:$PATH; cd; ";
    let install = "sh /shipped/install.sh /shipped; test -s ~/.local/share/man/man1/exec-server-run.1; ";
    in_root(root, 1234, &format!("{account}{install}{USE}")).context("by install.sh, as a user")?;
    // One that was changed on its way.
    let changed = "cp -r /shipped /tmp/changed; for file in /tmp/changed/*.tar.gz; do printf x >> $file; done; \
                   if sh /shipped/install.sh --prefix /tmp/p /tmp/changed; then exit 1; fi; test ! -e /tmp/p";
    in_root(root, 1234, &format!("{account}{changed}")).context("a changed archive")?;
    // What is loaded into Python and Node finds the C library that it needs; the system's own programs are too old for
    // the packages.
    unpack_libraries(release, &shipped)?;
    let load = "for library in /shipped/wheel/exec_server/_native*.so /shipped/exec_server.node; do \
                if /lib64/ld-linux-x86-64.so.2 --list $library 2>&1 | grep 'not found' >&2; then exit 1; fi; done";
    in_root(root, 0, load).context("libraries for Python and Node")?;
    Ok(())
}

fn unpack_libraries(release: &Release, folder: &Path) -> Result<()> {
    let wheel = packages::find(&release.target.join("wheel"), ".whl")?;
    run_quietly(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder.join("wheel")))?;
    let library = release.directory.join("npm/native/exec_server.node");
    std::fs::copy(&library, folder.join("exec_server.node"))
        .with_context(|| format!("cannot copy {}", library.display()))?;
    Ok(())
}

/// A copy of the system, which is made by debootstrap the first time.
pub(super) fn fresh_root(folder: &Path, system: &System) -> Result<PathBuf> {
    let roots = folder.join("roots");
    std::fs::create_dir_all(&roots).with_context(|| format!("cannot create {}", roots.display()))?;
    let kept = roots.join(system.name);
    if !kept.exists() {
        let making = roots.join(format!("{}.part", system.name));
        if making.exists() {
            std::fs::remove_dir_all(&making).with_context(|| format!("cannot remove {}", making.display()))?;
        }
        println!("making the root {}, some minutes", system.name);
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase"]).args(system.arguments).arg(system.suite).arg(&making);
        run_quietly(&mut debootstrap)?;
        std::fs::rename(&making, &kept).with_context(|| format!("cannot rename {}", making.display()))?;
    }
    let copy = roots.join(format!("{}.copy", system.name));
    if copy.exists() {
        std::fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    }
    run_quietly(Command::new("cp").args(["-a", "--reflink=auto"]).args([&kept, &copy]))?;
    let version = in_root(&copy, 0, "ldd --version | head -n 1")?;
    ensure!(version.contains(system.glibc), "this is not glibc {}: {version}", system.glibc);
    Ok(copy)
}
