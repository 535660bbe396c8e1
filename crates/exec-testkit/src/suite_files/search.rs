//! Search in contents.

use exec_env::files::limits::SEARCH_WINDOW_BYTES;
use exec_env::files::search::CaseSensitivity;
use exec_env::files::{
    FileError, FileReason, FileVerb, GlobQuery, Pattern, SearchItem, SearchLine, SearchQuery, SearchResults,
    SearchSummary,
};

use exec_env::view::PATTERN_BYTES;

use super::{FilesTestEnvironment, reason};

fn regex(env: &FilesTestEnvironment, pattern: &str) -> SearchQuery {
    SearchQuery::new(env.scratch(), Pattern::Regex(pattern.to_owned()))
}

/// Everything a search finds: path below the scratch directory and the line, and the summary.
async fn all(env: &FilesTestEnvironment, query: SearchQuery) -> (Vec<(String, SearchLine)>, SearchSummary) {
    let mut found = env.files().search(query).await.expect("the query is good");
    let mut lines = Vec::new();
    loop {
        match found.next().await.expect("the files are ours") {
            SearchItem::Lines(step) => {
                let below = step.path.strip_prefix(env.scratch()).expect("it stays below its root");
                let below = below.display().to_string();
                lines.extend(step.lines.into_iter().map(|line| (below.clone(), line)));
            }
            SearchItem::Done(summary) => return (lines, summary),
        }
    }
}

fn path_and_line(lines: &[(String, SearchLine)]) -> Vec<(&str, u64)> {
    lines.iter().map(|(path, line)| (path.as_str(), line.number)).collect()
}

/// By path, then by line; depth first, bytewise.
pub async fn lines_are_found_in_order_with_their_places(env: &FilesTestEnvironment) {
    env.file("b.txt", "one\ntwo needle needle\r\nthree\n");
    env.file("a/x.txt", "needle");
    env.file("Z.txt", "no\n\nneedle\n");
    let (lines, summary) = all(env, regex(env, "ne+dle")).await;
    assert_eq!(path_and_line(&lines), [("Z.txt", 3), ("a/x.txt", 1), ("b.txt", 2)]);
    let expected = SearchLine {
        number: 2,
        offset: 4,
        text: "two needle needle".into(),
        cut: false,
        spans: vec![(4, 10), (11, 17)],
    };
    assert_eq!(lines[2].1, expected);
    assert_eq!(summary, SearchSummary { files: 3, files_matched: 3, matches: 3, ..Default::default() });
}

pub async fn the_end_of_a_line_may_be_a_carriage_return_and_a_line_feed(env: &FilesTestEnvironment) {
    env.file("dos", "foo;\r\nbar; baz\r\n\r\nlast;");
    env.file("unix", "foo;\nbar; baz\n\nlast;");
    for (pattern, found) in [(";$", &[1, 4][..]), ("^$", &[3]), ("^(bar|last).*$", &[2, 4]), ("o.$", &[1])] {
        let (lines, _) = all(env, regex(env, pattern)).await;
        let expected: Vec<(&str, u64)> =
            ["dos", "unix"].into_iter().flat_map(|file| found.iter().map(move |line| (file, *line))).collect();
        assert_eq!(path_and_line(&lines), expected, "{pattern}");
        assert!(lines.iter().all(|(_, line)| !line.text.contains(&b'\r')), "{lines:?}");
    }
}

pub async fn a_literal_is_taken_literally(env: &FilesTestEnvironment) {
    env.file("file", "a.c[\nabc[\n");
    let query = SearchQuery::new(env.scratch(), Pattern::Literal("a.c[".to_owned()));
    assert_eq!(path_and_line(&all(env, query).await.0), [("file", 1)]);
}

pub async fn case_matters_as_it_is_told_to(env: &FilesTestEnvironment) {
    env.file("file", "word\nWord\nwordy\n");
    for (case, word, pattern, expected) in [
        (CaseSensitivity::Sensitive, false, "word", vec![1, 3]),
        (CaseSensitivity::Insensitive, false, "WORD", vec![1, 2, 3]),
        (CaseSensitivity::Smart, false, "word", vec![1, 2, 3]),
        (CaseSensitivity::Smart, false, "Word", vec![2]),
        (CaseSensitivity::Insensitive, true, "word", vec![1, 2]),
    ] {
        let (lines, _) = all(env, SearchQuery { case, word, ..regex(env, pattern) }).await;
        let numbers: Vec<u64> = lines.iter().map(|(_, line)| line.number).collect();
        assert_eq!(numbers, expected, "{case:?} {pattern}");
    }
}

