//! The messages between owner and keeper: what was encoded is decoded again, no bytes do harm, and the bytes of an earlier
//! build still mean the same.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use exec_core::flow::Quota;
use exec_core::resource_limits::PerLimit;
use exec_core::{
    Exit, ExitCause, ExitStatus, Io, Limit, LimitMeans, LimitReport, LimitSet, Overflow, ProcessId, ResourceLimits,
    ResourceUsage, TerminalSize, TimeLimit,
};
use exec_keeper::protocol::{
    FdRole, Identity, KeeperEvent, KeeperRequest, LaunchRequest, Message, ProcessRecord, SpawnStep, VERSION,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_request_is_heard_as_it_was_said(request in request()) {
        prop_assert_eq!(KeeperRequest::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn every_answer_is_heard_as_it_was_said(event in event()) {
        prop_assert_eq!(KeeperEvent::decode(&event.encode()), Ok(event));
    }

    #[test]
    fn no_bytes_make_either_side_panic(bytes in vec(any::<u8>(), 0..400), tag in 0_u8..12) {
        let _ = (KeeperRequest::decode(&bytes), KeeperEvent::decode(&bytes));
        let tagged = [&[tag], &bytes[..]].concat();
        let _ = (KeeperRequest::decode(&tagged), KeeperEvent::decode(&tagged));
    }

    /// Near misses are where length fields lie: one byte changed, or the end cut off.
    #[test]
    fn a_damaged_message_is_refused_or_read_but_never_a_panic(
        request in request(),
        event in event(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        for mut message in [request.encode(), event.encode()] {
            let at = at.index(message.len());
            let cut = &message[..at];
            prop_assert!(KeeperRequest::decode(cut).is_err() || KeeperEvent::decode(cut).is_err());
            message[at] ^= flip;
            let _ = (KeeperRequest::decode(&message), KeeperEvent::decode(&message));
        }
    }

    #[test]
    fn a_message_with_something_behind_it_is_refused(request in request(), event in event()) {
        let longer = |mut bytes: Vec<u8>| { bytes.push(0); bytes };
        prop_assert!(KeeperRequest::decode(&longer(request.encode())).is_err());
        prop_assert!(KeeperEvent::decode(&longer(event.encode())).is_err());
    }
}

/// A keeper may be older than the owner that finds it. Who changes these bytes must change [`VERSION`] too.
#[test]
fn version_7_is_written_as_it_always_was() {
    assert_eq!(VERSION, 7);
    let record = ProcessRecord {
        id: ProcessId::new("p").expect("short"),
        argv: vec!["true".into()],
        cwd: "/".into(),
        io: Io::Pty(TerminalSize { rows: 24, cols: 80 }),
        quota: Quota { cap_bytes: 1 << 20, overflow: Overflow::Block },
        started: SystemTime::UNIX_EPOCH + Duration::from_micros(3),
        sandbox: None,
        limits: Some(LimitReport { pids: Some(LimitMeans::CgroupV1), ..LimitReport::default() }),
        placeholders: Vec::new(),
        network_proxy: None,
        label: b"L".to_vec(),
    };
    let record_hex =
        "0170 01 00 0474727565 00 012f 01 18 50 808040 01 00 b817 00 01 01 0470696473 086367726f75705631 00 00 014c";
    let launch = LaunchRequest {
        record: record.clone(),
        arg0: Some("a".into()),
        environ: vec!["K=V".into()],
        path: None,
        time_limit: Some(TimeLimit { after: Duration::from_micros(5), grace: Duration::from_micros(6) }),
        limits: ResourceLimits { memory_bytes: Some(300), file_bytes: Some(0), ..ResourceLimits::default() },
        identity: Some(Identity { uid: 1, gid: 2, groups: vec![3] }),
        confinement: None,
        proxy_sockets: 0,
    };
    let launch_hex = "01 00 0161 01 00 034b3d56 00 01 00 8827 00 f02e 01 ac02 00 00 00 01 00 01 01 02 01 03 00 00";
    let exit = Exit {
        status: ExitStatus::Code(7),
        cause: ExitCause::TimedOut,
        usage: ResourceUsage { user: Duration::from_micros(1), system: Duration::from_micros(2), max_rss_bytes: 3 },
        limits_reached: [Limit::Pids, Limit::FileBytes].into_iter().collect(),
    };
    let exit_hex =
        "30 0000000000000000 01 01 1200 07000000 0100000000000000 0200000000000000 0300000000000000 0000000000000000";
    let requests = [
        (KeeperRequest::Shutdown, "00".to_owned()),
        (KeeperRequest::Start { launch: Box::new(launch) }, format!("02 {record_hex} {launch_hex}")),
        (KeeperRequest::Signal { number: 2, signal: -1, key: None }, "03 02 01 00".to_owned()),
        (
            KeeperRequest::Signal { number: 2, signal: 1, key: Some([7; 16]) },
            format!("03 02 02 01 {}", "07".repeat(16)),
        ),
        (KeeperRequest::Terminate { number: 2, grace: Duration::from_millis(1) }, "04 02 00 c0843d".to_owned()),
        (KeeperRequest::Members { number: 200 }, "05 c801".to_owned()),
        (KeeperRequest::AddFd { number: 2, role: FdRole::Data1 }, "06 02 09".to_owned()),
        (KeeperRequest::CloseFd { number: 2, role: FdRole::Stdin }, "07 02 01".to_owned()),
        (KeeperRequest::CloseFd { number: 2, role: FdRole::ProxyUdp(3) }, "07 02 0d03".to_owned()),
        (KeeperRequest::Forget { number: 2 }, "08 02".to_owned()),
        (KeeperRequest::FindSandbox { cgroup: 200 }, "09 c801".to_owned()),
    ];
    for (request, hex) in requests {
        assert_eq!(as_hex(&request.encode()), hex.replace(' ', ""), "{request:?}");
    }
    let events = [
        (KeeperEvent::Exited { number: 1, exit }, format!("00 01 {exit_hex}")),
        (
            KeeperEvent::ExistingProcess {
                number: 1,
                pid: 2,
                exit: Some(exit),
                roles: vec![FdRole::Pidfd, FdRole::PtyMaster],
                record: Box::new(record),
            },
            format!("02 01 02 01 {exit_hex} 02 00 04 {record_hex}"),
        ),
        (
            KeeperEvent::Started { number: 2, pid: 3, roles: vec![FdRole::Index], limits: None },
            "03 02 03 01 07 00".to_owned(),
        ),
        (
            KeeperEvent::StartFailed { step: SpawnStep::Cwd, errno: 2, subject: "/x".into() },
            "04 03637764 04 00 022f78".to_owned(),
        ),
        (KeeperEvent::Signalled { errno: 3 }, "05 06".to_owned()),
        (KeeperEvent::Terminated { was_running: true, ended: 2, left: 0 }, "06 01 02 00".to_owned()),
        (KeeperEvent::Members { pids: vec![258] }, "07 01 8202".to_owned()),
        (KeeperEvent::Refused { errno: 7 }, "08 0e".to_owned()),
        (KeeperEvent::SandboxFound { found: true }, "0a 01".to_owned()),
    ];
    for (event, hex) in events {
        assert_eq!(as_hex(&event.encode()), hex.replace(' ', ""), "{event:?}");
    }
}

/// Otherwise an owner and a keeper of different versions could not tell each other which they are.
#[test]
fn the_greeting_is_the_same_in_all_versions() {
    assert_eq!(as_hex(&KeeperRequest::Hello { version: 2 }.encode()), "0102000000");
    for (event, hex) in [
        (KeeperEvent::Welcome { version: 1, pid: 2, processes: 3 }, "01010000000200000003000000"),
        (KeeperEvent::Busy { owner_pid: 5 }, "0905000000"),
    ] {
        assert_eq!(as_hex(&event.encode()), hex, "{event:?}");
    }
}

fn as_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn request() -> impl Strategy<Value = KeeperRequest> {
    prop_oneof![
        Just(KeeperRequest::Shutdown),
        any::<u32>().prop_map(|version| KeeperRequest::Hello { version }),
        launch().prop_map(|launch| KeeperRequest::Start { launch: Box::new(launch) }),
        any::<(u64, i32, Option<[u8; 16]>)>().prop_map(|(number, signal, key)| KeeperRequest::Signal {
            number,
            signal,
            key
        }),
        (any::<u64>(), duration()).prop_map(|(number, grace)| KeeperRequest::Terminate { number, grace }),
        any::<u64>().prop_map(|number| KeeperRequest::Members { number }),
        (any::<u64>(), fd_role()).prop_map(|(number, role)| KeeperRequest::AddFd { number, role }),
        (any::<u64>(), fd_role()).prop_map(|(number, role)| KeeperRequest::CloseFd { number, role }),
        any::<u64>().prop_map(|number| KeeperRequest::Forget { number }),
        any::<u64>().prop_map(|cgroup| KeeperRequest::FindSandbox { cgroup }),
    ]
}

fn event() -> impl Strategy<Value = KeeperEvent> {
    let existing = (any::<(u64, u32)>(), option::of(exit()), vec(fd_role(), 0..12), process_record());
    prop_oneof![
        (any::<u64>(), exit()).prop_map(|(number, exit)| KeeperEvent::Exited { number, exit }),
        any::<(u32, u32, u32)>().prop_map(|(version, pid, processes)| KeeperEvent::Welcome { version, pid, processes }),
        existing.prop_map(|((number, pid), exit, roles, record)| {
            KeeperEvent::ExistingProcess { number, pid, exit, roles, record: Box::new(record) }
        }),
        any::<bool>().prop_map(|found| KeeperEvent::SandboxFound { found }),
        (any::<(u64, u32)>(), vec(fd_role(), 0..12), option::of(limit_report()))
            .prop_map(|((number, pid), roles, limits)| KeeperEvent::Started { number, pid, roles, limits }),
        (step(), any::<i32>(), text()).prop_map(|(step, errno, subject)| KeeperEvent::StartFailed {
            step,
            errno,
            subject
        }),
        any::<i32>().prop_map(|errno| KeeperEvent::Signalled { errno }),
        any::<(bool, u32, u32)>().prop_map(|(was_running, ended, left)| KeeperEvent::Terminated {
            was_running,
            ended,
            left
        }),
        vec(any::<u32>(), 0..20).prop_map(|pids| KeeperEvent::Members { pids }),
        any::<i32>().prop_map(|errno| KeeperEvent::Refused { errno }),
        any::<u32>().prop_map(|owner_pid| KeeperEvent::Busy { owner_pid }),
    ]
}

fn launch() -> impl Strategy<Value = LaunchRequest> {
    let limit = (duration(), duration()).prop_map(|(after, grace)| TimeLimit { after, grace });
    let limits = prop::array::uniform5(option::of(any::<u64>()));
    let identity = (any::<(u32, u32)>(), vec(any::<u32>(), 0..4));
    let identity = identity.prop_map(|((uid, gid), groups)| Identity { uid, gid, groups });
    let strings = (option::of(text()), vec(text(), 0..8), option::of(text()));
    (process_record(), strings, option::of(limit), limits, option::of(identity)).prop_map(
        |(record, (arg0, environ, path), time_limit, limits, identity)| LaunchRequest {
            record,
            arg0,
            environ,
            path,
            time_limit,
            limits: per_limit(limits),
            identity,
            confinement: None,
            proxy_sockets: 0,
        },
    )
}

fn per_limit<T: Copy>(values: [Option<T>; 5]) -> PerLimit<T> {
    let mut limits = PerLimit::default();
    let set = Limit::ALL.into_iter().zip(values).filter_map(|(limit, value)| Some((limit, value?)));
    set.for_each(|(limit, value)| limits.set(limit, value));
    limits
}

fn limit_report() -> impl Strategy<Value = LimitReport> {
    prop::array::uniform5(option::of(prop::sample::select(LimitMeans::ALL.to_vec()))).prop_map(per_limit)
}

fn process_record() -> impl Strategy<Value = ProcessRecord> {
    let io = prop_oneof![
        any::<bool>().prop_map(|stdin| Io::Pipes { stdin }),
        any::<(u16, u16)>().prop_map(|(rows, cols)| Io::Pty(TerminalSize { rows, cols })),
    ];
    let overflow = prop_oneof![Just(Overflow::DropOldest), Just(Overflow::Block)];
    let quota = (any::<u64>(), overflow).prop_map(|(cap_bytes, overflow)| Quota { cap_bytes, overflow });
    let id = "[^\0]{0,40}".prop_map(|name| ProcessId::new(name).expect("far below the limit"));
    // A few thousand years: what a clock may say.
    let started = (0_u64..1 << 57).prop_map(|micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
    (id, vec(text(), 0..6), text(), io, quota, started, vec(any::<u8>(), 0..40), option::of(limit_report())).prop_map(
        |(id, argv, cwd, io, quota, started, label, limits)| ProcessRecord {
            id,
            argv,
            cwd: PathBuf::from(cwd),
            io,
            quota,
            started,
            sandbox: None,
            limits,
            placeholders: Vec::new(),
            network_proxy: None,
            label,
        },
    )
}

fn exit() -> impl Strategy<Value = Exit> {
    let status = prop_oneof![
        any::<i32>().prop_map(ExitStatus::Code),
        any::<(i32, bool)>().prop_map(|(number, core_dumped)| ExitStatus::Signal { number, core_dumped }),
        Just(ExitStatus::Lost),
    ];
    let causes = ExitCause::ALL;
    let usage = (duration(), duration(), any::<u64>()).prop_map(|(user, system, max_rss_bytes)| ResourceUsage {
        user,
        system,
        max_rss_bytes,
    });
    let reached = any::<u8>().prop_map(LimitSet::from_bits);
    (status, prop::sample::select(causes.to_vec()), usage, reached)
        .prop_map(|(status, cause, usage, limits_reached)| Exit { status, cause, usage, limits_reached })
}

/// Whole microseconds, which is what travels.
fn duration() -> impl Strategy<Value = Duration> {
    (0..u64::MAX - 1).prop_map(Duration::from_micros)
}

/// Any bytes: neither paths nor arguments need be text.
fn text() -> impl Strategy<Value = OsString> {
    vec(any::<u8>(), 0..40).prop_map(OsString::from_vec)
}

fn fd_role() -> impl Strategy<Value = FdRole> {
    use FdRole::{Data0, Data1, Index, Pidfd, PtyMaster, RelayRead, RelayWrite, Stderr, Stdin, Stdout, WriteJournal};
    let all = [Pidfd, Stdin, Stdout, Stderr, PtyMaster, RelayRead, RelayWrite, Index, Data0, Data1, WriteJournal];
    prop::sample::select(all.to_vec())
}

fn step() -> impl Strategy<Value = SpawnStep> {
    let all = [
        SpawnStep::Spool,
        SpawnStep::Pipe,
        SpawnStep::Pty,
        SpawnStep::Clone,
        SpawnStep::Session,
        SpawnStep::Limits,
        SpawnStep::User,
        SpawnStep::Cwd,
        SpawnStep::Exec,
    ];
    prop::sample::select(all.to_vec())
}
