//! The files of a machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exec_server::SharedEnvironment;
use exec_server::files::{
    Change, ChangeStream, CopyOptions, CreateDirectoryOptions, FileError, FileKind, GlobQuery, HashAlgorithm,
    LinkPolicy, Metadata, Pattern, RemoveOptions, RenameOptions, SearchItem, SearchQuery, SearchResults, WatchOptions,
    WriteOptions, search::CaseSensitivity,
};
use futures_util::future::BoxFuture;

use crate::call::{Outcome, Work};
use crate::environment::Environment;
use crate::limits::DIRECTORY_PAGE_ENTRIES;
use crate::pages::{Pages, ReadPages};
use crate::{Arguments, Failure, Value};

/// A watch that runs as long as somebody holds it.
struct Watch(Box<dyn ChangeStream>);

/// A search that runs as long as somebody holds it.
struct Search(Box<dyn SearchResults>);

/// Begins the verb that is called `files.` and this. Relative paths begin at the working directory of the environment.
pub(crate) fn call(
    verb: &str,
    machine: SharedEnvironment,
    mut arguments: Arguments,
    environment: Arc<Environment>,
) -> Result<Work, Failure> {
    let base = machine.info().cwd.clone().or_else(|| machine.info().home.clone()).unwrap_or_else(|| "/".into());
    let full = |path: PathBuf| base.join(path);
    let path = full(arguments.path("path")?);
    Ok(match verb {
        "read" => {
            arguments.finish()?;
            begin(async move { machine.files().read(&path, LinkPolicy::Follow).await.map(Value::from) })
        }
        "write" => {
            let bytes = arguments.bytes("data")?;
            let options = WriteOptions {
                append: arguments.flag("append", false)?,
                mode: arguments.optional_number("mode")?,
                ..WriteOptions::default()
            };
            let parents = arguments.flag("parents", false)?;
            arguments.finish()?;
            begin(async move {
                if parents && let Some(parent) = path.parent() {
                    machine.files().create_directory(parent, CreateDirectoryOptions::default()).await?;
                }
                machine.files().write(&path, bytes, options).await.map(Value::from)
            })
        }
        "list" => {
            arguments.finish()?;
            begin(list(machine, path))
        }
        "stat" => {
            arguments.finish()?;
            begin(async move { machine.files().metadata(&path, LinkPolicy::Follow).await.map(shown_metadata) })
        }
        "exists" => {
            arguments.finish()?;
            begin(async move {
                match machine.files().metadata(&path, LinkPolicy::Follow).await {
                    Ok(_) => Ok(true.into()),
                    Err(error) if matches!(error.errno(), Some(ENOENT | ENOTDIR)) => Ok(false.into()),
                    Err(error) => Err(error),
                }
            })
        }
        "mkdir" => {
            let options = CreateDirectoryOptions {
                recursive: arguments.flag("parents", true)?,
                mode: arguments.optional_number("mode")?,
                ..CreateDirectoryOptions::default()
            };
            arguments.finish()?;
            begin(async move { machine.files().create_directory(&path, options).await.map(Value::from) })
        }
        "remove" => {
            let options = RemoveOptions {
                recursive: arguments.flag("recursive", false)?,
                force: arguments.flag("missing_ok", false)?,
                ..RemoveOptions::default()
            };
            arguments.finish()?;
            begin(async move { machine.files().remove(&path, options).await.map(Value::from) })
        }
        "move" => {
            let to = full(arguments.path("to")?);
            let options = RenameOptions { no_replace: !arguments.flag("overwrite", true)?, ..RenameOptions::default() };
            arguments.finish()?;
            begin(async move { machine.files().rename(&path, &to, options).await.map(Value::from) })
        }
        "copy" => {
            let to = full(arguments.path("to")?);
            let options = CopyOptions {
                recursive: arguments.flag("recursive", false)?,
                keep_times: arguments.flag("keep_times", false)?,
                progress: None,
            };
            arguments.finish()?;
            begin(async move {
                let copied = machine.files().copy(&path, &to, options).await?;
                Ok(Value::map([
                    ("files", copied.files.into()),
                    ("directories", copied.directories.into()),
                    ("symlinks", copied.symlinks.into()),
                    ("bytes", copied.bytes.into()),
                    ("skipped", copied.skipped.into()),
                ]))
            })
        }
        "chmod" => {
            let mode = arguments.number("mode")?;
            arguments.finish()?;
            begin(
                async move { machine.files().set_permissions(&path, mode, LinkPolicy::Follow).await.map(Value::from) },
            )
        }
        "readlink" => {
            arguments.finish()?;
            begin(async move { machine.files().read_link(&path, LinkPolicy::Follow).await.map(Value::from) })
        }
        "symlink" => {
            let target = arguments.path("target")?;
            arguments.finish()?;
            begin(
                async move { machine.files().create_symlink(&target, &path, LinkPolicy::Follow).await.map(Value::from) },
            )
        }
        "realpath" => {
            arguments.finish()?;
            begin(async move { machine.files().canonicalize(&path).await.map(Value::from) })
        }
        "hash" => {
            let algorithm = match arguments.optional_text("algorithm")?.as_deref() {
                None | Some("sha256") => HashAlgorithm::Sha256,
                Some("blake3") => HashAlgorithm::Blake3,
                Some(_) => return Err(Failure::bad_argument("algorithm", "it must be `sha256` or `blake3`")),
            };
            arguments.finish()?;
            begin(async move {
                machine.files().hash(&path, algorithm, LinkPolicy::Follow).await.map(|hash| hash.hex().into())
            })
        }
        "glob" => {
            let query = GlobQuery {
                ignore_files: arguments.flag("ignore_files", false)?,
                hidden: arguments.flag("hidden", true)?,
                ..GlobQuery::new(path, arguments.text("pattern")?)
            };
            arguments.finish()?;
            begin(async move {
                let found = machine.files().glob(query).await?;
                Ok(Value::map([("paths", Value::list(found.paths)), ("truncated", found.truncated.into())]))
            })
        }
        "watch" => {
            let options = WatchOptions {
                recursive: arguments.flag("recursive", true)?,
                ignore_files: arguments.flag("ignore_files", false)?,
            };
            arguments.finish()?;
            begin(async move {
                let watch = machine.files().watch(&path, options).await?;
                Ok(Pages::object("watch", Watch(watch), environment))
            })
        }
        "search" => {
            let query = search_query(path, &mut arguments)?;
            arguments.finish()?;
            begin(async move {
                let search = machine.files().search(query).await?;
                Ok(Pages::object("search", Search(search), environment))
            })
        }
        verb => return Err(Failure::bad_argument("method", &format!("files have no `{verb}`"))),
    })
}

