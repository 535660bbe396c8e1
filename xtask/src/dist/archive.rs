//! Archives that are the same to the byte whoever makes them: tar (ustar), gzip, and the `ar` of a Debian package.
//!
//! Entries are sorted, belong to root, and have one time, that of the release. Written by hand, because GNU tar and ar
//! have defaults that differ from machine to machine. Compression is left to `gzip`, whose output depends on its version only.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// What an archive holds, by path without a leading slash. Directories that are only on the way need not be named.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileTree(BTreeMap<String, Entry>);

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) mode: u32,
    /// The user, and the group of the same number.
    pub(crate) owner: u32,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Directory,
    File(Vec<u8>),
    Link(String),
}

impl FileTree {
    pub(crate) fn file(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.insert(path, 0o644, 0, Content::File(content.into()));
    }

    pub(crate) fn program(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.insert(path, 0o755, 0, Content::File(content.into()));
    }

    pub(crate) fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.insert(path, 0o777, 0, Content::Link(target.into()));
    }

    pub(crate) fn directory(&mut self, path: impl Into<String>, mode: u32, owner: u32) {
        self.insert(path, mode, owner, Content::Directory);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// All of it, in a folder.
    pub(crate) fn below(&self, folder: &str) -> Self {
        Self(self.0.iter().map(|(path, entry)| (format!("{folder}/{path}"), entry.clone())).collect())
    }

    /// The sum of all contents, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let length = |entry: &Entry| if let Content::File(content) = &entry.content { content.len() } else { 0 };
        self.0.values().map(length).sum()
    }

    /// A directory comes before what is in it, and a name before longer ones that it begins.
    fn insert(&mut self, path: impl Into<String>, mode: u32, owner: u32, content: Content) {
        let path = path.into();
        let parents = path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect::<Vec<_>>();
        for parent in parents {
            self.0.entry(parent).or_insert(Entry { mode: 0o755, owner: 0, content: Content::Directory });
        }
        self.0.insert(path, Entry { mode, owner, content });
    }
}

const BLOCK: usize = 512;

/// A tar archive, every path with this prefix (`./` in Debian packages).
pub(crate) fn tar(tree: &FileTree, prefix: &str, time: u64) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (path, entry) in tree.iter() {
        let (kind, content, target): (u8, &[u8], &str) = match &entry.content {
            Content::Directory => (b'5', &[], ""),
            Content::File(content) => (b'0', content, ""),
            Content::Link(target) => (b'2', &[], target),
        };
        let slash = if kind == b'5' { "/" } else { "" };
        archive.extend(header(&format!("{prefix}{path}{slash}"), entry, content.len(), kind, target, time)?);
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

fn header(path: &str, entry: &Entry, length: usize, kind: u8, target: &str, time: u64) -> Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let (folder, name) = split_path(path)?;
    ensure!(target.len() <= 100, "{path}: a link of more than 100 bytes does not fit a tar header");
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{:07o}\0", entry.mode).as_bytes());
    put(108, format!("{:07o}\0{:07o}\0", entry.owner, entry.owner).as_bytes());
    put(124, format!("{length:011o}\0{time:011o}\0").as_bytes());
    // The sum counts its own field as spaces.
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    if entry.owner == 0 {
        put(265, b"root");
        put(297, b"root");
    }
    put(329, b"0000000\x000000000\0");
    put(345, folder.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// Up to 100 bytes of a path go into the name; what is before them, up to 155, into the prefix.
fn split_path(path: &str) -> Result<(&str, &str)> {
    if path.len() <= 100 {
        return Ok(("", path));
    }
    let fits = |at: usize| at <= 155 && path.len() - at - 1 <= 100 && at + 1 < path.len();
    match path.match_indices('/').find(|(at, _)| fits(*at)) {
        Some((at, _)) => Ok((&path[..at], &path[at + 1..])),
        None => bail!("{path} is too long for a tar header"),
    }
}

/// Without name and time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new("gzip")
        .args(["-9", "-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run gzip")?;
    let mut stdin = child.stdin.take().context("gzip has no stdin")?;
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(bytes));
        let output = child.wait_with_output();
        writer.join().expect("writing to a pipe does not panic").and(output)
    });
    let output = output.context("cannot compress with gzip")?;
    ensure!(output.status.success(), "gzip ended with {}", output.status);
    Ok(output.stdout)
}

