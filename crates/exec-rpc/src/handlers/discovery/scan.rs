//! One root: its plugin, its skills, and the manifests that name their namespaces.

use std::path::{Path, PathBuf};

use exec_env::Files;
use exec_env::files::{FileKind, LinkPolicy, WalkKind, WalkOptions};
use exec_wire::PathUri;
use exec_wire::discovery::{DiscoveredPlugin, DiscoveredRoot, DiscoveredSkill, FoundFile};

use super::manifest::{self, Config};
use crate::convert;
use crate::limits::{CAPABILITY_FILE_BYTES, CAPABILITY_ROOT_BYTES};

/// How far a root is looked through; the original's numbers.
const WALK: WalkOptions = WalkOptions {
    max_depth: 6,
    max_directories: 2_000,
    max_entries: 20_000,
    follow_directory_symlinks: true,
    prune_hidden_directories: false,
};

/// What a skill's file is called.
const SKILL: &str = "SKILL.md";

/// Where a skill says more about itself.
const SKILL_METADATA: &str = "agents/openai.yaml";

/// Where a plugin says what it is, the first that exists.
const MANIFESTS: [&str; 3] = [".codex-plugin/plugin.json", ".claude-plugin/plugin.json", ".cursor-plugin/plugin.json"];

/// Looks through one root. Also answers how many bytes of contents it took, at most `most_bytes`.
pub(super) async fn root(files: &dyn Files, id: String, uri: PathUri, most_bytes: usize) -> (DiscoveredRoot, usize) {
    let bundle =
        Bundle { files, warnings: Vec::new(), limit_bytes: most_bytes.min(CAPABILITY_ROOT_BYTES), taken_bytes: 0 };
    let mut scan = Scan {
        bundle,
        found: DiscoveredRoot {
            id,
            path: uri.clone(),
            plugin: None,
            skills: Vec::new(),
            namespace_manifests: Vec::new(),
            warnings: Vec::new(),
            error: None,
        },
    };
    if let Err(error) = scan.scan(&uri).await {
        scan.found.error = Some(error);
    }
    let Scan { bundle, mut found } = scan;
    found.warnings = bundle.warnings;
    (found, bundle.taken_bytes)
}

struct Scan<'a> {
    bundle: Bundle<'a>,
    found: DiscoveredRoot,
}

impl Scan<'_> {
    async fn scan(&mut self, uri: &PathUri) -> Result<(), String> {
        let inspect = |why: &dyn std::fmt::Display| format!("failed to inspect capability root {uri}: {why}");
        let root = uri.to_path().map_err(|foreign| inspect(&foreign))?;
        let files = self.bundle.files;
        let metadata = files.metadata(&root, LinkPolicy::Follow).await.map_err(|error| inspect(&error))?;
        if metadata.kind != FileKind::Directory {
            return Err(format!("capability root {uri} is not a directory"));
        }
        let manifest = self.bundle.first_manifest(&root).await;
        if let Some(manifest) = &manifest {
            self.found.plugin = self.plugin(&root, manifest).await;
        }
        let walk = files.walk(&root, WALK).await.map_err(|error| inspect(&error))?;
        if walk.truncated {
            let warning = format!("capability scan reached its traversal limit (root: {uri})");
            self.bundle.warnings.push(warning);
        }
        let mut listed: Vec<PathBuf> =
            walk.entries.into_iter().filter(|entry| entry.kind == WalkKind::File).map(|entry| entry.path).collect();
        // By their text, as the original sorts URIs; paths themselves would compare name by name.
        listed.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        self.skills(&listed).await;
        self.namespaces(&root, manifest, listed).await;
        Ok(())
    }

    async fn plugin(&mut self, root: &Path, path: &Path) -> Option<DiscoveredPlugin> {
        let manifest = self.bundle.read(path).await?;
        let (mcp, apps) = manifest::configs(&manifest.contents);
        let mcp_config = self.config(root, &manifest.path, "mcpServers", mcp, ".mcp.json").await;
        let apps_config = self.config(root, &manifest.path, "apps", apps, ".app.json").await;
        Some(DiscoveredPlugin { manifest, mcp_config, apps_config })
    }

    /// The file that a member of a manifest names, or the one that is usual.
    async fn config(
        &mut self,
        root: &Path,
        manifest: &PathUri,
        member: &str,
        named: Config,
        usual: &str,
    ) -> Option<FoundFile> {
        let path = match named {
            Config::Inline => return None,
            Config::Usual => root.join(usual),
            Config::Path(below) => root.join(below),
            Config::Bad(why) => {
                self.bundle.warnings.push(format!("ignoring {member} in {manifest}: {why}"));
                root.join(usual)
            }
        };
        match self.bundle.is_file(&path).await {
            true => self.bundle.read(&path).await,
            false => None,
        }
    }

    async fn skills(&mut self, listed: &[PathBuf]) {
        for path in listed.iter().filter(|path| path.file_name().is_some_and(|name| name == SKILL)) {
            let Some(instructions) = self.bundle.read(path).await else { continue };
            let metadata = path.with_file_name(SKILL_METADATA);
            let metadata = match self.bundle.is_file(&metadata).await {
                true => self.bundle.read(&metadata).await,
                false => None,
            };
            self.found.skills.push(DiscoveredSkill { instructions, metadata });
        }
    }

    /// The manifests of the root and below it; of a root without one, also the nearest above.
    async fn namespaces(&mut self, root: &Path, own: Option<PathBuf>, mut listed: Vec<PathBuf>) {
        if own.is_none() {
            for above in root.ancestors().skip(1) {
                if let Some(manifest) = self.bundle.first_manifest(above).await {
                    let manifest = self.bundle.read(&manifest).await;
                    self.found.namespace_manifests.extend(manifest);
                    break;
                }
            }
        }
        // A walk does not list links to files, and the root's own manifest may be one.
        listed.extend(own);
        let mut directories: Vec<(&Path, usize, &PathBuf)> =
            listed.iter().filter_map(|path| manifest_of(path)).collect();
        // Of several in one folder the first by rank counts.
        directories.sort();
        directories.dedup_by(|later, first| later.0 == first.0);
        for (_, _, path) in directories {
            let manifest = self.bundle.read(path).await;
            self.found.namespace_manifests.extend(manifest);
        }
    }
}

