//! One root: its plugin, its skills, and the manifests that name their namespaces.

use std::path::{Path, PathBuf};

use exec_env::Files;
use exec_env::files::{FileKind, LinkPolicy, WalkKind, WalkOptions};
use exec_wire::PathUri;
use exec_wire::discovery::{DiscoveredPlugin, DiscoveredRoot, DiscoveredSkill, FoundFile};

use super::manifest::{self, ConfigLocation};
use crate::convert;
use crate::limits::{CAPABILITY_FILE_BYTES, CAPABILITY_ROOT_BYTES};
use crate::reply;

/// The bounds of Codex's server.
const WALK: WalkOptions = WalkOptions {
    max_depth: 6,
    max_directories: 2_000,
    max_entries: 20_000,
    follow_directory_symlinks: true,
    prune_hidden_directories: false,
};

const SKILL: &str = "SKILL.md";

/// Relative to the directory of the skill.
const SKILL_METADATA: &str = "agents/openai.yaml";

/// Manifests of a plugin, relative to its directory. The first that exists counts.
const MANIFESTS: [&str; 3] = [".codex-plugin/plugin.json", ".claude-plugin/plugin.json", ".cursor-plugin/plugin.json"];

/// Scans one root. Also returns how many bytes of contents it took, at most `max_bytes`.
pub(super) async fn root(files: &dyn Files, id: String, uri: PathUri, max_bytes: usize) -> (DiscoveredRoot, usize) {
    let found = DiscoveredRoot {
        id,
        path: uri.clone(),
        plugin: None,
        skills: Vec::new(),
        namespace_manifests: Vec::new(),
        warnings: Vec::new(),
        error: None,
    };
    let mut scan = Scan { files, limit_bytes: max_bytes.min(CAPABILITY_ROOT_BYTES), taken_bytes: 0, found };
    if let Err(error) = scan.run(&uri).await {
        scan.found.error = Some(error);
    }
    (scan.found, scan.taken_bytes)
}

/// The scan of one root. A file that cannot be read within the bounds becomes a warning.
struct Scan<'a> {
    files: &'a dyn Files,
    limit_bytes: usize,
    taken_bytes: usize,
    found: DiscoveredRoot,
}

impl Scan<'_> {
    async fn run(&mut self, uri: &PathUri) -> Result<(), String> {
        let inspect = |why: &dyn std::fmt::Display| format!("failed to inspect capability root {uri}: {why}");
        let root = uri.to_path().map_err(|foreign| inspect(&foreign))?;
        let files = self.files;
        let failed = |error| inspect(&reply::file_message(&error));
        let metadata = files.metadata(&root, LinkPolicy::Follow).await.map_err(failed)?;
        if metadata.kind != FileKind::Directory {
            return Err(format!("capability root {uri} is not a directory"));
        }
        let manifest = self.first_manifest(&root).await;
        if let Some(manifest) = &manifest {
            self.found.plugin = self.plugin(&root, manifest).await;
        }
        let walk = files.walk(&root, WALK).await.map_err(failed)?;
        if walk.truncated {
            let warning = format!("capability scan reached its traversal limit (root: {uri})");
            self.found.warnings.push(warning);
        }
        let (entries, _) = walk.into_parts();
        let mut listed: Vec<PathBuf> =
            entries.into_iter().filter(|entry| entry.kind == WalkKind::File).map(|entry| entry.path).collect();
        // By their bytes, as Codex's server sorts URIs; paths would be compared component by component.
        listed.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        self.skills(&listed).await;
        self.namespaces(&root, manifest, listed).await;
        Ok(())
    }

    async fn plugin(&mut self, root: &Path, path: &Path) -> Option<DiscoveredPlugin> {
        let manifest = self.read(path).await?;
        let (mcp, apps) = manifest::config_locations(&manifest.contents);
        let mcp_config = self.config(root, &manifest.path, "mcpServers", mcp, ".mcp.json").await;
        let apps_config = self.config(root, &manifest.path, "apps", apps, ".app.json").await;
        Some(DiscoveredPlugin { manifest, mcp_config, apps_config })
    }

    /// The file that a member of a manifest names, or the default one.
    async fn config(
        &mut self,
        root: &Path,
        manifest: &PathUri,
        member: &str,
        location: ConfigLocation,
        default: &str,
    ) -> Option<FoundFile> {
        let path = match location {
            ConfigLocation::Inline => return None,
            ConfigLocation::Default => root.join(default),
            ConfigLocation::Path(below) => root.join(below),
            ConfigLocation::Invalid(why) => {
                self.found.warnings.push(format!("ignoring {member} in {manifest}: {why}"));
                root.join(default)
            }
        };
        self.read_if_file(&path).await
    }

    async fn skills(&mut self, listed: &[PathBuf]) {
        for path in listed.iter().filter(|path| path.file_name().is_some_and(|name| name == SKILL)) {
            let Some(instructions) = self.read(path).await else { continue };
            let metadata = self.read_if_file(&path.with_file_name(SKILL_METADATA)).await;
            self.found.skills.push(DiscoveredSkill { instructions, metadata });
        }
    }

    /// The manifests of the root and below it; for a root without one, also the nearest above.
    async fn namespaces(&mut self, root: &Path, own: Option<PathBuf>, mut listed: Vec<PathBuf>) {
        if own.is_none() {
            for above in root.ancestors().skip(1) {
                if let Some(manifest) = self.first_manifest(above).await {
                    let manifest = self.read(&manifest).await;
                    self.found.namespace_manifests.extend(manifest);
                    break;
                }
            }
        }
        // A walk does not list links to files, and the root's own manifest may be one.
        listed.extend(own);
        let mut directories: Vec<(&Path, usize, &PathBuf)> =
            listed.iter().filter_map(|path| manifest_of(path)).collect();
        // Of several manifests of one directory the first in the order of `MANIFESTS` counts.
        directories.sort();
        directories.dedup_by(|later, first| later.0 == first.0);
        for (_, _, path) in directories {
            let manifest = self.read(path).await;
            self.found.namespace_manifests.extend(manifest);
        }
    }

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

    async fn read_if_file(&mut self, path: &Path) -> Option<FoundFile> {
        if self.is_file(path).await { self.read(path).await } else { None }
    }

    async fn read(&mut self, path: &Path) -> Option<FoundFile> {
        match self.try_read(path).await {
            Ok(found) => found,
            Err(warning) => {
                self.found.warnings.push(warning);
                None
            }
        }
    }

    async fn try_read(&mut self, path: &Path) -> Result<Option<FoundFile>, String> {
        let Some(uri) = convert::uri(path) else { return Ok(None) };
        let too_large = || format!("capability file {uri} exceeds the {CAPABILITY_FILE_BYTES}-byte limit");
        let failed = |error| format!("failed to read capability file {uri}: {}", reply::file_message(&error));
        // The size is looked at first, so that a large file never gets into memory.
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

/// The directory that a manifest belongs to, and the manifest's rank among several.
fn manifest_of(path: &PathBuf) -> Option<(&Path, usize, &PathBuf)> {
    let rank = MANIFESTS.iter().position(|name| path.ends_with(name))?;
    Some((path.parent()?.parent()?, rank, path))
}
