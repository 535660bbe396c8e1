//! Codex and all it needs, in a directory of their own: the fake model, the server, and the proxy before the server.
//!
//! Everything is on the loopback. Codex's proxy variables name the fake model, so a connection to anybody else would
//! end there, and [`Agent::finish`] checks that there was none.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use exec_testkit::binaries;
use exec_testkit::fake_model::{FakeModelServer, ModelRequest, OutputItem};
use exec_testkit::proxy::CuttingProxy;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::report::Report;
use crate::compat::server_program::{Implementation, ListeningServer, ServerProgram};

/// A model whose tools the client knows: with an unknown one it would offer no `apply_patch`.
const MODEL: &str = "gpt-5.5";
/// Where the client looks for the key of a provider that wants none.
pub(crate) const KEY_VARIABLE: &str = "SCRIPTED_MODEL_KEY";
/// Longer than a tool waits by itself: a call returns when its command ends.
const PATIENT_MS: u64 = 30_000;

/// A running Codex. Its request to the model waits for our response.
pub(crate) struct Agent {
    pub(crate) proxy: CuttingProxy,
    model: FakeModelServer,
    request: Option<ModelRequest>,
    calls: u32,
    codex: Child,
    server: ListeningServer,
    scratch: TempDir,
}

/// As whom and how confined the commands run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// The value of Codex's option `--sandbox`.
    pub(crate) sandbox: &'static str,
    /// The server runs as a user without any rights. Only for ours.
    pub(crate) unprivileged: bool,
    /// The server runs on a host like a container of Docker: no namespaces, no mounts. Only for ours.
    pub(crate) in_container: bool,
}

/// The user and group `nobody` of Debian.
const NOBODY: u32 = 65534;

impl Agent {
    /// Starts a server, and Codex, and waits for Codex's first request to the model.
    pub(crate) async fn start(implementation: Implementation, codex: &Path, setting: Setting) -> Self {
        // Not in /tmp, which every command in a sandboxed workspace may write.
        let scratch = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        for folder in ["work", "home", "server"] {
            std::fs::create_dir(scratch.path().join(folder)).expect("the scratch folder is ours");
        }
        let binary = match implementation {
            Implementation::Ours if setting.unprivileged => as_nobody(scratch.path(), &binaries::exec_server()),
            Implementation::Ours => binaries::exec_server(),
            Implementation::Codex => codex.to_owned(),
        };
        let binary = if setting.in_container { in_container(scratch.path(), &binary) } else { binary };
        // So that a test can see the session of Codex.
        let flags: &[&str] = if implementation == Implementation::Ours { &["--operators-everywhere"] } else { &[] };
        let listening = ServerProgram::new(implementation, binary, &scratch.path().join("server")).listen(flags).await;
        let server: SocketAddr = listening.address.parse().expect("the server prints its address");
        let proxy = CuttingProxy::start(server).await;
        let model = FakeModelServer::start().await;
        let child = client(codex, scratch.path(), &model, &proxy, setting.sandbox);
        let mut agent = Self { proxy, model, request: None, calls: 0, codex: child, server: listening, scratch };
        agent.next_request().await;
        agent
    }

    /// The URL of the server, without the proxy.
    pub(crate) fn server_url(&self) -> String {
        format!("ws://{}", self.server.address)
    }

