//! The words between owner and keeper: what is said is what is heard, whatever is heard does no harm, and what an
//! owner of an earlier build said still means the same.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use exec_core::flow::Quota;
use exec_core::{ExitCause, Exit, Io, Overflow, ProcessId, TerminalSize, ExitStatus, TimeLimit, ResourceUsage};
use exec_keeper::protocol::{Ask, Card, Launch, Part, Step, Tell, VERSION};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_request_is_heard_as_it_was_said(ask in ask()) {
        prop_assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
    }

    #[test]
    fn every_answer_is_heard_as_it_was_said(tell in tell()) {
        prop_assert_eq!(Tell::decode(&tell.encode()), Ok(tell));
    }

    #[test]
    fn no_bytes_make_either_side_panic(bytes in vec(any::<u8>(), 0..400), tag in 0_u8..12) {
        let _ = (Ask::decode(&bytes), Tell::decode(&bytes));
        let tagged = [&[tag], &bytes[..]].concat();
        let _ = (Ask::decode(&tagged), Tell::decode(&tagged));
    }

    /// Near misses are where length fields lie: one byte changed, or the end cut off.
    #[test]
    fn a_damaged_message_is_refused_or_read_but_never_a_panic(
        ask in ask(),
        tell in tell(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        for mut message in [ask.encode(), tell.encode()] {
            let at = at.index(message.len());
            let cut = &message[..at];
            prop_assert!(Ask::decode(cut).is_err() || Tell::decode(cut).is_err());
            message[at] ^= flip;
            let _ = (Ask::decode(&message), Tell::decode(&message));
        }
    }

    #[test]
    fn a_message_with_something_behind_it_is_refused(ask in ask(), tell in tell()) {
        let longer = |mut bytes: Vec<u8>| { bytes.push(0); bytes };
        prop_assert!(Ask::decode(&longer(ask.encode())).is_err());
        prop_assert!(Tell::decode(&longer(tell.encode())).is_err());
    }
}

