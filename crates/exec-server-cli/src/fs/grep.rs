//! `fs grep`: what is in files, line by line, as `grep` prints it.

use std::os::unix::ffi::OsStrExt;

use exec_env::files::search::CaseSensitivity;
use exec_env::files::{FileError, SearchLine, FileLines, Pattern, SearchQuery, SearchItem, limits};
use serde::Serialize;

use super::resolve_all;
use crate::args::GrepArgs;
use crate::exit_code;
use crate::failures::Failures;
use crate::location::{BarePath, FilePath, Locations};
use crate::output::{StdoutBuffer, Style, Text};

/// Searches; 0 if something was found, 1 if nothing was, 2 if something failed.
pub(super) async fn grep(args: &GrepArgs) -> anyhow::Result<u8> {
    let mut locations = Locations::new(&args.common.target, BarePath::Chosen);
    let files = resolve_all(&mut locations, &args.paths).await?;
    let mut failures = Failures::new(args.common.json);
    let mut links = locations.link_monitors(false);
    let mut printer = MatchPrinter { args, stdout: StdoutBuffer::new(), previous: None };
    let mut matches = 0;
    for file in &files {
        match links.report_during(search(file, args, &mut printer, &mut failures)).await? {
            Ok(found) => matches += found,
            Err(error) => failures.report_file_error(file, &error)?,
        }
    }
    printer.stdout.flush().await?;
    drop(files);
    locations.close().await;
    Ok(match (failures.exit_code(), matches) {
        (0, 0) => 1,
        (0, _) => 0,
        _ => exit_code::USAGE_ERROR,
    })
}

fn query(file: &FilePath, args: &GrepArgs) -> SearchQuery {
    let pattern = match args.fixed_strings {
        true => Pattern::Literal(args.pattern.clone()),
        false => Pattern::Regex(args.pattern.clone()),
    };
    let case = match (args.ignore_case, args.smart_case) {
        (true, _) => CaseSensitivity::Insensitive,
        (_, true) => CaseSensitivity::Smart,
        _ => CaseSensitivity::Sensitive,
    };
    let lines = |own: Option<u32>| own.or(args.context).unwrap_or(0).min(limits::SEARCH_CONTEXT_LINES);
    let (before_lines, after_lines) = match args.files_with_matches {
        true => (0, 0),
        false => (lines(args.before), lines(args.after)),
    };
    SearchQuery {
        case,
        word: args.word,
        globs: args.globs.clone(),
        ignore_files: !args.no_ignore,
        hidden: args.hidden,
        before_lines,
        after_lines,
        max_matches: args.limit,
        max_matches_per_file: if args.files_with_matches { Some(1) } else { args.max_count },
        ..SearchQuery::new(file.path.clone(), pattern)
    }
}

/// How many lines matched. The outer failure is of stdout, the inner one of the search.
async fn search(
    file: &FilePath,
    args: &GrepArgs,
    printer: &mut MatchPrinter<'_>,
    failures: &mut Failures,
) -> anyhow::Result<Result<u64, FileError>> {
    let mut found = match file.files().search(query(file, args)).await {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        match found.next().await {
            Ok(SearchItem::Lines(lines)) => printer.print(file, &lines).await?,
            Ok(SearchItem::Done(summary)) => {
                for problem in &summary.problems {
                    failures.report_file_error(file, problem)?;
                }
                let unreported = summary.problem_count.saturating_sub(summary.problems.len() as u64);
                if unreported > 0 {
                    failures.report("unread", &format!("{unreported} more files could not be read"))?;
                }
                if summary.truncated {
                    printer.stdout.flush().await?;
                    let message = format!("stopped after {} matching lines: raise --limit for more", args.limit);
                    failures.report("truncated", &message)?;
                }
                return Ok(Ok(summary.matches));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Lines on their way to stdout.
struct MatchPrinter<'a> {
    args: &'a GrepArgs,
    stdout: StdoutBuffer,
    /// The line before: its file and its number.
    previous: Option<(std::path::PathBuf, u64)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GrepMatchLine<'a> {
    path: Text,
    environment: &'a str,
    line: u64,
    offset: u64,
    text: Text,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// Begin and end of each match, in bytes of the text; none in a line of context.
    matches: &'a [(u32, u32)],
}

impl MatchPrinter<'_> {
    async fn print(&mut self, file: &FilePath, found: &FileLines) -> anyhow::Result<()> {
        if self.args.files_with_matches {
            let again = self.previous.as_ref().is_some_and(|(path, _)| *path == found.path);
            if !again {
                self.print_file_name(file, found)?;
            }
            self.previous = Some((found.path.clone(), 0));
            return self.stdout.flush_if_full().await;
        }
        for line in &found.lines {
            match self.args.common.json {
                true => self.stdout.push_json(&GrepMatchLine {
                    path: Text::name(&found.path),
                    environment: file.location.environment_id(),
                    line: line.number,
                    offset: line.offset,
                    text: Text::of(&line.text),
                    cut: line.cut,
                    matches: &line.spans,
                })?,
                false => self.print_line(file, found, line),
            }
            self.previous = Some((found.path.clone(), line.number));
        }
        // A search that goes on for long shows what it has.
        self.stdout.flush().await
    }

    fn print_file_name(&mut self, file: &FilePath, found: &FileLines) -> anyhow::Result<()> {
        if self.args.common.json {
            let environment = file.location.environment_id();
            return self
                .stdout
                .push_json(&serde_json::json!({ "path": Text::name(&found.path), "environment": environment }));
        }
        self.stdout.push_styled(file.display_path(&found.path).as_bytes(), Style::Path);
        self.stdout.push_str("\n");
        Ok(())
    }

    fn print_line(&mut self, file: &FilePath, found: &FileLines, line: &SearchLine) {
        let args = self.args;
        let has_context = args.context.is_some() || args.before.is_some() || args.after.is_some();
        let goes_on = |(path, number): &(std::path::PathBuf, u64)| *path == found.path && number + 1 == line.number;
        if has_context && self.previous.as_ref().is_some_and(|previous| !goes_on(previous)) {
            self.stdout.push_styled(b"--", Style::Faint);
            self.stdout.push_str("\n");
        }
        let between: &[u8] = if line.spans.is_empty() { b"-" } else { b":" };
        self.stdout.push_styled(file.display_path(&found.path).as_bytes(), Style::Path);
        self.stdout.push_styled(between, Style::Faint);
        self.stdout.push_styled(line.number.to_string().as_bytes(), Style::Number);
        self.stdout.push_styled(between, Style::Faint);
        let mut at = 0;
        for (begin, end) in &line.spans {
            let (begin, end) = (*begin as usize, *end as usize);
            // Spans come in order and within the line; one from elsewhere that does not is left out.
            if begin < at || end < begin || end > line.text.len() {
                continue;
            }
            self.stdout.push_untrusted(&line.text[at..begin]);
            self.stdout.push_styled(&line.text[begin..end], Style::Match);
            at = end;
        }
        self.stdout.push_untrusted(&line.text[at..]);
        if line.cut {
            self.stdout.push_styled(" … (cut)".as_bytes(), Style::Faint);
        }
        self.stdout.push_str("\n");
    }
}
