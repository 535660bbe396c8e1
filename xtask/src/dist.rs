//! `dist`: everything that is shipped, in `target/dist`: the portable binary, an archive with completions and manual
//! pages, a Debian package, a container image, a Python wheel, an npm package, the list of what is inside,
//! `install.sh`, and the digests of all.
//!
//! The same commit gives the same bytes, in whatever folder it is built, on the same version of Debian and Rust. Nothing is
//! signed or uploaded. `dist --check` builds twice, installs everything in roots without a compiler, and runs it there.
//!
//! A package in another format is one more entry of [`PRODUCTS`]: it is given the [`Release`] and returns its file.

mod archive;
mod binary;
pub(crate) mod check;
mod debian;
mod documents;
mod image;
mod installer;
mod sbom;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use self::archive::FileTree;
use self::documents::Documents;
use self::sbom::Subject;
use crate::workspace::{Workspace, last_output_line, run_visible};
use crate::zig::{self, Zig};
use crate::{npm, wheel};

const SUMS: &str = "SHA256SUMS";

/// What every package is made of.
pub(crate) struct Release {
    pub(crate) version: String,
    pub(crate) homepage: String,
    /// The time that every file of every archive has, in seconds since 1970.
    pub(crate) epoch: u64,
    /// The stripped binary, and where it is.
    pub(crate) binary: Vec<u8>,
    pub(crate) binary_path: PathBuf,
    pub(crate) documents: Documents,
    pub(crate) sbom: String,
    /// The same for the library that is only in the Python package.
    pub(crate) python_sbom: String,
    /// And for that of the npm package.
    pub(crate) node_sbom: String,
    /// The root of the sources.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// Where the packages go. What a product needs from elsewhere is kept in its folder `cache`.
    pub(crate) directory: PathBuf,
}

/// Makes one file that is shipped: its name and its content.
type Product = fn(&Release) -> Result<(String, Vec<u8>)>;

const PRODUCTS: &[Product] =
    &[program, tarball, bill_of_materials, debian::package, image::image, installer::script, python_wheel, npm_package];

/// Builds all of it; with `check`, tries all of it as well.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let release = build(workspace)?;
    let length = release.binary.len() as u64;
    let (megabytes, allowed) = (length as f64 / 1e6, binary::MAX_BYTES as f64 / 1e6);
    if length > binary::MAX_BYTES {
        println!("warning: the binary has {megabytes:.1} MB, more than {allowed:.1} MB");
    }
    if check {
        check::run(workspace, &release)?;
    }
    Ok(())
}

fn build(workspace: &Workspace) -> Result<Release> {
    let epoch = epoch(workspace)?;
    let binary_path = binary::build(workspace, &workspace.target.join("portable"))?;
    let binary = std::fs::read(&binary_path).with_context(|| format!("cannot read {}", binary_path.display()))?;
    let directory = workspace.target.join("dist");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let package = workspace.packages.iter().find(|package| package.name == "exec-server-cli");
    let package = package.context("the workspace has no exec-server-cli")?;
    let release = Release {
        version: package.version.clone(),
        homepage: package.repository.clone().unwrap_or_default(),
        epoch,
        documents: Documents::from_binary(&binary_path)?,
        sbom: sbom::document(workspace, Subject::Binary, epoch)?,
        python_sbom: sbom::document(workspace, Subject::PythonLibrary, epoch)?,
        node_sbom: sbom::document(workspace, Subject::NodeLibrary, epoch)?,
        binary,
        binary_path,
        root: workspace.root.clone(),
        target: workspace.target.clone(),
        directory,
    };
    let mut sums = String::new();
    for product in PRODUCTS {
        let (name, content) = product(&release)?;
        release.write(&name, &content)?;
        sums.push_str(&format!("{}  {name}\n", hex_digest(&content)));
        println!("{:>10}  {}", content.len(), release.directory.join(&name).display());
    }
    release.write(SUMS, sums.as_bytes())?;
    print!("{sums}");
    Ok(release)
}

impl Release {
    /// A file of `packaging`.
    pub(crate) fn packaging(&self, path: &str) -> Result<Vec<u8>> {
        self.source(&format!("packaging/{path}"))
    }

