//! `list`, `glob`, `grep`.

use exec_env::files::FileKind;
use exec_tools::files::{GlobRequest, GrepMode, GrepRequest, ListRequest};

use super::{ToolTest, message, near_and_far};

near_and_far! {
    a_listing_is_sorted_indented_and_without_what_is_ignored,
    a_listing_is_bounded_and_says_so,
    a_glob_finds_paths_below_its_directory,
    a_pattern_may_name_the_directory_that_it_is_relative_to,
    a_pattern_of_what_is_elsewhere_is_refused_and_says_where_to_look,
    globs_that_no_file_matches_are_told_from_a_pattern_that_no_line_matches,
    a_grep_shows_lines_with_context_by_file,
    a_grep_of_files_or_counts_is_short,
    a_grep_shows_the_part_of_a_long_line_that_matches,
    a_grep_names_the_files_that_it_did_not_search_whole_and_says_what_to_do,
}

fn tree(test: &ToolTest) {
    test.file(".gitignore", "target/\n*.log\n");
    test.file("target/built", "needle\n");
    test.file("a.log", "needle\n");
    test.file("src/main.rs", "one\nneedle here\nthree\nfour\nfive\nneedle\n");
    test.file("src/lib.rs", "nothing\n");
    test.file("README", "a needle\n");
    std::os::unix::fs::symlink("src", test.path("link")).expect("it is new");
    std::os::unix::fs::symlink("nowhere", test.path("dangling")).expect("it is new");
}

async fn a_listing_is_sorted_indented_and_without_what_is_ignored(test: ToolTest) {
    tree(&test);
    let listed = test.tools.list(ListRequest { depth: 2, ..ListRequest::new(".") }).await.expect("it is a directory");
    let names: Vec<&str> = listed.entries.iter().filter_map(|entry| entry.path.to_str()).collect();
    assert_eq!(names, [".gitignore", "README", "dangling", "link", "src", "src/lib.rs", "src/main.rs"]);
    let link = &listed.entries[3];
    assert_eq!((link.kind, link.is_symlink), (FileKind::Directory, true));
    assert!(listed.text().contains("  src/\n    lib.rs\n    main.rs\n"), "{}", listed.text());
    assert!(listed.text().contains("dangling (link to nothing)"), "{}", listed.text());
    let all = ListRequest { ignore_files: false, hidden: false, ..ListRequest::new(&test.scratch) };
    let names = test.tools.list(all).await.expect("it is a directory").entries.len();
    assert_eq!(names, 6, "with a.log and target, without .gitignore");
    assert!(message(test.tools.list(ListRequest::new("README")).await).contains("is no directory: read it"));
    assert!(message(test.tools.list(ListRequest::new("nowhere")).await).contains("does not exist"));
}

async fn a_listing_is_bounded_and_says_so(test: ToolTest) {
    for number in 0..30 {
        test.file(format!("d/{number:02}"), "");
    }
    let few = ListRequest { max_entries: 10, ..ListRequest::new("d") };
    let listed = test.tools.list(few).await.expect("it is a directory");
    assert_eq!((listed.entries.len(), listed.truncated), (10, true));
    assert!(listed.text().contains("only the first 10 entries"), "{}", listed.text());
}

async fn a_glob_finds_paths_below_its_directory(test: ToolTest) {
    tree(&test);
    let found = test.tools.glob(GlobRequest::new(".", "**/*.rs")).await.expect("it is a pattern");
    assert_eq!(found.paths, ["src/lib.rs", "src/main.rs"].map(std::path::PathBuf::from));
    let found = test.tools.glob(GlobRequest::new("src", "{main,lib}.rs")).await.expect("it is a pattern");
    assert_eq!(found.paths, ["lib.rs", "main.rs"].map(std::path::PathBuf::from));
    let found = test.tools.glob(GlobRequest::new(".", "*.rs")).await.expect("it is a pattern");
    assert_eq!((found.paths.len(), found.truncated), (0, false));
    assert!(message(test.tools.glob(GlobRequest::new(".", "a[")).await).contains("pattern cannot be read"));
}

fn below_scratch(test: &ToolTest, pattern: &str) -> String {
    format!("{}/{pattern}", test.scratch.display())
}

