//! One root: its plugin, its skills, and the manifests that name their namespaces.

use std::path::{Path, PathBuf};

use exec_env::Files;
use exec_env::files::{FileKind, LinkPolicy, WalkKind, WalkOptions};
use exec_wire::PathUri;
use exec_wire::discovery::{DiscoveredPlugin, DiscoveredRoot, DiscoveredSkill, FoundFile};

use super::manifest::{self, ConfigLocation};
use crate::convert;
use crate::limits::{CAPABILITY_FILE_BYTES, CAPABILITY_ROOT_BYTES, DISCOVERY_ITEMS};
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

/// What the response has room for.
pub(super) struct ResponseRoom {
    pub(super) content_bytes: usize,
    /// Files and warnings.
    pub(super) items: usize,
    /// Their paths and texts.
    pub(super) path_bytes: usize,
}

impl ResponseRoom {
    /// Takes what a file or a warning needs beside contents; `false` if it does not fit. Then nothing fits any more.
    fn take_item(&mut self, text: &str) -> bool {
        let left = self.items.checked_sub(1).zip(self.path_bytes.checked_sub(text.len()));
        (self.items, self.path_bytes) = left.unwrap_or_default();
        left.is_some()
    }
}

/// Scans one root.
pub(super) async fn root(files: &dyn Files, id: String, uri: PathUri, room: &mut ResponseRoom) -> DiscoveredRoot {
    let found = DiscoveredRoot {
        id,
        path: uri.clone(),
        plugin: None,
        skills: Vec::new(),
        namespace_manifests: Vec::new(),
        warnings: Vec::new(),
        error: None,
    };
    let limit_bytes = room.content_bytes.min(CAPABILITY_ROOT_BYTES);
    let mut scan = Scan { files, limit_bytes, taken_bytes: 0, room, is_full: false, found };
    if let Err(error) = scan.run(&uri).await {
        scan.found.error = Some(error);
    }
    let Scan { taken_bytes, found, .. } = scan;
    room.content_bytes = room.content_bytes.saturating_sub(taken_bytes);
    found
}

/// The scan of one root. A file that cannot be read within the bounds becomes a warning.
struct Scan<'a> {
    files: &'a dyn Files,
    limit_bytes: usize,
    taken_bytes: usize,
    room: &'a mut ResponseRoom,
    /// Something did not fit, and a warning says so.
    is_full: bool,
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
            self.warn(format!("capability scan reached its traversal limit (root: {uri})"));
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
                self.warn(format!("ignoring {member} in {manifest}: {why}"));
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
                self.warn(warning);
                None
            }
        }
    }

    fn warn(&mut self, warning: String) {
        match self.room.take_item(&warning) {
            true => self.found.warnings.push(warning),
            false => self.warn_full(),
        }
    }

    /// Beyond the room there is one warning for each root, of which there are few.
    fn warn_full(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            let warning =
                format!("capability discovery has room for {DISCOVERY_ITEMS} files and warnings: ask for fewer roots");
            self.found.warnings.push(warning);
        }
    }

    async fn try_read(&mut self, path: &Path) -> Result<Option<FoundFile>, String> {
        let Some(uri) = convert::uri(path) else { return Ok(None) };
        if self.is_full {
            return Ok(None);
        }
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
        if !self.room.take_item(uri.as_str()) {
            self.warn_full();
            return Ok(None);
        }
        self.taken_bytes += length;
        Ok(Some(FoundFile { path: uri, contents }))
    }
}

/// The directory that a manifest belongs to, and the manifest's rank among several.
fn manifest_of(path: &PathBuf) -> Option<(&Path, usize, &PathBuf)> {
    let rank = MANIFESTS.iter().position(|name| path.ends_with(name))?;
    Some((path.parent()?.parent()?, rank, path))
}

#[cfg(test)]
mod tests {
    use exec_wire::limits::{MESSAGE_BYTES, MESSAGE_VALUES};

    use super::*;
    use crate::limits::DISCOVERY_PATH_BYTES;

    #[test]
    fn a_response_has_room_for_so_many_files_and_so_long_paths() {
        let room = |items, path_bytes| ResponseRoom { content_bytes: 0, items, path_bytes };
        let mut few = room(2, 100);
        assert_eq!([few.take_item("a"), few.take_item("b"), few.take_item("c")], [true, true, false]);
        let mut short = room(100, 4);
        assert_eq!([short.take_item("abcd"), short.take_item("e"), short.take_item("")], [true, false, false]);
    }

    /// With the shortest paths there are, and with the longest.
    #[test]
    fn a_full_response_is_one_that_our_own_client_can_read() {
        for path in ["/x", &format!("/{}", "y".repeat(200))] {
            let uri = convert::uri(Path::new(path)).expect("it is absolute");
            let mut room = ResponseRoom { content_bytes: 0, items: DISCOVERY_ITEMS, path_bytes: DISCOVERY_PATH_BYTES };
            let mut file =
                || room.take_item(uri.as_str()).then(|| FoundFile { path: uri.clone(), contents: String::new() });
            let mut skills = Vec::new();
            while let Some(instructions) = file() {
                skills.push(DiscoveredSkill { instructions, metadata: file() });
            }
            let mut out = Vec::new();
            let id = exec_wire::envelope::RequestId::Number(1);
            let values = exec_wire::envelope::write_response(&mut out, &id, &skills, false);
            assert!(values <= MESSAGE_VALUES && out.len() <= MESSAGE_BYTES, "{values} values, {} bytes", out.len());
        }
    }
}
