//! `write`, `edit`, `edit_many`: what is changed, what is refused, and what is said.

use std::os::unix::fs::PermissionsExt;

use exec_env::files::ContentHash;
use exec_tools::files::{
    EditManyRequest, EditRequest, FileChangeKind, FileEdit, FileToolError, Guard, Occurrences, PatchRequest,
    WriteRequest,
};

use super::{ToolTest, message, near_and_far};

near_and_far! {
    a_write_says_what_it_replaced_and_keeps_the_mode,
    a_guarded_write_touches_nothing_else,
    a_new_directory_is_made_only_on_request,
    an_edit_replaces_exactly_one_place_and_shows_it,
    an_edit_that_does_not_fit_says_what_to_do,
    an_edit_of_what_has_changed_is_refused,
    an_edit_keeps_cr_lf,
    an_edit_may_mix_lf_and_cr_lf_where_every_line_ends_with_cr_lf,
    several_edits_are_made_together_in_their_order,
    several_edits_of_which_one_does_not_fit_change_nothing,
    files_are_created_removed_and_renamed_together,
    a_rename_names_the_directory_that_is_missing,
    a_link_is_edited_where_it_leads_and_removed_itself,
    a_link_is_removed_and_renamed_itself_wherever_it_leads,
    a_file_that_is_renamed_is_not_lost_when_its_old_name_is_written,
    a_new_file_behind_a_link_to_nothing_is_still_new_when_it_is_written,
}

fn hash(text: &str) -> ContentHash {
    ContentHash(blake3::hash(text.as_bytes()))
}

async fn a_write_says_what_it_replaced_and_keeps_the_mode(test: ToolTest) {
    let written = test.tools.write(WriteRequest::new("run.sh", "one\n")).await.expect("it is new");
    assert_eq!((written.replaced, written.now.hash), (None, hash("one\n")));
    assert!(written.text().starts_with("created "), "{}", written.text());
    std::fs::set_permissions(test.path("run.sh"), std::fs::Permissions::from_mode(0o750)).expect("it is ours");
    let written = test.tools.write(WriteRequest::new("run.sh", "two\n")).await.expect("it may be replaced");
    assert_eq!(written.replaced.map(|old| (old.hash, old.size_bytes)), Some((hash("one\n"), 4)));
    let mode = std::fs::metadata(test.path("run.sh")).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode, test.contents("run.sh").as_deref()), (0o750, Some("two\n")));
}

async fn a_guarded_write_touches_nothing_else(test: ToolTest) {
    test.file("a", "theirs\n");
    let absent = WriteRequest { guard: Guard::Absent, ..WriteRequest::new("a", "ours\n") };
    let refused = message(test.tools.write(absent).await);
    assert!(refused.contains("exists already") && refused.contains(&hash("theirs\n").to_string()), "{refused}");
    let other = WriteRequest { guard: Guard::Hash(hash("older\n")), ..WriteRequest::new("a", "ours\n") };
    let refused = message(test.tools.write(other).await);
    assert!(refused.contains("has changed since it was read") && refused.contains("read it again"), "{refused}");
    assert_eq!(test.contents("a").as_deref(), Some("theirs\n"));
    let same = WriteRequest { guard: Guard::Hash(hash("theirs\n")), ..WriteRequest::new("a", "ours\n") };
    test.tools.write(same).await.expect("it is what was expected");
    assert_eq!(test.contents("a").as_deref(), Some("ours\n"));
}

async fn a_new_directory_is_made_only_on_request(test: ToolTest) {
    let refused = message(test.tools.write(WriteRequest::new("x/y/z", "1")).await);
    assert!(refused.contains("does not exist"), "{refused}");
    let making = WriteRequest { make_directories: true, ..WriteRequest::new("x/y/z", "1") };
    test.tools.write(making).await.expect("its directories are made");
    assert_eq!(test.contents("x/y/z").as_deref(), Some("1"));
}

async fn an_edit_replaces_exactly_one_place_and_shows_it(test: ToolTest) {
    test.file("a.rs", "fn a() {}\nfn b() {}\nfn c() {}\n");
    let edited = test.tools.edit(EditRequest::new("a.rs", "fn b() {}", "fn b() {\n    1\n}")).await.expect("it fits");
    assert_eq!(test.contents("a.rs").as_deref(), Some("fn a() {}\nfn b() {\n    1\n}\nfn c() {}\n"));
    assert_eq!((edited.replacements, &edited.lines[..]), (1, &[2][..]));
    let around: Vec<&str> = edited.around.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!((edited.around[0].0, around), (1, vec!["fn a() {}", "fn b() {", "    1", "}", "fn c() {}"]));
    assert_eq!(edited.after.hash, hash(&test.contents("a.rs").expect("it is there")));
    let all = EditRequest { occurrences: Occurrences::All, ..EditRequest::new("a.rs", "fn ", "pub fn ") };
    assert_eq!(test.tools.edit(all).await.map(|edited| edited.lines), Ok(vec![1, 2, 5]));
}

