//! Kernels that are old, that refuse system calls, or that hide what we look for: every kill is a kill all the same, and
//! what is not possible at all is told in words.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use exec_core::{ExitCause, ExitStatus};
use exec_env::files::{
    CopyOptions, FileReason, Files, GlobQuery, HashAlgorithm, LinkPolicy, OpenMode, Pattern, RemoveOptions,
    SearchQuery, WatchOptions, WriteOptions,
};
use exec_env::process::Terminated;
use exec_keeper::start_keeper::KeeperProgram;
use exec_local::{KeeperChoice, LocalOptions};
use exec_testkit::TestEnvironment;
use exec_testkit::os_process::{OsProcess, eventually};
use exec_testkit::refused_calls::refuse;
use exec_testkit::suite::{limit, terminate};
use exec_testkit::suite_files::{FilesTestEnvironment, links, policies, policy_races, races};

use crate::durability::support;
use crate::environments;

/// `clone3` is hidden by some container runtimes (ENOSYS) and by some service managers (EPERM).
const REFUSALS: [&str; 2] = ["clone3=38", "clone3=1"];

#[test]
fn where_clone3_is_refused_a_tree_is_ended_and_counted() {
    support::run(async {
        kills_are_kills(&refusing(REFUSALS[0]).await).await;
        // Here the actor cannot start descendants: libc tries another call only after ENOSYS. A shell forks.
        let env = refusing(REFUSALS[1]).await;
        assert_eq!(kill_shell(&env, "sleep 600 & setsid sleep 600 & echo ready; wait").await, ended(true, 3));
    });
}

#[test]
fn where_clone3_is_refused_children_are_in_cgroups_as_elsewhere() {
    support::run(async {
        let plain = environments::keeper_as_process().await;
        let expected = is_in_our_cgroup(&plain).await;
        for refused in REFUSALS {
            assert_eq!(is_in_our_cgroup(&refusing(refused).await).await, expected, "{refused}");
        }
    });
}

/// The kernel kills what is born from a cgroup that was killed into one that was not.
#[test]
fn in_a_cgroup_that_was_once_killed_children_live_and_are_ended_when_asked() {
    support::run(async {
        let Some(killed) = KilledCgroup::new() else { return };
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", killed.0.display());
        let env = wrapped(&script).await;
        let log = env.run("alive", "say alive ; exit 3").await;
        let exit = log.exit();
        assert_eq!((log.stdout().as_str(), exit.status, exit.cause), ("alive\n", ExitStatus::Code(3), ExitCause::Own));
        kills_are_kills(&env).await;
        drop(env);
        eventually("the keeper leaves the cgroup", || killed.is_empty()).await;
    });
}

#[test]
fn with_a_read_only_cgroup_a_tree_is_ended_and_counted() {
    support::run(async { kills_are_kills(&wrapped(READ_ONLY_CGROUPS).await).await });
}

/// As inside another exec-server without cgroups, whose mark is a limit that only root may raise.
#[test]
fn under_a_lower_hard_limit_a_tree_is_ended_and_counted() {
    support::run(async {
        let limited = "exec setpriv --bounding-set -sys_resource --inh-caps -sys_resource \
                       prlimit --rttime=4611686018427387904:4611686018427387904 \"$@\"";
        kills_are_kills(&wrapped(&READ_ONLY_CGROUPS.replace("exec \"$@\"", limited)).await).await;
    });
}

/// Without `/proc` there is no mark and no cgroup to be found. The leader and its group are ended all the same.
#[test]
fn without_proc_the_leader_and_its_group_are_ended() {
    support::run(async {
        let env = wrapped("exec unshare -m -- sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh \"$@\"").await;
        let answer = kill_shell(&env, "trap \"\" TERM; sleep 600 & echo ready; wait").await;
        assert_eq!((answer.was_running, answer.left), (true, 0));
    });
}

#[test]
fn a_process_whose_main_thread_has_ended_is_ended_with_or_without_cgroups() {
    support::run(async {
        if !std::path::Path::new("/usr/bin/python3").exists() {
            return eprintln!("skipped: no program can end its main thread alone");
        }
        for env in [environments::keeper_as_process().await, wrapped(READ_ONLY_CGROUPS).await] {
            // Only the calling thread ends by this call; the other one sleeps on.
            let script = "import ctypes, threading, time\n\
                          threading.Thread(target=time.sleep, args=(600,)).start()\n\
                          print('ready', flush=True)\n\
                          ctypes.CDLL(None).syscall(60, 0)\n";
            let mut command = env.command("");
            command.argv = ["/usr/bin/python3".into(), "-c".into(), script.into()].to_vec();
            command.environ = exec_core::Environ::inherit_and([("A", "b")]);
            let process = env.start_command("p", command).await;
            let leader = process.os_process();
            leader.wait_for_state('Z').await;
            assert_eq!(process.terminate(Duration::from_millis(100)).await, ended(true, 1));
            leader.wait_until_gone().await;
        }
    });
}

