//! The tools over files: read_file, write_file, edit_file, edit_files, apply_patch, list_directory, find_files, search_files,
//! view_image.
//!
//! Here words become [`exec_tools::files`] requests and its results become JSON; what happens is decided there. Every result
//! has the text for a model, and the facts that a program would look for.

mod shapes;

use exec_env::files::ContentHash;
use exec_env::files::search::{CaseSensitivity, Pattern};
use exec_tools::files::read::ViewedContent;
use exec_tools::files::{
    ChangedFiles, EditManyRequest, EditRequest, FileChangeKind, FileEdit, FileToolError, FileTools, GlobRequest,
    GrepMode, GrepRequest, Guard, ImageRequest, ListRequest, Occurrences, PatchRequest, ReadRequest, Start,
    WriteRequest,
};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Hints, ToolEntry, ToolOutcome, WIDENED_BY, failed, structured, tool};
use crate::approval::quoted;
use crate::call::Call;
use crate::server::Tools;
use shapes::{
    ApplyPatchArguments, ChangedFile, ChangedResult, EditArguments, EditManyArguments, EditResult, FileChange,
    FileResult, FindArguments, FoundResult, ListArguments, Mode, ReadArguments, SearchArguments, SearchResult,
    UnreadFile, ViewImageArguments, WriteArguments,
};

/// What a policy says to whoever may not write, and to whoever may not even read. A file may have such rights, and a mount be
/// read-only, without any sandbox.
const REFUSALS: [i32; 3] = [EROFS, EACCES, EPERM];
const EROFS: i32 = 30;
const EACCES: i32 = 13;
const EPERM: i32 = 1;

const LOOKS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
const CHANGES: Hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: false };

pub(crate) fn tools() -> Vec<ToolEntry> {
    looking_tools().into_iter().chain(changing_tools()).collect()
}

