//! Limits of what a process tree uses. Where the machine has no cgroups for us, some hold for each process only or are
//! refused; what holds is what the start tells.

use exec_core::command::BadCommand;
use exec_core::{Command, ExitCause, ExitStatus, Limit, LimitMeans, LimitSet, ResourceLimits, SandboxPolicy};
use exec_env::process::{LimitReport, ProcessReason, WaitCondition};

use crate::checked_log::CheckedLog;
use crate::os_process::eventually;
use crate::process::TestProcess;
use crate::test_environment::{TestEnvironment, process_id};

const MIB: u64 = 1 << 20;
/// Signals that the kernel sends for a limit.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

fn limited(env: &TestEnvironment, script: &str, limits: ResourceLimits) -> Command {
    Command { limits, ..env.command(script) }
}

fn memory(bytes: u64) -> ResourceLimits {
    ResourceLimits { memory_bytes: Some(bytes), ..ResourceLimits::default() }
}

fn reached(limit: Limit) -> LimitSet {
    [limit].into_iter().collect()
}

/// Starts a process within limits, and returns what enforces them.
async fn start<'env>(
    env: &'env TestEnvironment,
    script: &str,
    limits: ResourceLimits,
) -> (TestProcess<'env>, LimitReport) {
    let id = process_id("p");
    let started = env.processes().start(&id, limited(env, script, limits)).await;
    let started = started.unwrap_or_else(|error| panic!("it can be limited: {error}"));
    (TestProcess::new(env, id, started.pid), started.limits.expect("it is told"))
}

async fn run(env: &TestEnvironment, script: &str, limits: ResourceLimits) -> (CheckedLog, LimitReport) {
    let (process, report) = start(env, script, limits).await;
    (process.read_to_end().await, report)
}

/// Whether the number of processes can be limited here. If not, that is refused and nothing runs.
async fn pids_can_be_limited(env: &TestEnvironment) -> bool {
    let limits = ResourceLimits { pids: Some(2), ..ResourceLimits::default() };
    let started = env.processes().start(&process_id("trial"), limited(env, "write-file ran 1", limits)).await;
    match started.map_err(|error| error.reason) {
        Ok(_) => true,
        Err(ProcessReason::LimitUnavailable { why }) => {
            assert!(why.contains("pids") && why.contains("cgroup"), "{why}");
            assert!(!env.scratch().join("ran").exists());
            false
        }
        Err(reason) => panic!("it is limited, or refused for that: {reason:?}"),
    }
}

pub async fn a_start_and_a_listing_tell_what_enforces_each_limit(env: &TestEnvironment) {
    let limits = ResourceLimits {
        memory_bytes: Some(512 * MIB),
        cpu_seconds: Some(100),
        open_files: Some(100),
        file_bytes: Some(MIB),
        pids: pids_can_be_limited(env).await.then_some(50),
    };
    let (_process, report) = start(env, "wait-forever", limits).await;
    assert!(Limit::ALL.into_iter().all(|limit| report.get(limit).is_some() == limits.get(limit).is_some()));
    assert_eq!((report.open_files, report.file_bytes), (Some(LimitMeans::Rlimit), Some(LimitMeans::Rlimit)));
    assert!(report.pids.is_none_or(LimitMeans::is_of_the_tree), "{report:?}");
    let listed = env.processes().list().await.expect("the environment is there");
    let of = |name: &str| listed.iter().find(|info| info.id == process_id(name)).map(|info| info.limits);
    assert_eq!(of("p"), Some(Some(report)));

    let free = env.processes().start(&process_id("free"), env.command("exit 0")).await.expect("it starts");
    assert_eq!(free.limits, None);
}