#[test]
fn a_bomb_of_a_thousand_is_gone_with_or_without_cgroups() {
    support::run(async {
        for env in [environments::keeper_as_process().await, wrapped(READ_ONLY_CGROUPS).await] {
            let bomb = "i=0; while [ $i -lt 1000 ]; do sleep 600 & i=$((i+1)); done; echo ready; \
                        while :; do true & wait $!; done";
            let answer = kill_shell(&env, bomb).await;
            assert!(answer.ended >= 1001 && answer.left == 0, "{answer:?}");
        }
    });
}

#[test]
fn what_ended_by_itself_is_never_called_terminated() {
    support::run(async {
        let env = environments::keeper_as_process().await;
        for round in 0..60 {
            let process = env.start(&format!("p{round}"), "exit 7").await;
            process.kill().await;
            let exit = process.read_to_end().await.exit();
            let expected = match exit.status {
                ExitStatus::Code(7) => ExitCause::Own,
                _ => ExitCause::Terminated,
            };
            assert_eq!(exit.cause, expected, "round {round}: {exit:?}");
        }
    });
}

#[test]
fn a_kernel_without_pidfds_is_refused_by_the_name_of_the_one_needed() {
    for refused in ["pidfd_open=38", "pidfd_open=1"] {
        let state = tempfile::tempdir().expect("a temporary folder");
        let export = format!("export EXEC_TEST_REFUSE={refused}");
        let mut owner = support::OwnerProcess::durable_after(&export, state.path(), support::LONG_TTL, 1 << 20);
        let why = owner.expect("failed");
        assert!(why.contains("Linux 5.4 or newer is needed"), "{why}");
    }
}

/// Kernels before 5.11 do not have it.
#[test]
fn where_epoll_pwait2_is_refused_everything_ends_in_time() {
    for refused in ["epoll_pwait2=38", "epoll_pwait2=1"] {
        refuse(refused);
        support::run(async {
            let env = environments::keeper_as_process().await;
            limit::a_child_over_its_time_is_asked_and_after_the_grace_killed(&env).await;
            env.forget_all().await;
            kills_are_kills(&env).await;
        });
    }
}

/// Kernels before 5.6 do not have it, and some container runtimes hide it. Every step of a path is opened by itself then.
#[test]
fn where_openat2_is_refused_no_file_call_follows_a_link_that_it_should_not() {
    for refused in ["openat2=38", "openat2=1"] {
        refuse(refused);
        support::run(async {
            links::a_link_as_the_last_component_is_refused_by_each_verb_in_its_words(&local_files().await).await;
            links::a_link_on_the_way_is_not_a_folder(&local_files().await).await;
            links::without_links_everything_works_as_usual(&local_files().await).await;
            races::no_race_lets_a_write_escape(&local_files().await.remote()).await;
            races::no_race_lets_a_removal_escape(&local_files().await.remote()).await;
        });
    }
}

#[test]
fn where_openat2_is_refused_file_calls_keep_to_their_policy() {
    for refused in ["openat2=38", "openat2=1"] {
        refuse(refused);
        support::run(async {
            policies::a_workspace_is_written_and_what_is_protected_in_it_is_not(&local_files().await).await;
            policies::what_is_denied_is_denied_to_every_verb_whether_it_exists_or_not(&local_files().await).await;
            policies::a_link_gives_no_more_than_the_place_it_leads_to(&local_files().await).await;
            policies::a_copy_does_not_leave_through_a_link_in_its_destination(&local_files().await).await;
            policy_races::no_race_reads_what_is_denied(&local_files().await.remote()).await;
            policy_races::no_race_writes_what_is_protected(&local_files().await.remote()).await;
        });
    }
}

/// A call with the rights of a user is made by a thread of its own. As where another program of the container makes processes
/// without an end.
#[test]
fn where_no_thread_can_be_started_calls_as_a_user_are_refused_and_all_others_made() {
    // All that blocks is done by the one thread to which the kernel refuses others.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1).thread_keep_alive(Duration::from_secs(3600));
    builder.build().expect("a test can make a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (root, file) = (folder.path().to_owned(), folder.path().join("file"));
        std::fs::write(&file, "x").expect("the folder is ours");
        let own = exec_local::files::LocalFiles::open(None);
        let Ok(user) = own.as_user("nobody").await else { return eprintln!("skipped: only root may be another user") };
        tokio::task::spawn_blocking(|| refuse("clone3=11,clone=11")).await.expect("it may be refused");
        let query = SearchQuery::new(&root, Pattern::Literal("x".to_owned()));
        let refusals = [
            user.metadata(&file, LinkPolicy::Follow).await.err(),
            user.read(&file, LinkPolicy::Follow).await.err(),
            user.hash(&file, HashAlgorithm::Blake3, LinkPolicy::Follow).await.err(),
            user.open(&file, OpenMode::Read, LinkPolicy::Follow).await.err(),
            user.write(&file, "y".into(), WriteOptions::default()).await.err(),
            user.copy(&file, &root.join("copy"), CopyOptions::default()).await.err(),
            user.remove(&file, RemoveOptions::default()).await.err(),
            user.glob(GlobQuery::new(&root, "*")).await.err(),
            user.watch(&root, WatchOptions::default()).await.err(),
            user.search(query).await.err(),
        ];
        for (number, refused) in refusals.into_iter().enumerate() {
            assert_eq!(refused.map(|error| error.reason), Some(FileReason::Os(11)), "call {number}");
        }
        assert_eq!(own.read(&file, LinkPolicy::Follow).await.expect("it needs no thread"), "x");
    });
}