/// A keeper may be older than the owner that finds it. Who changes these bytes must change [`VERSION`] too.
#[test]
fn version_1_is_written_as_it_always_was() {
    assert_eq!(VERSION, 1);
    let card = Card {
        id: ProcessId::new("p").expect("short"),
        argv: vec!["true".into()],
        cwd: "/".into(),
        io: Io::Pty(TerminalSize { rows: 24, cols: 80 }),
        quota: Quota { cap_bytes: 1 << 20, overflow: Overflow::Block },
        started: SystemTime::UNIX_EPOCH + Duration::from_micros(3),
        label: b"L".to_vec(),
    };
    let card_hex =
        "0100000070 01000000 0400000074727565 010000002f 02 1800 5000 0000100000000000 01 0300000000000000 010000004c";
    let launch = Launch {
        card: card.clone(),
        arg0: Some("a".into()),
        environ: vec!["K=V".into()],
        path: None,
        time_limit: Some(TimeLimit { after: Duration::from_micros(5), grace: Duration::from_micros(6) }),
    };
    let launch_hex = "01000000 0100000061 01000000 030000004b3d56 00000000 0500000000000000 0600000000000000";
    let exit = Exit {
        status: ExitStatus::Code(7),
        cause: ExitCause::TimedOut,
        usage: ResourceUsage { user: Duration::from_micros(1), system: Duration::from_micros(2), max_rss_bytes: 3 },
    };
    let exit_hex = "30000000 0000000000000000 01 01 0000 07000000 0100000000000000 0200000000000000 0300000000000000 0000000000000000";
    let asks = [
        (Ask::Hello { version: 1 }, "01 01000000".to_owned()),
        (Ask::Start { ticket: 9, launch: Box::new(launch) }, format!("02 0900000000000000 {launch_hex} {card_hex}")),
        (Ask::Signal { ticket: 1, number: 2, signal: -1 }, "03 0100000000000000 0200000000000000 ffffffff".to_owned()),
        (
            Ask::Terminate { ticket: 1, number: 2, grace: Duration::from_millis(1) },
            "04 0100000000000000 0200000000000000 e803000000000000".to_owned(),
        ),
        (Ask::Members { ticket: 1, number: 2 }, "05 0100000000000000 0200000000000000".to_owned()),
        (Ask::Keep { number: 2, part: Part::Data1 }, "06 0200000000000000 0a".to_owned()),
        (Ask::Drop { number: 2, part: Part::Stdin }, "07 0200000000000000 02".to_owned()),
        (Ask::Forget { number: 2 }, "08 0200000000000000".to_owned()),
        (Ask::End, "09".to_owned()),
    ];
    for (ask, hex) in asks {
        assert_eq!(as_hex(&ask.encode()), hex.replace(' ', ""), "{ask:?}");
    }
    let tells = [
        (Tell::Welcome { version: 1, pid: 2, processes: 3 }, "01 01000000 02000000 03000000".to_owned()),
        (
            Tell::Found {
                number: 1,
                pid: 2,
                exit: Some(exit),
                parts: vec![Part::Pidfd, Part::Master],
                card: Box::new(card),
            },
            format!("02 0100000000000000 02000000 02000000 01 05 {exit_hex} {card_hex}"),
        ),
        (
            Tell::Started { ticket: 1, number: 2, pid: 3, parts: vec![Part::Index] },
            "03 0100000000000000 0200000000000000 03000000 01000000 08".to_owned(),
        ),
        (
            Tell::Refused { ticket: 1, step: Step::Cwd, errno: 2, subject: "/x".into() },
            "04 0100000000000000 06 02000000 02000000 2f78".to_owned(),
        ),
        (Tell::Exited { number: 1, exit }, format!("05 0100000000000000 {exit_hex}")),
        (Tell::Signalled { ticket: 1, errno: 3 }, "06 0100000000000000 03000000".to_owned()),
        (
            Tell::Terminated { ticket: 1, was_running: true, ended: 2, left: 0 },
            "07 0100000000000000 01 02000000 00000000".to_owned(),
        ),
        (Tell::Members { ticket: 1, pids: vec![258] }, "08 0100000000000000 04000000 02010000".to_owned()),
        (Tell::Busy { owner_pid: 5 }, "09 05000000".to_owned()),
    ];
    for (tell, hex) in tells {
        assert_eq!(as_hex(&tell.encode()), hex.replace(' ', ""), "{tell:?}");
    }
}

fn as_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ask() -> impl Strategy<Value = Ask> {
    let numbers = (any::<u64>(), any::<u64>());
    prop_oneof![
        any::<u32>().prop_map(|version| Ask::Hello { version }),
        (any::<u64>(), launch()).prop_map(|(ticket, launch)| Ask::Start { ticket, launch: Box::new(launch) }),
        (numbers, any::<i32>()).prop_map(|((ticket, number), signal)| Ask::Signal { ticket, number, signal }),
        (numbers, duration()).prop_map(|((ticket, number), grace)| Ask::Terminate { ticket, number, grace }),
        numbers.prop_map(|(ticket, number)| Ask::Members { ticket, number }),
        (any::<u64>(), part()).prop_map(|(number, part)| Ask::Keep { number, part }),
        (any::<u64>(), part()).prop_map(|(number, part)| Ask::Drop { number, part }),
        any::<u64>().prop_map(|number| Ask::Forget { number }),
        Just(Ask::End),
    ]
}

