//! Compares ours with the released Codex exec-server: every case is a short script that is run against both, and what
//! both show must be equal, except for differences that WIRE A.1 declares.
//!
//! Reading order: [`case`] (how a case is written), [`case_directory`] and [`http_fixture`] (what it works on),
//! [`server_program`] (the two servers, started alike), [`raw_connection`] and [`case_run`] (a case is run),
//! [`normalize`] (what may differ without anybody minding), [`declared_differences`] (what differs on purpose); then
//! the cases by section of WIRE. A test is a section: it collects every difference and shows them together.
//!
//! Deliberately absent: expiry of sessions, because it takes Codex half a minute.

mod case;
mod case_directory;
mod case_run;
mod declared_differences;
mod http_fixture;
mod normalize;
pub(crate) mod raw_connection;
pub(crate) mod server_program;

mod blocks;
mod closing;
mod command_line;
mod copies;
mod directories;
mod discovery;
mod enforced_sandboxes;
mod env_policy;
mod envelope;
mod environment_info;
mod execution;
mod files;
mod handshake;
mod http;
mod http_upgrade;
mod network;
mod notifications;
mod params;
mod paths;
mod reads;
mod sandboxes;
mod sessions;
mod signals;
mod starts;
mod stdio;
mod walks;
mod watches;
mod writes;

use std::path::Path;
use std::time::Duration;

use exec_testkit::{binaries, codex};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tempfile::TempDir;

use case::{Case, CaseStep, Transport};
use case_run::CaseTarget;
use http_fixture::HttpFixture;
use server_program::{Implementation, ServerProgram};

/// How long a test waits for something that must come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// How often Codex is tried before ours counts as different: what Codex shows sometimes depends on chance, and ours
/// must be one of the things that it shows. Ours is tried once.
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
    the_environment_is_described_alike: environment_info::cases();
    starts_are_refused_alike: starts::cases();
    programs_run_alike: execution::cases();
    environment_policies_mean_the_same: env_policy::cases();
    logs_are_read_alike: reads::cases();
    stdin_is_written_alike: writes::cases();
    processes_are_signalled_and_ended_alike: signals::cases();
    the_same_is_told_of_processes: notifications::cases();
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
    proxies_are_understood_alike: network::starts();
    proxies_answer_alike: network::requests();
    proxies_refuse_datagrams_alike: network::datagrams();
    clients_are_asked_about_the_network_alike: network::questions();
    skills_and_plugins_are_found_alike: discovery::cases();
}

/// Codex's sandbox does not start from a home below the temporary directory.
#[tokio::test]
async fn sandboxes_are_enforced_alike() {
    compare_at_home(Path::new("/var/tmp"), enforced_sandboxes::cases()).await;
}

#[tokio::test]
async fn http_requests_before_the_upgrade_are_answered_alike() {
    http_upgrade::compare().await;
}

#[tokio::test]
async fn the_command_line_is_refused_alike() {
    command_line::compare().await;
}

/// Both servers, with one home.
struct Programs {
    codex: ServerProgram,
    ours: ServerProgram,
    home: TempDir,
}

impl Programs {
    /// `None` without npm; then the reason has been printed.
    fn find() -> Option<Self> {
        Self::find_at_home(&std::env::temp_dir())
    }

    /// The same with the home in this folder.
    fn find_at_home(folder: &Path) -> Option<Self> {
        let codex = codex::codex_binary()?;
        let home = tempfile::tempdir_in(folder).expect("a temporary folder");
        let codex = ServerProgram::new(Implementation::Codex, codex, home.path());
        let ours = ServerProgram::new(Implementation::Ours, binaries::exec_server(), home.path());
        Some(Self { codex, ours, home })
    }
}

/// Runs every case against both servers and reports all differences.
async fn compare(cases: Vec<Case>) {
    compare_at_home(&std::env::temp_dir(), cases).await;
}

async fn compare_at_home(folder: &Path, cases: Vec<Case>) {
    let Some(programs) = Programs::find_at_home(folder) else { return };
    let (codex, ours) = tokio::join!(programs.codex.listen(&[]), programs.ours.listen(&[]));
    let http = HttpFixture::start().await;
    // Runs only the cases whose name contains this.
    let only = std::env::var("COMPAT_CASE").ok();
    let chosen = cases.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())));
    let runs = chosen.flat_map(|case| case.transports.iter().map(move |transport| (case, *transport)));
    let results = stream::iter(runs).map(|(case, transport)| {
        let codex_target =
            CaseTarget { program: &programs.codex, server: &codex, transport, http_address: &http.address };
        let our_target = CaseTarget { program: &programs.ours, server: &ours, transport, http_address: &http.address };
        async move {
            let steps = || case.steps.iter().map(|(step, _)| step);
            let (codex, ours) =
                tokio::join!(case_run::run(&codex_target, steps()), case_run::run(&our_target, steps()));
            let first = difference(case, transport, &codex, &ours)?;
            for _ in 1..TRIES {
                let codex = case_run::run(&codex_target, steps()).await;
                difference(case, transport, &codex, &ours)?;
            }
            Some(first)
        }
    });
    // Most of a case is waiting, so a few at a time.
    let differences: Vec<String> = results.buffered(4).filter_map(async |difference| difference).collect().await;
    report(&differences);
}

fn report(differences: &[String]) {
    assert!(differences.is_empty(), "{} differences:\n\n{}", differences.len(), differences.join("\n"));
}

fn difference(case: &Case, transport: Transport, codex: &[Value], ours: &[Value]) -> Option<String> {
    let mut found = Vec::new();
    for (at, (step, difference)) in case.steps.iter().enumerate() {
        let (codex, ours) = (&codex[at], &ours[at]);
        match difference {
            None if codex == ours => {}
            None => found.push(format!("  {}\n    codex:  {codex}\n    ours:   {ours}", short(step))),
            Some(difference) if codex == ours => {
                found.push(format!(
                    "  {}\n    does not differ any more ({:?}): {ours}",
                    short(step),
                    difference.reason
                ));
            }
            Some(difference) if difference.ours != *ours => {
                let declared = &difference.ours;
                found.push(format!(
                    "  {}\n    declared: {declared}\n    ours:     {ours}\n    codex:    {codex}",
                    short(step)
                ));
            }
            Some(_) => {}
        }
    }
    (!found.is_empty()).then(|| format!("{} (over {transport:?})\n{}\n", case.name, found.join("\n")))
}

fn short(step: &CaseStep) -> String {
    let text = format!("{step:?}");
    if text.chars().count() > 200 { text.chars().take(200).chain("…".chars()).collect() } else { text }
}
