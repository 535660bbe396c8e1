//! The files that requests are about: places beside, below and named like each other, with links between them; the ways to
//! spell a path; and whether anything of it has changed.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

use base64_simd::{STANDARD, URL_SAFE_NO_PAD};
use exec_testkit::test_data::SeededRng;

/// The folders, by their names below the folder of the test. Some are the beginning of another's name, which is no folder
/// above it.
const PLACES: [&str; 6] = ["a", "a/b", "a/bc", "ab", "outside", "an odd %41 näme"];

/// What a sandbox for workspaces protects in each.
pub(super) const PROTECTED: [&str; 4] = [".git", ".agents", ".codex", ".aws"];

/// What every place has a link to.
const LINKED: [(&str, &str); 3] = [("to-a", "a"), ("to-b", "a/b"), ("to-outside", "outside")];

pub(super) struct Tree {
    _folder: tempfile::TempDir,
    pub(super) root: PathBuf,
}

/// A path, and one of the ways in which a client may write it.
#[derive(Debug, Clone)]
pub(super) struct SpelledPath {
    pub(super) uri: String,
    pub(super) path: PathBuf,
}

/// A file that no request names.
pub(super) struct SecretFile {
    pub(super) path: PathBuf,
    /// Each of them in a message tells of it.
    pub(super) signs: Vec<String>,
}

/// What is at each path; of files and links also when they were changed.
pub(super) type Snapshot = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>;

impl Tree {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = folder.path().canonicalize().expect("it is there");
        // A sandbox makes the protected ones that are missing, for as long as it is there.
        let protected = |folder: &Path| {
            for name in PROTECTED {
                std::fs::create_dir_all(folder.join(name)).expect("the folder is ours");
            }
        };
        protected(&root);
        for (at, name) in PLACES.iter().enumerate() {
            let place = root.join(name);
            protected(&place);
            for folder in ["folder", "skill"] {
                std::fs::create_dir_all(place.join(folder)).expect("the folder is ours");
            }
            let secret = secret_content(at);
            let config = format!("[mcp_servers.x]\ncommand = \"{secret}\"\n");
            let skill = format!("---\nname: s\ndescription: d\n---\n{secret}\n");
            for (file, content) in [
                ("file", "plain"),
                ("folder/file", "plain"),
                (".git/config", "plain"),
                (".codex/config.toml", &config),
                ("skill/SKILL.md", &skill),
                (&secret_name(at), &secret),
            ] {
                std::fs::write(place.join(file), content).expect("the folder is ours");
            }
            for (link, target) in LINKED {
                symlink(root.join(target), place.join(link)).expect("the folder is ours");
            }
            // Out of the place by a text that begins within it.
            symlink(format!("folder/../{}outside/file", "../".repeat(name.split('/').count())), place.join("file-out"))
                .expect("the folder is ours");
        }
        symlink("ab", root.join("alias")).expect("the folder is ours");
        Self { _folder: folder, root }
    }

    pub(super) fn places(&self) -> Vec<PathBuf> {
        PLACES.iter().map(|name| self.root.join(name)).collect()
    }

    pub(super) fn secrets(&self) -> Vec<SecretFile> {
        let of = |(at, place): (usize, PathBuf)| {
            let (name, content) = (secret_name(at), secret_content(at));
            let signs = vec![STANDARD.encode_to_string(&content), name.clone(), content];
            SecretFile { path: place.join(name), signs }
        };
        self.places().into_iter().enumerate().map(of).collect()
    }

    /// A way to one of the places, which may lead through others; every second one to a place that is `near`, if there is one.
    pub(super) fn way(&self, near: &[PathBuf], random: &mut SeededRng) -> PathBuf {
        let places = self.places();
        let is_near = !near.is_empty() && random.below(2) == 0;
        let one = pick(random, if is_near { near } else { &places }).clone();
        let other = pick(random, &places).clone();
        match random.below(10) {
            0 => one.join("folder/.."),
            1 => other.join(pick(random, &LINKED).0),
            2 => other.join(pick(random, &LINKED).0).join(".."),
            3 => one.join("..").join(one.file_name().expect("a place has a name")),
            4 => one.join("./folder/./.."),
            5 => self.root.join("alias"),
            6 => self.root.clone(),
            _ => one,
        }
    }

    /// Something that is there, by any way.
    pub(super) fn path(&self, names: &[&str], near: &[PathBuf], random: &mut SeededRng) -> SpelledPath {
        loop {
            let spelled = spell(self.way(near, random).join(pick(random, names)), random);
            // A way may lead to where there is nothing of that name.
            if spelled.path.exists() {
                return spelled;
            }
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut found = Snapshot::new();
        let mut left = vec![self.root.clone()];
        while let Some(folder) = left.pop() {
            for entry in std::fs::read_dir(&folder).expect("it is ours").flatten() {
                let path = entry.path();
                let about = entry.metadata().expect("nobody else removes it");
                if about.is_dir() {
                    left.push(path.clone());
                    found.insert(path, (about.mode(), 0, 0, Vec::new()));
                    continue;
                }
                // Of what was made a moment ago, the times may be the same after a change.
                let mut content = Vec::new();
                if about.is_file() && is_fresh(&path, "new-") {
                    content = std::fs::read(&path).unwrap_or_default();
                    let mut value = [0; 16];
                    let length = rustix::fs::lgetxattr(&path, "user.n", &mut value[..]).unwrap_or_default();
                    content.extend(&value[..length]);
                }
                let times = (about.mtime_nsec() ^ about.mtime(), about.ctime_nsec() ^ about.ctime());
                found.insert(path, (about.mode(), times.0, times.1, content));
            }
        }
        found
    }

    /// Removes everything whose name begins so.
    pub(super) fn remove_fresh(&self, fresh: &str) {
        let paths: Vec<PathBuf> = self.snapshot().into_keys().collect();
        for path in paths.into_iter().filter(|path| is_fresh(path, fresh)) {
            if path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
                std::fs::remove_dir_all(&path).expect("it is ours");
            } else if path.symlink_metadata().is_ok() {
                std::fs::remove_file(&path).expect("it is ours");
            }
        }
    }
}