async fn a_pattern_may_name_the_directory_that_it_is_relative_to(test: ToolTest) {
    tree(&test);
    let absolute = [below_scratch(&test, "src/*.rs"), below_scratch(&test, "/./src//*.rs")];
    let patterns = ["./src/*.rs", "././src/*.rs", "src/./*.rs", "src//*.rs"].map(str::to_owned);
    for pattern in absolute.iter().chain(&patterns) {
        let found = test.tools.glob(GlobRequest::new(".", pattern)).await.expect("it is a pattern");
        assert_eq!(found.paths, ["src/lib.rs", "src/main.rs"].map(std::path::PathBuf::from), "{pattern}");
    }
    for glob in ["./src/*.rs".to_owned(), "././src/*.rs".to_owned(), absolute[0].clone()] {
        let globs = vec![glob.clone()];
        let found = test.tools.grep(GrepRequest { globs, ..GrepRequest::new(".", "n") }).await.expect("it is a glob");
        assert_eq!(found.searched_files, Some(2), "{glob}: {}", found.text());
        // As Git has it: one with a mark takes away what it matches.
        let globs = vec!["*.rs".to_owned(), format!("!{}", glob.replace('*', "lib"))];
        let found = test.tools.grep(GrepRequest { globs, ..GrepRequest::new(".", "n") }).await.expect("it is a glob");
        assert_eq!(found.searched_files, Some(1), "{glob}: {}", found.text());
    }
    let found = test.tools.glob(GlobRequest::new(".", "src/")).await.expect("it is a pattern");
    assert_eq!(found.paths, ["src"].map(std::path::PathBuf::from));
    for whole in [".", "./", &below_scratch(&test, "")] {
        let globs = vec![whole.to_owned()];
        let found = test.tools.grep(GrepRequest { globs, ..GrepRequest::new("src", "n") }).await.expect("it is a glob");
        let expected = if whole.starts_with('.') { 2 } else { 0 };
        assert_eq!(found.searched_files, Some(expected), "{whole}");
    }
    // From the root of all files, every absolute pattern is one below it.
    let pattern = below_scratch(&test, "src/main.rs");
    let found = test.tools.glob(GlobRequest::new("/", &pattern)).await.expect("it is a pattern");
    assert_eq!(found.paths, [std::path::PathBuf::from(&pattern[1..])]);
}

async fn a_pattern_of_what_is_elsewhere_is_refused_and_says_where_to_look(test: ToolTest) {
    tree(&test);
    let absolute = below_scratch(&test, "*.rs");
    let parent = format!("{:?}", test.scratch);
    for (pattern, directory) in [
        (absolute.as_str(), parent.as_str()),
        ("/etc/host*", "\"/etc\""),
        ("../*.rs", &parent),
        ("./../*.rs", &parent),
        ("x/../../*.rs", &parent),
        ("~/*.rs", "directory"),
        ("**/../*.rs", "directory"),
        ("{../a,b}", "directory"),
        ("{/etc/a,/etc/b}", "directory"),
        ("..", "directory"),
        ("/", "directory"),
    ] {
        let refused = message(test.tools.glob(GlobRequest::new("src", pattern)).await);
        assert!(refused.contains("relative to `path`"), "{pattern}: {refused}");
        assert!(refused.contains(&format!("give {directory}")) || directory == "directory", "{pattern}: {refused}");
    }
    for pattern in ["", ".", "./", &below_scratch(&test, "src")] {
        let refused = message(test.tools.glob(GlobRequest::new("src", pattern)).await);
        assert!(refused.contains("`**` matches"), "{pattern}: {refused}");
    }
    for glob in ["../*.rs", "!../*.rs", "~/*.rs", "x/../y"] {
        let refused = message(
            test.tools.grep(GrepRequest { globs: vec![glob.to_owned()], ..GrepRequest::new("src", "n") }).await,
        );
        assert!(refused.contains("relative to `path`") && refused.contains(glob), "{glob}: {refused}");
    }
    // Such names are unusual, and names.
    test.file("src/..a/~b", "needle\n");
    let found = test.tools.glob(GlobRequest::new("src", "..a/~*")).await.expect("it is a pattern");
    assert_eq!(found.paths, ["..a/~b"].map(std::path::PathBuf::from));
}