async fn local_files() -> FilesTestEnvironment {
    FilesTestEnvironment::new(environments::keeper_as_thread().await)
}

/// What the suite asks of every environment, where it is hardest to keep.
async fn kills_are_kills(env: &TestEnvironment) {
    terminate::terminate_counts_everybody_it_ended(env).await;
    env.forget_all().await;
    terminate::terminate_after_the_leaders_exit_ends_what_it_left_behind(env).await;
    env.forget_all().await;
    terminate::descendants_are_asked_before_they_are_killed(env).await;
    env.forget_all().await;
    limit::the_limit_ends_the_whole_tree(env).await;
    env.forget_all().await;
    // `forget` alone ends a tree too.
    let process = env.start("p", "daemonise [ ignore-term ; wait-forever ] ; say ready ; wait-forever").await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    env.forget_all().await;
    descendant.wait_until_gone().await;
}

/// Starts a shell, kills it when it is ready, and sees that its children are gone too.
async fn kill_shell(env: &TestEnvironment, script: &str) -> Terminated {
    let mut command = env.command("");
    command.argv = ["/bin/sh".into(), "-c".into(), script.into()].to_vec();
    command.environ = exec_core::Environ::exactly([("PATH", "/usr/bin:/bin")]);
    let process = env.start_command("shell", command).await;
    let reader = process.reader_at_line("ready").await;
    let children = OsProcess::children_of(process.os_process().pid);
    assert!(!children.is_empty());
    let answer = process.kill().await;
    for child in &children {
        child.wait_until_gone().await;
    }
    assert_eq!(reader.read_to_end().await.exit().cause, ExitCause::Terminated);
    answer
}

fn ended(was_running: bool, ended: u32) -> Terminated {
    Terminated { was_running, ended, left: 0 }
}

/// Whether a child of this environment is in a cgroup that we made.
async fn is_in_our_cgroup(env: &TestEnvironment) -> bool {
    let process = env.start("in-cgroup", "say ready ; wait-forever").await;
    process.reader_at_line("ready").await;
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", process.os_process().pid)).expect("it runs");
    cgroup.contains("/exec-server-")
}

async fn refusing(calls: &str) -> TestEnvironment {
    let mut program = environments::keeper_program();
    program.args = ["--refuse".into(), calls.into()].to_vec();
    with_keeper(program).await
}

/// The keeper is started by this shell script, which ends with `exec "$@"`.
pub(crate) async fn wrapped(script: &str) -> TestEnvironment {
    let keeper = environments::keeper_program().program;
    let args: Vec<OsString> = ["-c".into(), script.into(), "sh".into(), keeper.into()].to_vec();
    with_keeper(KeeperProgram { program: "/bin/sh".into(), args }).await
}

async fn with_keeper(program: KeeperProgram) -> TestEnvironment {
    environments::local(LocalOptions { keeper: KeeperChoice::Process(program), ..LocalOptions::default() }).await
}

const READ_ONLY_CGROUPS: &str = "exec unshare -m -- sh -c '\
    for mount in $(grep \" - cgroup2 \" /proc/self/mountinfo | cut -d\" \" -f5); do \
    mount -o remount,bind,ro $mount; done; exec \"$@\"' sh \"$@\"";

/// A cgroup beside that of the test, which was killed while it was empty.
struct KilledCgroup(PathBuf);

impl KilledCgroup {
    /// `None` where we may not make one; then the reason is printed.
    fn new() -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("it is there");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let path = root.join(own).join(format!("exec-test-killed-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&path) {
            eprintln!("skipped: no cgroup can be made: {error}");
            return None;
        }
        std::fs::write(path.join("cgroup.kill"), "1").expect("nobody is in it");
        Some(Self(path))
    }

    fn is_empty(&self) -> bool {
        std::fs::read_to_string(self.0.join("cgroup.events")).is_ok_and(|events| events.contains("populated 0"))
    }
}

impl Drop for KilledCgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