    /// A path in the working directory of the commands.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("work").join(name)
    }

    /// Runs a command over pipes and waits for its end.
    pub(crate) async fn run(&mut self, command: &str) -> Report {
        let [report] = self.exec([json!({"cmd": command})]).await;
        report
    }

    /// Runs several commands at once.
    pub(crate) async fn exec<const N: usize>(&mut self, commands: [Value; N]) -> [Report; N] {
        let ids = self.begin(commands);
        self.next_request().await;
        ids.map(|id| self.report(&id))
    }

    /// Starts a command without waiting for its end; [`Agent::report_of`] waits.
    pub(crate) fn begin_command(&mut self, command: &str) -> String {
        let [id] = self.begin([json!({"cmd": command})]);
        id
    }

    pub(crate) async fn report_of(&mut self, id: &str) -> Report {
        self.next_request().await;
        self.report(id)
    }

    /// Writes to a session, or, with no characters, waits for more of it.
    pub(crate) async fn write(&mut self, session: u64, characters: &str, yield_time_ms: u64) -> Report {
        let arguments = json!({"session_id": session, "chars": characters, "yield_time_ms": yield_time_ms});
        let output = self.call("write_stdin", arguments).await;
        Report::of(&output)
    }

    /// Calls a tool and waits for its output.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.next_id();
        self.respond(&[OutputItem::FunctionCall { id: id.clone(), tool: tool.to_owned(), arguments }]);
        self.next_request().await;
        self.output(&id)
    }

    /// Applies a patch and returns what Codex says of it.
    pub(crate) async fn patch(&mut self, patch: &str) -> String {
        let id = self.next_id();
        self.respond(&[OutputItem::CustomToolCall {
            id: id.clone(),
            tool: "apply_patch".to_owned(),
            input: patch.to_owned(),
        }]);
        self.next_request().await;
        self.output(&id).as_str().expect("apply_patch answers with a text").to_owned()
    }

    /// The model ends the work; Codex must end successfully, and have contacted nobody else.
    pub(crate) async fn finish(mut self) {
        self.respond(&[OutputItem::Message("done".to_owned())]);
        let status = self.codex.wait().await.expect("it is our child");
        assert!(status.success(), "codex ended with {status}");
        assert!(self.log("stdout").contains(r#""turn.completed""#), "codex has completed its turn");
        assert_eq!(self.model.unexpected_requests(), Vec::<String>::new(), "codex contacted nobody but the model");
    }

    fn begin<const N: usize>(&mut self, commands: [Value; N]) -> [String; N] {
        let ids = commands.each_ref().map(|_| self.next_id());
        let items: Vec<OutputItem> = std::iter::zip(&ids, commands)
            .map(|(id, mut arguments)| {
                let timeout = arguments.as_object_mut().expect("arguments have names").entry("yield_time_ms");
                timeout.or_insert(PATIENT_MS.into());
                OutputItem::FunctionCall { id: id.clone(), tool: "exec_command".to_owned(), arguments }
            })
            .collect();
        self.respond(&items);
        ids
    }

    fn next_id(&mut self) -> String {
        self.calls += 1;
        format!("call-{}", self.calls)
    }

    fn respond(&mut self, items: &[OutputItem]) {
        self.request.take().expect("codex waits for the model").respond(items);
    }

    async fn next_request(&mut self) {
        tokio::select! {
            request = self.model.next_request() => self.request = Some(request),
            ended = self.codex.wait() => panic!("codex has ended before its work: {ended:?}"),
        }
    }

    fn report(&self, id: &str) -> Report {
        Report::of(&self.output(id))
    }

    fn output(&self, id: &str) -> Value {
        let request = self.request.as_ref().expect("codex waits for the model");
        request.tool_output(id).unwrap_or_else(|| panic!("nothing came of {id}; tools: {:?}", request.tools())).clone()
    }

    fn log(&self, name: &str) -> String {
        let bytes = std::fs::read(self.scratch.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The directory is removed with this, so a failure must show here what Codex printed.
        if std::thread::panicking() {
            eprintln!("codex printed:\n{}\n{}", self.log("stdout"), self.log("stderr"));
        }
    }
}

/// A program that runs a copy of `program` as nobody, to whom the folders of server and commands belong from now on.
fn as_nobody(scratch: &Path, program: &Path) -> PathBuf {
    let (copy, wrapper) = (scratch.join("exec-server"), scratch.join("as-nobody"));
    std::fs::copy(program, &copy).expect("the scratch folder is ours");
    for folder in ["work", "server"] {
        let folder = scratch.join(folder);
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("these tests run as root");
    }
    std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o755)).expect("the scratch folder is ours");
    let drop = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {drop} {} \"$@\"\n", copy.display())).expect("it is ours");
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    wrapper
}

/// A program that runs `program` without what a container of Docker does not have.
fn in_container(scratch: &Path, program: &Path) -> PathBuf {
    let wrapper = scratch.join("in-container");
    let under = format!("{} under docker-like --", env!("CARGO_BIN_EXE_prober"));
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {under} {} \"$@\"\n", program.display())).expect("it is ours");
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    wrapper
}

fn client(codex: &Path, scratch: &Path, model: &FakeModelServer, proxy: &CuttingProxy, sandbox: &str) -> Child {
    let home = scratch.join("home");
    let model_url = format!("http://{}", model.address());
    std::fs::write(home.join("config.toml"), config(&model_url)).expect("the scratch folder is ours");
    let log = |name| std::fs::File::create(scratch.join(name)).expect("the scratch folder is ours");
    let mut command = Command::new(codex);
    command.args(["exec", "--json", "--skip-git-repo-check", "--sandbox", sandbox, "--cd"]);
    command.arg(scratch.join("work")).arg("do as the model says").current_dir(scratch).env_clear();
    command.envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("RUST_LOG", "warn"), (KEY_VARIABLE, "none")]);
    command.env("HOME", &home).env("CODEX_HOME", &home);
    command.env("CODEX_EXEC_SERVER_URL", format!("ws://{}", proxy.address()));
    command.envs([("http_proxy", model_url.as_str()), ("https_proxy", model_url.as_str()), ("no_proxy", "127.0.0.1")]);
    command.stdin(Stdio::null()).stdout(log("stdout")).stderr(log("stderr")).kill_on_drop(true);
    command.spawn().expect("codex starts")
}

/// The fake model as the only provider, and nothing that would contact anybody else: no telemetry, plugins, search.
pub(crate) fn config(model_url: &str) -> String {
    format!(
        r#"
model = "{MODEL}"
model_provider = "scripted"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.scripted]
name = "scripted"
base_url = "{model_url}/v1"
wire_api = "responses"
env_key = "{KEY_VARIABLE}"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[otel]
exporter = "none"

[features]
apps = false
daemon_auto_start = false
goals = false
image_generation = false
multi_agent = false
plugin_discovery_prefetch = false
plugin_sharing = false
plugins = false
remote_plugin = false
skill_search = false
tool_suggest = false
"#
    )
}