/// The archive of a Debian package.
pub(crate) fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        archive.extend(format!("{name:<16}{time:<12}0     0     100644  {:<10}`\n", content.len()).bytes());
        archive.extend(content);
        if content.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> FileTree {
        let mut tree = FileTree::default();
        tree.program("usr/bin/tool", "#!/bin/sh\necho it runs\n");
        tree.link("usr/bin/alias", "tool");
        tree.file(format!("{}/{}", "long".repeat(20), "name".repeat(20)), "far below");
        tree.directory("home/agent", 0o700, 1000);
        tree
    }

    /// What GNU tar makes of an archive.
    fn listed(archive: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("a.tar");
        std::fs::write(&path, archive).expect("the folder is ours");
        let list = Command::new("tar").args(["--numeric-owner", "--utc", "-tvf"]).arg(&path).output();
        let list = list.expect("there is tar");
        assert!(list.status.success() && list.stderr.is_empty(), "{list:?}");
        String::from_utf8(list.stdout).expect("names are text")
    }

    #[test]
    fn tar_reads_what_we_write() {
        let archive = tar(&tree(), "./", 1_000_000_000).expect("all names fit");
        let listed = listed(&archive);
        let columns = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = listed.lines().map(columns).collect();
        let long = format!("./{}/", "long".repeat(20));
        let expected = [
            "drwxr-xr-x 0/0 0 2001-09-09 01:46 ./home/".to_owned(),
            "drwx------ 1000/1000 0 2001-09-09 01:46 ./home/agent/".to_owned(),
            format!("drwxr-xr-x 0/0 0 2001-09-09 01:46 {long}"),
            format!("-rw-r--r-- 0/0 9 2001-09-09 01:46 {long}{}", "name".repeat(20)),
            "drwxr-xr-x 0/0 0 2001-09-09 01:46 ./usr/".to_owned(),
            "drwxr-xr-x 0/0 0 2001-09-09 01:46 ./usr/bin/".to_owned(),
            "lrwxrwxrwx 0/0 0 2001-09-09 01:46 ./usr/bin/alias -> tool".to_owned(),
            "-rwxr-xr-x 0/0 23 2001-09-09 01:46 ./usr/bin/tool".to_owned(),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_same_tree_is_the_same_archive_in_whatever_order_it_was_made() {
        let mut other = FileTree::default();
        other.directory("home/agent", 0o700, 1000);
        other.file(format!("{}/{}", "long".repeat(20), "name".repeat(20)), "far below");
        other.link("usr/bin/alias", "tool");
        other.program("usr/bin/tool", "#!/bin/sh\necho it runs\n");
        let packed = |tree: &FileTree| gzip(&tar(tree, "", 7).expect("all names fit")).expect("there is gzip");
        assert_eq!(packed(&tree()), packed(&other));
    }

    #[test]
    fn a_path_that_no_header_holds_is_refused() {
        let mut tree = FileTree::default();
        tree.file("x".repeat(101), "");
        assert!(tar(&tree, "", 0).is_err());
        assert_eq!(split_path(&"x".repeat(100)).expect("it fits").1.len(), 100);
    }

    #[test]
    fn members_of_an_ar_begin_at_even_offsets() {
        let archive = ar(&[("a", b"x".to_vec()), ("b", b"yz".to_vec())], 7);
        let text = String::from_utf8(archive).expect("this one is text");
        let header = |name: &str, length: usize| format!("{name:<16}7           0     0     100644  {length:<10}`\n");
        assert_eq!(text, format!("!<arch>\n{}x\n{}yz", header("a", 1), header("b", 2)));
    }
}
