//! A drop-in is what cannot be told from the original: every case here is a short script, played on the released Codex
//! exec-server and on ours, and what both show must be equal, but for differences that WIRE A.1 declares.
//!
//! Reading order: [`script`] (how a case is written), [`folder`] and [`web`] (what it works on), [`program`] (the two
//! servers, started alike), [`wire`] and [`talk`] (a script is played), [`normal`] (what may differ without anybody
//! minding), [`rows`] (what differs on purpose); then the cases by section of WIRE. A test is a section: it collects
//! every difference and shows them together.
//!
//! Deliberately absent: expiry, because it takes the original half a minute; sandboxes that have to be enforced.

mod folder;
mod normal;
pub(crate) mod program;
mod rows;
mod script;
mod talk;
mod web;
pub(crate) mod wire;

mod blocks;
mod closing;
mod copies;
mod directories;
mod discovery;
mod doors;
mod env_policy;
mod envelope;
mod execution;
mod files;
mod handshake;
mod http;
mod notices;
mod params;
mod paths;
mod place;
mod reads;
mod sandboxes;
mod sessions;
mod signals;
mod starts;
mod startup;
mod stdio;
mod walks;
mod watches;
mod writes;

use std::time::Duration;

use exec_testkit::{binaries, codex};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tempfile::TempDir;

use program::{Program, Side};
use script::{Case, Over, Step};
use talk::Place;
use web::Web;

/// How long a test waits for something that must come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// How often the original is asked before ours is called different: what it shows is sometimes chance, and ours must be one
/// of the things it shows. Ours is asked once.
const TRIES: usize = 4;

macro_rules! sections {
    ($($test:ident: $cases:expr;)*) => { $(
        #[tokio::test]
        async fn $test() {
            compare($cases).await;
        }
    )* };
}

sections! {
    envelopes_are_understood_alike: envelope::cases();
    the_handshake_is_the_same: handshake::cases();
    the_same_things_end_a_connection: closing::cases();
    stdio_is_the_same: stdio::cases();
    the_place_is_described_alike: place::cases();
    starts_are_refused_alike: starts::cases();
    programs_run_alike: execution::cases();
    environment_policies_mean_the_same: env_policy::cases();
    logs_are_read_alike: reads::cases();
    stdin_is_written_alike: writes::cases();
    processes_are_signalled_and_ended_alike: signals::cases();
    the_same_is_told_of_processes: notices::cases();
    sessions_live_alike: sessions::cases();
    params_are_judged_alike: params::cases();
    paths_are_understood_alike: paths::cases();
    files_are_read_and_written_alike: files::cases();
    files_are_taken_in_blocks_alike: blocks::cases();
    folders_are_made_listed_and_removed_alike: directories::cases();
    copies_are_the_same: copies::cases();
    walks_see_the_same: walks::cases();
    what_is_missing_is_awaited_alike: watches::cases();
    sandboxes_are_understood_alike: sandboxes::cases();
    the_web_is_asked_alike: http::cases();
    skills_and_plugins_are_found_alike: discovery::cases();
}

#[tokio::test]
async fn the_doors_open_to_the_same() {
    doors::compare().await;
}

#[tokio::test]
async fn the_command_line_is_refused_alike() {
    startup::compare().await;
}

/// Both programs, with one home.
struct Programs {
    theirs: Program,
    ours: Program,
    home: TempDir,
}

impl Programs {
    /// None without npm; the reason has been printed.
    fn find() -> Option<Self> {
        let codex = codex::codex_binary()?;
        let home = tempfile::tempdir().expect("a temporary folder");
        let theirs = Program::new(Side::Theirs, codex, home.path());
        let ours = Program::new(Side::Ours, binaries::exec_server(), home.path());
        Some(Self { theirs, ours, home })
    }
}

/// Plays every case on both servers and shows all that differs.
async fn compare(cases: Vec<Case>) {
    let Some(programs) = Programs::find() else { return };
    let (theirs, ours) = tokio::join!(programs.theirs.listen(&[]), programs.ours.listen(&[]));
    let web = Web::start().await;
    // To look at one case more closely.
    let only = std::env::var("COMPAT_CASE").ok();
    let chosen = cases.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())));
    let plays = chosen.flat_map(|case| case.over.iter().map(move |over| (case, *over)));
    let verdicts = stream::iter(plays).map(|(case, over)| {
        let at_theirs = Place { program: &programs.theirs, daemon: &theirs, over, web: &web.address };
        let at_ours = Place { program: &programs.ours, daemon: &ours, over, web: &web.address };
        async move {
            let steps = || case.steps.iter().map(|(step, _)| step);
            let (theirs, ours) = tokio::join!(talk::play(&at_theirs, steps()), talk::play(&at_ours, steps()));
            let first = complaint(case, over, &theirs, &ours)?;
            for _ in 1..TRIES {
                let theirs = talk::play(&at_theirs, steps()).await;
                complaint(case, over, &theirs, &ours)?;
            }
            Some(first)
        }
    });
    // Most of a case is waiting, so a few at a time.
    let complaints: Vec<String> = verdicts.buffered(4).filter_map(async |complaint| complaint).collect().await;
    report(&complaints);
}

fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} differences:\n\n{}", complaints.len(), complaints.join("\n"));
}

fn complaint(case: &Case, over: Over, theirs: &[Value], ours: &[Value]) -> Option<String> {
    let mut found = Vec::new();
    for (at, (step, difference)) in case.steps.iter().enumerate() {
        let (theirs, ours) = (&theirs[at], &ours[at]);
        match difference {
            None if theirs == ours => {}
            None => found.push(format!("  {}\n    theirs: {theirs}\n    ours:   {ours}", short(step))),
            Some(difference) if theirs == ours => {
                found.push(format!("  {}\n    does not differ any more ({:?}): {ours}", short(step), difference.row));
            }
            Some(difference) if difference.ours != *ours => {
                let meant = &difference.ours;
                found.push(format!("  {}\n    meant:  {meant}\n    ours:   {ours}\n    theirs: {theirs}", short(step)));
            }
            Some(_) => {}
        }
    }
    (!found.is_empty()).then(|| format!("{} (over {over:?})\n{}\n", case.name, found.join("\n")))
}

fn short(step: &Step) -> String {
    let text = format!("{step:?}");
    if text.chars().count() > 200 { text.chars().take(200).chain("…".chars()).collect() } else { text }
}
