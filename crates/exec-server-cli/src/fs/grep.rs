//! `fs grep`: what is in files, line by line, as `grep` prints it.

use std::os::unix::ffi::OsStrExt;

use exec_env::files::search::CaseSensitivity;
use exec_env::files::{FileError, SearchLine, FileLines, Pattern, SearchQuery, SearchItem, limits};
use serde::Serialize;

use super::spots;
use crate::args::GrepArgs;
use crate::exit_code;
use crate::paper::{Ink, Paper, Text};
use crate::site::{Plain, Sites, Spot};
use crate::trouble::Troubles;

/// Searches; 0 if something was found, 1 if nothing was, 2 if something failed.
pub(super) async fn grep(args: &GrepArgs) -> anyhow::Result<u8> {
    let mut sites = Sites::new(&args.common.place, Plain::Chosen);
    let spots = spots(&mut sites, &args.paths).await?;
    let mut troubles = Troubles::new(args.common.json);
    let mut news = sites.news(false);
    let mut press = Press { args, paper: Paper::new(), before: None };
    let mut matches = 0;
    for spot in &spots {
        match news.during(search(spot, args, &mut press, &mut troubles)).await? {
            Ok(found) => matches += found,
            Err(error) => troubles.at(spot, &error)?,
        }
    }
    press.paper.flush().await?;
    drop(spots);
    sites.leave().await;
    Ok(match (troubles.code(), matches) {
        (0, 0) => 1,
        (0, _) => 0,
        _ => exit_code::MISUNDERSTOOD,
    })
}

fn query(spot: &Spot, args: &GrepArgs) -> SearchQuery {
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
        ..SearchQuery::new(spot.path.clone(), pattern)
    }
}

/// How many lines matched. The outer failure is of stdout, the inner one of the search.
async fn search(
    spot: &Spot,
    args: &GrepArgs,
    press: &mut Press<'_>,
    troubles: &mut Troubles,
) -> anyhow::Result<Result<u64, FileError>> {
    let mut found = match spot.files().search(query(spot, args)).await {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        match found.next().await {
            Ok(SearchItem::Lines(lines)) => press.print(spot, &lines).await?,
            Ok(SearchItem::Done(summary)) => {
                for problem in &summary.problems {
                    troubles.at(spot, problem)?;
                }
                let untold = summary.problem_count.saturating_sub(summary.problems.len() as u64);
                if untold > 0 {
                    troubles.tell("unread", &format!("{untold} more files could not be read"))?;
                }
                if summary.truncated {
                    press.paper.flush().await?;
                    let message = format!("stopped after {} matching lines: raise --limit for more", args.limit);
                    troubles.tell("truncated", &message)?;
                }
                return Ok(Ok(summary.matches));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Lines on their way to stdout.
struct Press<'a> {
    args: &'a GrepArgs,
    paper: Paper,
    /// The line before: its file and its number.
    before: Option<(std::path::PathBuf, u64)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
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

impl Press<'_> {
    async fn print(&mut self, spot: &Spot, found: &FileLines) -> anyhow::Result<()> {
        if self.args.files_with_matches {
            let again = self.before.as_ref().is_some_and(|(path, _)| *path == found.path);
            if !again {
                self.put_name(spot, found)?;
            }
            self.before = Some((found.path.clone(), 0));
            return self.paper.settle().await;
        }
        for line in &found.lines {
            match self.args.common.json {
                true => self.paper.put_json(&Line {
                    path: Text::name(&found.path),
                    environment: spot.site.environment(),
                    line: line.number,
                    offset: line.offset,
                    text: Text::of(&line.text),
                    cut: line.cut,
                    matches: &line.spans,
                })?,
                false => self.put_line(spot, found, line),
            }
            self.before = Some((found.path.clone(), line.number));
        }
        // A search that goes on for long shows what it has.
        self.paper.flush().await
    }

    fn put_name(&mut self, spot: &Spot, found: &FileLines) -> anyhow::Result<()> {
        if self.args.common.json {
            let environment = spot.site.environment();
            return self
                .paper
                .put_json(&serde_json::json!({ "path": Text::name(&found.path), "environment": environment }));
        }
        self.paper.put_inked(spot.shown(&found.path).as_bytes(), Ink::Path);
        self.paper.put("\n");
        Ok(())
    }

    fn put_line(&mut self, spot: &Spot, found: &FileLines, line: &SearchLine) {
        let args = self.args;
        let has_context = args.context.is_some() || args.before.is_some() || args.after.is_some();
        let goes_on = |(path, number): &(std::path::PathBuf, u64)| *path == found.path && number + 1 == line.number;
        if has_context && self.before.as_ref().is_some_and(|before| !goes_on(before)) {
            self.paper.put_inked(b"--", Ink::Faint);
            self.paper.put("\n");
        }
        let between: &[u8] = if line.spans.is_empty() { b"-" } else { b":" };
        self.paper.put_inked(spot.shown(&found.path).as_bytes(), Ink::Path);
        self.paper.put_inked(between, Ink::Faint);
        self.paper.put_inked(line.number.to_string().as_bytes(), Ink::Number);
        self.paper.put_inked(between, Ink::Faint);
        let mut at = 0;
        for (begin, end) in &line.spans {
            let (begin, end) = (*begin as usize, *end as usize);
            // Spans come in order and within the line; one from elsewhere that does not is left out.
            if begin < at || end < begin || end > line.text.len() {
                continue;
            }
            self.paper.put_foreign(&line.text[at..begin]);
            self.paper.put_inked(&line.text[begin..end], Ink::Match);
            at = end;
        }
        self.paper.put_foreign(&line.text[at..]);
        if line.cut {
            self.paper.put_inked(" … (cut)".as_bytes(), Ink::Faint);
        }
        self.paper.put("\n");
    }
}