const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;

fn begin(work: impl Future<Output = Result<Value, FileError>> + Send + 'static) -> Work {
    Work::new(async move { Ok(work.await?) })
}

/// The whole listing, however long, sorted by name.
async fn list(machine: SharedEnvironment, path: PathBuf) -> Result<Value, FileError> {
    let mut entries = Vec::new();
    let mut after = None;
    loop {
        let page = machine.files().read_directory_page(&path, after.as_deref(), DIRECTORY_PAGE_ENTRIES).await?;
        entries.extend(page.entries.into_iter().map(|entry| {
            Value::map([
                ("name", entry.name.clone().into()),
                ("path", path.join(&entry.name).into()),
                ("kind", kind_name(entry.kind).into()),
                ("is_symlink", entry.is_symlink.into()),
            ])
        }));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Value::List(entries)),
        }
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Special => "special",
    }
}

fn shown_metadata(metadata: Metadata) -> Value {
    Value::map([
        ("kind", kind_name(metadata.kind).into()),
        ("is_symlink", metadata.is_symlink.into()),
        ("size", metadata.size_bytes.into()),
        ("mode", metadata.mode.into()),
        ("modified", metadata.modified.into()),
        ("accessed", metadata.accessed.into()),
        ("uid", metadata.uid.into()),
        ("gid", metadata.gid.into()),
        ("nlink", metadata.nlink.into()),
    ])
}

fn search_query(root: PathBuf, arguments: &mut Arguments) -> Result<SearchQuery, Failure> {
    let pattern = arguments.text("pattern")?;
    let pattern = if arguments.flag("literal", false)? { Pattern::Literal(pattern) } else { Pattern::Regex(pattern) };
    let mut query = SearchQuery::new(root, pattern);
    query.case = match arguments.optional_text("case")?.as_deref() {
        None | Some("sensitive") => CaseSensitivity::Sensitive,
        Some("insensitive") => CaseSensitivity::Insensitive,
        Some("smart") => CaseSensitivity::Smart,
        Some(_) => return Err(Failure::bad_argument("case", "it must be `sensitive`, `insensitive` or `smart`")),
    };
    query.word = arguments.flag("word", false)?;
    query.globs = arguments.texts("globs")?;
    query.ignore_files = arguments.flag("ignore_files", true)?;
    query.hidden = arguments.flag("hidden", false)?;
    if let Some(most) = arguments.optional_number("max_matches")? {
        query.max_matches = most;
    }
    Ok(query)
}

impl ReadPages for Watch {
    fn next(&mut self) -> BoxFuture<'_, Outcome> {
        Box::pin(async {
            let Some(batch) = self.0.next().await? else { return Ok(Value::Null) };
            let overflow = batch.overflow.map(|root| change("overflow", root, None));
            Ok(Value::list(batch.changes.into_iter().map(shown_change).chain(overflow)))
        })
    }
}

fn shown_change(changed: Change) -> Value {
    match changed {
        Change::Created(path) => change("created", path, None),
        Change::Modified(path) => change("modified", path, None),
        Change::Removed(path) => change("removed", path, None),
        Change::Renamed { from, to } => change("renamed", from, Some(to)),
    }
}

fn change(kind: &str, path: PathBuf, to: Option<PathBuf>) -> Value {
    Value::map([("kind", kind.into()), ("path", path.into()), ("to", to.into())])
}

impl ReadPages for Search {
    fn next(&mut self) -> BoxFuture<'_, Outcome> {
        Box::pin(async {
            Ok(match self.0.next().await? {
                SearchItem::Done(_) => Value::Null,
                SearchItem::Lines(found) => {
                    let path: &Path = &found.path;
                    Value::list(found.lines.into_iter().map(|line| {
                        let spans = line.spans.iter().map(|(begin, end)| Value::list([*begin, *end]));
                        Value::map([
                            ("path", path.to_owned().into()),
                            ("line", line.number.into()),
                            ("text", line.text.into()),
                            ("spans", Value::list(spans)),
                        ])
                    }))
                }
            })
        })
    }
}