async fn an_edit_that_does_not_fit_says_what_to_do(test: ToolTest) {
    test.file("a.rs", "fn main() {\n    let total = 1;\n    let total = 1;\n}\n");
    let refused = message(test.tools.edit(EditRequest::new("a.rs", "\tlet total = 1", "x")).await);
    assert!(refused.contains("does not occur") && refused.contains("     2\t    let total = 1;"), "{refused}");
    let refused = message(test.tools.edit(EditRequest::new("a.rs", "let total = 1;", "x")).await);
    assert!(refused.contains("occurs 2 times") && refused.contains("at lines 2, 3"), "{refused}");
    let twice = EditRequest { occurrences: Occurrences::Exactly(2), ..EditRequest::new("a.rs", "total", "sum") };
    assert_eq!(test.tools.edit(twice).await.map(|edited| edited.replacements), Ok(2));
    assert!(message(test.tools.edit(EditRequest::new("a.rs", "", "x")).await).contains("is empty"));
    assert!(message(test.tools.edit(EditRequest::new("a.rs", "x", "x")).await).contains("the same"));
    assert!(message(test.tools.edit(EditRequest::new("no.rs", "x", "y")).await).contains("does not exist"));
    assert!(message(test.tools.edit(EditRequest::new(".", "x", "y")).await).contains("is a directory"));
}

async fn an_edit_of_what_has_changed_is_refused(test: ToolTest) {
    test.file("a", "one two\n");
    let stale = EditRequest { if_hash: Some(hash("one\n")), ..EditRequest::new("a", "one", "1") };
    let refused = test.tools.edit(stale).await.expect_err("it is another file");
    assert_eq!(refused, FileToolError::Changed { path: test.path("a"), present: Some(hash("one two\n")) });
    let fresh = EditRequest { if_hash: Some(hash("one two\n")), ..EditRequest::new("a", "one", "1") };
    test.tools.edit(fresh).await.expect("it is that file");
    assert_eq!(test.contents("a").as_deref(), Some("1 two\n"));
}

async fn an_edit_keeps_cr_lf(test: ToolTest) {
    test.file("dos", "a\r\nb\r\nc\r\n");
    test.tools.edit(EditRequest::new("dos", "a\nb\n", "a\nB\nB\n")).await.expect("it fits");
    assert_eq!(test.contents("dos").as_deref(), Some("a\r\nB\r\nB\r\nc\r\n"));
    // Also where the text to replace has no line break, or begins with one.
    test.tools.edit(EditRequest::new("dos", "c", "C\nd")).await.expect("it fits");
    test.tools.edit(EditRequest::new("dos", "\nC", "\nx\ny")).await.expect("it fits");
    assert_eq!(test.contents("dos").as_deref(), Some("a\r\nB\r\nB\r\nx\r\ny\r\nd\r\n"));
    // Whoever writes CR LF means it.
    test.tools.edit(EditRequest::new("dos", "d\r\n", "d\n")).await.expect("it fits");
    assert_eq!(test.contents("dos").as_deref(), Some("a\r\nB\r\nB\r\nx\r\ny\r\nd\n"));
    let refused = message(test.tools.edit(EditRequest::new("dos", "a\nB", "z")).await);
    assert!(refused.contains("some of its lines end with CR LF"), "{refused}");
}