fn looking_tools() -> [ToolEntry; 5] {
    [
        ToolEntry {
            tool: tool::<ReadArguments, FileResult>(
                "read_file",
                "Read a file",
                "Shows lines of a text file with their numbers, and the hash that guards a later change. What is not shown is told.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(read_file(tools, call)),
        },
        ToolEntry {
            tool: tool::<ListArguments, FoundResult>(
                "list_directory",
                "List a directory",
                "Lists a directory, as deep as asked, without what .gitignore excludes.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(list_directory(tools, call)),
        },
        ToolEntry {
            tool: tool::<FindArguments, FoundResult>(
                "find_files",
                "Find files by name",
                "Finds paths by glob patterns (`**/*.rs`), without what .gitignore excludes.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(find_files(tools, call)),
        },
        ToolEntry {
            tool: tool::<SearchArguments, SearchResult>(
                "search_files",
                "Search in files",
                "Searches the lines of files for a regular expression, without what .gitignore excludes. Shows the lines, the \
                 files, or counts.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(search_files(tools, call)),
        },
        ToolEntry {
            // Without a structured result: some clients would show that in place of the image.
            tool: super::tool_without_structure::<ViewImageArguments>(
                "view_image",
                "View an image",
                "Shows a PNG, JPEG, GIF or WebP file.",
                LOOKS,
            ),
            run: |tools, call| Box::pin(view_image(tools, call)),
        },
    ]
}

fn changing_tools() -> [ToolEntry; 4] {
    [
        ToolEntry {
            tool: tool::<WriteArguments, FileResult>(
                "write_file",
                "Write a file",
                "Writes a whole file, in one step. With if_hash only over what you have read; with if_absent only if it is new.",
                CHANGES,
            ),
            run: |tools, call| Box::pin(if_permitted(tools, call, write_file(tools, call))),
        },
        ToolEntry {
            tool: tool::<EditArguments, EditResult>(
                "edit_file",
                "Edit a file",
                "Replaces an exact text in a file, which must occur once unless told otherwise. Never overwrites a change that \
                 somebody else made meanwhile.",
                CHANGES,
            ),
            run: |tools, call| Box::pin(if_permitted(tools, call, edit_file(tools, call))),
        },
        ToolEntry {
            tool: tool::<EditManyArguments, ChangedResult>(
                "edit_files",
                "Change several files",
                "Makes several changes in several files, all of them or none.",
                CHANGES,
            ),
            run: |tools, call| Box::pin(if_permitted(tools, call, edit_files(tools, call))),
        },
        ToolEntry {
            tool: tool::<ApplyPatchArguments, ChangedResult>(
                "apply_patch",
                "Apply a patch",
                "Applies a patch that begins with `*** Begin Patch`, with the sections `*** Add File: `, `*** Update File: ` (and \
                 `*** Move to: `) and `*** Delete File: `. All of it or nothing.",
                CHANGES,
            ),
            run: |tools, call| Box::pin(if_permitted(tools, call, apply_patch(tools, call))),
        },
    ]
}

/// Changes files, if nobody must be asked or somebody has said yes.
async fn if_permitted(tools: &Tools, call: &Call, change: impl Future<Output = ToolOutcome>) -> ToolOutcome {
    let question = || {
        let shown = call.arguments.iter().map(|(name, value)| match value {
            // As lines, or nobody could read what is to be written.
            Value::String(text) => format!("{name}:\n{}\n", quoted(text)),
            value => format!("{name}:\n{}\n", quoted(&format!("{value:#}"))),
        });
        format!("Change files with {}?\n\n{}", call.name, shown.collect::<String>())
    };
    match tools.approvals.permit(call, false, question).await {
        Ok(()) => change.await,
        Err(outcome) => outcome,
    }
}

/// The files of the environment that the arguments name, or what is wrong, for the model.
async fn open<T: DeserializeOwned>(
    tools: &Tools,
    call: &Call,
    environment_id: impl FnOnce(&T) -> Option<String>,
) -> Result<(FileTools, T), CallToolResult> {
    let arguments: T = call.arguments().map_err(failed)?;
    let target = tools.shell.environments().find(environment_id(&arguments).as_deref()).await.map_err(failed)?;
    let files = FileTools::new(target.files(), target.resolve(None)).map_err(failed)?;
    Ok((files, arguments))
}

/// What went wrong, for the model; if it may be the sandbox that refused, that and what it permits.
fn file_failure(tools: &Tools, error: &FileToolError) -> CallToolResult {
    let errno = match error {
        FileToolError::Files(error) => error.errno(),
        _ => None,
    };
    match tools.sandbox().filter(|_| errno.is_some_and(|errno| REFUSALS.contains(&errno))) {
        Some(sandbox) => {
            let by_sandbox = "it may be the sandbox of exec-server mcp that refuses this";
            failed(format!("{error}. ({by_sandbox}: {sandbox}; {WIDENED_BY})"))
        }
        None => failed(error),
    }
}

async fn read_file(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &ReadArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let mut request = ReadRequest::new(&arguments.path);
    request.start = match (arguments.last_lines, arguments.from_line) {
        (Some(lines), _) => Start::FromEnd(lines),
        (None, line) => Start::Line(line.unwrap_or(1).max(1)),
    };
    request.max_lines = arguments.max_lines.unwrap_or(request.max_lines);
    let read = match call.attend(files.read(request)).await? {
        Ok(read) => read,
        Err(error) => return Ok(file_failure(tools, &error).into()),
    };
    let total_lines = match &read.content {
        ViewedContent::Text(text) => Some(text.total_lines),
        ViewedContent::Binary { .. } => None,
    };
    let (path, hash, text) = (read.path.display().to_string(), Some(read.hash.to_string()), read.text());
    let result = FileResult { text: text.clone(), path, hash, size_bytes: read.size_bytes, total_lines };
    Ok(structured(text, &result).into())
}

async fn write_file(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &WriteArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let guard = match guard(arguments.if_hash.as_deref(), arguments.if_absent) {
        Ok(guard) => guard,
        Err(why) => return Ok(failed(why).into()),
    };
    let make_directories = arguments.make_directories;
    let request = WriteRequest { guard, make_directories, ..WriteRequest::new(arguments.path, arguments.contents) };
    let written = match files.write(request).await {
        Ok(written) => written,
        Err(error) => return Ok(file_failure(tools, &error).into()),
    };
    let text = written.text();
    let (path, hash) = (written.path.display().to_string(), Some(written.now.hash.to_string()));
    let result = FileResult { text: text.clone(), path, hash, size_bytes: written.now.size_bytes, total_lines: None };
    Ok(structured(text, &result).into())
}

async fn edit_file(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &EditArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let request = match arguments.replacement.request() {
        Ok(request) => request,
        Err(why) => return Ok(failed(why).into()),
    };
    let edited = match files.edit(request).await {
        Ok(edited) => edited,
        Err(error) => return Ok(file_failure(tools, &error).into()),
    };
    let text = edited.text();
    let result = EditResult {
        text: text.clone(),
        path: edited.path.display().to_string(),
        hash: edited.after.hash.to_string(),
        replacements: edited.replacements,
        lines: edited.lines,
    };
    Ok(structured(text, &result).into())
}

async fn edit_files(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &EditManyArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let edits = arguments.changes.into_iter().map(FileChange::edit).collect::<Result<Vec<FileEdit>, String>>();
    let edits = match edits {
        Ok(edits) => edits,
        Err(why) => return Ok(failed(why).into()),
    };
    let request = EditManyRequest { edits, make_directories: arguments.make_directories };
    match files.edit_many(request).await {
        Ok(changed) => Ok(changed_result(&changed).into()),
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

async fn apply_patch(tools: &Tools, call: &Call) -> ToolOutcome {
    let opened = open(tools, call, |arguments: &ApplyPatchArguments| arguments.environment_id()).await;
    let (files, arguments) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    match files.apply_patch(PatchRequest { patch: arguments.patch }).await {
        Ok(changed) => Ok(changed_result(&changed).into()),
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

async fn list_directory(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &ListArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let mut request = ListRequest::new(arguments.path.unwrap_or_else(|| ".".to_owned()));
    request.depth = arguments.depth.unwrap_or(request.depth);
    request.max_entries = arguments.max_entries.unwrap_or(request.max_entries);
    request.ignore_files = !arguments.no_ignore;
    match call.attend(files.list(request)).await? {
        Ok(listed) => {
            let (text, truncated, count) = (listed.text(), listed.truncated, listed.entries.len() as u64);
            Ok(structured(text.clone(), &FoundResult { text, truncated, count }).into())
        }
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

async fn find_files(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &FindArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let mut request = GlobRequest::new(arguments.path.unwrap_or_else(|| ".".to_owned()), String::new());
    request.patterns = arguments.patterns;
    request.max_paths = arguments.max_paths.unwrap_or(request.max_paths);
    request.ignore_files = !arguments.no_ignore;
    match call.attend(files.glob(request)).await? {
        Ok(found) => {
            let (text, truncated, count) = (found.text(), found.truncated, found.paths.len() as u64);
            Ok(structured(text.clone(), &FoundResult { text, truncated, count }).into())
        }
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

async fn search_files(tools: &Tools, call: &Call) -> ToolOutcome {
    let (files, arguments) = match open(tools, call, |arguments: &SearchArguments| arguments.environment_id()).await {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let mut request = GrepRequest::new(arguments.path.unwrap_or_else(|| ".".to_owned()), String::new());
    request.pattern =
        if arguments.literal { Pattern::Literal(arguments.pattern) } else { Pattern::Regex(arguments.pattern) };
    request.case = if arguments.ignore_case { CaseSensitivity::Insensitive } else { CaseSensitivity::Sensitive };
    request.globs = arguments.globs;
    request.hidden = arguments.hidden;
    request.ignore_files = !arguments.no_ignore;
    (request.before_lines, request.after_lines) = (arguments.context_lines, arguments.context_lines);
    request.mode = match arguments.show {
        Mode::Lines => GrepMode::Content,
        Mode::Files => GrepMode::Files,
        Mode::Counts => GrepMode::Count,
    };
    request.max_results = arguments.max_results.unwrap_or(request.max_results);
    match call.attend(files.grep(request)).await? {
        Ok(found) => {
            let (text, truncated, count) = (found.text(), found.truncated, found.matches);
            let unread = found.problems.iter();
            let unread = unread.map(|problem| UnreadFile {
                path: problem.path.display().to_string(),
                why: problem.reason.to_string(),
            });
            let (unread_count, unread) = (found.unreadable_files, unread.collect());
            let result = SearchResult { text: text.clone(), truncated, count, unread_count, unread };
            Ok(structured(text, &result).into())
        }
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

async fn view_image(tools: &Tools, call: &Call) -> ToolOutcome {
    let opened = open(tools, call, |arguments: &ViewImageArguments| arguments.environment_id()).await;
    let (files, arguments) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Ok(failure.into()),
    };
    let request = ImageRequest { path: arguments.path.into() };
    match call.attend(files.view_image(request)).await? {
        Ok(image) => {
            let data = base64_simd::STANDARD.encode_to_string(&image.bytes);
            let content = vec![ContentBlock::image(data, image.media_type()), ContentBlock::text(image.text())];
            Ok(CallToolResult::success(content).into())
        }
        Err(error) => Ok(file_failure(tools, &error).into()),
    }
}

fn changed_result(changed: &ChangedFiles) -> CallToolResult {
    let text = changed.text();
    let files = changed.files.iter().map(|file| {
        let (change, to) = match &file.kind {
            FileChangeKind::Added => ("added", None),
            FileChangeKind::Modified => ("modified", None),
            FileChangeKind::Removed => ("removed", None),
            FileChangeKind::Renamed { to } => ("renamed", Some(to.display().to_string())),
        };
        let hash = file.after.as_ref().map(|after| after.hash.to_string());
        ChangedFile { path: file.path.display().to_string(), change, to, hash }
    });
    structured(text.clone(), &ChangedResult { files: files.collect(), text })
}

fn guard(if_hash: Option<&str>, if_absent: bool) -> Result<Guard, String> {
    match (if_hash, if_absent) {
        (Some(_), true) => Err("if_hash and if_absent exclude each other: give one of them".to_owned()),
        (Some(hash), false) => Ok(Guard::Hash(content_hash(hash)?)),
        (None, true) => Ok(Guard::Absent),
        (None, false) => Ok(Guard::Anything),
    }
}

fn content_hash(text: &str) -> Result<ContentHash, String> {
    text.trim().parse().map_err(|error| format!("if_hash: {error}; read_file tells it"))
}

impl shapes::Replacement {
    fn request(self) -> Result<EditRequest, String> {
        let occurrences = match (self.replace_all, self.occurrences) {
            (true, _) => Occurrences::All,
            (false, times) => Occurrences::Exactly(times.unwrap_or(1)),
        };
        let if_hash = self.if_hash.as_deref().map(content_hash).transpose()?;
        Ok(EditRequest { occurrences, if_hash, ..EditRequest::new(self.path, self.old, self.new) })
    }
}

impl FileChange {
    fn edit(self) -> Result<FileEdit, String> {
        Ok(match self {
            Self::Replace(replacement) => FileEdit::Replace(replacement.request()?),
            Self::Write { path, contents, if_hash, if_absent } => FileEdit::Write(WriteRequest {
                guard: guard(if_hash.as_deref(), if_absent)?,
                ..WriteRequest::new(path, contents)
            }),
            Self::Remove { path, if_hash } => {
                FileEdit::Remove { path: path.into(), guard: guard(if_hash.as_deref(), false)? }
            }
            Self::Rename { path, to } => FileEdit::Rename { from: path.into(), to: to.into() },
        })
    }
}
