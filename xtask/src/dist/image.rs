//! The container image, as an OCI layout in one archive (`podman load -i`, `skopeo copy oci-archive:…`), without an engine.
//!
//! Two layers. The first is a small user space: Debian's static busybox, the certificates of Debian's authorities, and an
//! account without rights. Programs need something to run on, and `exec-server` is of little use in an empty image. The
//! second is the binary, which needs nothing of the first: `COPY --from` takes it to any other image, and as an init
//! container it copies itself (`exec-server cp /usr/bin/exec-server /shared/`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::archive::{FileTree, gzip, tar};
use super::{Release, hex_digest, sbom};
use crate::workspace::run_visible;

/// The account that programs run as; Kubernetes wants a number to know that it is not root.
pub(crate) const USER: u32 = 1000;

/// Where the server keeps its state, and where it looks for the token of its clients.
const STATE: &str = "var/lib/exec-server";
const TOKEN: &str = "/run/secrets/exec-server/token";

/// Made by Debian, for the first layer.
const BASE_PACKAGES: [&str; 2] = ["busybox-static", "ca-certificates"];

pub(crate) fn image(release: &Release) -> Result<(String, Vec<u8>)> {
    let layers = [base_layer(release)?, program_layer(release)];
    let archives: Vec<Vec<u8>> = layers.iter().map(|layer| tar(layer, "", release.epoch)).collect::<Result<_>>()?;
    let compressed: Vec<Vec<u8>> = archives.iter().map(|archive| gzip(archive)).collect::<Result<_>>()?;
    let config = config(release, &archives);
    let manifest = manifest(release, &config, &compressed);
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(&bytes(&manifest)),
            "size": bytes(&manifest).len(),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": release.version},
        }],
    });
    let mut layout = FileTree::default();
    layout.file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
    layout.file("index.json", bytes(&index));
    for blob in compressed.into_iter().chain([bytes(&config), bytes(&manifest)]) {
        layout.file(format!("blobs/sha256/{}", hex_digest(&blob)), blob);
    }
    let name = format!("exec-server-{}-x86_64-linux.oci.tar", release.version);
    Ok((name, tar(&layout, "", release.epoch)?))
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex_digest(content))
}

fn program_layer(release: &Release) -> FileTree {
    let mut layer = FileTree::default();
    layer.program("usr/bin/exec-server", release.binary.clone());
    layer.directory(STATE, 0o700, USER);
    layer.file("usr/share/doc/exec-server/exec-server.cdx.json", release.sbom.clone());
    layer
}

fn base_layer(release: &Release) -> Result<FileTree> {
    let cache = release.directory.join("cache");
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let mut layer = FileTree::default();
    let [busybox, certificates] = BASE_PACKAGES.map(|package| unpack(package, &cache));
    let busybox = std::fs::read(busybox?.join("bin/busybox")).context("busybox-static has no bin/busybox")?;
    let program = cache.join("busybox-static/bin/busybox");
    let applets = Command::new(&program).arg("--list").output().context("cannot run busybox")?;
    let applets = String::from_utf8(applets.stdout).context("busybox printed something that is no text")?;
    layer.program("bin/busybox", busybox);
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        layer.link(format!("bin/{applet}"), "busybox");
    }
    layer.link("usr/bin/env", "../../bin/busybox");
    layer.file("etc/ssl/certs/ca-certificates.crt", authorities(&certificates?)?);
    layer.file(
        "etc/passwd",
        format!("root:x:0:0:root:/root:/bin/sh\nagent:x:{USER}:{USER}:agent:/home/agent:/bin/sh\n"),
    );
    layer.file("etc/group", format!("root:x:0:\nagent:x:{USER}:\n"));
    layer.directory("root", 0o700, 0);
    layer.directory("home/agent", 0o755, USER);
    layer.directory("tmp", 0o1777, 0);
    for mounted in ["proc", "sys", "dev", "run"] {
        layer.directory(mounted, 0o755, 0);
    }
    Ok(layer)
}

/// Fetches a package with apt, which verifies it, and unpacks it below the cache.
fn unpack(package: &str, cache: &Path) -> Result<std::path::PathBuf> {
    let folder = cache.join(package);
    if folder.join("usr").exists() {
        return Ok(folder);
    }
    // apt leaves its rights where it can, and then cannot write here.
    run_visible(
        Command::new("apt-get").args(["-o", "APT::Sandbox::User=root", "download", package]).current_dir(cache),
    )
    .with_context(|| format!("cannot fetch {package}, which the image needs"))?;
    let entries = std::fs::read_dir(cache).with_context(|| format!("cannot list {}", cache.display()))?;
    let names = entries.flatten().map(|entry| entry.path());
    let fetched = names.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
    });
    let fetched = fetched.with_context(|| format!("apt-get fetched no {package}"))?;
    run_visible(Command::new("dpkg-deb").arg("-x").args([&fetched, &folder]))?;
    Ok(folder)
}

/// All of Mozilla's, in one file, as `update-ca-certificates` makes it.
fn authorities(package: &Path) -> Result<Vec<u8>> {
    let folder = package.join("usr/share/ca-certificates/mozilla");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no certificates", folder.display());
    let mut all = Vec::new();
    for path in paths {
        all.extend(std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(all)
}

/// Without a token it does not serve: whoever reaches it could run programs.
fn config(release: &Release, archives: &[Vec<u8>]) -> Value {
    let created = sbom::timestamp(release.epoch);
    json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin:/bin", "HOME=/home/agent"],
            "Entrypoint": ["/usr/bin/exec-server"],
            "Cmd": [
                "serve", "--listen", "ws://0.0.0.0:7000", "--state-dir", format!("/{STATE}"),
                "--ws-auth", "capability-token", "--ws-token-file", TOKEN,
            ],
            "ExposedPorts": {"7000/tcp": {}},
            "Volumes": {format!("/{STATE}"): {}},
            "WorkingDir": "/home/agent",
            "StopSignal": "SIGTERM",
            "Labels": labels(release),
        },
        "rootfs": {"type": "layers", "diff_ids": archives.iter().map(|archive| digest(archive)).collect::<Vec<_>>()},
        "history": [
            {"created": created, "created_by": "busybox-static and ca-certificates of Debian"},
            {"created": created, "created_by": "exec-server"},
        ],
    })
}

fn manifest(release: &Release, config: &Value, layers: &[Vec<u8>]) -> Value {
    let described = |layer: &Vec<u8>| {
        json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest(layer),
            "size": layer.len(),
        })
    };
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(&bytes(config)),
            "size": bytes(config).len(),
        },
        "layers": layers.iter().map(described).collect::<Vec<_>>(),
        "annotations": labels(release),
    })
}

fn labels(release: &Release) -> Value {
    json!({
        "org.opencontainers.image.title": "exec-server",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": release.homepage,
    })
}
