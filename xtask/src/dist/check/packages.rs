//! The packages one by one: units by systemd itself, the Debian package by lintian, the image by what it runs, the manifests
//! by the published schemas.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Checked, in_root};
use crate::dist::{Release, hex_digest, image, run_quietly};

/// The judge of the manifests, from PyPI.
const KUBERNETES_VALIDATE: &str = "kubernetes-validate==1.37.0";

pub(super) fn units_are_valid(checked: &Checked<'_>) -> Result<()> {
    // The program that a unit starts must exist, so the path of the one that was built takes its place.
    let folder = checked.folder.join("units");
    for kind in ["system", "user"] {
        let units = folder.join(kind);
        std::fs::create_dir_all(&units).with_context(|| format!("cannot create {}", units.display()))?;
        for unit in ["exec-server.service", "exec-server.socket"] {
            let text = String::from_utf8(checked.release.packaging(&format!("systemd/{kind}/{unit}"))?)?;
            let binary = checked.release.directory.join("exec-server");
            let text = text.replace("/usr/bin/exec-server", &binary.display().to_string());
            std::fs::write(units.join(unit), text).with_context(|| format!("cannot write {unit}"))?;
        }
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", &format!("--{kind}")]);
        verify.args(["exec-server.service", "exec-server.socket"].map(|unit| units.join(unit)));
        let output = verify.output().context("cannot run systemd-analyze")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // A machine without a running systemd says so, and judges all the same.
        let complaints: Vec<&str> = said.lines().filter(|line| line.contains("exec-server")).collect();
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
    Ok(())
}

/// The server as a unit starts it: at the first connection, with the socket of systemd. It ends by USR2 and leaves what runs to
/// the next one.
pub(super) fn systemd_passes_its_socket(checked: &Checked<'_>) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let url = format!("unix://{}", folder.path().join("s").display());
    let exec_server = |words: &[&str]| {
        let mut command = Command::new(checked.release.directory.join("exec-server"));
        command.args(words).env("EXEC_SERVER_HOME", folder.path().join("home"));
        command
    };
    let activated = Activated::start(checked.release, folder.path())?;
    let started = run_quietly(
        exec_server(&["run", "--connect", &url, "--detach", "--quiet", "--", "sh", "-c"])
            .arg("echo begun; read x; echo got $x"),
    )?;
    let id = started.trim();
    // Whoever is connected to is the server that was activated; systemd's own part is gone by exec.
    activated.end_by("USR2")?;
    let activated = Activated::start_again(checked.release, folder.path())?;
    let mut attach = exec_server(&["attach", id]);
    let mut child = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot attach")?;
    std::io::Write::write_all(&mut child.stdin.take().context("piped")?, b"it\n").context("cannot type")?;
    let output = child.wait_with_output().context("cannot attach")?;
    activated.end_by("TERM")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said == "begun\ngot it\n", "after the server was replaced, the process said {said:?}");
    Ok(())
}

/// `systemd-socket-activate`, which becomes the server.
struct Activated(Child);

impl Activated {
    fn start(release: &Release, folder: &Path) -> Result<Self> {
        let mut command = Command::new("systemd-socket-activate");
        command.arg("--listen").arg(folder.join("s")).arg(release.directory.join("exec-server"));
        command.args(["serve", "--listen", "fd://", "--state-dir"]).arg(folder.join("state"));
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run systemd-socket-activate")?;
        // It tells that it listens; the rest of what it says is not read, and is little.
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().context("piped")?);
        stderr.read_line(&mut line).context("systemd-socket-activate says nothing")?;
        ensure!(line.contains("Listening"), "systemd-socket-activate: {line}");
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Ok(Self(child))
    }

    /// systemd would keep its socket; this one is bound anew.
    fn start_again(release: &Release, folder: &Path) -> Result<Self> {
        let path = folder.join("s");
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        Self::start(release, folder)
    }

    fn end_by(mut self, signal: &str) -> Result<()> {
        run_quietly(Command::new("kill").args(["-s", signal, &self.0.id().to_string()]))?;
        let status = self.0.wait().context("cannot wait")?;
        ensure!(status.success(), "after {signal} the server ended with {status}");
        Ok(())
    }
}

pub(super) fn lintian_is_content(checked: &Checked<'_>) -> Result<()> {
    let package = find(&checked.release.directory, ".deb")?;
    // As root it would warn of itself.
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning"]).arg(&package);
    run_quietly(&mut lintian)?;
    Ok(())
}

