//! Somebody looks over Codex's shoulder, and Codex notices nothing.

use exec_client::{Options, RemoteEnvironment, Role};
use exec_env::Environment;
use exec_testkit::process::LogReader;
use exec_testkit::semaphore::FifoSemaphore;
use exec_transport::ConnectOptions;
use exec_wire::session::ListParams;
use serde_json::json;

use super::agent::Agent;
use super::report::exited;

pub(super) async fn a_command_is_seen_by_an_observer_as_codex_sees_it(agent: &mut Agent) {
    let semaphore = FifoSemaphore::new(agent.path("semaphore"));
    let command = "echo early; head -c 1 semaphore >/dev/null; echo late; exit 4";
    let [report] = agent.exec([json!({"cmd": command, "yield_time_ms": 250})]).await;
    let codex = report.session();
    let operator = connect(agent, Options::default()).await;
    let listed = operator.link().call(ListParams {}).await.expect("we may see all").sessions;
    let own = operator.session_id();
    let other = listed.iter().find(|session| Some(&session.session_id) != own.as_ref()).expect("Codex has a session");
    let driver = other.driver.clone().expect("Codex is there");
    assert!(driver.client_name.contains("codex") && !driver.is_told, "{driver:?}");
    let resume_session = Some(other.session_id.clone());
    let observer = connect(agent, Options { resume_session, role: Some(Role::Observer), ..Options::default() }).await;
    let processes = observer.processes().list().await.expect("it may list");
    let process = processes.iter().find(|process| process.head.exit.is_none()).expect("the command runs");
    let reader = LogReader::open(observer.processes(), &process.id, 0).await;
    semaphore.release();
    let seen = reader.read_to_end().await;
    assert_eq!((seen.stdout().as_str(), seen.exit().shell_code()), ("early\nlate\n", 4));
    assert_eq!(agent.poll_to_the_end(codex, report.output).await, exited(4, "early\nlate\n"));
    observer.close().await;
    assert_eq!(agent.run("echo alone again").await, exited(0, "alone again\n"));
}

async fn connect(agent: &Agent, options: Options) -> RemoteEnvironment {
    let target = agent.server_url().parse().expect("a URL");
    exec_client::connect(target, ConnectOptions::default(), options).await.expect("the server answers")
}