pub async fn a_process_gets_no_more_memory_than_its_limit(env: &TestEnvironment) {
    let script = "rss 8388608 ; say small ; rss 536870912 ; say large";
    let (log, report) = run(env, script, memory(128 * MIB)).await;
    assert_eq!(log.stdout(), "small\n");
    let exit = log.exit();
    assert_ne!(exit.status, ExitStatus::Code(0));
    if report.memory_bytes.is_some_and(LimitMeans::is_of_the_tree) {
        assert_eq!((exit.cause, exit.limits_reached), (ExitCause::OutOfMemory, reached(Limit::MemoryBytes)));
        assert_eq!(super::signal_of(exit), Some(9));
    }
}

/// Neither of the two would be too large alone.
pub async fn a_cgroup_limits_the_memory_of_the_whole_tree(env: &TestEnvironment) {
    let gate = env.semaphore("grow");
    let script = format!(
        "fork [ rss 100663296 ; say grown ; wait-forever ] ; {} ; rss 100663296 ; say also ; exit 0",
        gate.acquire()
    );
    let (process, report) = start(env, &script, memory(160 * MIB)).await;
    process.wait(WaitCondition::Output { regex: "grown".to_owned(), after: 0 }).await.expect("one of them fits");
    gate.release();
    let exit = process.exit().await;
    if report.memory_bytes.is_some_and(LimitMeans::is_of_the_tree) {
        // The kernel chooses which of them it kills; that it had to is told in either case.
        assert_eq!(exit.limits_reached, reached(Limit::MemoryBytes));
    } else {
        assert_eq!((exit.status, exit.limits_reached), (ExitStatus::Code(0), LimitSet::NONE), "each has its own limit");
    }
}

/// The limit includes the leader; what it could start lives until it is ended with the tree.
pub async fn a_bomb_stops_at_its_limit_of_processes_and_is_ended_whole(env: &TestEnvironment) {
    if !pids_can_be_limited(env).await {
        return;
    }
    let limits = ResourceLimits { pids: Some(10), ..ResourceLimits::default() };
    let (process, report) = start(env, "fork-many 300 ; wait-forever", limits).await;
    assert!(report.pids.is_some_and(LimitMeans::is_of_the_tree), "{report:?}");
    let full = WaitCondition::Output { regex: "made 9\n".to_owned(), after: 0 };
    process.wait(full).await.expect("the leader and nine others");
    let ended = process.terminate(std::time::Duration::ZERO).await;
    assert_eq!((ended.ended, ended.left), (10, 0));
    let exit = process.exit().await;
    assert_eq!((exit.cause, exit.limits_reached), (ExitCause::Terminated, reached(Limit::Pids)));
}

pub async fn a_program_that_lives_with_a_refused_fork_ends_by_itself_and_it_is_told(env: &TestEnvironment) {
    if !pids_can_be_limited(env).await {
        return;
    }
    let limits = ResourceLimits { pids: Some(3), ..ResourceLimits::default() };
    let (process, _) = start(env, "fork-many 5 ; exit 4", limits).await;
    let exit = process.exit().await;
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(4), ExitCause::Own));
    assert_eq!(exit.limits_reached, reached(Limit::Pids));
}

pub async fn a_process_that_uses_up_its_processor_time_is_ended(env: &TestEnvironment) {
    let limits = ResourceLimits { cpu_seconds: Some(1), ..ResourceLimits::default() };
    let (log, report) = run(env, "say begun ; spin 3600000 ; say done", limits).await;
    assert_eq!(log.stdout(), "begun\n");
    let exit = log.exit();
    assert_eq!((exit.cause, exit.limits_reached), (ExitCause::CpuLimit, reached(Limit::CpuSeconds)));
    let by_kernel = report.cpu_seconds == Some(LimitMeans::Rlimit);
    assert_eq!(super::signal_of(exit), Some(if by_kernel { SIGXCPU } else { 9 }));
}

