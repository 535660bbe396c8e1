//! Changes several files together again and again until it is killed, so that a test can kill it in the middle.
//!
//! ```text
//!   editor REGISTRY DIRECTORY      the files of DIRECTORY, with journals beside REGISTRY
//! ```
//!
//! The files have a generation, which it reads when it starts: `a`, `b` and `deep/c` contain its number, `only-N` exists for the
//! current N alone, and so does `moved-N`, which is renamed from generation to generation. Each change set is the step to the
//! next generation. It prints `ready`, and then a line for each generation that it has made.
//!
//! Deliberately absent: any judgement. The test looks at the files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use exec_env::files::{ChangeAction, ChangeSet, ContentHash, ExpectedFile, FileChange, Files};
use exec_local::files::LocalFiles;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [registry, directory] = &arguments[..] else { panic!("an editor has a registry and a directory") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a process can make a runtime").block_on(edit(registry, directory))
}

async fn edit(registry: &Path, directory: &Path) -> ExitCode {
    // What an editor before left half done is finished here.
    let files = LocalFiles::open(Some(registry));
    let text = std::fs::read_to_string(directory.join("a")).expect("the test has made the files");
    let mut generation: u64 = text.trim().parse().expect("the test has made them well");
    say("ready");
    loop {
        if let Err(error) = files.change_set(step(directory, generation)).await {
            say(&format!("failed {error}"));
            return ExitCode::FAILURE;
        }
        generation += 1;
        say(&generation.to_string());
    }
}

fn step(directory: &Path, generation: u64) -> ChangeSet {
    let (old, new) = (format!("{generation}\n"), format!("{}\n", generation + 1));
    let content = |text: &str| ExpectedFile::Content(ContentHash(blake3::hash(text.as_bytes())));
    let write = |name: String, expect| FileChange {
        path: directory.join(name),
        expect,
        action: ChangeAction::Write { bytes: Bytes::from(new.clone()), mode: None },
    };
    let next = generation + 1;
    let mut changes: Vec<FileChange> =
        ["a", "b", "deep/c"].map(|name| write(name.to_owned(), content(&old))).into_iter().collect();
    changes.push(write(format!("fresh-{next}/only-{next}"), ExpectedFile::Absent));
    let gone = directory.join(format!("fresh-{generation}/only-{generation}"));
    changes.push(FileChange { path: gone, expect: content(&old), action: ChangeAction::Remove });
    let to = directory.join(format!("moved-{next}"));
    let from = directory.join(format!("moved-{generation}"));
    changes.push(FileChange { path: from, expect: content("moved\n"), action: ChangeAction::Rename { to } });
    ChangeSet { changes, make_directories: true }
}

/// Nobody may read it any more.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