/// Whether a path is one that was made for a request.
pub(super) fn is_fresh(path: &Path, fresh: &str) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().starts_with(fresh))
}

pub(super) fn pick<'a, T>(random: &mut SeededRng, from: &'a [T]) -> &'a T {
    &from[random.below(from.len())]
}

fn secret_name(at: usize) -> String {
    format!("hidden-{at}-name")
}

/// Three bytes make four of base64, so it is found in a longer text only if it begins there.
fn secret_content(at: usize) -> String {
    format!("the secret of place {at}")
}

/// One of the ways to write a path. A `..` in a URL is resolved before any file is looked at, unless it is hidden.
pub(super) fn spell(path: PathBuf, random: &mut SeededRng) -> SpelledPath {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let text = path.to_str().expect("the test's paths are text").to_owned();
    let (uri, path) = match random.below(if climbs { 3 } else { 6 }) {
        0 if climbs => (format!("file://{}", escape(&text, |_| false)), by_text(&path)),
        1 if climbs => (format!("file://{}", escape(&text, |_| false).replace("/..", "/%2e%2E")), by_text(&path)),
        // A slash that is no slash to a URL keeps its dots.
        2 if climbs => (format!("file://{}", escape(&text, |_| false).replace("/..", "%2F..")), path),
        _ if climbs => (format!("file:///%00/bad/path/{}", URL_SAFE_NO_PAD.encode_to_string(&text)), path),
        0 => (format!("file://{}", escape(&text, |at| at % 3 == 0)), path),
        1 => (format!("file://{}", escape(&text, |_| false).replace('/', "//./").replacen("//./", "/", 1)), path),
        2 => (format!("file://localhost{}/", escape(&text, |_| false)), path),
        3 => (format!("file:///outside/..{}", escape(&text, |_| false)), path),
        _ => (format!("file://{}", escape(&text, |_| false)), path),
    };
    SpelledPath { uri, path }
}

/// A path without its `..`, by its text alone.
fn by_text(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    plain
}

/// A path in a URL, with letters escaped that need not be.
fn escape(text: &str, also: impl Fn(usize) -> bool) -> String {
    let escape = |(at, byte): (usize, u8)| match byte {
        b'/' | b'.' => char::from(byte).to_string(),
        b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' if !also(at) => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    text.bytes().enumerate().map(escape).collect()
}