/// The leader itself uses next to nothing.
pub async fn a_cgroup_limits_the_processor_time_of_the_whole_tree(env: &TestEnvironment) {
    let limits = ResourceLimits { cpu_seconds: Some(1), ..ResourceLimits::default() };
    let script = "fork [ spin 3600000 ] ; wait-forever";
    let (process, report) = start(env, script, limits).await;
    let mut reader = process.reader().await;
    let spinning = reader.wait_for_descendant().await;
    if report.cpu_seconds.is_some_and(LimitMeans::is_of_the_tree) {
        let exit = reader.read_to_end().await.exit();
        assert_eq!((exit.cause, exit.limits_reached), (ExitCause::CpuLimit, reached(Limit::CpuSeconds)));
    }
    // Where it is ended alone, its parent does not reap it.
    eventually("the descendant does nothing any more", || !spinning.is_alive()).await;
}

pub async fn a_process_opens_no_more_files_than_its_limit(env: &TestEnvironment) {
    let limits = ResourceLimits { open_files: Some(32), ..ResourceLimits::default() };
    let (log, _) = run(env, "open-many 1000", limits).await;
    // Three are its standard streams.
    assert_eq!(log.stdout(), "opened 29\n");
    assert_eq!((log.exit().status, log.exit().limits_reached), (ExitStatus::Code(0), LimitSet::NONE));
}

pub async fn a_process_writes_no_larger_file_than_its_limit(env: &TestEnvironment) {
    let limits = ResourceLimits { file_bytes: Some(4096), ..ResourceLimits::default() };
    let (log, _) = run(env, "write-file fits 4096 ; write-file large 5000 ; say done", limits).await;
    assert_eq!(log.stdout(), "written\n");
    let exit = log.exit();
    assert_eq!(super::signal_of(exit), Some(SIGXFSZ));
    assert_eq!((exit.cause, exit.limits_reached), (ExitCause::FileSizeLimit, reached(Limit::FileBytes)));
    assert_eq!(std::fs::metadata(env.scratch().join("large")).map(|file| file.len()).ok(), Some(4096));
}

pub async fn a_process_within_its_limits_notices_nothing(env: &TestEnvironment) {
    let limits = ResourceLimits {
        memory_bytes: Some(1 << 40),
        pids: pids_can_be_limited(env).await.then_some(u64::MAX),
        cpu_seconds: Some(u64::MAX),
        open_files: Some(64),
        file_bytes: Some(1 << 30),
    };
    let (log, _) = run(env, "rss 1048576 ; write-file f 10 ; spin 20 ; exit 3", limits).await;
    assert_eq!(log.stdout(), "written\n");
    let exit = log.exit();
    assert_eq!((exit.status, exit.cause), (ExitStatus::Code(3), ExitCause::Own));
    assert_eq!(exit.limits_reached, LimitSet::NONE);
}

pub async fn limits_hold_in_a_sandbox_too(env: &TestEnvironment) {
    let sandbox = SandboxPolicy::workspace_write(&[env.scratch()], exec_core::sandbox::NetworkPolicy::Restricted);
    let limits = ResourceLimits { memory_bytes: Some(128 * MIB), file_bytes: Some(10), ..ResourceLimits::default() };
    let command = Command { sandbox: Some(sandbox), ..limited(env, "write-file f 11 ; say done", limits) };
    let log = env.start_command("p", command).await.read_to_end().await;
    assert_eq!((log.stdout().as_str(), log.exit().cause), ("", ExitCause::FileSizeLimit));
}

pub async fn a_limit_of_nothing_is_refused(env: &TestEnvironment) {
    for limit in [Limit::MemoryBytes, Limit::Pids, Limit::CpuSeconds, Limit::OpenFiles] {
        let mut limits = ResourceLimits::default();
        limits.set(limit, 0);
        let refused = env.processes().start(&process_id("p"), limited(env, "exit 0", limits)).await;
        let expected = ProcessReason::BadCommand(BadCommand::ZeroLimit { limit });
        assert_eq!(refused.map_err(|error| error.reason), Err(expected));
    }
}
