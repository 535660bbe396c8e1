//! Calls that refuse symbolic links, and their errors.

use bytes::Bytes;
use exec_env::files::{
    CreateDirectoryOptions, FileKind, FileReason, LinkPolicy, OpenMode, RemoveOptions, RenameOptions, WriteOptions,
};

use super::{FilesTestEnvironment, contents, names_in, reason};

const WRITE: WriteOptions = WriteOptions {
    append: false,
    expect: exec_env::files::ExpectedFile::Anything,
    sync: false,
    links: LinkPolicy::Refuse,
    mode: None,
};
const REMOVE: RemoveOptions = RemoveOptions { recursive: false, force: true, links: LinkPolicy::Refuse };
const MAKE: CreateDirectoryOptions = CreateDirectoryOptions { recursive: true, links: LinkPolicy::Refuse, mode: None };
const RENAME: RenameOptions = RenameOptions { no_replace: false, links: LinkPolicy::Refuse };

/// ELOOP from calls on contents, an error of our own from calls on the name.
pub async fn a_link_as_the_last_component_is_refused_by_each_verb_in_its_words(env: &FilesTestEnvironment) {
    let file = env.file("file", "safe");
    let link = env.link("link", "file");
    let files = env.files();
    assert_eq!(reason(files.read(&link, LinkPolicy::Refuse).await), Some(FileReason::Os(40)));
    for mode in [OpenMode::Read, OpenMode::Replace, OpenMode::Append] {
        assert_eq!(reason(files.open(&link, mode, LinkPolicy::Refuse).await), Some(FileReason::Os(40)));
    }
    let bytes = || Bytes::from_static(b"x");
    assert_eq!(reason(files.write(&link, bytes(), WRITE).await), Some(FileReason::Os(40)));
    let append = WriteOptions { append: true, ..WRITE };
    assert_eq!(reason(files.write(&link, bytes(), append).await), Some(FileReason::Os(40)));
    assert_eq!(reason(files.metadata(&link, LinkPolicy::Refuse).await), Some(FileReason::SymlinkInPath));
    assert_eq!(reason(files.remove(&link, REMOVE).await), Some(FileReason::SymlinkInPath));
    assert_eq!(reason(files.set_permissions(&link, 0o600, LinkPolicy::Refuse).await), Some(FileReason::SymlinkInPath));
    env.directory("folder");
    let to_folder = env.link("to-folder", "folder");
    assert_eq!(reason(files.create_directory(&to_folder, MAKE).await), Some(FileReason::Os(20)));
    assert_eq!((contents(&file), names_in(&env.path("folder")).len()), (b"safe".to_vec(), 0));
}

/// ENOTDIR from every verb.
pub async fn a_link_on_the_way_is_not_a_folder(env: &FilesTestEnvironment) {
    env.file("folder/file", "safe");
    env.link("link", "folder");
    let path = env.path("link/file");
    let new = env.path("link/new");
    let files = env.files();
    let bytes = || Bytes::from_static(b"x");
    let here = env.file("here", "");
    let outcomes = [
        reason(files.read(&path, LinkPolicy::Refuse).await),
        reason(files.open(&path, OpenMode::Replace, LinkPolicy::Refuse).await),
        reason(files.open(&new, OpenMode::Append, LinkPolicy::Refuse).await),
        reason(files.write(&path, bytes(), WRITE).await),
        reason(files.write(&new, bytes(), WriteOptions { append: true, ..WRITE }).await),
        reason(files.metadata(&path, LinkPolicy::Refuse).await),
        reason(files.remove(&path, REMOVE).await),
        reason(files.create_directory(&new, MAKE).await),
        reason(files.create_directory(&new.join("deeper"), MAKE).await),
        reason(files.rename(&path, &here, RENAME).await),
        reason(files.rename(&here, &new, RENAME).await),
        reason(files.set_permissions(&path, 0o600, LinkPolicy::Refuse).await),
        reason(files.read_link(&path, LinkPolicy::Refuse).await),
        reason(files.create_symlink(&here, &new, LinkPolicy::Refuse).await),
    ];
    for (at, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome, Some(FileReason::Os(20)), "verb {at}");
    }
    assert_eq!((names_in(&env.path("folder")), contents(&path)), (vec!["file".into()], b"safe".to_vec()));
}

pub async fn without_links_everything_works_as_usual(env: &FilesTestEnvironment) {
    let files = env.files();
    let folder = env.path("a/b");
    files.create_directory(&folder, MAKE).await.expect("the directory is ours");
    let file = folder.join("file");
    files.write(&file, Bytes::from_static(b"one"), WRITE).await.expect("the directory is ours");
    let append = WriteOptions { append: true, ..WRITE };
    files.write(&file, Bytes::from_static(b" two"), append).await.expect("the directory is ours");
    assert_eq!(files.read(&file, LinkPolicy::Refuse).await.as_deref(), Ok(&b"one two"[..]));
    let opened = files.open(&file, OpenMode::Append, LinkPolicy::Refuse).await.expect("it is ours");
    opened.write_block(7, Bytes::from_static(b" three")).await.expect("it is ours");
    let metadata = files.metadata(&file, LinkPolicy::Refuse).await.expect("it is ours");
    assert_eq!((metadata.kind, metadata.size_bytes), (FileKind::File, 13));
    files.set_permissions(&file, 0o600, LinkPolicy::Refuse).await.expect("it is ours");
    let link = folder.join("link");
    files.create_symlink("file".as_ref(), &link, LinkPolicy::Refuse).await.expect("the directory is ours");
    assert_eq!(files.read_link(&link, LinkPolicy::Refuse).await, Ok("file".into()));
    let moved = env.path("a/moved");
    files.rename(&file, &moved, RENAME).await.expect("it is ours");
    files.remove(&moved, REMOVE).await.expect("it is ours");
    let folder_as_file = reason(files.read(&folder, LinkPolicy::Refuse).await);
    assert_eq!(folder_as_file, Some(FileReason::NotRegular));
}

/// The message is the one that clients know.
pub async fn a_whole_tree_is_not_removed_without_following(env: &FilesTestEnvironment) {
    env.file("tree/file", "");
    let options = RemoveOptions { recursive: true, ..REMOVE };
    let error = env.files().remove(&env.path("tree"), options).await.expect_err("it is refused");
    assert_eq!(error.reason, FileReason::RecursiveNoFollow);
    assert_eq!(names_in(&env.path("tree")), ["file"]);
}
