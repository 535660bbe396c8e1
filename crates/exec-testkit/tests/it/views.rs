//! What a look at a long log costs a real daemon: what it reads, the memory it takes, and its processor time beside that of the
//! engine alone. How fast it is beside others, `cargo xtask bench views` tells.

use std::num::NonZeroU16;

use exec_core::{Command, Io, Stream, TerminalSize};
use exec_env::Environment;
use exec_env::process::WaitCondition;
use exec_env::screen::ScreenQuery;
use exec_env::view::{Amount, Grep, Position, ViewPart, ViewQuery};
use exec_testkit::proc_status;
use exec_testkit::process::LogReader;
use exec_testkit::test_environment::process_id;
use exec_transport::ConnectOptions;

use crate::durability::support::run;
use crate::endurance::daemon::Daemon;

const LOG_LINES: usize = 800_000;

async fn connect(daemon: &Daemon) -> exec_client::RemoteEnvironment {
    let connected = exec_client::connect(daemon.target(), ConnectOptions::default(), exec_client::Options::default());
    connected.await.expect("the daemon answers")
}

/// Runs a shell's script to its end.
async fn print(environment: &dyn Environment, script: &str, io: Io) {
    let id = process_id("p");
    let command = Command { io, ..Command::new(["/bin/sh", "-c", script], "/") };
    environment.processes().start(&id, command).await.expect("it starts");
    environment.processes().wait(&id, WaitCondition::Closed, None).await.expect("it ends");
}

/// A log of some 45 MB.
async fn print_log(environment: &dyn Environment) {
    let script = format!("seq -f 'line %.0f of a log that is far longer than what is shown' {LOG_LINES}");
    print(environment, &script, Io::Pipes { stdin: false }).await;
}

#[test]
fn the_last_lines_of_a_long_log_are_read_from_its_end() {
    const READ_BYTES: u64 = 256 << 10;
    run(async {
        let daemon = Daemon::on_a_port();
        let environment = connect(&daemon).await;
        print_log(&environment).await;
        // What was pushed of it has been read before.
        let before = proc_status::read_bytes(daemon.pid());
        let query = ViewQuery { part: ViewPart::tail(50), ..ViewQuery::default() };
        let view = environment.processes().view(&process_id("p"), query).await.expect("it is there");
        let read = proc_status::read_bytes(daemon.pid()) - before;
        let last = format!("line {LOG_LINES} of a log that is far longer than what is shown");
        assert_eq!((view.lines.len(), view.lines.last().map(|line| &line.text[..])), (50, Some(last.as_bytes())));
        assert!(read <= READ_BYTES, "{read} bytes were read for them");
    });
}

/// No window from its end would ever hold more than nothing, so that one after the other would be read in vain.
#[test]
fn how_long_a_log_is_is_told_without_reading_it_if_no_line_is_wanted() {
    // The beginning is looked at, and what lies behind is read ahead meanwhile.
    const READ_BYTES: u64 = 8 << 20;
    run(async {
        let daemon = Daemon::on_a_port();
        let environment = connect(&daemon).await;
        print_log(&environment).await;
        let before = proc_status::read_bytes(daemon.pid());
        for nothing in [Amount::Lines(0), Amount::Bytes(0)] {
            let part = ViewPart::HeadTail { head: nothing, tail: nothing };
            let query = ViewQuery { part, ..ViewQuery::default() };
            let view = environment.processes().view(&process_id("p"), query).await.expect("it is there");
            let told = (view.lines.len(), view.left_out.bytes, view.last_seq, view.next);
            assert_eq!(told, (0, view.head.held_bytes, view.head.next_seq - 1, Position::default()));
        }
        let read = proc_status::read_bytes(daemon.pid()) - before;
        println!("{read} bytes");
        assert!(read <= READ_BYTES, "{read} bytes were read for them");
    });
}

#[test]
fn a_search_in_a_long_log_takes_little_memory_alone() {
    const MEMORY_BYTES: u64 = 8 << 20;
    run(async {
        let daemon = Daemon::on_a_port();
        let environment = connect(&daemon).await;
        print_log(&environment).await;
        proc_status::reset_peak(daemon.pid());
        let before = proc_status::resident_bytes(daemon.pid());
        for plain in [false, true] {
            // More lines match than a view shows.
            let query = ViewQuery {
                grep: Some(Grep { before: 3, ..Grep::new("line [0-9]+1 of") }),
                plain,
                collapse_overwritten: plain,
                ..ViewQuery::default()
            };
            let view = environment.processes().view(&process_id("p"), query).await.expect("it is there");
            assert_eq!(view.matches, LOG_LINES as u64 / 10 - 1);
        }
        let grown = proc_status::peak_resident_bytes(daemon.pid()).saturating_sub(before);
        println!("+ {} KiB", grown >> 10);
        assert!(grown <= MEMORY_BYTES, "{grown} bytes more");
    });
}

#[test]
fn the_screen_of_a_long_recording_takes_no_more_than_twice_the_engine_alone() {
    const SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };
    const ROUNDS: usize = 3;
    run(async {
        let daemon = Daemon::on_a_port();
        let environment = connect(&daemon).await;
        let script = r"seq -f '%.0f' 40000 | while read n; do printf '\033[%d;1H\033[38;5;%dm%5d some-program\033[0m\033[K' $((n % 24 + 1)) $((n % 256)) $n; done";
        print(&environment, script, Io::Pty(SIZE)).await;
        let id = process_id("p");
        let printed = LogReader::open(environment.processes(), &id, 0).await.read_to_end().await.bytes(Stream::Pty);
        let look = async |seq| {
            let query = ScreenQuery { seq, colors: false };
            environment.processes().screen(&id, query).await.expect("it can be drawn")
        };
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            // A look at the beginning makes the next one draw all of it.
            look(Some(1)).await;
            let before = proc_status::processor_time(daemon.pid());
            let screen = look(None).await;
            ours.push(proc_status::processor_time(daemon.pid()) - before);
            let before = proc_status::processor_time(std::process::id());
            let cells = |count| NonZeroU16::new(count).expect("it has some");
            let mut engine = vt100::Parser::new(cells(SIZE.rows), cells(SIZE.cols), 0);
            engine.process(&printed);
            bare.push(proc_status::processor_time(std::process::id()) - before);
            let rows = engine.screen().rows(0, SIZE.cols).map(|row| row.trim_end().to_owned());
            assert_eq!(screen.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>(), rows.collect::<Vec<_>>());
        }
        let (ours, bare) = (ours.iter().min().expect("some rounds"), bare.iter().min().expect("some rounds"));
        println!("{} bytes: {ours:?}, the engine alone {bare:?}", printed.len());
        assert!(*ours <= 2 * *bare, "{ours:?}, the engine alone {bare:?}");
    });
}