/// `.git` is never searched.
pub async fn ignore_files_and_globs_choose_the_files(env: &FilesTestEnvironment) {
    for file in ["a.rs", "b.md", "target/c.rs", ".hidden/d.rs", ".git/e.rs", "sub/f.rs"] {
        env.file(file, "x\n");
    }
    env.file(".gitignore", "target\n");
    let query = |globs: &[&str], ignore_files, hidden| SearchQuery {
        globs: globs.iter().map(ToString::to_string).collect(),
        ignore_files,
        hidden,
        ..regex(env, "^x$")
    };
    let files = |lines: Vec<(String, SearchLine)>| lines.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let found = |query| async { files(all(env, query).await.0) };
    assert_eq!(found(query(&[], true, false)).await, ["a.rs", "b.md", "sub/f.rs"]);
    assert_eq!(found(query(&["*.rs"], true, true)).await, [".hidden/d.rs", "a.rs", "sub/f.rs"]);
    assert_eq!(found(query(&["*.rs", "!sub/**"], false, false)).await, ["a.rs", "target/c.rs"]);
}

/// Lines of context have no spans; none is listed twice.
pub async fn context_stands_around_a_match(env: &FilesTestEnvironment) {
    env.file("file", "1\n2\nhit\n4\nhit\n6\n7\n8\n");
    let query = SearchQuery { before_lines: 1, after_lines: 1, ..regex(env, "hit") };
    let (lines, summary) = all(env, query).await;
    let told: Vec<(u64, bool)> = lines.iter().map(|(_, line)| (line.number, line.spans.is_empty())).collect();
    assert_eq!(told, [(2, true), (3, false), (4, true), (5, false), (6, true)]);
    assert_eq!(summary.matches, 2);
}

/// That of a match that is one too many is not told.
pub async fn context_comes_with_matches_only(env: &FilesTestEnvironment) {
    env.file("file", "1\n2\nhit\n4\n5\n6\n7\nhit\n9\n");
    let query = SearchQuery { before_lines: 2, after_lines: 1, ..regex(env, "hit") };
    let within = SearchQuery { max_matches: 1, ..query.clone() };
    let in_each_file = SearchQuery { max_matches_per_file: Some(1), ..query };
    for (query, truncated) in [(within, true), (in_each_file, false)] {
        let (lines, summary) = all(env, query).await;
        let numbers: Vec<u64> = lines.iter().map(|(_, line)| line.number).collect();
        assert_eq!((numbers, summary.matches, summary.truncated), (vec![1, 2, 3, 4], 1, truncated));
    }
}

/// A limit met exactly is not reported as truncation.
pub async fn a_search_stops_at_its_limits(env: &FilesTestEnvironment) {
    env.file("a", "x\n".repeat(5));
    env.file("b", "x\n".repeat(5));
    for (max_matches, per_file, found, truncated) in
        [(7, None, 7, true), (10, None, 10, false), (100, Some(2), 4, false), (3, Some(2), 3, true)]
    {
        let query = SearchQuery { max_matches, max_matches_per_file: per_file, ..regex(env, "x") };
        let (lines, summary) = all(env, query).await;
        assert_eq!((lines.len(), summary.truncated), (found, truncated), "{max_matches}");
    }
    let (lines, _) = all(env, SearchQuery { max_file_bytes: Some(9), ..regex(env, "x") }).await;
    assert!(lines.is_empty());
}

pub async fn long_lines_are_cut_and_binary_files_left_out(env: &FilesTestEnvironment) {
    env.file("long", format!("x{}x\n", " ".repeat(1 << 20)));
    env.file("binary", b"\0\0\0x\n");
    let (lines, _) = all(env, SearchQuery { max_line_bytes: 100, ..regex(env, "x") }).await;
    assert_eq!(path_and_line(&lines), [("long", 1)]);
    let line = &lines[0].1;
    assert_eq!((line.text.len(), line.cut, line.spans.as_slice()), (100, true, &[(0, 1)][..]));
}

/// By the call itself, not at the end of the search.
/// One that is no text from its beginning on is left out silently, unless it was asked for by its name.
pub async fn what_is_not_searched_behind_a_nul_byte_is_told(env: &FilesTestEnvironment) {
    let text = "a line of text\n".repeat(20_000);
    let late = env.file("late", format!("{text}\0\nneedle\n"));
    let matched = env.file("matched", format!("needle\n{text}\0\nneedle\n"));
    let binary = env.file("binary", "\x7fELF\0needle");
    let (lines, summary) = all(env, regex(env, "needle")).await;
    assert_eq!(path_and_line(&lines), [("matched", 1)]);
    let problem = |path: &std::path::PathBuf, offset: usize| {
        FileError::new(FileVerb::Search, path, FileReason::BinaryBehind { offset: offset as u64 })
    };
    assert_eq!(summary.problems, [problem(&late, text.len()), problem(&matched, text.len() + 7)]);
    let (_, summary) = all(env, SearchQuery { root: binary.clone(), ..regex(env, "needle") }).await;
    assert_eq!(summary.problems, [problem(&binary, 4)]);
}

