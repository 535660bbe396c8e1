//! `apply_patch` against the real Codex: every case is applied by both, in two directories that begin alike.
//!
//! Both must succeed or fail alike; after a success both directories must be alike, after a failure ours must be as it was.
//! Deliberate differences, each with a case or a test below:
//!
//! - a patch of which a part does not fit changes nothing; Codex keeps the parts before it;
//! - a file that is moved onto itself is updated; Codex removes it;
//! - a file that is moved keeps its permission bits; Codex gives the new file default ones;
//! - a link is deleted wherever it leads; Codex deletes only links to files;
//! - a link that is deleted gets no file in its place in the same patch, which is refused; Codex does both.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use exec_testkit::codex;
use exec_tools::files::{FileTools, PatchRequest};

use super::random_edits::Random;
use super::{ToolTest, message};

/// Codex's own tool: the binary, when it is called by this name.
struct CodexPatch {
    program: PathBuf,
    home: PathBuf,
    _folder: tempfile::TempDir,
}

impl CodexPatch {
    fn find() -> Option<Self> {
        let binary = codex::codex_binary()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (program, home) = (folder.path().join("apply_patch"), folder.path().join("home"));
        std::os::unix::fs::symlink(binary, &program).expect("it is new");
        std::fs::create_dir(&home).expect("it is new");
        Some(Self { program, home, _folder: folder })
    }

    fn apply(&self, directory: &Path, patch: &str) -> bool {
        let mut command = Command::new(&self.program);
        command.arg(patch).current_dir(directory).env_clear().env("CODEX_HOME", &self.home).env("HOME", &self.home);
        command.output().expect("Codex runs").status.success()
    }
}

/// Everything below a directory: files with their bytes, links with their text.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory_now) = open.pop() {
        for entry in std::fs::read_dir(&directory_now).expect("it is ours") {
            let path = entry.expect("it can be listed").path();
            let below = path.strip_prefix(directory).expect("it is below").to_owned();
            if path.is_symlink() {
                let text = std::fs::read_link(&path).expect("it is a link");
                found.insert(below, text.into_os_string().into_encoded_bytes());
            } else if path.is_dir() {
                open.push(path);
            } else {
                found.insert(below, std::fs::read(&path).expect("it can be read"));
            }
        }
    }
    found
}

fn set_up(directory: &Path, files: &[(&str, &[u8])]) {
    let _old = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).expect("it is ours");
    for (name, contents) in files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("it is below")).expect("it is ours");
        match contents.strip_prefix(b"->") {
            Some(text) => {
                let text = std::str::from_utf8(text).expect("the test's links are text");
                std::os::unix::fs::symlink(text, path).expect("it is new");
            }
            None => std::fs::write(path, contents).expect("it is ours"),
        }
    }
}

/// Both in turn; what differs, in words.
async fn compare(
    test: &ToolTest,
    codex: &CodexPatch,
    name: &str,
    files: &[(&str, &[u8])],
    patch: &str,
) -> Option<String> {
    let (theirs, ours) = (test.path("theirs/w"), test.path("ours/w"));
    set_up(&theirs, files);
    set_up(&ours, files);
    let before = tree(&ours);
    let in_place = |directory: &Path| patch.replace("{cwd}", directory.to_str().expect("it is text"));
    let they_succeed = codex.apply(&theirs, &in_place(&theirs));
    let tools = FileTools::of(&*test._environment.environment, &ours).expect("it is absolute");
    let outcome = tools.apply_patch(PatchRequest { patch: in_place(&ours) }).await;
    let (their_tree, our_tree) = (tree(&theirs), tree(&ours));
    let expected = if they_succeed { &their_tree } else { &before };
    if outcome.is_ok() == they_succeed && &our_tree == expected {
        return None;
    }
    let show = |tree: &BTreeMap<PathBuf, Vec<u8>>| {
        tree.iter().map(|(path, bytes)| format!("{path:?}={:?}", String::from_utf8_lossy(bytes))).collect::<Vec<_>>()
    };
    Some(format!(
        "{name}: Codex {they_succeed}, ours {:?}\n  patch {patch:?}\n  before {:?}\n  theirs {:?}\n  ours   {:?}\n",
        outcome.map(|changed| changed.text()).map_err(|error| error.to_string()),
        show(&before),
        show(&their_tree),
        show(&our_tree)
    ))
}

