//! What is in the binary, or in the library of the Python package, as CycloneDX 1.6: every crate that is compiled into it, with
//! its licence and digest, the standard library, and the C library if it is linked with one.
//!
//! Which crates they are is asked of `cargo tree`, because `cargo metadata` also lists what only tests and build scripts
//! need. Procedural macros and build dependencies are not in the binary, and not in the list.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::binary::TARGET;
use crate::workspace::{Workspace, last_output_line};

/// What is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The portable binary, which has the C library inside.
    Binary,
    /// The library in the Python package, which uses that of the machine.
    PythonLibrary,
    /// The library in the npm package, likewise.
    NodeLibrary,
}

impl Subject {
    fn package(self) -> &'static str {
        match self {
            Self::Binary => "exec-server-cli",
            Self::PythonLibrary => "exec-server-python",
            Self::NodeLibrary => "exec-server-node",
        }
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// A part of the binary that no crate brings.
struct Linked {
    name: &'static str,
    version: String,
    licence: &'static str,
    purl: String,
}

/// The document, for a release of this time.
pub(crate) fn document(workspace: &Workspace, subject: Subject, epoch: u64) -> Result<String> {
    let shipped = shipped_crates(workspace, subject)?;
    let metadata: Metadata = serde_json::from_slice(&output(workspace.cargo(&[
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        TARGET,
    ]))?)
    .context("cannot parse the output of `cargo metadata`")?;
    let lock = workspace.root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let document = describe(&metadata, subject, &shipped, &checksums(&lock), &linked(subject)?, epoch)?;
    Ok(format!("{document:#}\n"))
}

/// Name and version of every crate in it.
fn shipped_crates(workspace: &Workspace, subject: Subject) -> Result<BTreeSet<(String, String)>> {
    let root = subject.package();
    let arguments = ["tree", "--locked", "-p", root, "--target", TARGET, "--edges", "normal,no-proc-macro"];
    let listed = output(workspace.cargo(&[&arguments[..], &["--prefix", "none", "--format", "{p}"]].concat()))?;
    let listed = String::from_utf8(listed).context("cargo tree printed something that is no text")?;
    let crates = listed.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split_whitespace().next()?.to_owned()))
    });
    Ok(crates.collect())
}

fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The digests that Cargo.lock has, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
            line.map(|value| value.trim().trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

fn linked(subject: Subject) -> Result<Vec<Linked>> {
    let rust = last_output_line(Command::new("rustc").args(["--version"]))?;
    let rust = rust.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
    let rust = Linked {
        name: "rust-std",
        purl: format!("pkg:generic/rust-std@{rust}"),
        version: rust,
        licence: "MIT OR Apache-2.0",
    };
    if subject != Subject::Binary {
        return Ok(vec![rust]);
    }
    // On other systems than Debian nobody answers this; the part is named all the same.
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "libc6-dev"]).output();
    let found = query.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let glibc = found.and_then(|version| String::from_utf8(version).ok()).unwrap_or_else(|| "unknown".to_owned());
    let glibc = Linked {
        name: "glibc",
        purl: format!("pkg:deb/debian/libc6-dev@{glibc}?arch=amd64"),
        version: glibc,
        licence: "LGPL-2.1-or-later",
    };
    Ok(vec![rust, glibc])
}

fn describe(
    metadata: &Metadata,
    subject: Subject,
    shipped: &BTreeSet<(String, String)>,
    checksums: &BTreeMap<(String, String), String>,
    linked: &[Linked],
    epoch: u64,
) -> Result<Value> {
    let key = |package: &Package| (package.name.clone(), package.version.clone());
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().filter(|one| shipped.contains(&key(one))).map(|one| (one.id.as_str(), one)).collect();
    ensure!(
        packages.len() == shipped.len(),
        "cargo tree names {} crates, and cargo metadata knows {} of them",
        shipped.len(),
        packages.len()
    );
    let root = packages.values().find(|package| package.name == subject.package());
    let root = root.context("it is not in its own list")?;
    let mut components: Vec<Value> = packages
        .values()
        .filter(|package| package.id != root.id)
        .map(|package| component(package, checksums.get(&key(package))))
        .chain(linked.iter().map(Linked::component))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].as_str().map(str::to_owned));
    let mut dependencies: Vec<Value> = Vec::new();
    for node in &metadata.resolve.nodes {
        let Some(package) = packages.get(node.id.as_str()) else { continue };
        let known = node.dependencies.iter().filter_map(|id| packages.get(id.as_str()).map(|package| purl(package)));
        let mut on: Vec<String> = known.collect();
        if package.id == root.id {
            on.extend(linked.iter().map(|part| part.purl.clone()));
        }
        on.sort();
        dependencies.push(json!({"ref": purl(package), "dependsOn": on}));
    }
    dependencies.sort_by_key(|dependency| dependency["ref"].as_str().map(str::to_owned));
    let mut root_component = component(root, None);
    if subject == Subject::Binary {
        root_component["type"] = "application".into();
        root_component["name"] = "exec-server".into();
    }
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": timestamp(epoch), "component": root_component},
        "components": components,
        "dependencies": dependencies,
    });
    // A number that is the same for the same content: what is described is the same wherever it was built.
    document["serialNumber"] = serial_number(&document.to_string()).into();
    Ok(document)
}