/// The file is one that would take eight times as much memory as a search may.
pub async fn of_a_line_without_end_the_beginning_is_searched_and_the_summary_says_so(env: &FilesTestEnvironment) {
    let long = format!("needle {} needle", "x".repeat(8 * SEARCH_WINDOW_BYTES));
    let path = env.file("file", format!("first needle\n{long}\nlast needle\n"));
    let (lines, summary) = all(env, regex(env, "needle")).await;
    let found: Vec<_> = lines.iter().map(|(_, line)| (line.number, line.offset, line.cut, line.spans.len())).collect();
    assert_eq!(found, [(1, 0, false, 1), (2, 13, true, 1), (3, 14 + long.len() as u64, false, 1)]);
    let reason = FileReason::LineTooLong { limit_bytes: SEARCH_WINDOW_BYTES };
    let problem = FileError::new(FileVerb::Search, path, reason);
    assert_eq!((summary.problems, summary.problem_count, summary.matches), (vec![problem], 1, 3));
}

pub async fn a_bad_expression_and_a_missing_root_are_told(env: &FilesTestEnvironment) {
    let bad = env.files().search(regex(env, "(")).await;
    assert!(matches!(reason(bad), Some(FileReason::BadPattern { .. })));
    let bad = env.files().search(SearchQuery { globs: vec!["[z-a]".into()], ..regex(env, "x") }).await;
    assert!(matches!(reason(bad), Some(FileReason::BadPattern { .. })));
    let missing = SearchQuery::new(env.path("missing"), Pattern::Literal("x".into()));
    assert_eq!(reason(env.files().search(missing).await), Some(FileReason::Os(2)));
}

/// To compile them takes a hundred times as much memory as they have text.
pub async fn patterns_have_a_length_up_to_which_they_are_used_and_beyond_which_they_are_refused(
    env: &FilesTestEnvironment,
) {
    env.file("needle", "needle\n");
    // Blanks mean nothing there, and compile to nothing.
    let of_length = |bytes: usize| format!("(?x)needle{}", " ".repeat(bytes - 10));
    let (lines, _) = all(env, regex(env, &of_length(PATTERN_BYTES))).await;
    assert_eq!(lines.len(), 1);
    let one_more = env.files().search(regex(env, &of_length(PATTERN_BYTES + 1))).await;
    assert!(matches!(reason(one_more), Some(FileReason::BadPattern { .. })));
    let many = vec!["x".repeat(PATTERN_BYTES / 2); 3];
    let globs = env.files().search(SearchQuery { globs: many, ..regex(env, "x") }).await;
    assert!(matches!(reason(globs), Some(FileReason::BadPattern { .. })));
    let globs = env.files().glob(GlobQuery::new(env.scratch(), "x".repeat(PATTERN_BYTES + 1))).await;
    assert!(matches!(globs.map_err(|error| error.reason), Err(FileReason::BadPattern { .. })));
}

/// A circle of links does not end the search.
pub async fn what_cannot_be_read_is_told_at_the_end(env: &FilesTestEnvironment) {
    env.file("sub/file", "x\n");
    env.link("sub/up", "..");
    let (lines, summary) = all(env, SearchQuery { follow_symlinks: true, ..regex(env, "x") }).await;
    assert_eq!(path_and_line(&lines), [("sub/file", 1)]);
    assert_eq!(summary.problem_count, 1);
    let problem = &summary.problems[0];
    assert_eq!((&problem.path, &problem.reason), (&env.path("sub/up"), &FileReason::Os(40)));
}

/// More searches than may run at once, none of them read, then all dropped: the next one still runs.
pub async fn a_search_nobody_reads_waits_and_ends_when_dropped(env: &FilesTestEnvironment) {
    env.file("file", "a line that is found\n".repeat(200_000));
    let query = || SearchQuery { max_matches: u64::MAX, ..regex(env, "found") };
    let mut unread: Vec<Box<dyn SearchResults>> = Vec::new();
    for _ in 0..20 {
        unread.push(env.files().search(query()).await.expect("the query is good"));
    }
    drop(unread);
    let (lines, summary) = all(env, query()).await;
    assert_eq!((lines.len(), summary.truncated), (200_000, false));
}

/// Neither in a tree nor as the root.
pub async fn a_fifo_does_not_hang_a_search(env: &FilesTestEnvironment) {
    env.file("file", "x\n");
    let fifo = env.fifo("fifo");
    assert_eq!(path_and_line(&all(env, regex(env, "x")).await.0), [("file", 1)]);
    let alone = SearchQuery::new(fifo, Pattern::Literal("x".into()));
    assert_eq!(all(env, alone).await, (Vec::new(), SearchSummary::default()));
}

/// Also an ignored one, and through a link, because it was named.
pub async fn a_single_file_is_searched(env: &FilesTestEnvironment) {
    env.file(".gitignore", "*.log\n");
    env.file("file.log", "x\n");
    let link = env.link("link", "file.log");
    for root in [env.path("file.log"), link] {
        let (lines, _) = all(env, SearchQuery { root, ..regex(env, "x") }).await;
        assert_eq!(lines.len(), 1);
    }
}
