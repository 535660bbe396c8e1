//! `exec-server app-server`: compared with the released Codex app-server, and what it promises beyond that.
//!
//! Reading order: [`peer`] (either server over stdio), [`case`] (how a case is written, run and compared), then the cases
//! by section; each test starts both servers once and runs its section over one connection to each. Then [`behaviour`],
//! [`hostile`] and [`transports`], on ours alone, and [`listeners`].
//!
//! What differs on purpose is declared at its step, with a name under which docs/app-server.md explains it.

mod behaviour;
mod case;
mod environments;
mod exec_params;
mod exec_runs;
mod files;
mod handshake;
mod hostile;
mod listeners;
mod peer;
mod sandboxes;
mod spawns;
mod stdin;
mod transports;
mod watches;

use case::{Case, compare};

macro_rules! sections {
    ($($test:ident: $cases:expr;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                compare($cases).await;
            }
        )*

        fn all_cases() -> Vec<Case> {
            [$($cases),*].into_iter().flatten().collect()
        }
    };
}

sections! {
    envelopes_and_the_handshake_are_the_same: handshake::cases();
    commands_are_judged_alike: exec_params::cases();
    commands_run_alike: exec_runs::cases();
    stdin_and_terminals_are_served_alike: stdin::cases();
    sandboxes_mean_the_same: sandboxes::cases();
    processes_are_spawned_alike: spawns::cases();
    files_are_served_alike: files::cases();
    watches_tell_the_same: watches::cases();
    environments_are_known_alike: environments::cases();
}

#[test]
fn every_declared_difference_is_explained_in_the_documentation() {
    let document = include_str!("../../../../docs/app-server.md");
    let cases = all_cases();
    for name in cases.iter().flat_map(Case::differences) {
        assert!(document.contains(&format!("`{name}`")), "docs/app-server.md does not explain `{name}`");
    }
    let compared: usize = cases.iter().map(Case::compared_steps).sum();
    assert!(compared >= 500, "only {compared} answers are compared");
}
