//! Listing, walking, removing, globbing.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use exec_env::files::{
    DirectoryEntry, DirectoryPage, FileKind, FileReason, GlobQuery, RemoveOptions, WalkKind, WalkListing, WalkOptions,
    WalkPage, WalkPosition,
};

use super::{FilesTestEnvironment, contents, names_in, reason};

const ALL: WalkOptions = WalkOptions {
    max_depth: 64,
    max_directories: 10_000,
    max_entries: 50_000,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};

async fn walk(env: &FilesTestEnvironment, root: &Path, options: WalkOptions) -> WalkListing {
    env.files().walk(root, options).await.expect("the root exists and the limits are good")
}

/// Paths below `root`, as text; directories end with a slash, links to them with an at sign.
fn relative_paths(walk: &WalkListing, root: &Path) -> Vec<String> {
    let (entries, _) = walk.clone().into_parts();
    let entries = entries.iter().map(|entry| {
        let below = entry.path.strip_prefix(root).expect("a walk stays below its root");
        let mark = match (entry.kind, entry.is_symlink) {
            (WalkKind::Directory, false) => "/",
            (WalkKind::Directory, true) => "@",
            (WalkKind::File, false) => "",
            (WalkKind::File, true) => panic!("links to files are not listed: {entry:?}"),
        };
        format!("{}{mark}", below.display())
    });
    entries.collect()
}

/// A dangling link is listed as a link.
pub async fn a_folder_lists_its_entries_with_links_resolved(env: &FilesTestEnvironment) {
    env.file("file", "");
    env.directory("folder");
    env.link("to-file", "file");
    env.link("to-folder", "folder");
    env.link("dangling", "nowhere");
    env.fifo("fifo");
    let mut listed = env.files().read_directory(&env.scratch()).await.expect("it is ours");
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let entry = |name: &str, kind, is_symlink| DirectoryEntry { name: name.into(), kind, is_symlink };
    assert_eq!(
        listed,
        [
            entry("dangling", FileKind::Symlink, true),
            entry("fifo", FileKind::Special, false),
            entry("file", FileKind::File, false),
            entry("folder", FileKind::Directory, false),
            entry("to-file", FileKind::File, true),
            entry("to-folder", FileKind::Directory, true),
        ]
    );
}

/// ENOTDIR, and ENOENT for a missing one.
pub async fn a_file_is_no_folder(env: &FilesTestEnvironment) {
    let file = env.file("file", "");
    assert_eq!(reason(env.files().read_directory(&file).await), Some(FileReason::Os(20)));
    assert_eq!(reason(env.files().read_directory(&env.path("missing")).await), Some(FileReason::Os(2)));
}

fn fill(folder: &Path, files: usize) {
    fill_up(folder, 0..files);
}

fn fill_up(folder: &Path, numbers: std::ops::Range<usize>) {
    for number in numbers {
        std::fs::File::create(folder.join(format!("{number:06}"))).expect("the directory is ours");
    }
}

/// In memory, where that can be had: on a disk, making and removing fifty thousand files takes longer than what is tested.
fn folder_of_many_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a temporary folder can be made")
}

/// The first listing is more than the JSON of one answer may hold, the second more than a listing may have.
pub async fn a_folder_is_listed_whole_up_to_fifty_thousand_entries_and_then_refused_with_their_number(
    env: &FilesTestEnvironment,
) {
    let scratch = folder_of_many_files();
    let folder = std::fs::canonicalize(scratch.path()).expect("it is ours");
    fill_up(&folder, 0..45_000);
    let listed = env.files().read_directory(&folder).await.expect("it is ours");
    let mut names: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert!(names == names_in(&folder));
    fill_up(&folder, 45_000..50_002);
    let error = env.files().read_directory(&folder).await.expect_err("that is too many");
    assert_eq!(error.reason, FileReason::TooManyEntries { found: 50_002 });
    assert_eq!(error.reason.to_string(), "it has 50002 entries, and a listing has at most 50000");
}

async fn page(env: &FilesTestEnvironment, folder: &Path, after: Option<&str>, most: usize) -> DirectoryPage {
    let after = after.map(OsStr::new);
    env.files().read_directory_page(folder, after, most).await.expect("it is ours")
}

fn page_names(page: &DirectoryPage) -> Vec<&str> {
    page.entries.iter().filter_map(|entry| entry.name.to_str()).collect()
}