fn tell() -> impl Strategy<Value = Tell> {
    let found = (any::<u64>(), any::<u32>(), option::of(exit()), vec(part(), 0..12), card());
    let terminated = (any::<u64>(), any::<bool>(), any::<u32>(), any::<u32>());
    prop_oneof![
        any::<(u32, u32, u32)>().prop_map(|(version, pid, processes)| Tell::Welcome { version, pid, processes }),
        any::<u32>().prop_map(|owner_pid| Tell::Busy { owner_pid }),
        found.prop_map(|(number, pid, exit, parts, card)| {
            Tell::Found { number, pid, exit, parts, card: Box::new(card) }
        }),
        (any::<(u64, u64, u32)>(), vec(part(), 0..12)).prop_map(|((ticket, number, pid), parts)| Tell::Started {
            ticket,
            number,
            pid,
            parts
        }),
        (any::<u64>(), step(), any::<i32>(), text()).prop_map(|(ticket, step, errno, subject)| Tell::Refused {
            ticket,
            step,
            errno,
            subject
        }),
        (any::<u64>(), exit()).prop_map(|(number, exit)| Tell::Exited { number, exit }),
        any::<(u64, i32)>().prop_map(|(ticket, errno)| Tell::Signalled { ticket, errno }),
        terminated.prop_map(|(ticket, was_running, ended, left)| Tell::Terminated { ticket, was_running, ended, left }),
        (any::<u64>(), vec(any::<u32>(), 0..20)).prop_map(|(ticket, pids)| Tell::Members { ticket, pids }),
    ]
}

fn launch() -> impl Strategy<Value = Launch> {
    let limit = (duration(), duration()).prop_map(|(after, grace)| TimeLimit { after, grace });
    (card(), option::of(text()), vec(text(), 0..8), option::of(text()), option::of(limit))
        .prop_map(|(card, arg0, environ, path, time_limit)| Launch { card, arg0, environ, path, time_limit })
}

fn card() -> impl Strategy<Value = Card> {
    let io = prop_oneof![
        any::<bool>().prop_map(|stdin| Io::Pipes { stdin }),
        any::<(u16, u16)>().prop_map(|(rows, cols)| Io::Pty(TerminalSize { rows, cols })),
    ];
    let overflow = prop_oneof![Just(Overflow::DropOldest), Just(Overflow::Block)];
    let quota = (any::<u64>(), overflow).prop_map(|(cap_bytes, overflow)| Quota { cap_bytes, overflow });
    let id = "[^\0]{0,40}".prop_map(|name| ProcessId::new(name).expect("far below the limit"));
    // A few thousand years: what a clock may say.
    let started = (0_u64..1 << 57).prop_map(|micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
    (id, vec(text(), 0..6), text(), io, quota, started, vec(any::<u8>(), 0..40)).prop_map(
        |(id, argv, cwd, io, quota, started, label)| Card {
            id,
            argv,
            cwd: PathBuf::from(cwd),
            io,
            quota,
            started,
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
    let causes = [ExitCause::Own, ExitCause::TimedOut, ExitCause::Terminated, ExitCause::OutOfMemory];
    let usage = (duration(), duration(), any::<u64>()).prop_map(|(user, system, max_rss_bytes)| ResourceUsage {
        user,
        system,
        max_rss_bytes,
    });
    (status, prop::sample::select(causes.to_vec()), usage).prop_map(|(status, cause, usage)| Exit {
        status,
        cause,
        usage,
    })
}

/// Whole microseconds, which is what travels.
fn duration() -> impl Strategy<Value = Duration> {
    (0..u64::MAX - 1).prop_map(Duration::from_micros)
}

/// Any bytes: neither paths nor arguments need be text.
fn text() -> impl Strategy<Value = OsString> {
    vec(any::<u8>(), 0..40).prop_map(OsString::from_vec)
}

fn part() -> impl Strategy<Value = Part> {
    use Part::{Data0, Data1, Index, Ledger, Master, Pidfd, RelayIn, RelayOut, Stderr, Stdin, Stdout};
    let all = [Pidfd, Stdin, Stdout, Stderr, Master, RelayOut, RelayIn, Index, Data0, Data1, Ledger];
    prop::sample::select(all.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let all = [Step::Spool, Step::Pipe, Step::Pty, Step::Clone, Step::Session, Step::Cwd, Step::Exec];
    prop::sample::select(all.to_vec())
}