    fn source(&self, path: &str) -> Result<Vec<u8>> {
        let path = self.root.join(path);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.directory.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// How the archive is called, and the only folder in it.
    pub(crate) fn archive_name(&self) -> String {
        format!("exec-server-{}-x86_64-linux", self.version)
    }
}

fn program(release: &Release) -> Result<(String, Vec<u8>)> {
    let path = release.directory.join("exec-server");
    std::fs::copy(&release.binary_path, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(("exec-server".to_owned(), release.binary.clone()))
}

fn tarball(release: &Release) -> Result<(String, Vec<u8>)> {
    let mut files = FileTree::default();
    files.program("exec-server", release.binary.clone());
    for (name, page) in &release.documents.pages {
        files.file(format!("man/man1/{name}"), page.clone());
    }
    for (shell, name, script) in &release.documents.completions {
        files.file(format!("completions/{shell}/{name}"), script.clone());
    }
    for document in ["README.md", "LICENSE", "CHANGELOG.md"] {
        files.file(document, release.source(document)?);
    }
    for unit in ["exec-server.service", "exec-server.socket"] {
        files.file(format!("systemd/user/{unit}"), release.packaging(&format!("systemd/user/{unit}"))?);
    }
    files.file("exec-server.cdx.json", release.sbom.clone());
    let name = release.archive_name();
    let archive = archive::gzip(&archive::tar(&files.below(&name), "", release.epoch)?)?;
    Ok((format!("{name}.tar.gz"), archive))
}

fn bill_of_materials(release: &Release) -> Result<(String, Vec<u8>)> {
    Ok((format!("exec-server-{}.cdx.json", release.version), release.sbom.clone().into_bytes()))
}

/// The Python package. Its library is built for speed and for an old C library, the command in it is the portable binary.
fn python_wheel(release: &Release) -> Result<(String, Vec<u8>)> {
    let sboms = release.directory.join("cache/sboms");
    std::fs::create_dir_all(&sboms).with_context(|| format!("cannot create {}", sboms.display()))?;
    let lists = [("exec-server.cdx.json", &release.sbom), ("exec-server-python.cdx.json", &release.python_sbom)];
    for (name, list) in lists {
        std::fs::write(sboms.join(name), list).with_context(|| format!("cannot write {name}"))?;
    }
    let builds = release.target.join("portable");
    let zig = Zig::install(&release.target)?;
    let wheel = wheel::build(&release.root, &release.target, &release.binary_path, |maturin| {
        maturin.args(["--release", "--target", binary::TARGET, "--target-dir"]).arg(&builds);
        maturin.args(["--zig", "--compatibility", &zig::wheel_tag()]);
        zig.let_it_be_found(maturin)?;
        for (name, _) in lists {
            maturin.arg("--sbom-include").arg(sboms.join(name));
        }
        binary::make_reproducible(maturin, &release.root, &builds, &[])
    })?;
    let name = wheel.file_name().and_then(|name| name.to_str()).context("a wheel has a name")?.to_owned();
    let content = std::fs::read(&wheel).with_context(|| format!("cannot read {}", wheel.display()))?;
    Ok((name, content))
}

/// The package for Node, made of the same parts.
fn npm_package(release: &Release) -> Result<(String, Vec<u8>)> {
    let builds = release.target.join("portable");
    let mut cargo = Zig::install(&release.target)?.cargo_build(binary::TARGET)?;
    cargo.args(["--release", "--locked", "-p", "exec-server-node", "--target-dir"]).arg(&builds);
    cargo.current_dir(&release.root);
    binary::make_reproducible(&mut cargo, &release.root, &builds, &[])?;
    run_visible(&mut cargo)?;
    let library = builds.join(binary::TARGET).join("release").join(npm::LIBRARY);
    zig::check_library(&library)?;
    let lists = [("exec-server.cdx.json", &release.sbom[..]), ("exec-server-node.cdx.json", &release.node_sbom)];
    let package = npm::build(&release.root, &release.target, &library, &release.binary_path, &lists)?;
    let name = package.file_name().and_then(|name| name.to_str()).context("a package has a name")?.to_owned();
    let content = std::fs::read(&package).with_context(|| format!("cannot read {}", package.display()))?;
    Ok((name, content))
}

/// SHA-256, as `sha256sum` writes it.
pub(crate) fn hex_digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time of the last commit, unless another one is named as is the custom.
fn epoch(workspace: &Workspace) -> Result<u64> {
    if let Ok(named) = std::env::var("SOURCE_DATE_EPOCH") {
        return named.parse().context("SOURCE_DATE_EPOCH is not a number of seconds");
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root);
    let time = last_output_line(&mut git).context("set SOURCE_DATE_EPOCH where there is no git history")?;
    time.parse().context("git printed no time")
}

/// Runs a command without its output, which is shown if it fails.
fn run_quietly(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {shown}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{shown} ended with {}:\n{stdout}{stderr}", output.status);
    Ok(stdout.into_owned())
}
