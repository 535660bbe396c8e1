//! Files that mean harm, or are in the way: none makes a tool hang, write elsewhere, or do half of something.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};
use exec_testkit::suite_files::FilesTestEnvironment;
use exec_tools::files::{
    EditManyRequest, EditRequest, FileEdit, FileTools, GlobRequest, GrepMode, GrepRequest, ImageRequest, ListRequest,
    ReadRequest, WriteRequest,
};

use super::{ToolTest, message, near_and_far};
use crate::environments;

near_and_far! {
    pipes_and_devices_are_refused_and_nobody_hangs,
    a_file_that_grows_while_it_is_read_is_read_to_an_end,
    invalid_text_is_edited_byte_by_byte,
    a_name_is_one_line_and_no_other_name,
    a_directory_that_cannot_be_written_stays_as_it_is,
}

fn fifo(test: &ToolTest, name: &str) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, test.path(name), kind, 0o600.into(), 0)
        .expect("the scratch directory is ours");
}

async fn pipes_and_devices_are_refused_and_nobody_hangs(test: ToolTest) {
    fifo(&test, "pipe");
    for path in ["pipe", "/dev/zero", "/dev/tty"] {
        let messages = [
            message(test.tools.read(ReadRequest::new(path)).await),
            message(test.tools.edit(EditRequest::new(path, "a", "b")).await),
            message(test.tools.write(WriteRequest::new(path, "a")).await),
            message(test.tools.view_image(ImageRequest { path: path.into() }).await),
            message(
                test.tools
                    .edit_many(EditManyRequest {
                        edits: vec![FileEdit::Write(WriteRequest::new(path, "a"))],
                        make_directories: false,
                    })
                    .await,
            ),
        ];
        for refused in messages {
            assert!(refused.contains("FIFO, socket or device"), "{path}: {refused}");
        }
    }
    let listed = test.tools.list(ListRequest::new(".")).await.expect("it is a directory");
    assert!(listed.text().contains("pipe (no regular file)"), "{}", listed.text());
}

async fn a_file_that_grows_while_it_is_read_is_read_to_an_end(test: ToolTest) {
    let path = test.file("log", "first\n".repeat(1000));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (path, stop) = (path.clone(), stop.clone());
        std::thread::spawn(move || {
            use std::io::Write;
            let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("it is there");
            let mut written = 0_u64;
            while !stop.load(Ordering::Relaxed) && written < 64 << 20 {
                file.write_all(&[b'x'; 4096]).expect("there is room for some megabytes");
                written += 4096;
            }
        })
    };
    for _ in 0..5 {
        let viewed = test.tools.read(ReadRequest::new("log")).await.expect("it is a file");
        let bytes = std::fs::read(&path).expect("it is there");
        let hashed = &bytes[..usize::try_from(viewed.size_bytes).expect("it fits")];
        assert_eq!(viewed.hash.0, blake3::hash(hashed), "what was shown is what was hashed");
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer ends");
}

async fn invalid_text_is_edited_byte_by_byte(test: ToolTest) {
    test.file("latin1", b"caf\xe9 = 1\r\nx = 2\n");
    test.tools.edit(EditRequest::new("latin1", "x = 2", "x = 3")).await.expect("it fits");
    let bytes = std::fs::read(test.path("latin1")).expect("it is there");
    assert_eq!(bytes, b"caf\xe9 = 1\r\nx = 3\n");
    test.file("binary", b"\0\x01needle\xff");
    test.tools.edit(EditRequest::new("binary", "needle", "thread")).await.expect("bytes are bytes");
    assert!(message(test.tools.edit(EditRequest::new("binary", "absent", "x")).await).contains("is no text"));
}

