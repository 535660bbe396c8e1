//! Where symbolic links are refused: each verb in its own words.

use bytes::Bytes;
use exec_env::files::{
    CreateDirectoryOptions, FileKind, Links, OpenMode, Reason, RemoveOptions, RenameOptions, WriteOptions,
};

use super::{FilesBench, contents, names_in, reason};

const WRITE: WriteOptions = WriteOptions {
    append: false,
    expect: exec_env::files::Expect::Anything,
    sync: false,
    links: Links::Refuse,
    mode: None,
};
const REMOVE: RemoveOptions = RemoveOptions { recursive: false, force: true, links: Links::Refuse };
const MAKE: CreateDirectoryOptions = CreateDirectoryOptions { recursive: true, links: Links::Refuse, mode: None };
const RENAME: RenameOptions = RenameOptions { no_replace: false, links: Links::Refuse };

/// ELOOP where contents are wanted, plain words where the name is.
pub async fn a_link_as_the_last_component_is_refused_by_each_verb_in_its_words(bench: &FilesBench) {
    let file = bench.file("file", "safe");
    let link = bench.link("link", "file");
    let files = bench.files();
    assert_eq!(reason(files.read(&link, Links::Refuse).await), Some(Reason::Os(40)));
    for mode in [OpenMode::Read, OpenMode::Replace, OpenMode::Append] {
        assert_eq!(reason(files.open(&link, mode, Links::Refuse).await), Some(Reason::Os(40)));
    }
    let bytes = || Bytes::from_static(b"x");
    assert_eq!(reason(files.write(&link, bytes(), WRITE).await), Some(Reason::Os(40)));
    let append = WriteOptions { append: true, ..WRITE };
    assert_eq!(reason(files.write(&link, bytes(), append).await), Some(Reason::Os(40)));
    assert_eq!(reason(files.metadata(&link, Links::Refuse).await), Some(Reason::SymlinkInPath));
    assert_eq!(reason(files.remove(&link, REMOVE).await), Some(Reason::SymlinkInPath));
    assert_eq!(reason(files.set_permissions(&link, 0o600, Links::Refuse).await), Some(Reason::SymlinkInPath));
    bench.folder("folder");
    let to_folder = bench.link("to-folder", "folder");
    assert_eq!(reason(files.create_directory(&to_folder, MAKE).await), Some(Reason::Os(20)));
    assert_eq!((contents(&file), names_in(&bench.path("folder")).len()), (b"safe".to_vec(), 0));
}

/// ENOTDIR from every verb.
pub async fn a_link_on_the_way_is_not_a_folder(bench: &FilesBench) {
    bench.file("folder/file", "safe");
    bench.link("link", "folder");
    let path = bench.path("link/file");
    let new = bench.path("link/new");
    let files = bench.files();
    let bytes = || Bytes::from_static(b"x");
    let here = bench.file("here", "");
    let outcomes = [
        reason(files.read(&path, Links::Refuse).await),
        reason(files.open(&path, OpenMode::Replace, Links::Refuse).await),
        reason(files.open(&new, OpenMode::Append, Links::Refuse).await),
        reason(files.write(&path, bytes(), WRITE).await),
        reason(files.write(&new, bytes(), WriteOptions { append: true, ..WRITE }).await),
        reason(files.metadata(&path, Links::Refuse).await),
        reason(files.remove(&path, REMOVE).await),
        reason(files.create_directory(&new, MAKE).await),
        reason(files.create_directory(&new.join("deeper"), MAKE).await),
        reason(files.rename(&path, &here, RENAME).await),
        reason(files.rename(&here, &new, RENAME).await),
        reason(files.set_permissions(&path, 0o600, Links::Refuse).await),
        reason(files.read_link(&path, Links::Refuse).await),
        reason(files.create_symlink(&here, &new, Links::Refuse).await),
    ];
    for (at, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome, Some(Reason::Os(20)), "verb {at}");
    }
    assert_eq!((names_in(&bench.path("folder")), contents(&path)), (vec!["file".into()], b"safe".to_vec()));
}

/// Refusing costs nothing but links.
pub async fn without_links_everything_works_as_usual(bench: &FilesBench) {
    let files = bench.files();
    let folder = bench.path("a/b");
    files.create_directory(&folder, MAKE).await.expect("the folder is ours");
    let file = folder.join("file");
    files.write(&file, Bytes::from_static(b"one"), WRITE).await.expect("the folder is ours");
    let append = WriteOptions { append: true, ..WRITE };
    files.write(&file, Bytes::from_static(b" two"), append).await.expect("the folder is ours");
    assert_eq!(files.read(&file, Links::Refuse).await.as_deref(), Ok(&b"one two"[..]));
    let opened = files.open(&file, OpenMode::Append, Links::Refuse).await.expect("it is ours");
    opened.write_block(7, Bytes::from_static(b" three")).await.expect("it is ours");
    let told = files.metadata(&file, Links::Refuse).await.expect("it is ours");
    assert_eq!((told.kind, told.size_bytes), (FileKind::File, 13));
    files.set_permissions(&file, 0o600, Links::Refuse).await.expect("it is ours");
    let link = folder.join("link");
    files.create_symlink("file".as_ref(), &link, Links::Refuse).await.expect("the folder is ours");
    assert_eq!(files.read_link(&link, Links::Refuse).await, Ok("file".into()));
    let moved = bench.path("a/moved");
    files.rename(&file, &moved, RENAME).await.expect("it is ours");
    files.remove(&moved, REMOVE).await.expect("it is ours");
    let folder_as_file = reason(files.read(&folder, Links::Refuse).await);
    assert_eq!(folder_as_file, Some(Reason::NotRegular));
}

/// In the words clients know.
pub async fn a_whole_tree_is_not_removed_without_following(bench: &FilesBench) {
    bench.file("tree/file", "");
    let options = RemoveOptions { recursive: true, ..REMOVE };
    let error = bench.files().remove(&bench.path("tree"), options).await.expect_err("it is refused");
    assert_eq!(error.to_string(), "recursive no-follow removal is unsupported");
    assert_eq!(names_in(&bench.path("tree")), ["file"]);
}