fn component(package: &Package, checksum: Option<&String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(licence) = &package.license {
        // An older way to write a choice.
        component["licenses"] = json!([{"expression": licence.replace(" / ", "/").replace('/', " OR ")}]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

impl Linked {
    fn component(&self) -> Value {
        json!({
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "licenses": [{"expression": self.licence}],
        })
    }
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// A UUID of the version that is made of a digest.
fn serial_number(content: &str) -> String {
    let mut bytes: [u8; 32] = Sha256::digest(content).into();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Seconds since 1970 as RFC 3339 writes them.
pub(crate) fn timestamp(epoch: u64) -> String {
    let (days, seconds) = (epoch / 86_400, epoch % 86_400);
    // The calendar of civil days, counted from March so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_others_do() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_795_132_799), "2026-11-19T23:59:59Z");
        assert_eq!(timestamp(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn digests_come_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"beef\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let expected = BTreeMap::from([(("a".to_owned(), "1.0.0".to_owned()), "beef".to_owned())]);
        assert_eq!(checksums(lock), expected);
    }

    #[test]
    fn the_list_of_the_python_library_has_what_only_it_needs() {
        let workspace = Workspace::find().expect("this test runs inside the workspace");
        let text = document(&workspace, Subject::PythonLibrary, 7).expect("cargo answers");
        let document: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(document["metadata"]["component"]["name"], "exec-server-python");
        let components = document["components"].as_array().expect("a list");
        let has = |name: &str| components.iter().any(|component| component["name"] == name);
        assert!(has("pyo3") && has("exec-sdk") && has("rust-std"));
        assert!(!has("glibc") && !has("clap"), "these are in the binary only");
    }

    /// The fields that the schema of CycloneDX 1.6 demands, and the values that it allows for those we use.
    #[test]
    fn the_list_of_this_tree_has_what_its_schema_demands() {
        let workspace = Workspace::find().expect("this test runs inside the workspace");
        let text = document(&workspace, Subject::Binary, 7).expect("cargo answers");
        assert_eq!(text, document(&workspace, Subject::Binary, 7).expect("cargo answers"), "it is the same every time");
        let document: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&json!("CycloneDX"), &json!("1.6")));
        let serial = document["serialNumber"].as_str().expect("it has one");
        assert!(serial.strip_prefix("urn:uuid:").is_some_and(|uuid| uuid.len() == 36), "{serial}");
        let components = document["components"].as_array().expect("a list");
        let mut references = BTreeSet::from([document["metadata"]["component"]["bom-ref"].as_str().expect("text")]);
        for component in components {
            assert_eq!(component["type"], "library");
            let has = |field: &str| component[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(has("name") && has("version") && has("purl"), "{component}");
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            assert!(references.insert(component["bom-ref"].as_str().expect("text")), "twice: {component}");
        }
        for name in ["tokio", "aws-lc-sys", "exec-keeper", "glibc", "rust-std"] {
            assert!(components.iter().any(|component| component["name"] == name), "{name} is missing");
        }
        for name in ["serde_derive", "proptest", "exec-testkit", "cc"] {
            assert!(components.iter().all(|component| component["name"] != name), "{name} is not in the binary");
        }
        let dependencies = document["dependencies"].as_array().expect("a list");
        let mut described = BTreeSet::new();
        for dependency in dependencies {
            assert!(described.insert(dependency["ref"].as_str().expect("text")), "twice: {dependency}");
            let on = dependency["dependsOn"].as_array().expect("a list");
            let known =
                on.iter().chain([&dependency["ref"]]).all(|one| references.contains(one.as_str().expect("text")));
            assert!(known, "{dependency}");
        }
    }
}