/// A name may look like two, or like what we say ourselves.
async fn a_name_is_one_line_and_no_other_name(test: ToolTest) {
    let names: [(&[u8], &str); 5] = [
        (b" blank", r#"" blank""#),
        (b"\"quoted\"", r#""\"quoted\"""#),
        (b"a b", "a b"),
        (b"no\xfftext", r#""no\xFFtext""#),
        (b"one\n[the file is empty]", r#""one\n[the file is empty]""#),
    ];
    for (name, _) in names {
        test.file(OsStr::from_bytes(name), "found");
    }
    let expected = names.map(|(_, shown)| shown);
    let shown = |text: &str| text.lines().map(str::trim).map(str::to_owned).collect::<Vec<_>>();

    let listed = test.tools.list(ListRequest::new(".")).await.expect("it is a directory").text();
    assert_eq!(shown(&listed)[1..], expected);
    let found = test.tools.glob(GlobRequest::new(".", "*")).await.expect("it is a directory").text();
    assert_eq!(shown(&found)[1..], expected);
    let grep = GrepRequest { mode: GrepMode::Files, ..GrepRequest::new(".", "found") };
    let grepped = test.tools.grep(grep).await.expect("it is a directory").text();
    assert_eq!(shown(&grepped)[..5], expected);
    let read = test.tools.read(ReadRequest::new("one\n[the file is empty]")).await.expect("it is a file").text();
    assert!(read.lines().next().is_some_and(|first| first.contains(r#"one\n[the file is empty]" (5 bytes"#)), "{read}");
    let written = test.tools.write(WriteRequest::new("one\n[the file is empty]", "x")).await.expect("it is a file");
    assert_eq!(written.text().lines().count(), 1);
}

async fn a_directory_that_cannot_be_written_stays_as_it_is(test: ToolTest) {
    test.file("open/a", "1\n");
    test.file("closed/b", "1\n");
    let closed = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(test.path("closed"), permissions).expect("it is ours");
    };
    closed(0o555);
    let edits = vec![
        FileEdit::Replace(EditRequest::new("open/a", "1", "2")),
        FileEdit::Replace(EditRequest::new("closed/b", "1", "2")),
    ];
    let outcome = test.tools.edit_many(EditManyRequest { edits, make_directories: false }).await;
    closed(0o755);
    // For root no directory is closed.
    let expected = match rustix::process::geteuid().is_root() {
        true => "2\n",
        false => {
            let refused = message(outcome);
            assert!(refused.contains("permission denied"), "{refused}");
            "1\n"
        }
    };
    assert_eq!(
        (test.contents("open/a").as_deref(), test.contents("closed/b").as_deref()),
        (Some(expected), Some(expected))
    );
    assert_eq!(std::fs::read_dir(test.path("open")).expect("it is there").count(), 1, "no side file is left");
}

/// A link in the way is swapped between a file inside the sandbox and one outside, while it is edited under a policy that
/// allows to write inside only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_swapped_in_a_race_leads_no_edit_out_of_the_sandbox() {
    let environment = FilesTestEnvironment::new(environments::keeper_as_thread().await);
    let inside = environment.directory("inside");
    environment.file("inside/real/f", "count 0\n");
    let secret = environment.file("outside/f", "count 0\n");
    let link = environment.link("inside/way", inside.join("real"));
    let outside = secret.parent().expect("it has one").to_owned();
    let rule = |path: &str, access| FileRule { target: RuleTarget::Path(path.into()), access };
    let inside_text = inside.to_str().expect("the scratch directory is UTF-8");
    let rules = vec![rule("/", FileAccess::Read), rule(inside_text, FileAccess::Write)];
    let files = FilePolicy::Restricted { rules, glob_scan_depth: None };
    let policy = SandboxPolicy { files, network: NetworkPolicy::Restricted };
    let files = environment.files().under_policy(Arc::new(policy));
    let tools = FileTools::new(files, &inside).expect("the directory is absolute");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, inside) = (stop.clone(), inside.clone());
        std::thread::spawn(move || {
            let spare = inside.join("spare");
            let mut targets = [outside, inside.join("real")].into_iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                let target = targets.next().expect("it goes round");
                std::os::unix::fs::symlink(target, &spare).expect("the name is free");
                std::fs::rename(&spare, &link).expect("a link can be replaced");
            }
        })
    };
    let (mut edited, mut refused) = (0, 0);
    for number in 0..300 {
        let edit = EditRequest::new("way/f", format!("count {edited}\n"), format!("count {}\n", edited + 1));
        let outcome = match number % 2 {
            0 => tools.edit(edit).await.map(drop),
            _ => {
                let edits = vec![FileEdit::Replace(edit)];
                tools.edit_many(EditManyRequest { edits, make_directories: false }).await.map(drop)
            }
        };
        match outcome {
            Ok(()) => edited += 1,
            Err(_) => refused += 1,
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().expect("the swapper ends");
    assert_eq!(
        std::fs::read_to_string(&secret).expect("it is there"),
        "count 0\n",
        "{edited} edits, {refused} refused"
    );
    let counted = std::fs::read_to_string(inside.join("real/f")).expect("it is there");
    assert_eq!(counted, format!("count {edited}\n"));
    assert!(edited > 0 && refused > 0, "both happen: {edited} and {refused}");
}
