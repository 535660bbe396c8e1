//! What is asked of the keeper is bounded before it is sent, and what is refused disturbs nobody.

use std::time::Duration;

use exec_core::command::BadCommand;
use exec_core::limits::ARGUMENT_BYTES;
use exec_core::{Command, EnvPolicy, Environ, ProcessId};
use exec_env::Environment;
use exec_env::process::ProcessReason;
use exec_local::{LocalEnvironment, LocalOptions};

#[tokio::test]
async fn a_variable_of_34_mebibytes_is_refused_and_nothing_else_notices() {
    let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be used");
    let processes = environment.processes();
    let (living, large) = (ProcessId::new("living").expect("short"), ProcessId::new("large").expect("short"));
    processes.start(&living, Command::new(["/bin/sleep", "600"], "/")).await.expect("it starts");
    let huge = || "x".repeat(34 << 20);
    let by_policy = EnvPolicy { set: [("PATH".into(), huge().into())].into(), ..EnvPolicy::everything() };
    let argument = Command::new(["/bin/true", &huge()], "/");
    let arg0 = Command { arg0: Some(huge().into()), ..Command::new(["/bin/true"], "/") };
    let label = Command { label: huge().into(), ..Command::new(["/bin/true"], "/") };
    let plain = || Command::new(["/bin/true"], "/");
    let variable = Command { environ: Environ::exactly([("V", huge())]), ..plain() };
    let policy = Command { environ: Environ { policy: Some(by_policy), vars: Default::default() }, ..plain() };
    for command in [argument, arg0, label, variable, policy] {
        let refused = processes.start(&large, command).await.expect_err("it is too large");
        let ProcessReason::BadCommand(BadCommand::TooLarge { found_bytes, limit_bytes }) = refused.reason else {
            panic!("{refused}")
        };
        assert!(found_bytes > 34 << 20 && limit_bytes == ARGUMENT_BYTES);
        assert!(refused.to_string().contains(&format!("more than {ARGUMENT_BYTES}")), "{refused}");
    }
    // What we allow and the kernel does not is refused by the kernel.
    let kernel = Command { environ: Environ::exactly([("PATH", "x".repeat(7 << 20))]), ..plain() };
    let refused = processes.start(&large, kernel).await.expect_err("the kernel takes less");
    assert!(refused.to_string().contains("too long for the kernel"), "{refused}");
    processes.start(&large, Command::new(["/bin/true"], "/")).await.expect("its id is free, and the keeper answers");
    let ended = processes.terminate(&living, Duration::ZERO).await.expect("it is ours");
    assert!(ended.was_running, "it lived on");
}