/// A name, the files before, and the lines between the first and the last of the patch.
type Case = (&'static str, &'static [(&'static str, &'static [u8])], &'static str);

const ABC: &[(&str, &[u8])] = &[("f", b"a\nb\nc\n")];
const ABCD: &[(&str, &[u8])] = &[("f", b"a\nb\nc\nd\n")];
const NOTHING: &[(&str, &[u8])] = &[];

const CASES: &[Case] = &[
    ("replace a line", ABC, "*** Update File: f\n@@\n a\n-b\n+B\n"),
    ("replace without a context", ABC, "*** Update File: f\n@@\n-b\n+B\n"),
    ("no marker before the first chunk", ABC, "*** Update File: f\n a\n-b\n+B\n"),
    ("no marker before the second chunk", ABCD, "*** Update File: f\n@@\n-a\n+A\n*** End of File\n-d\n+D\n"),
    ("two chunks", ABCD, "*** Update File: f\n@@\n-a\n+A\n@@\n-d\n+D\n"),
    ("two chunks in the wrong order", ABCD, "*** Update File: f\n@@\n-d\n+D\n@@\n-a\n+A\n"),
    ("two chunks that overlap", ABC, "*** Update File: f\n@@\n-a\n+A\n b\n@@\n b\n-c\n+C\n"),
    ("lines that are not there", ABC, "*** Update File: f\n@@\n-z\n+Z\n"),
    ("context only", ABC, "*** Update File: f\n@@\n a\n"),
    ("added lines only go to the end", ABC, "*** Update File: f\n@@\n+x\n"),
    ("added lines behind a named line go to the end, too", ABC, "*** Update File: f\n@@ a\n+x\n"),
    ("added lines twice", ABC, "*** Update File: f\n@@\n+x\n@@\n+y\n"),
    ("added lines before a change", ABC, "*** Update File: f\n@@\n+x\n@@\n-b\n+y\n"),
    ("added lines at the end of the file", ABC, "*** Update File: f\n@@\n+x\n*** End of File\n"),
    ("a named line before", &[("f", b"class A\n  x\nclass B\n  x\n")], "*** Update File: f\n@@ class B\n-  x\n+  y\n"),
    (
        "a named line with other spaces",
        &[("f", b"  class B\n    x\n")],
        "*** Update File: f\n@@ class B\n-    x\n+    y\n",
    ),
    (
        "a named line with typographic dashes",
        &[("f", "def \u{2013} x\n y\n".as_bytes())],
        "*** Update File: f\n@@ def - x\n- y\n+ z\n",
    ),
    ("a named line that is not there", ABC, "*** Update File: f\n@@ nope\n-a\n+b\n"),
    (
        "two named lines",
        &[("f", b"class A\n  def f\n    x\n")],
        "*** Update File: f\n@@ class A\n@@   def f\n-    x\n+    y\n",
    ),
    ("numbers as in a diff", ABC, "*** Update File: f\n@@ -1,1 +1,1 @@\n-a\n+b\n"),
    ("a marker with a space", ABC, "*** Update File: f\n@@ \n-b\n+x\n"),
    ("a marker that is indented", ABC, "*** Update File: f\n @@\n-a\n+b\n"),
    ("spaces at the end of a line of the file", &[("f", b"a  \nb\n")], "*** Update File: f\n@@\n a\n-b\n+B\n"),
    ("spaces around a line of the file", &[("f", b"  a  \nb\n")], "*** Update File: f\n@@\n-a\n+A\n"),
    ("the exact line wins over a similar one before it", &[("f", b" x\nx\n")], "*** Update File: f\n@@\n-x\n+y\n"),
    ("tabs for spaces", &[("f", b"\tx\n")], "*** Update File: f\n@@\n-    x\n+    y\n"),
    (
        "typographic letters in the file",
        &[("f", "a \u{2013} b \u{201c}q\u{201d}\u{a0}z\n".as_bytes())],
        "*** Update File: f\n@@\n-a - b \"q\" z\n+ok\n",
    ),
    (
        "typographic letters in the patch",
        &[("f", b"a - b 'x'\n")],
        "*** Update File: f\n@@\n-a \u{2014} b \u{2018}x\u{2019}\n+ok\n",
    ),
    (
        "typographic spaces and minus",
        &[("f", "\u{2018}x\u{2019} \u{2212} \u{2014} \u{3000}\n".as_bytes())],
        "*** Update File: f\n@@\n-'x' - -\n+x\n",
    ),
    (
        "a letter that is not taken for another",
        &[("f", "a\u{2026}\n".as_bytes())],
        "*** Update File: f\n@@\n-a...\n+x\n",
    ),
    ("the end of the file", &[("f", b"x\na\nx\n")], "*** Update File: f\n@@\n-x\n+y\n*** End of File\n"),
    ("not at the end of the file", &[("f", b"x\na\n")], "*** Update File: f\n@@\n-x\n+y\n*** End of File\n"),
    ("the end of the file, and more", ABC, "*** Update File: f\n@@\n-c\n+x\n*** End of File\n@@\n+y\n"),
    ("the end of the file behind a named line in it", ABC, "*** Update File: f\n@@ c\n b\n-c\n+x\n*** End of File\n"),
    ("the end of the file from a named line on", ABC, "*** Update File: f\n@@ b\n b\n-c\n+x\n*** End of File\n"),
    ("the end of the file behind a named line", ABC, "*** Update File: f\n@@ b\n-c\n+x\n*** End of File\n"),
    ("the end of the file, changed before", ABC, "*** Update File: f\n@@\n-c\n+C\n@@\n b\n-c\n+x\n*** End of File\n"),
    ("the end of the file alone", ABC, "*** Update File: f\n@@\n*** End of File\n"),
    ("no line break at the end, last line changed", &[("f", b"a\nb")], "*** Update File: f\n@@\n a\n-b\n+B\n"),
    ("no line break at the end, first line changed", &[("f", b"a\nb")], "*** Update File: f\n@@\n-a\n+A\n"),
    ("no line break at the end, last line gone", &[("f", b"a\nb")], "*** Update File: f\n@@\n a\n-b\n"),
    ("CR LF is kept", &[("f", b"a\r\nb\r\nc\r\n")], "*** Update File: f\n@@\n a\n-b\n+B\n"),
    ("CR LF, added at the end", &[("f", b"a\r\nb\r\n")], "*** Update File: f\n@@\n+x\n"),
    ("CR LF without an end", &[("f", b"a\r\nb")], "*** Update File: f\n@@\n a\n-b\n+x\n"),
    ("mixed line ends, first CR LF", &[("f", b"a\r\nb\nc\n")], "*** Update File: f\n@@\n a\n-b\n+B\n c\n"),
    ("mixed line ends, first LF", &[("f", b"a\nb\r\nc\n")], "*** Update File: f\n@@\n a\n+n\n b\n+m\n c\n+o\n"),
    ("a byte order mark, second line", &[("f", b"\xef\xbb\xbfa\nb\n")], "*** Update File: f\n@@\n-b\n+B\n"),
    ("a byte order mark, first line", &[("f", b"\xef\xbb\xbfa\nb\n")], "*** Update File: f\n@@\n-a\n+A\n b\n"),
    ("a byte order mark, as it is", &[("f", b"\xef\xbb\xbfa\n")], "*** Update File: f\n@@\n-\u{feff}a\n+A\n"),
    ("a byte order mark, a like line", &[("f", b"\xef\xbb\xbfa\nb\na\n")], "*** Update File: f\n@@\n-a\n+A\n"),
    ("a byte order mark, named", &[("f", b"\xef\xbb\xbfa\nb\n")], "*** Update File: f\n@@ a\n-b\n+B\n"),
    ("an empty line as context", &[("f", b"a\n\nb\n")], "*** Update File: f\n@@\n a\n\n-b\n+B\n"),
    ("an empty line at the end of a chunk", ABC, "*** Update File: f\n@@\n-a\n+A\n\n*** Add File: g\n+C\n"),
    ("an empty line between chunks", ABC, "*** Update File: f\n@@\n-a\n+A\n\n@@\n-c\n+C\n"),
    ("an empty old line at the end", &[("f", b"a\nb\n")], "*** Update File: f\n@@\n a\n b\n-\n+c\n"),
    ("an empty line that is not there, before a new one", ABC, "*** Update File: f\n@@\n c\n\n+d\n"),
    ("an empty line that is not there, alone", ABC, "*** Update File: f\n@@\n-\n+d\n+\n"),
    ("a line with a space behind the header", ABC, "*** Update File: f\n \n+d\n"),
    ("an empty line behind the header", ABC, "*** Update File: f\n\n@@\n-a\n+A\n"),
    ("an empty line at the beginning", ABC, "\n*** Update File: f\n@@\n-a\n+A\n"),
    ("all lines gone", ABC, "*** Update File: f\n@@\n-a\n-b\n-c\n"),
    ("an empty file", &[("f", b"")], "*** Update File: f\n@@\n+x\n"),
    ("a file with one line break", &[("f", b"\n")], "*** Update File: f\n@@\n+x\n"),
    ("a file with empty lines at its end", &[("f", b"a\n\n\n")], "*** Update File: f\n@@\n+x\n"),
    ("a line without a sign", ABC, "*** Update File: f\n@@\n a\nxyz\n-b\n+B\n"),
    ("an update without lines", ABC, "*** Update File: f\n"),
    ("a chunk without lines", ABC, "*** Update File: f\n@@\n"),
    ("a line that looks like a header", &[("f", b"a\n*** x\n")], "*** Update File: f\n@@\n-a\n+b\n *** x\n"),
    ("update a file that is not there", NOTHING, "*** Update File: f\n@@\n-a\n+b\n"),
    ("update a directory", &[("d/f", b"")], "*** Update File: d\n@@\n-a\n+b\n"),
    ("update what is no UTF-8", &[("f", b"a\xff\nb\n")], "*** Update File: f\n@@\n-b\n+c\n"),
    ("update through a link", &[("f", b"a\n"), ("l", b"->f")], "*** Update File: l\n@@\n-a\n+b\n"),
    (
        "update a link and what it leads to",
        &[("f", b"a\n"), ("l", b"->f")],
        "*** Update File: l\n@@\n-a\n+b\n*** Update File: f\n@@\n-b\n+c\n",
    ),
    ("the same file twice", ABC, "*** Update File: f\n@@\n-a\n+A\n*** Update File: f\n@@\n-b\n+B\n"),
    ("add", NOTHING, "*** Add File: f\n+a\n+b\n"),
    ("add an empty file", NOTHING, "*** Add File: f\n"),
    ("add in new directories", NOTHING, "*** Add File: d/e/f\n+a\n"),
    ("add over a file", ABC, "*** Add File: f\n+new\n"),
    ("add over a link", &[("f", b"a\n"), ("l", b"->f")], "*** Add File: l\n+b\n"),
    ("add over a directory", &[("d/x", b"1")], "*** Add File: d\n+b\n"),
    ("add below a file", &[("d", b"1")], "*** Add File: d/x\n+b\n"),
    ("add a line without a sign", NOTHING, "*** Add File: f\nhello\n"),
    ("add with an empty line in it", NOTHING, "*** Add File: f\n+a\n\n+b\n"),
    ("add without a path", NOTHING, "*** Add File: \n+b\n"),
    ("add and update", NOTHING, "*** Add File: f\n+a\n*** Update File: f\n@@\n-a\n+b\n"),
    ("delete", ABC, "*** Delete File: f\n"),
    ("delete what is not there", ABC, "*** Delete File: g\n"),
    ("delete a directory", &[("d/f", b"a")], "*** Delete File: d\n"),
    ("delete a link", &[("f", b"a\n"), ("l", b"->f")], "*** Delete File: l\n"),
    ("add over a link to nothing", &[("l", b"->nowhere")], "*** Add File: l\n+b\n"),
    ("add over a link to itself", &[("l", b"->l")], "*** Add File: l\n+b\n"),
    ("update a link to nothing", &[("l", b"->nowhere")], "*** Update File: l\n@@\n-a\n+b\n"),
    ("move a link", &[("f", b"a\n"), ("l", b"->f")], "*** Update File: l\n*** Move to: g\n@@\n-a\n+b\n"),
    (
        "move onto a link to nothing",
        &[("f", b"a\n"), ("l", b"->x")],
        "*** Update File: f\n*** Move to: l\n@@\n-a\n+b\n",
    ),
    ("delete what is no UTF-8", &[("f", b"\xff\0")], "*** Delete File: f\n"),
    ("delete and add", ABC, "*** Delete File: f\n*** Add File: f\n+z\n"),
    ("delete twice", ABC, "*** Delete File: f\n*** Delete File: f\n"),
    ("delete and update", ABC, "*** Delete File: f\n*** Update File: f\n@@\n-a\n+b\n"),
    ("move", ABC, "*** Update File: f\n*** Move to: g\n@@\n-a\n+A\n"),
    ("move into new directories", ABC, "*** Update File: f\n*** Move to: d/e/g\n@@\n-a\n+A\n"),
    ("move onto a file", &[("f", b"a\n"), ("g", b"g\n")], "*** Update File: f\n*** Move to: g\n@@\n-a\n+b\n"),
    ("move onto a directory", &[("f", b"a\n"), ("d/x", b"1")], "*** Update File: f\n*** Move to: d\n@@\n-a\n+b\n"),
    ("move without a change", ABC, "*** Update File: f\n*** Move to: g\n"),
    ("move, then delete where to", ABC, "*** Update File: f\n*** Move to: g\n@@\n-a\n+A\n*** Delete File: g\n"),
    (
        "move, then update where to",
        ABC,
        "*** Update File: f\n*** Move to: g\n@@\n-a\n+A\n*** Update File: g\n@@\n-b\n+B\n",
    ),
    ("an absolute path", ABC, "*** Update File: {cwd}/f\n@@\n-a\n+A\n"),
    ("a path with ..", ABC, "*** Update File: ../w/f\n@@\n-a\n+A\n"),
    ("a path that leaves and stays", ABC, "*** Add File: d/../g\n+x\n"),
    ("a path with a space before it", &[("f g", b"a\n")], "*** Update File:  f g\n@@\n-a\n+b\n"),
    ("a path with a space in it", &[("f g", b"a\n")], "*** Update File: f g  \n@@\n-a\n+b\n"),
    ("an indented header", ABC, "   *** Update File: f\n@@\n-a\n+b\n"),
    ("an unknown header", ABC, "*** Frob File: f\n"),
    ("an environment", ABC, "*** Environment ID: x\n*** Update File: f\n@@\n-a\n+b\n"),
    ("two environments", ABC, "*** Environment ID: x\n*** Environment ID: x\n*** Update File: f\n@@\n-a\n+b\n"),
    ("an environment without a name", ABC, "*** Environment ID: \n*** Update File: f\n@@\n-a\n+b\n"),
    ("nothing at all", ABC, ""),
    ("a beginning in it", ABC, "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n"),
    ("an end in it", ABC, "*** Update File: f\n@@\n-a\n+b\n*** End Patch\n*** Update File: f\n@@\n-b\n+c\n"),
    ("a part that does not fit behind one that does", ABC, "*** Add File: n\n+x\n*** Update File: f\n@@\n-zz\n+b\n"),
    ("a missing file behind one that is there", ABC, "*** Update File: f\n@@\n-a\n+A\n*** Delete File: g\n"),
];

/// Whole patches, for what is around the parts.
const WHOLE: &[(&str, &str)] = &[
    ("no end", "*** Begin Patch\n*** Add File: n\n+b\n"),
    ("no beginning", "*** Add File: n\n+b\n*** End Patch"),
    ("text behind the end", "*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nmore"),
    ("empty lines around", "\n\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\n\n"),
    ("spaces around the markers", "  *** Begin Patch  \n*** Add File: n\n+b\n  *** End Patch  "),
    ("two ends", "*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\n*** End Patch"),
    ("CR LF", "*** Begin Patch\r\n*** Update File: f\r\n@@\r\n a\r\n-b\r\n+B\r\n*** End Patch\r\n"),
    ("a here-document", "<<'EOF'\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nEOF"),
    ("a here-document without quotes", "<<EOF\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nEOF\n"),
    ("a here-document with double quotes", "<<\"EOF\"\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nEOF"),
    ("a here-document with different quotes", "<<\"EOF'\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nEOF"),
    ("a here-document of another name", "<<PATCH\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nPATCH"),
    ("a here-document behind cat", "cat <<EOF\n*** Begin Patch\n*** Add File: n\n+b\n*** End Patch\nEOF"),
    ("no patch at all", "hello"),
];

#[tokio::test]
async fn patches_do_what_codex_does() {
    let Some(codex) = CodexPatch::find() else { return };
    let test = ToolTest::local().await;
    let mut different = Vec::new();
    for (name, files, body) in CASES {
        let patch = format!("*** Begin Patch\n{body}*** End Patch");
        different.extend(compare(&test, &codex, name, files, &patch).await);
    }
    for (name, patch) in WHOLE {
        different.extend(compare(&test, &codex, name, ABC, patch).await);
    }
    assert!(CASES.len() + WHOLE.len() >= 100, "{}", CASES.len() + WHOLE.len());
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// Some lines of a patch, most of them right.
fn random_patch(random: &mut Random) -> String {
    const LINES: &[&str] = &["a", "b", " a", "a ", "", "c", "\u{2013}", "-", "\tb"];
    let mut patch = "*** Begin Patch\n".to_owned();
    for _ in 0..1 + random.below(2) {
        match random.below(8) {
            0 => patch.push_str("*** Add File: g\n+x\n"),
            1 => patch.push_str("*** Delete File: g\n"),
            _ => {
                patch.push_str("*** Update File: f\n");
                for _ in 0..1 + random.below(2) {
                    match random.below(5) {
                        0 => patch.push_str(&format!("@@ {}\n", random.pick(LINES))),
                        1 => {}
                        _ => patch.push_str("@@\n"),
                    }
                    for _ in 0..random.below(5) {
                        let sign = *random.pick(&[" ", " ", "-", "-", "+", ""]);
                        patch.push_str(&format!("{sign}{}\n", random.pick(LINES)));
                    }
                    if random.below(6) == 0 {
                        patch.push_str("*** End of File\n");
                    }
                }
            }
        }
    }
    patch + "*** End Patch"
}

#[tokio::test]
async fn random_patches_do_what_codex_does() {
    let Some(codex) = CodexPatch::find() else { return };
    let test = ToolTest::local().await;
    let soak = std::env::var("EXEC_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse::<usize>().ok());
    let seed = std::env::var("EXEC_PATCH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    let mut random = Random(seed);
    let mut different = Vec::new();
    for _ in 0..soak.map_or(150, |rounds| rounds * 50) {
        let ends = *random.pick(&["\n", "\n", "\r\n"]);
        let mut text: String = (0..random.below(7))
            .map(|_| format!("{}{ends}", random.pick(&["a", "b", " a", "a ", "", "c", "-"])))
            .collect();
        if random.below(4) == 0 {
            text.truncate(text.trim_end().len());
        }
        let patch = random_patch(&mut random);
        different.extend(compare(&test, &codex, "random", &[("f", text.as_bytes())], &patch).await);
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

#[tokio::test]
async fn a_file_that_is_moved_onto_itself_stays_and_one_that_is_moved_keeps_its_mode() {
    let test = ToolTest::local().await;
    let path = test.file("f", "a\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).expect("it is ours");
    let patch = |to: &str| PatchRequest {
        patch: format!("*** Begin Patch\n*** Update File: f\n*** Move to: {to}\n@@\n-a\n+a\n+b\n*** End Patch"),
    };
    test.tools.apply_patch(patch("f")).await.expect("it fits");
    assert_eq!(test.contents("f").as_deref(), Some("a\nb\n"));
    test.tools.apply_patch(patch("d/g")).await.expect("it fits");
    let mode = std::fs::metadata(test.path("d/g")).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode, test.contents("d/g").as_deref(), test.contents("f")), (0o750, Some("a\nb\nb\n"), None));
}

#[tokio::test]
async fn a_patch_that_does_not_fit_shows_what_is_there() {
    let test = ToolTest::local().await;
    test.file("f", "fn main() {\n    let total = 1;\n}\n");
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-    let totals = 2;\n+    x\n*** End Patch".to_owned();
    let refused = message(test.tools.apply_patch(PatchRequest { patch }).await);
    assert!(refused.contains("no change was made") && refused.contains("     2\t    let total = 1;"), "{refused}");
    let patch = "*** Begin Patch\n*** Frob: f\n*** End Patch".to_owned();
    let refused = message(test.tools.apply_patch(PatchRequest { patch }).await);
    assert!(refused.contains("line 2") && refused.contains("*** Add File: PATH"), "{refused}");
}

#[tokio::test]
async fn a_patch_that_deletes_a_link_touches_nothing_that_it_leads_to() {
    let test = ToolTest::local().await;
    test.file("f", "theirs\n");
    for leads_to in ["f", "nowhere"] {
        std::os::unix::fs::symlink(leads_to, test.path("l")).expect("it is new");
        let patch = "*** Begin Patch\n*** Delete File: l\n*** Add File: l\n+z\n*** End Patch".to_owned();
        let refused = message(test.tools.apply_patch(PatchRequest { patch }).await);
        assert!(refused.contains("is a link") && refused.contains("in a call before"), "{refused}");
        assert!(test.path("l").is_symlink() && !test.path("nowhere").exists());
        let patch = "*** Begin Patch\n*** Delete File: l\n*** End Patch".to_owned();
        test.tools.apply_patch(PatchRequest { patch }).await.expect("it goes");
        assert_eq!((test.path("l").is_symlink(), test.contents("f").as_deref()), (false, Some("theirs\n")));
    }
}

#[tokio::test]
async fn a_patch_of_a_line_with_a_byte_order_mark_says_why_it_is_not_found() {
    let test = ToolTest::local().await;
    let patch =
        |lines: &str| PatchRequest { patch: format!("*** Begin Patch\n*** Update File: f\n@@{lines}\n*** End Patch") };
    for (lines, is_told) in [("\n-a\n+A\n b", true), (" a\n-b\n+B", true), ("\n-z\n+Z", false), ("\n-a\n-z\n+Z", false)]
    {
        test.file("f", "\u{feff}a\nb\n");
        let refused = message(test.tools.apply_patch(patch(lines)).await);
        assert_eq!(refused.contains("begins with a byte order mark"), is_told, "{lines:?}: {refused}");
        assert_eq!(test.contents("f").as_deref(), Some("\u{feff}a\nb\n"));
    }
    test.tools.apply_patch(patch("\n-\u{feff}a\n+\u{feff}A")).await.expect("it is in the patch, too");
    assert_eq!(test.contents("f").as_deref(), Some("\u{feff}A\nb\n"));
}
