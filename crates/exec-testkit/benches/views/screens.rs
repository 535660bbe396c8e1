//! The screen of a terminal that has printed 100 MB, beside the bare engine over the same bytes.

use std::fmt::Write;
use std::num::NonZeroU16;

use exec_core::{Io, Stream, TerminalSize};
use exec_env::Environment;
use exec_env::screen::ScreenQuery;
use exec_testkit::proc_status;
use exec_testkit::process::LogReader;
use exec_testkit::test_environment::process_id;

use crate::{Server, measured, middle, millis, ratio};

const RECORDING_BYTES: usize = 100_000_000;
const SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };
const ROUNDS: usize = 3;
/// What the engine gets at a time; as little as the server reads.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) async fn measure() {
    let server = Server::start();
    let environment = server.driver().await;
    let file = server.folder.path().join("recording");
    std::fs::write(&file, recording()).expect("there is room");
    let mut cat = exec_core::Command::new(["/bin/cat".into(), file.display().to_string()], "/");
    cat.io = Io::Pty(SIZE);
    server.run(&environment, "screen", cat).await;
    let (id, pid) = (process_id("screen"), server.pid());
    let log = LogReader::open(environment.processes(), &id, 0).await.read_to_end().await;
    let bytes = log.bytes(Stream::Pty);
    let look = async |seq| {
        let query = ScreenQuery { seq, colors: false };
        environment.processes().screen(&id, query).await.expect("it can be drawn")
    };
    let (mut ours, mut again, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // A look at the beginning makes the next one draw all of it.
        look(Some(1)).await;
        let (screen, cost) = measured(|| proc_status::processor_time(pid), look(None)).await;
        ours.push(cost);
        again.push(measured(|| proc_status::processor_time(pid), look(None)).await.1);
        let (rows, cost) = measured(|| proc_status::processor_time(std::process::id()), async { draw(&bytes) }).await;
        bare.push(cost);
        assert_eq!(screen.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>(), rows);
    }
    let (ours, again, bare) = (middle(&ours), middle(&again), middle(&bare));
    println!("the screen of a terminal that has printed {} MB", bytes.len() / 1_000_000);
    println!(
        "the first look {:.0} ms ({:.0} of processors), the engine alone {:.0} ms ({:.0}): {:.2} × ({:.2} ×); the next look {:.2} ms",
        millis(ours.wall),
        millis(ours.cpu),
        millis(bare.wall),
        millis(bare.cpu),
        ratio(ours.wall, bare.wall),
        ratio(ours.cpu, bare.cpu),
        millis(again.wall),
    );
}

fn draw(bytes: &[u8]) -> Vec<String> {
    let cells = |count| NonZeroU16::new(count).expect("it has some");
    let mut engine = vt100::Parser::new(cells(SIZE.rows), cells(SIZE.cols), 0);
    bytes.chunks(PIECE_BYTES).for_each(|piece| engine.process(piece));
    engine.screen().rows(0, SIZE.cols).map(|row| row.trim_end().to_owned()).collect()
}

/// What full-screen programs and shells print: cursor addresses, colours, regions that scroll, characters of all widths.
fn recording() -> String {
    let mut out = String::with_capacity(RECORDING_BYTES + 4096);
    let mut frame: u64 = 0;
    out.push_str("\x1b]0;a recording\x07");
    while out.len() < RECORDING_BYTES {
        let noise = (frame + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match frame % 4 {
            // A monitor of processes.
            0 => {
                out.push_str("\x1b[?25l\x1b[H");
                for row in 0..SIZE.rows {
                    let _ = write!(
                        out,
                        "\x1b[{};1H\x1b[38;5;{}m{:>7}\x1b[39m root \x1b[1;32m{:>5.1}\x1b[m {:<40}\x1b[K",
                        row + 1,
                        noise >> 40 & 255,
                        noise >> 30 & 0xffff,
                        (noise >> (row % 32) & 1023) as f64 / 10.0,
                        "/usr/bin/some-program --with arguments",
                    );
                }
            }
            // An editor that scrolls.
            1 => {
                out.push_str("\x1b[2;22r");
                for line in 0..30 {
                    let _ = write!(
                        out,
                        "\x1b[22;1H\n\x1b[33m{line:>4} \x1b[35mfn\x1b[0m größe_{noise:x}() -> \x1b[4mString\x1b[24m {{ \"漢字 e\u{301}\" }}"
                    );
                }
                out.push_str("\x1b[r");
            }
            // A build.
            2 => {
                for line in 0..40 {
                    let _ = write!(
                        out,
                        "\x1b[0m\x1b[1m\x1b[32m   Compiling\x1b[0m crate-{line} v0.{}.1 (/srv/{noise:x})\r\n",
                        noise >> 50
                    );
                }
            }
            // A progress bar.
            _ => {
                for step in 0..50usize {
                    let _ = write!(out, "\r\x1b[36m[{:=<50}>\x1b[0m {:>3}%", "=".repeat(step), step * 2);
                }
                out.push_str("\r\n");
            }
        }
        frame += 1;
    }
    out
}