async fn an_edit_may_mix_lf_and_cr_lf_where_every_line_ends_with_cr_lf(test: ToolTest) {
    const FILE: &str = "a\r\nb\r\nc\r\n";
    for (old, new, expected) in [
        ("a\r\nb\n", "A\nB\r\n", "A\r\nB\r\nc\r\n"),
        ("a\nb\r\nc", "x\ny", "x\r\ny\r\n"),
        ("b\n", "b\r\nB\n", "a\r\nb\r\nB\r\nc\r\n"),
        ("b", "1\r\n2\n3", "a\r\n1\r\n2\r\n3\r\nc\r\n"),
        // Whoever writes CR LF alone means it, also in what comes in its place.
        ("a\r\nb\r\n", "a\nb\r\n", "a\nb\r\nc\r\n"),
    ] {
        test.file("dos", FILE);
        let edited = test.tools.edit(EditRequest::new("dos", old, new)).await;
        assert!(edited.is_ok(), "{old:?} to {new:?}: {}", message(edited));
        assert_eq!(test.contents("dos").as_deref(), Some(expected), "{old:?} to {new:?}");
    }
    // These differ in their line breaks alone, of which the file has only one kind.
    for (old, new) in [("a\nb\n", "a\r\nb\r\n"), ("a\r\nb\n", "a\nb\r\n")] {
        test.file("dos", FILE);
        let refused = test.tools.edit(EditRequest::new("dos", old, new)).await.expect_err("nothing would change");
        assert_eq!(refused, FileToolError::SameText { path: test.path("dos") });
        assert_eq!(test.contents("dos").as_deref(), Some(FILE));
    }
    // In a file that has LF, or both, text is what it says.
    for file in ["a\nb\n", "a\r\nb\n"] {
        test.file("unix", file);
        let other = if file == "a\nb\n" { "a\r\nb\n" } else { "a\nb\n" };
        test.tools.edit(EditRequest::new("unix", file, other)).await.expect("it is there as it is written");
        assert_eq!(test.contents("unix").as_deref(), Some(other));
    }
}

fn replace(path: &str, old: &str, new: &str) -> FileEdit {
    FileEdit::Replace(EditRequest::new(path, old, new))
}

async fn several_edits_are_made_together_in_their_order(test: ToolTest) {
    test.file("a", "1\n");
    test.file("b", "x y\n");
    let edits = vec![replace("a", "1", "2"), replace("b", "x", "X"), replace("a", "2", "3"), replace("b", "y", "Y")];
    let changed = test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await.expect("they fit");
    assert_eq!(changed.files.len(), 2);
    assert_eq!((test.contents("a").as_deref(), test.contents("b").as_deref()), (Some("3\n"), Some("X Y\n")));
    assert!(changed.text().contains(&format!("M {}", test.path("a").display())), "{}", changed.text());
}

async fn several_edits_of_which_one_does_not_fit_change_nothing(test: ToolTest) {
    test.file("a", "1\n");
    test.file("b", "x\n");
    let edits = vec![
        replace("a", "1", "2"),
        FileEdit::Write(WriteRequest::new("new/c", "c")),
        FileEdit::Remove { path: "b".into(), guard: Guard::Anything },
        replace("a", "nowhere", "3"),
    ];
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: true }).await);
    assert!(refused.contains("does not occur"), "{refused}");
    // What only the disk can tell is refused as a whole, too: a directory is in the way.
    test.file("directory/f", "f");
    let edits = vec![replace("a", "1", "2"), FileEdit::Write(WriteRequest::new("directory", "d"))];
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: true }).await);
    assert!(refused.contains("is a directory"), "{refused}");
    let edits = vec![replace("a", "1", "2"), FileEdit::Write(WriteRequest::new("b/below", "d"))];
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: true }).await);
    assert!(refused.contains("a part of") && refused.contains("is a file"), "{refused}");
    assert_eq!((test.contents("a").as_deref(), test.contents("b").as_deref()), (Some("1\n"), Some("x\n")));
    assert!(!test.path("new").exists());
    let left = std::fs::read_dir(&test.scratch).expect("it is ours").count();
    assert_eq!(left, 3, "no side file is left: a, b, directory");
}

async fn a_rename_names_the_directory_that_is_missing(test: ToolTest) {
    test.file("from", "1\n");
    let edits = vec![FileEdit::Rename { from: "from".into(), to: "no/such/to".into() }];
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await);
    assert!(refused.contains("no/such/to\" does not exist"), "{refused}");
    assert_eq!(test.contents("from").as_deref(), Some("1\n"));
}

async fn files_are_created_removed_and_renamed_together(test: ToolTest) {
    test.file("gone", "gone\n");
    test.file("from", "moved\n");
    std::fs::set_permissions(test.path("from"), std::fs::Permissions::from_mode(0o711)).expect("it is ours");
    test.file("edited-and-moved", "1\n");
    let edits = vec![
        FileEdit::Write(WriteRequest { guard: Guard::Absent, ..WriteRequest::new("d/e/new", "new\n") }),
        FileEdit::Remove { path: "gone".into(), guard: Guard::Hash(hash("gone\n")) },
        FileEdit::Rename { from: "from".into(), to: "d/to".into() },
        replace("edited-and-moved", "1", "2"),
        FileEdit::Rename { from: "edited-and-moved".into(), to: "d/e/moved".into() },
    ];
    let changed = test.tools.edit_many(EditManyRequest { edits, make_directories: true }).await.expect("they fit");
    assert_eq!(test.contents("d/e/new").as_deref(), Some("new\n"));
    assert_eq!(test.contents("d/to").as_deref(), Some("moved\n"));
    assert_eq!(test.contents("d/e/moved").as_deref(), Some("2\n"));
    assert_eq!(["gone", "from", "edited-and-moved"].map(|name| test.path(name).exists()), [false; 3]);
    let mode = std::fs::metadata(test.path("d/to")).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o711);
    let renamed = FileChangeKind::Renamed { to: test.path("d/to") };
    assert!(changed.files.iter().any(|file| file.kind == renamed), "{changed:?}");
    test.file("one", "1");
    test.file("two", "2");
    let edits = vec![FileEdit::Rename { from: "one".into(), to: "two".into() }];
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await);
    assert!(refused.contains("there is a file already"), "{refused}");
}

