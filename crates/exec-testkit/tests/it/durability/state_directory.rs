//! Who may use a state directory: its own user alone, one owner at a time.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use exec_env::Environment;
use exec_keeper::start_keeper::KeeperStartError;
use exec_local::{LocalEnvironment, OpenError};

use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let mut first = OwnerProcess::durable(state.path(), LONG_TTL, SPOOL_BYTES);
        first.expect("open");
        let pid = first.pid();
        let refused = refusal(support::open(state.path(), LONG_TTL).await);
        assert!(matches!(&refused, OpenError::Busy { owner_pid, .. } if *owner_pid == pid), "{refused}");
        assert!(refused.to_string().contains(&format!("in use by process {pid}: stop it first")), "{refused}");
        // The first was not disturbed, and another can own the directory as soon as it is gone.
        let keeper = support::keeper_of(state.path());
        first.kill();
        let second = support::open(state.path(), LONG_TTL).await.expect("the first is gone");
        support::shut_down(second, keeper).await;
    });
}

#[test]
fn of_many_owners_that_begin_at_once_one_wins_and_the_others_name_it() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for round in 0..5 {
            let state = folder.path().join(format!("state-{round}"));
            let mut owners: Vec<OwnerProcess> =
                (0..8).map(|_| OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES)).collect();
            let lines: Vec<String> = owners.iter_mut().map(OwnerProcess::read_line).collect();
            let winners: Vec<usize> = (0..8).filter(|at| lines[*at] == "open").collect();
            let [winner] = winners[..] else { panic!("one owner wins: {lines:?}") };
            let busy = format!("busy {}", owners[winner].pid());
            assert!(lines.iter().all(|line| line == "open" || *line == busy), "{lines:?}, and {busy} won");
            let keeper = support::keeper_of(&state);
            drop(owners);
            let environment = support::open(&state, LONG_TTL).await.expect("all owners are gone");
            assert_eq!(environment.processes().list().await, Ok(Vec::new()));
            support::shut_down(environment, keeper).await;
        }
    });
}

#[test]
fn a_new_state_folder_is_for_its_owner_alone_and_a_wide_one_is_narrowed() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let new = folder.path().join("deep/new");
        let wide = folder.path().join("wide");
        std::fs::DirBuilder::new().mode(0o755).create(&wide).expect("the folder is ours");
        for state in [&new, &wide] {
            let environment = support::open(state, LONG_TTL).await.expect("it can be used");
            assert_eq!(mode(state), 0o700, "{state:?}");
            let keeper = support::keeper_of(state);
            support::shut_down(environment, keeper).await;
        }
    });
}

#[test]
fn a_state_folder_of_somebody_else_is_refused() {
    support::run(async {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can give a folder to somebody else");
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let foreign = folder.path().join("foreign");
        std::fs::DirBuilder::new().mode(0o777).create(&foreign).expect("the folder is ours");
        chown(&foreign, Some(12_345), None).expect("root may");
        let refused = refusal(support::open(&foreign, LONG_TTL).await);
        assert!(matches!(refused, OpenError::Keeper(KeeperStartError::Foreign { uid: 12_345, .. })), "{refused}");
        assert!(refused.to_string().contains("choose one of your own"), "{refused}");
        assert_eq!(std::fs::read_dir(&foreign).expect("it is there").count(), 0, "nothing was put into it");
    });
}

#[test]
fn a_state_folder_that_cannot_be_one_is_told_with_its_path() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("the folder is ours");
        let refused = refusal(support::open(&file.join("state"), LONG_TTL).await);
        assert!(matches!(refused, OpenError::Keeper(KeeperStartError::Directory { .. })), "{refused}");
        assert!(refused.to_string().contains(file.to_str().expect("a plain name")), "{refused}");
        let long = folder.path().join("l".repeat(120));
        let refused = refusal(support::open(&long, LONG_TTL).await);
        assert!(matches!(refused, OpenError::Keeper(KeeperStartError::LongPath { .. })), "{refused}");
        assert!(refused.to_string().contains("choose a shorter state folder"), "{refused}");
    });
}

fn refusal(opened: Result<LocalEnvironment, OpenError>) -> OpenError {
    match opened {
        Ok(_) => panic!("it must not be opened"),
        Err(refused) => refused,
    }
}

fn mode(path: &Path) -> u32 {
    let metadata = std::fs::metadata(path).expect("it is there");
    assert_eq!(metadata.uid(), rustix::process::getuid().as_raw());
    metadata.permissions().mode() & 0o777
}
