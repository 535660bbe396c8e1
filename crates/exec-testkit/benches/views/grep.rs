//! Views of a log of 250 MB: its last lines, and lines that match, beside `rg` over the same bytes.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use exec_client::RemoteEnvironment;
use exec_env::Environment;
use exec_env::view::{Grep, View, ViewPart, ViewQuery};
use exec_testkit::observers::median;
use exec_testkit::proc_status;
use exec_testkit::test_environment::process_id;

use crate::{Cost, Server, measured, middle, millis, ratio};

const LOG_BYTES: usize = 250_000_000;
const TAIL_LINES: u64 = 50;
const TAILS: usize = 100;
const ROUNDS: usize = 15;

/// A word that is there a few times; expressions without and with a word to look for; one that upper and lower case fit; one that
/// fits one line of sixteen, which is more than a view shows.
const EXPRESSIONS: [(&str, bool); 5] = [
    ("needle-7f3a", false),
    (r"status=5\d\d .*attempt=[3-9]", false),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:59\.99", false),
    ("connection REFUSED by peer", true),
    ("worker-3 ", false),
];

pub(crate) async fn measure() {
    let server = Server::start();
    let environment = server.driver().await;
    let file = server.folder.path().join("log");
    std::fs::write(&file, log()).expect("there is room");
    let cat = exec_core::Command::new(["/bin/cat".into(), file.display().to_string()], "/");
    server.run(&environment, "log", cat).await;
    println!("views of a log of {} MB", LOG_BYTES / 1_000_000);
    // The first call of each kind makes threads and tables.
    let pid = server.pid();
    proc_status::reset_peak(pid);
    let before = proc_status::resident_bytes(pid);
    let mut tails = Vec::new();
    for _ in 0..TAILS {
        let query = ViewQuery { part: ViewPart::tail(TAIL_LINES), ..ViewQuery::default() };
        let (view, cost) = measured(|| Duration::ZERO, view(&environment, query)).await;
        assert_eq!(view.lines.len() as u64, TAIL_LINES);
        tails.push(cost.wall);
    }
    println!(
        "the last {TAIL_LINES} lines: p50 {:.2} ms, the first {:.2} ms",
        millis(median(tails.clone())),
        millis(tails[0])
    );
    println!(
        "{:<36}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "lines that match", "ours ms", "rg ms", "ratio", "cpu ms", "rg cpu", "ratio", "matches"
    );
    for (expression, ignore_case) in EXPRESSIONS {
        let grep = Grep { ignore_case, ..Grep::new(expression) };
        let query = ViewQuery { grep: Some(grep), ..ViewQuery::default() };
        compare(&environment, pid, &file, "", &query).await;
        let plain = ViewQuery { plain: true, collapse_overwritten: true, collapse_repeats: true, ..query };
        compare(&environment, pid, &file, "as agents ask", &plain).await;
    }
    let peak = proc_status::peak_resident_bytes(pid);
    println!("the server's memory meanwhile: {} KiB, + {} KiB", peak >> 10, peak.saturating_sub(before) >> 10);
}

async fn compare(environment: &RemoteEnvironment, pid: u32, file: &Path, note: &str, query: &ViewQuery) {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    let mut matches = 0;
    let grep = query.grep.as_ref().expect("an expression is compared");
    for _ in 0..ROUNDS {
        let (view, cost) = measured(|| proc_status::processor_time(pid), view(environment, query.clone())).await;
        ours.push(cost);
        let (found, cost) = measured(proc_status::processor_time_of_children, async { rg(file, grep) }).await;
        others.push(cost);
        assert_eq!(view.matches, found, "both find the same lines");
        matches = found;
    }
    let (ours, rg): (Cost, Cost) = (middle(&ours), middle(&others));
    let name = if note.is_empty() { &grep.regex } else { note };
    println!(
        "{name:<36}{:>9.1}{:>9.1}{:>9.2}{:>9.1}{:>9.1}{:>9.2}{matches:>9}",
        millis(ours.wall),
        millis(rg.wall),
        ratio(ours.wall, rg.wall),
        millis(ours.cpu),
        millis(rg.cpu),
        ratio(ours.cpu, rg.cpu),
    );
}

/// How many lines `rg` finds.
fn rg(file: &Path, grep: &Grep) -> u64 {
    let mut rg = Command::new("rg");
    rg.args(["--no-config", "--no-line-number"]).args(grep.ignore_case.then_some("-i"));
    let found = rg.arg(&grep.regex).arg(file).stderr(Stdio::inherit()).output();
    let found = found.expect("rg is there: cargo xtask bench views installs it");
    memchr::memchr_iter(b'\n', &found.stdout).count() as u64
}

async fn view(environment: &RemoteEnvironment, query: ViewQuery) -> View {
    environment.processes().view(&process_id("log"), query).await.expect("it is there")
}

/// Lines as servers write them.
fn log() -> String {
    let mut log = String::with_capacity(LOG_BYTES + 256);
    let mut number: u64 = 0;
    while log.len() < LOG_BYTES {
        let noise = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (second, milli) = (number / 700 % 60, noise >> 54);
        let (worker, attempt, status) = (noise & 15, noise >> 20 & 7, 200 + (noise >> 24 & 15) * 20);
        let _ = writeln!(
            log,
            "2026-11-17T21:{:02}:{second:02}.{:03} INFO worker-{worker} request id={noise:016x} status={status} attempt={attempt} took={}us",
            number / 42_000 % 60,
            milli % 1000,
            noise >> 33 & 0xffff,
        );
        if number % 400_000 == 7 {
            let _ = writeln!(log, "needle-7f3a: Connection refused by peer, giving up after {number} requests");
        }
        number += 1;
    }
    log
}