/// The folder that a manifest is of, and its rank among several.
fn manifest_of(path: &PathBuf) -> Option<(&Path, usize, &PathBuf)> {
    let rank = MANIFESTS.iter().position(|name| path.ends_with(name))?;
    Some((path.parent()?.parent()?, rank, path))
}

/// Files that are gathered, within their bounds; what cannot be had is a warning.
struct Bundle<'a> {
    files: &'a dyn Files,
    warnings: Vec<String>,
    limit_bytes: usize,
    taken_bytes: usize,
}

impl Bundle<'_> {
    async fn first_manifest(&self, directory: &Path) -> Option<PathBuf> {
        for name in MANIFESTS {
            let path = directory.join(name);
            if self.is_file(&path).await {
                return Some(path);
            }
        }
        None
    }

    async fn is_file(&self, path: &Path) -> bool {
        self.files.metadata(path, LinkPolicy::Follow).await.is_ok_and(|found| found.kind == FileKind::File)
    }

    async fn read(&mut self, path: &Path) -> Option<FoundFile> {
        match self.try_read(path).await {
            Ok(found) => found,
            Err(warning) => {
                self.warnings.push(warning);
                None
            }
        }
    }

    async fn try_read(&mut self, path: &Path) -> Result<Option<FoundFile>, String> {
        let Some(uri) = convert::uri(path) else { return Ok(None) };
        let too_large = || format!("capability file {uri} exceeds the {CAPABILITY_FILE_BYTES}-byte limit");
        let failed = |error| format!("failed to read capability file {uri}: {error}");
        // Looked at first: a large file is not worth its memory.
        let metadata = self.files.metadata(path, LinkPolicy::Follow).await.map_err(failed)?;
        if metadata.size_bytes > CAPABILITY_FILE_BYTES as u64 {
            return Err(too_large());
        }
        let bytes = self.files.read(path, LinkPolicy::Follow).await.map_err(failed)?;
        if bytes.len() > CAPABILITY_FILE_BYTES {
            return Err(too_large());
        }
        if self.taken_bytes + bytes.len() > self.limit_bytes {
            return Err(format!("capability root bundle exceeds the {CAPABILITY_ROOT_BYTES}-byte limit"));
        }
        let length = bytes.len();
        let contents = String::from_utf8(bytes.into())
            .map_err(|error| format!("capability file {uri} is not UTF-8: {}", error.utf8_error()))?;
        self.taken_bytes += length;
        Ok(Some(FoundFile { path: uri, contents }))
    }
}
