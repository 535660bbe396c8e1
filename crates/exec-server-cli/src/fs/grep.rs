//! `fs grep`: matching lines of files, as `grep` prints them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use exec_env::files::search::CaseSensitivity;
use exec_env::files::{FileLines, Pattern, SearchItem, SearchLine, SearchQuery, limits};
use exec_wire::text::OsText;
use serde::Serialize;

use super::with_files;
use crate::args::GrepArgs;
use crate::exit_code;
use crate::failures::Failures;
use crate::location::FilePath;
use crate::output::{StdoutBuffer, Style, os_text};

/// The exit codes are those of grep: 0 if something was found, 1 if nothing was, 2 if something failed.
pub(super) async fn grep(args: &GrepArgs) -> anyhow::Result<u8> {
    let mut matches = 0;
    let code = with_files(&args.common, &args.paths, async |files, context| {
        let mut printer = MatchPrinter { args, stdout: &mut context.stdout, previous: None };
        for file in files {
            let search = search(file, args, &mut printer, &mut context.failures);
            let found = context.links.report_during(search).await;
            context.failures.report_outcome(file, found.map(|found| matches += found))?;
        }
        Ok(())
    })
    .await?;
    Ok(match (code, matches) {
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

/// Returns how many lines matched.
async fn search(
    file: &FilePath,
    args: &GrepArgs,
    printer: &mut MatchPrinter<'_>,
    failures: &mut Failures,
) -> anyhow::Result<u64> {
    let query = query(file, args);
    let around = u64::from(query.before_lines) + u64::from(query.after_lines);
    let mut lines_left = args.limit.saturating_mul(1 + around);
    let mut found = file.files().search(query).await?;
    let summary = loop {
        match found.next().await? {
            SearchItem::Lines(lines) => {
                let Some(left) = lines_left.checked_sub(lines.lines.len() as u64) else {
                    failures.report("excess", "the server found more than it was asked for: stopped")?;
                    return Ok(0);
                };
                lines_left = left;
                printer.print(file, &lines).await?;
            }
            SearchItem::Done(summary) => break summary,
        }
    };
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
    Ok(summary.matches)
}

struct MatchPrinter<'a> {
    args: &'a GrepArgs,
    stdout: &'a mut StdoutBuffer,
    /// File and number of the line that was printed before.
    previous: Option<(PathBuf, u64)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GrepMatchLine<'a> {
    path: OsText,
    environment: &'a str,
    line: u64,
    offset: u64,
    text: OsText,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// Begin and end of each match, in bytes of the text; empty for a line of context.
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
                    path: os_text(&found.path),
                    environment: file.location.environment_id(),
                    line: line.number,
                    offset: line.offset,
                    text: os_text(OsStr::from_bytes(&line.text)),
                    cut: line.cut,
                    matches: &line.spans,
                })?,
                false => self.print_line(file, found, line),
            }
            self.previous = Some((found.path.clone(), line.number));
        }
        // A long search shows at once what it has found.
        self.stdout.flush().await
    }

    fn print_file_name(&mut self, file: &FilePath, found: &FileLines) -> anyhow::Result<()> {
        if self.args.common.json {
            let environment = file.location.environment_id();
            let line = serde_json::json!({ "path": os_text(&found.path), "environment": environment });
            return self.stdout.push_json(&line);
        }
        self.stdout.push_styled(file.display_path(&found.path).as_bytes(), Style::Path);
        self.stdout.push("\n");
        Ok(())
    }

    fn print_line(&mut self, file: &FilePath, found: &FileLines, line: &SearchLine) {
        let args = self.args;
        let has_context = args.context.is_some() || args.before.is_some() || args.after.is_some();
        let goes_on = |(path, number): &(PathBuf, u64)| *path == found.path && number + 1 == line.number;
        let stdout = &mut *self.stdout;
        if has_context && self.previous.as_ref().is_some_and(|previous| !goes_on(previous)) {
            stdout.push_styled(b"--", Style::Faint);
            stdout.push("\n");
        }
        let between: &[u8] = if line.spans.is_empty() { b"-" } else { b":" };
        stdout.push_styled(file.display_path(&found.path).as_bytes(), Style::Path);
        stdout.push_styled(between, Style::Faint);
        stdout.push_styled(line.number.to_string().as_bytes(), Style::Number);
        stdout.push_styled(between, Style::Faint);
        let mut at = 0;
        for (begin, end) in &line.spans {
            let (begin, end) = (*begin as usize, *end as usize);
            // Spans are sorted and within the line. A server may send others; those are left out.
            if begin < at || end < begin || end > line.text.len() {
                continue;
            }
            stdout.push_untrusted(&line.text[at..begin]);
            stdout.push_styled(&line.text[begin..end], Style::Match);
            at = end;
        }
        stdout.push_untrusted(&line.text[at..]);
        if line.cut {
            stdout.push_styled(" … (cut)".as_bytes(), Style::Faint);
        }
        stdout.push("\n");
    }
}