async fn globs_that_no_file_matches_are_told_from_a_pattern_that_no_line_matches(test: ToolTest) {
    tree(&test);
    for (glob, is_told) in
        [("*.py", true), ("/elsewhere/*.rs", true), ("src/", true), ("*.rs", false), ("!*.rs", false)]
    {
        let query = GrepRequest { globs: vec![glob.to_owned()], ..GrepRequest::new(".", "nowhere") };
        let text = test.tools.grep(query).await.expect("it is a glob").text();
        assert_eq!(text.contains("no file there matches `globs`"), is_told, "{glob}: {text}");
    }
}

async fn a_grep_shows_lines_with_context_by_file(test: ToolTest) {
    tree(&test);
    let query = GrepRequest { before_lines: 1, after_lines: 1, ..GrepRequest::new(".", "needle( here)?") };
    let found = test.tools.grep(query).await.expect("it is a pattern");
    assert_eq!((found.matches, found.files.len(), found.truncated), (3, 2, false));
    let text = found.text();
    assert!(text.contains("src/main.rs\n     1-one\n     2:needle here\n     3-three\n  --\n     5-five\n"), "{text}");
    let one = test.tools.grep(GrepRequest { max_results: 1, ..GrepRequest::new(".", "needle") }).await;
    let one = one.expect("it is a pattern");
    assert_eq!((one.matches, one.truncated), (1, true));
    assert!(one.text().contains("there may be more"), "{}", one.text());
    assert!(message(test.tools.grep(GrepRequest::new(".", "a(")).await).contains("pattern cannot be read"));
}

async fn a_grep_of_files_or_counts_is_short(test: ToolTest) {
    tree(&test);
    let files = GrepRequest { mode: GrepMode::Files, ..GrepRequest::new(".", "needle") };
    let found = test.tools.grep(files).await.expect("it is a pattern");
    assert!(found.text().starts_with("README\nsrc/main.rs\n"), "{}", found.text());
    let counts =
        GrepRequest { mode: GrepMode::Count, globs: vec!["*.rs".to_owned()], ..GrepRequest::new(".", "needle") };
    let found = test.tools.grep(counts).await.expect("it is a pattern");
    assert!(found.text().starts_with("src/main.rs: 2\n"), "{}", found.text());
}

async fn a_grep_shows_the_part_of_a_long_line_that_matches(test: ToolTest) {
    test.file("wide", format!("{}needle{}\nnext\n", "é".repeat(1_000), "x".repeat(1_000_000)));
    let query = GrepRequest { after_lines: 1, ..GrepRequest::new("wide", "needle") };
    let found = test.tools.grep(query).await.expect("it is a pattern");
    let lines = &found.files[0].lines;
    assert!(lines[0].cut && lines[0].matches && lines[0].text.contains("éneedlexx"), "{:?}", lines[0]);
    assert!(lines[0].text.len() <= 500, "{}", lines[0].text.len());
    assert_eq!((lines[1].number, lines[1].text.as_str(), lines[1].matches), (2, "next", false));
}

async fn a_grep_names_the_files_that_it_did_not_search_whole_and_says_what_to_do(test: ToolTest) {
    for number in 0..12 {
        test.file(format!("min/{number:02}.json"), format!("{}needle", "x".repeat(1_200_000)));
    }
    test.file("other", "a needle\n");
    let found = test.tools.grep(GrepRequest::new("min/00.json", "needle")).await.expect("it is a pattern");
    assert_eq!((found.matches, found.unreadable_files), (0, 1));
    let text = found.text();
    assert!(text.contains("1 could not be read whole: search it with a command"), "{text}");
    assert!(text.contains("00.json: it has a line of more than 1048576 bytes"), "{text}");
    for mode in [GrepMode::Content, GrepMode::Files, GrepMode::Count] {
        let found = test.tools.grep(GrepRequest { mode, ..GrepRequest::new(".", "needle") }).await;
        let found = found.expect("it is a pattern");
        let named: Vec<_> = found.problems.iter().map(|problem| problem.path.clone()).collect();
        let expected: Vec<_> = (0..5).map(|number| test.path(format!("min/{number:02}.json"))).collect();
        assert_eq!((found.matches, found.unreadable_files, named), (1, 12, expected), "{mode:?}");
        let text = found.text();
        assert!(text.contains("\n  min/04.json: ") && text.ends_with("  and 7 more\n"), "{text}");
    }
}
