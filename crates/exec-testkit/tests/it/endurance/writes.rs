//! `kill -9` in the middle of a thousand `writeFile`s: each file is the old one or the new one, and no other is left.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exec_env::Environment;
use exec_env::files::WriteOptions;
use exec_testkit::test_data::SeededRng;
use tokio::task::JoinSet;

use super::daemon::Daemon;
use super::{DEADLINE, connected};
use crate::durability::support::run_for;

const FILES: usize = 1000;

/// Large enough that a write takes several system calls.
const FILE_BYTES: usize = 20_000;

/// Kills spread over the writes.
const KILLS: usize = 10;

#[test]
fn alone_a_kill_in_the_middle_of_a_thousand_writes_leaves_old_or_new_files_and_nothing_else() {
    run_for(DEADLINE, async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = folder.path().join("files");
        std::fs::create_dir(&directory).expect("the folder is ours");
        let old = Bytes::from(vec![b'o'; FILE_BYTES]);
        for at in 0..FILES {
            std::fs::write(directory.join(at.to_string()), &old).expect("the folder is ours");
        }
        let mut daemon = Daemon::with_state(folder.path());
        let mut rng = SeededRng::new(5);
        for kill in 0..KILLS {
            let environment = Arc::new(connected(daemon.target()).await);
            let writers = write_all(&environment, &directory, kill);
            // not a wait: the moment of the kill is random
            tokio::time::sleep(Duration::from_millis(rng.below(40) as u64)).await;
            daemon.kill_and_restart();
            // A write under way fails with an unknown outcome, or was repeated after the reconnect; both are right.
            writers.join_all().await;
            check_files(&directory);
        }
        daemon.shut_down().await;
    });
}

fn write_all(environment: &Arc<exec_client::RemoteEnvironment>, directory: &Path, kill: usize) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let (environment, directory) = (environment.clone(), directory.to_owned());
        writers.spawn(async move {
            let letter = b'a' + (kill % 14) as u8;
            for at in (writer..FILES).step_by(8) {
                let bytes = Bytes::from(vec![letter; FILE_BYTES]);
                let path = directory.join(at.to_string());
                if environment.files().write(&path, bytes, WriteOptions::default()).await.is_err() {
                    return;
                }
            }
        });
    }
    writers
}

/// Every file is whole and of one write; there are no others.
fn check_files(directory: &Path) {
    let mut files = 0;
    for entry in std::fs::read_dir(directory).expect("the folder is ours") {
        let entry = entry.expect("the folder is ours");
        let name = entry.file_name().into_string().expect("a name of ours");
        assert!(name.parse::<usize>().is_ok(), "{name} was left behind");
        let content = std::fs::read(entry.path()).expect("the file is ours");
        assert_eq!(content.len(), FILE_BYTES, "{name}");
        assert!(content == vec![content[0]; FILE_BYTES], "{name} is of two writes");
        files += 1;
    }
    assert_eq!(files, FILES);
}