pub async fn a_folder_comes_in_sorted_pages_of_any_size(env: &FilesTestEnvironment) {
    let folder = env.directory("folder");
    fill(&folder, 25);
    for most in [1, 7, 24, 25, 26] {
        let (mut names, mut next): (Vec<OsString>, Option<OsString>) = (Vec::new(), None);
        loop {
            let page = env.files().read_directory_page(&folder, next.as_deref(), most).await.expect("it is ours");
            assert!(page.entries.len() <= most);
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(names, names_in(&folder), "{most}");
    }
    assert_eq!(page(env, &env.directory("empty"), None, 7).await, DirectoryPage::default());
    let missing = env.files().read_directory_page(&env.path("missing"), None, 7).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

pub async fn what_stays_in_a_changing_folder_is_in_one_page_exactly(env: &FilesTestEnvironment) {
    for name in ["b", "d", "f", "h"] {
        env.file(format!("folder/{name}"), "");
    }
    let folder = env.path("folder");
    let first = page(env, &folder, None, 2).await;
    assert_eq!((page_names(&first), first.next.as_deref()), (vec!["b", "d"], Some(OsStr::new("d"))));
    // Its own place is gone, and others come before and behind it.
    std::fs::remove_file(folder.join("d")).expect("it is ours");
    env.file("folder/a", "");
    env.file("folder/e", "");
    let second = page(env, &folder, Some("d"), 2).await;
    assert_eq!((page_names(&second), second.next.as_deref()), (vec!["e", "f"], Some(OsStr::new("f"))));
    let last = page(env, &folder, Some("f"), 2).await;
    assert_eq!((page_names(&last), last.next.clone()), (vec!["h"], None));
}

/// The names of all pages, and how many pages there were.
async fn walk_in_pages(env: &FilesTestEnvironment, root: &Path, options: WalkOptions) -> (Vec<String>, usize) {
    let (mut items, mut next, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = env.files().walk_page(root, options, next).await.expect("it is ours");
        items.extend(page.items);
        next = page.next;
        pages += 1;
        if next.is_none() {
            return (relative_paths(&WalkListing { items, truncated: false }, root), pages);
        }
    }
}

pub async fn a_tree_comes_in_pages_of_any_size_depth_first(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    for file in ["root/b/y", "root/b/a/deep", "root/a/x", "root/Z", "root/c", "root/.hidden/x"] {
        env.file(file, "");
    }
    env.directory("root/a/empty");
    env.link("root/a/link", "../b");
    env.fifo("root/b/fifo");
    let expected = [".hidden/", ".hidden/x", "Z", "a/", "a/empty/", "a/x", "b/", "b/a/", "b/a/deep", "b/y", "c"];
    for number in 1..14 {
        let (names, pages) = walk_in_pages(env, &root, WalkOptions { max_entries: number, ..ALL }).await;
        assert_eq!(names, expected, "{number} entries");
        assert_eq!(pages, 13_usize.div_ceil(number), "{number} entries");
        let (names, _) = walk_in_pages(env, &root, WalkOptions { max_directories: number, ..ALL }).await;
        assert_eq!(names, expected, "{number} directories");
    }
    let pruned = WalkOptions { max_entries: 2, prune_hidden_directories: true, max_depth: 1, ..ALL };
    let (names, _) = walk_in_pages(env, &root, pruned).await;
    assert_eq!(names, [".hidden/", "Z", "a/", "a/empty/", "a/x", "b/", "b/a/", "b/y", "c"]);
    assert_eq!(walk_in_pages(env, &root.join("c"), ALL).await, (Vec::new(), 1));
    let following = env.files().walk_page(&root, WalkOptions { follow_directory_symlinks: true, ..ALL }, None).await;
    assert_eq!(reason(following), Some(FileReason::Os(22)));
    let elsewhere = WalkPosition { path: env.scratch(), whole: false };
    assert_eq!(reason(env.files().walk_page(&root, ALL, Some(elsewhere)).await), Some(FileReason::Os(22)));
}

/// A position is what a client says it is.
pub async fn no_page_of_a_tree_leads_out_of_it(env: &FilesTestEnvironment) {
    env.file("root/below/file", "");
    env.file("outside/secret", "");
    let root = env.path("root");
    for below in ["..", "below/../..", "below/../../outside", "below/../below"] {
        for whole in [false, true] {
            let after = WalkPosition { path: root.join(below), whole };
            let page = env.files().walk_page(&root, ALL, Some(after)).await;
            assert_eq!(reason(page), Some(FileReason::Os(22)), "{below}");
        }
    }
}

pub async fn what_stays_in_a_changing_tree_is_in_one_page_exactly(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    for file in ["root/a/1", "root/m/1", "root/m/2", "root/z/1"] {
        env.file(file, "");
    }
    let names = |page: &WalkPage| relative_paths(&WalkListing { items: page.items.clone(), truncated: false }, &root);
    let four = WalkOptions { max_entries: 4, ..ALL };
    let first = env.files().walk_page(&root, four, None).await.expect("it is ours");
    assert_eq!(names(&first), ["a/", "a/1", "m/", "m/1"]);
    // Where the walk was is gone, something came before it, and something behind it.
    std::fs::remove_dir_all(root.join("m")).expect("it is ours");
    env.file("root/b/1", "");
    env.file("root/n", "");
    let second = env.files().walk_page(&root, four, first.next).await.expect("it is ours");
    assert_eq!((names(&second), second.next), (vec!["n".to_owned(), "z/".to_owned(), "z/1".to_owned()], None));
}

/// Bytewise: capitals first, not by language.
pub async fn a_walk_goes_breadth_first_and_sorted(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    for file in ["root/b/y", "root/b/a/deep", "root/a/x", "root/Z", "root/é", "root/c"] {
        env.file(file, "");
    }
    let walked = walk(env, &root, ALL).await;
    assert_eq!(relative_paths(&walked, &root), ["Z", "a/", "b/", "c", "é", "a/x", "b/a/", "b/y", "b/a/deep"]);
    assert_eq!((walked.truncated, walked.into_parts().1), (false, Vec::new()));
}

/// Depth 0 is the root's children.
pub async fn a_walk_stops_at_its_depth_without_calling_itself_truncated(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.file("root/a/b/c", "");
    for (max_depth, expected) in [(0, vec!["a/"]), (1, vec!["a/", "a/b/"]), (2, vec!["a/", "a/b/", "a/b/c"])] {
        let walked = walk(env, &root, WalkOptions { max_depth, ..ALL }).await;
        assert_eq!(
            (relative_paths(&walked, &root), walked.truncated),
            (expected.iter().map(ToString::to_string).collect(), false)
        );
    }
}

/// Links and special files count as entries.
pub async fn a_walk_counts_what_it_leaves_out(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.link("root/a-link", "b");
    env.file("root/b", "");
    env.file("root/c", "");
    for (max_entries, expected, truncated) in
        [(1, vec![], true), (2, vec!["b"], true), (3, vec!["b", "c"], false), (4, vec!["b", "c"], false)]
    {
        let walked = walk(env, &root, WalkOptions { max_entries, ..ALL }).await;
        assert_eq!(relative_paths(&walked, &root), expected);
        assert_eq!(walked.truncated, truncated, "{max_entries}");
    }
}

/// A directory that may not be entered any more is still listed.
pub async fn a_walk_counts_folders_with_the_root(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.file("root/a/x", "");
    env.file("root/b/y", "");
    for (max_directories, expected, truncated) in
        [(1, vec!["a/", "b/"], true), (2, vec!["a/", "b/", "a/x"], true), (3, vec!["a/", "b/", "a/x", "b/y"], false)]
    {
        let walked = walk(env, &root, WalkOptions { max_directories, ..ALL }).await;
        assert_eq!(relative_paths(&walked, &root), expected);
        assert_eq!(walked.truncated, truncated, "{max_directories}");
    }
}

/// A circle of links ends.
pub async fn a_walk_follows_links_to_folders_once(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.file("root/real/file", "");
    env.link("root/real/up", "..");
    env.link("root/same", "real");
    env.link("root/to-file", "real/file");
    let following = WalkOptions { follow_directory_symlinks: true, ..ALL };
    let walked = walk(env, &root, following).await;
    assert_eq!(relative_paths(&walked, &root), ["real/", "same@", "real/file", "real/up@"]);
    let walked = walk(env, &root, ALL).await;
    assert_eq!(relative_paths(&walked, &root), ["real/", "real/file"]);
}

pub async fn a_walk_prunes_hidden_folders_but_lists_them(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    env.file("root/.git/config", "");
    env.file("root/.hidden", "");
    env.file("root/shown/file", "");
    let walked = walk(env, &root, WalkOptions { prune_hidden_directories: true, ..ALL }).await;
    assert_eq!(relative_paths(&walked, &root), [".git/", ".hidden", "shown/", "shown/file"]);
}

pub async fn a_walk_of_a_file_or_a_link_is_empty_and_of_nothing_not_found(env: &FilesTestEnvironment) {
    let file = env.file("folder/file", "");
    assert_eq!(walk(env, &file, ALL).await, WalkListing::default());
    let link = env.link("link", "folder");
    assert_eq!(walk(env, &link, ALL).await, WalkListing::default());
    let following = WalkOptions { follow_directory_symlinks: true, ..ALL };
    assert_eq!(relative_paths(&walk(env, &link, following).await, &link), ["file"]);
    let dangling = env.link("leads-nowhere", "nowhere");
    assert_eq!(reason(env.files().walk(&dangling, ALL).await), Some(FileReason::Os(2)));
    let missing = env.files().walk(&env.path("missing"), ALL).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}

pub async fn a_walk_asks_for_no_more_than_it_may(env: &FilesTestEnvironment) {
    let root = env.scratch();
    let too_much = env.files().walk(&root, WalkOptions { max_entries: 50_001, ..ALL }).await;
    assert_eq!(reason(too_much), Some(FileReason::WalkLimitsTooLarge));
    let nothing = env.files().walk(&root, WalkOptions { max_directories: 0, ..ALL }).await;
    assert_eq!(reason(nothing), Some(FileReason::WalkLimitsZero));
}

/// In 200 directories.
pub async fn fifty_thousand_entries_are_walked_whole(env: &FilesTestEnvironment) {
    let scratch = folder_of_many_files();
    let root = std::fs::canonicalize(scratch.path()).expect("it is ours");
    for number in 0..200 {
        let folder = root.join(format!("{number:03}"));
        std::fs::create_dir(&folder).expect("it is ours");
        fill(&folder, 249);
    }
    let walked = walk(env, &root, ALL).await;
    let truncated = walked.truncated;
    let (entries, errors) = walked.into_parts();
    assert_eq!((entries.len(), truncated, errors.len()), (50_000, false, 0));
    let files: Vec<&PathBuf> = entries[200..].iter().map(|entry| &entry.path).collect();
    assert!(files.is_sorted());
}

/// What a link leads to stays.
pub async fn a_file_a_link_and_a_tree_are_removed(env: &FilesTestEnvironment) {
    let (file, kept) = (env.file("file", ""), env.file("kept/inside", "x"));
    let (dangling, to_folder) = (env.link("dangling", "nowhere"), env.link("to-folder", "kept"));
    env.file("tree/a/b/c", "");
    let tree = env.path("tree");
    for path in [&file, &dangling, &to_folder, &tree] {
        env.files().remove(path, RemoveOptions::default()).await.expect("it is ours");
    }
    assert_eq!((names_in(&env.scratch()), contents(&kept)), (vec!["kept".into()], b"x".to_vec()));
}

/// ENOTEMPTY.
pub async fn a_full_folder_needs_recursive(env: &FilesTestEnvironment) {
    env.file("tree/file", "");
    let empty = env.directory("empty");
    let options = RemoveOptions { recursive: false, ..Default::default() };
    assert_eq!(reason(env.files().remove(&env.path("tree"), options).await), Some(FileReason::Os(39)));
    assert_eq!(reason(env.files().remove(&empty, options).await), None);
    assert_eq!(names_in(&env.scratch()), ["tree"]);
}

pub async fn force_only_forgives_what_is_not_there(env: &FilesTestEnvironment) {
    let strict = RemoveOptions { force: false, ..Default::default() };
    let missing = env.path("missing");
    assert_eq!(reason(env.files().remove(&missing, strict).await), Some(FileReason::Os(2)));
    assert_eq!(reason(env.files().remove(&missing, RemoveOptions::default()).await), None);
    let below_file = env.file("file", "").join("x");
    assert_eq!(reason(env.files().remove(&below_file, RemoveOptions::default()).await), Some(FileReason::Os(20)));
    let root = env.files().remove(Path::new("/proc/.."), RemoveOptions::default()).await;
    assert_eq!(reason(root), Some(FileReason::Os(16)));
}

/// Also a tree with a file that nobody may read.
pub async fn removing_a_tree_leaves_what_its_links_lead_to(env: &FilesTestEnvironment) {
    let kept = env.file("kept/inside", "x");
    env.file("tree/sub/file", "");
    env.link("tree/out", "../kept");
    env.link("tree/sub/out", "../../kept/inside");
    std::fs::set_permissions(env.path("tree/sub/file"), std::fs::Permissions::from_mode(0o0)).expect("it is ours");
    env.files().remove(&env.path("tree"), RemoveOptions::default()).await.expect("it is ours");
    assert_eq!((names_in(&env.scratch()), contents(&kept)), (vec!["kept".into()], b"x".to_vec()));
}

/// `*` stays within a name.
pub async fn a_glob_finds_sorted_paths_and_obeys_ignore_files(env: &FilesTestEnvironment) {
    let root = env.directory("root");
    for file in ["root/b.rs", "root/a/x.rs", "root/a/y.txt", "root/.hidden.rs", "root/target/z.rs"] {
        env.file(file, "");
    }
    env.file("root/.gitignore", "target/\n");
    let paths = |query: GlobQuery| async {
        let found = env.files().glob(query).await.expect("the pattern is good");
        let below = found.paths.into_iter().map(|path| path.strip_prefix(&root).map(Path::to_owned));
        below.collect::<Result<Vec<PathBuf>, _>>().expect("a glob stays below its root")
    };
    let texts = |texts: &[&str]| texts.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(paths(GlobQuery::new(&root, "**/*.rs")).await, texts(&[".hidden.rs", "a/x.rs", "b.rs"]));
    assert_eq!(paths(GlobQuery::new(&root, "*.rs")).await, texts(&[".hidden.rs", "b.rs"]));
    let shown = GlobQuery { hidden: false, ignore_files: false, ..GlobQuery::new(&root, "**/{x,z}.rs") };
    assert_eq!(paths(shown).await, texts(&["a/x.rs", "target/z.rs"]));
}

/// The nearest directory with a rule decides among files of one kind, and `.ignore` before `.gitignore`; globs of the
/// repository and rules above the root count, and a file whose first line is no text is read on.
pub async fn ignore_files_of_every_kind_are_obeyed(env: &FilesTestEnvironment) {
    for file in ["a.log", "keep.log", "sub/b.log", "sub/c.tmp", "sub/d.o", "sub/e.txt", "sub/f.bin"] {
        env.file(format!("repository/root/{file}"), "");
    }
    env.file("repository/.gitignore", "/root/sub/d.o\n");
    env.file("repository/root/.gitignore", b"# caf\xe9\n*.log\r\n!keep.log\n*.tmp\n");
    env.file("repository/root/sub/.gitignore", "!c.tmp\n");
    env.file("repository/root/sub/.ignore", "c.tmp\n!b.log\n");
    env.file("repository/root/.git/info/exclude", "*.bin\n");
    let root = env.path("repository/root");
    let query = GlobQuery { hidden: false, ..GlobQuery::new(&root, "**") };
    let found = env.files().glob(query).await.expect("it is ours");
    let names: Vec<&Path> = found.paths.iter().map(|path| path.strip_prefix(&root).expect("it is below")).collect();
    assert_eq!(names, ["keep.log", "sub", "sub/b.log", "sub/e.txt"].map(Path::new));
}

/// A FIFO would never be opened, a device never end; a giant file and very many rules would take all memory.
pub async fn an_ignore_file_that_is_none_holds_nobody_up(env: &FilesTestEnvironment) {
    for place in ["fifo", "device", "giant", "repository"] {
        env.file(format!("{place}/file"), "");
    }
    env.fifo("fifo/.gitignore");
    env.fifo("fifo/.ignore");
    env.link("device/.gitignore", "/dev/zero");
    env.file("giant/.gitignore", "");
    let giant = std::fs::OpenOptions::new().write(true).open(env.path("giant/.gitignore"));
    giant.and_then(|file| file.set_len(1 << 40)).expect("a hole takes no space");
    env.fifo("repository/.git");
    let query = GlobQuery { hidden: false, ..GlobQuery::new(env.scratch(), "**/file") };
    let found = env.files().glob(query).await.expect("it is ours");
    assert_eq!(found.paths, ["device/file", "fifo/file", "giant/file", "repository/file"].map(|name| env.path(name)));
}

pub async fn a_glob_stops_at_its_limit_and_refuses_a_bad_pattern(env: &FilesTestEnvironment) {
    fill(&env.scratch(), 5);
    for (max_paths, truncated) in [(4, true), (5, false)] {
        let query = GlobQuery { max_paths, ..GlobQuery::new(env.scratch(), "*") };
        let found = env.files().glob(query).await.expect("the pattern is good");
        assert_eq!((found.paths.len(), found.truncated), (max_paths, truncated));
    }
    let bad = env.files().glob(GlobQuery::new(env.scratch(), "[z-a]")).await;
    assert!(matches!(reason(bad), Some(FileReason::BadPattern { .. })));
    let missing = env.files().glob(GlobQuery::new(env.path("missing"), "*")).await;
    assert_eq!(reason(missing), Some(FileReason::Os(2)));
}
