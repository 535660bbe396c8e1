//! The local environments that the conformance suite runs on.

use std::sync::Arc;

use exec_keeper::start_keeper::KeeperProgram;
use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions};
use exec_testkit::TestEnvironment;

pub(crate) const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// How the keeper process of a test is started.
pub(crate) fn keeper_program() -> KeeperProgram {
    KeeperProgram { program: env!("CARGO_BIN_EXE_test-keeper").into(), args: Vec::new() }
}

pub(crate) async fn local(options: LocalOptions) -> TestEnvironment {
    let environment = LocalEnvironment::open(options).await.expect("this machine can be set up");
    TestEnvironment::new(Arc::new(environment), ACTOR)
}

pub(crate) async fn keeper_as_thread() -> TestEnvironment {
    local(LocalOptions::default()).await
}

pub(crate) async fn without_cgroups() -> TestEnvironment {
    local(LocalOptions { cgroups: false, ..LocalOptions::default() }).await
}

pub(crate) async fn keeper_as_process() -> TestEnvironment {
    local(LocalOptions { keeper: KeeperChoice::Process(keeper_program()), ..LocalOptions::default() }).await
}

pub(crate) async fn keeper_that_outlives() -> TestEnvironment {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut options = LocalOptions::durable(keeper_program(), state.path());
    if let KeeperChoice::Durable { orphan_ttl, .. } = &mut options.keeper {
        // A test does not end its keeper, so the keeper must end by itself soon.
        *orphan_ttl = std::time::Duration::from_millis(500);
    }
    local(options).await.keep(state)
}