pub(super) fn manifests_are_valid(checked: &Checked<'_>) -> Result<()> {
    let environment = checked.folder.join("kubernetes-validate");
    let python = environment.join("bin/python");
    if !environment.join("installed").exists() {
        run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        run_quietly(Command::new(&python).args(["-m", "pip", "install", "--quiet", KUBERNETES_VALIDATE]))?;
        std::fs::write(environment.join("installed"), "").context("cannot note that it is installed")?;
    }
    let folder = checked.release.root.join("packaging/kubernetes");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).context("cannot list the manifests")?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let judged = run_quietly(Command::new(&python).args(["-c", include_str!("../kubernetes.py")]).args(&paths))?;
    print!("{judged}");
    Ok(())
}

/// Unpacked as an engine would: every blob has the digest that names it; then the entry point runs, as its own user.
pub(super) fn image_runs(checked: &Checked<'_>) -> Result<()> {
    let root = checked.folder.join("image");
    if root.exists() {
        std::fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    let config = unpack_image(&find(&checked.release.directory, ".oci.tar")?, &root)?;
    let words = |name: &str| -> Vec<String> {
        let list = config["config"][name].as_array().into_iter().flatten();
        list.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let command = [words("Entrypoint"), words("Cmd")].concat().join(" ");
    let variables: String = words("Env").iter().map(|variable| format!("export {variable}; ")).collect();
    let run = |script: &str| in_root(&root, image::USER, &format!("{variables}cd; {script}"));
    let uname = run("exec-server run -- uname -a; test $(id -u) = 1000; \
                     exec-server cp /usr/bin/exec-server /tmp/copy; cmp /usr/bin/exec-server /tmp/copy")?;
    println!("image: {}", uname.trim());
    let refused = run(&format!("if {command} 2> /tmp/log; then exit 1; fi; cat /tmp/log"))?;
    ensure!(refused.contains("token"), "without a token it must say so: {refused}");
    let served = format!(
        "exec-server token new --file /tmp/token > /dev/null; \
         {command} > /tmp/url 2> /tmp/log & until test -s /tmp/url; do kill -0 $! || {{ cat /tmp/log; exit 1; }}; sleep 0.1; done; \
         if exec-server run --connect ws://127.0.0.1:7000 -- true 2> /dev/null; then exit 1; fi; \
         exec-server run --connect ws://127.0.0.1:7000 --token-file /tmp/token -- sh -c 'echo served by $(id -un)'; \
         wget -q -O - http://127.0.0.1:7000/readyz > /dev/null; kill $!; wait $! || true"
    )
    .replace("/run/secrets/exec-server/token", "/tmp/token");
    let said = run(&served)?;
    ensure!(said.contains("served by agent"), "the server in the image said {said:?}");
    Ok(())
}

/// The configuration of the image, and its file system in `root`.
fn unpack_image(archive: &Path, root: &Path) -> Result<Value> {
    let layout = tempfile::tempdir().context("cannot make a folder")?;
    run_quietly(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(layout.path()))?;
    let blob = |described: &Value| -> Result<(PathBuf, Vec<u8>)> {
        let digest = described["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let path = layout.path().join("blobs/sha256").join(digest.context("a descriptor has a digest")?);
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(Some(hex_digest(&content).as_str()) == digest, "{} is not what its name says", path.display());
        ensure!(described["size"].as_u64() == Some(content.len() as u64), "{} has another size", path.display());
        Ok((path, content))
    };
    let index = std::fs::read(layout.path().join("index.json")).context("cannot read index.json")?;
    let index: Value = serde_json::from_slice(&index).context("index.json is no JSON")?;
    let manifest: Value =
        serde_json::from_slice(&blob(&index["manifests"][0])?.1).context("the manifest is no JSON")?;
    let config: Value =
        serde_json::from_slice(&blob(&manifest["config"])?.1).context("the configuration is no JSON")?;
    std::fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    for layer in manifest["layers"].as_array().context("a manifest has layers")? {
        let (path, _) = blob(layer)?;
        run_quietly(Command::new("tar").args(["--numeric-owner", "-xzpf"]).arg(path).arg("-C").arg(root))?;
    }
    Ok(config)
}

pub(super) fn find(folder: &Path, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = entries.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(ending));
    found.next().with_context(|| format!("there is no {ending} in {}", folder.display()))
}