async fn a_link_is_edited_where_it_leads_and_removed_itself(test: ToolTest) {
    test.file("real/f", "1\n");
    std::os::unix::fs::symlink("real/f", test.path("link")).expect("it is new");
    let edits = vec![replace("link", "1", "2"), replace("real/f", "2", "3")];
    test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await.expect("they are one file");
    assert_eq!(test.contents("real/f").as_deref(), Some("3\n"));
    assert!(test.path("link").is_symlink());
    let edits = vec![FileEdit::Remove { path: "link".into(), guard: Guard::Anything }];
    test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await.expect("it goes");
    assert!(!test.path("link").is_symlink() && test.path("real/f").exists());
}

async fn a_link_is_removed_and_renamed_itself_wherever_it_leads(test: ToolTest) {
    test.file("directory/f", "1\n");
    for leads_to in ["nowhere", "link", "directory", "directory/f", "directory/f/below", "/dev/null"] {
        let link = test.path("link");
        std::os::unix::fs::symlink(leads_to, &link).expect("it is new");
        let edits = vec![FileEdit::Rename { from: "link".into(), to: "renamed".into() }];
        let renamed = test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await;
        assert!(renamed.is_ok(), "{leads_to}: {}", message(renamed));
        assert!(!link.is_symlink(), "{leads_to}");
        assert_eq!(std::fs::read_link(test.path("renamed")).expect("it is a link").to_str(), Some(leads_to));
        // What has the name already is not lost, even if it leads nowhere.
        test.file("other", "other\n");
        let edits = vec![FileEdit::Rename { from: "other".into(), to: "renamed".into() }];
        let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await);
        assert!(refused.contains("there is a file already"), "{leads_to}: {refused}");

        let edits = vec![FileEdit::Remove { path: "renamed".into(), guard: Guard::Anything }];
        let removed = test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await;
        assert!(removed.is_ok(), "{leads_to}: {}", message(removed));
        assert!(!test.path("renamed").is_symlink() && test.contents("directory/f").is_some(), "{leads_to}");
        // A circle needs the name that it leads to.
        std::os::unix::fs::symlink(leads_to, &link).expect("it is new");
        let patch = "*** Begin Patch\n*** Delete File: link\n*** End Patch".to_owned();
        let removed = test.tools.apply_patch(PatchRequest { patch }).await;
        assert!(removed.is_ok(), "{leads_to}: {}", message(removed));
        assert!(!link.is_symlink(), "{leads_to}");
    }
    assert!(test.path("directory/f").exists());
}

async fn a_new_file_behind_a_link_to_nothing_is_still_new_when_it_is_written(test: ToolTest) {
    std::os::unix::fs::symlink("target", test.path("link")).expect("it is new");
    let write = WriteRequest { guard: Guard::Absent, ..WriteRequest::new("link", "new\n") };
    let edits = vec![FileEdit::Write(write)];
    let changed = test.tools.edit_many(EditManyRequest { edits: edits.clone(), make_directories: false }).await;
    assert_eq!(changed.expect("nothing is there").files[0].kind, FileChangeKind::Added);
    assert!(test.path("link").is_symlink());
    assert_eq!(test.contents("target").as_deref(), Some("new\n"));
    let refused = message(test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await);
    assert!(refused.contains("exists already"), "{refused}");
}

async fn a_file_that_is_renamed_is_not_lost_when_its_old_name_is_written(test: ToolTest) {
    test.file("a", "old\n");
    std::fs::set_permissions(test.path("a"), std::fs::Permissions::from_mode(0o711)).expect("it is ours");
    let edits =
        vec![FileEdit::Rename { from: "a".into(), to: "b".into() }, FileEdit::Write(WriteRequest::new("a", "new\n"))];
    test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await.expect("they fit");
    assert_eq!((test.contents("a").as_deref(), test.contents("b").as_deref()), (Some("new\n"), Some("old\n")));
    let mode = std::fs::metadata(test.path("b")).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o711);
}
