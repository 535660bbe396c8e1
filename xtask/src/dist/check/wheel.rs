//! The Python package as people get it: `pip install` of the wheel on a system with Python, without compiler, Rust and network;
//! then a few lines of Python, on that system and on a second one behind ssh, where ssh and the server are killed.
//!
//! Both systems are roots of debootstrap in the same namespaces, so the second has an sshd of its own on the loopback
//! of the first.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::in_root;
use super::roots::{System, fresh_root};

/// Python 3.11, and ssh as a client.
const NEAR: System = System {
    name: "bookworm-python",
    suite: "bookworm",
    glibc: "2.36",
    arguments: &["--include=python3,python3-venv,openssh-client"],
};

/// An older system with an sshd, and neither Python nor exec-server.
pub(super) const FAR: System =
    System { name: "bullseye-sshd", suite: "bullseye", glibc: "2.31", arguments: &["--include=openssh-server"] };

/// The second system, in the folder /far of the first: keys, and an sshd.
pub(super) const PREPARE: &str = r#"
for absent in cc gcc clang rustc cargo exec-server; do if command -v $absent; then exit 1; fi; done
for absent in cc gcc rustc cargo exec-server python3; do if chroot /far sh -c "command -v $absent"; then exit 1; fi; done
mount -t proc proc /far/proc
mount -t tmpfs tmpfs /far/run
mount --rbind /dev /far/dev
mkdir -p -m 700 /root/.ssh /far/root/.ssh
mkdir -p /far/run/sshd
chroot /far ssh-keygen -q -A
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /far/root/.ssh/authorized_keys
echo "[127.0.0.1]:2222 $(cat /far/etc/ssh/ssh_host_ed25519_key.pub)" > /root/.ssh/known_hosts
chroot /far /usr/sbin/sshd -p 2222 -o ListenAddress=127.0.0.1 -o UsePAM=no
"#;

/// All that people do before their first line of Python.
const INSTALL: &str = r#"
python3 -m venv /root/venv
/root/venv/bin/pip install --quiet --disable-pip-version-check --no-index /shipped/*.whl
"#;

const USE: &str = r#"
cd /root
/root/venv/bin/exec-server --version
/root/venv/bin/python /shipped/first.py
/root/venv/bin/python /shipped/kill_on_request.py /root/venv/bin/python /shipped/over_ssh.py ssh://root@127.0.0.1:2222
"#;

/// What somebody would write first.
const FIRST: &str = r#"
import exec_server

with exec_server.local() as env:
    print("here:", env.run("cat /etc/debian_version", check=True).stdout.strip())
with exec_server.connect("ssh://root@127.0.0.1:2222") as env:
    print("there:", env.run("cat /etc/debian_version", check=True).stdout.strip())
    with env.spawn("seq 100000") as process:
        assert [line for line in process.lines()] == [str(number) for number in range(1, 100001)]
"#;

/// Roots are kept in `folder`; `root` are the sources.
pub(crate) fn wheel_is_the_whole_set_up(folder: &Path, root: &Path, wheel: &Path) -> Result<()> {
    let near = fresh_root(folder, &NEAR)?;
    let tried = try_wheel(folder, root, wheel, &near);
    std::fs::remove_dir_all(&near).with_context(|| format!("cannot remove {}", near.display()))?;
    print!("{}", tried?);
    Ok(())
}

fn try_wheel(folder: &Path, root: &Path, wheel: &Path, near: &Path) -> Result<String> {
    let far = fresh_root(folder, &FAR)?;
    std::fs::rename(&far, near.join("far")).context("cannot put one root into the other")?;
    let shipped = near.join("shipped");
    std::fs::create_dir(&shipped).with_context(|| format!("cannot create {}", shipped.display()))?;
    let name = wheel.file_name().context("a wheel has a name")?;
    std::fs::copy(wheel, shipped.join(name)).context("cannot copy the wheel")?;
    let program = root.join("sdk/python/tests/over_ssh.py");
    std::fs::copy(&program, shipped.join("over_ssh.py"))
        .with_context(|| format!("cannot copy {}", program.display()))?;
    let programs = [("first.py", FIRST), ("kill_on_request.py", include_str!("../kill_on_request.py"))];
    for (name, program) in programs {
        std::fs::write(shipped.join(name), program).with_context(|| format!("cannot write {name}"))?;
    }
    let said = in_root(near, 0, &format!("{PREPARE}{INSTALL}{USE}"))?;
    ensure!(said.contains("here: 12.") && said.contains("there: 11."), "the two systems said: {said}");
    ensure!(said.contains("killed ssh server"), "nothing was killed: {said}");
    Ok(said)
}
