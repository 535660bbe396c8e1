//! A scoped token can do what it says and nothing else: random scopes, and for each of them requests of every method of the
//! table, at a real server over a real socket.
//!
//! What becomes of a request is compared with a [`model`] that shares no code with the server. What is refused must have
//! changed no file, started no process, connected to nobody and added no environment; what is carried out must have changed
//! nothing but what it was about; and no message may tell of a file that the scope cannot read. Another subject has a process,
//! a file, a watch, a stream and a listener meanwhile: they are as if they were not there.
//!
//! `EXEC_SOAK_ROUNDS` makes more scopes, `EXEC_SOAK_SEED` others.

mod model;
mod requests;
mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use exec_client::Environments;
use exec_env::{Environment, EnvironmentRegistry};
use exec_local::{LocalEnvironment, LocalOptions};
use exec_router::{Router, RouterOptions};
use exec_rpc::{Server, ServerOptions};
use exec_testkit::test_data::SeededRng;
use exec_transport::token::{create_secret_file, new_key_pair};
use exec_transport::{
    Auth, AuthMode, AuthSettings, ConnectError, ConnectOptions, Connection, ListenOptions, ListenUrl, Listener,
    Message, Received, Target, connect,
};
use exec_wire::method::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::durability::support::number_from_env;
use crate::remote::{self, InProcessServer};
use model::{ENVIRONMENT, PathUse, Scope};
use requests::{ABSENT, Expectation, OTHERS_ID, RequestBuilder, TestRequest};
use tree::{SecretFile, Tree, is_fresh};

/// At least so many scopes, unless `EXEC_SOAK_ROUNDS` asks for more.
const SCOPES: u64 = 12;

/// Scopes that have shown something: names told by a search that followed a link, a root that is a link and could not be
/// walked, a root below another that is a link.
const REMARKABLE: [u64; 3] = [44, 46, 118];

/// Requests about files, and starts, of each method for each scope.
const PATHS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_scope_permits_what_it_says_and_nothing_else() {
    let scopes = number_from_env("EXEC_SOAK_ROUNDS").map_or(SCOPES, |rounds| rounds.max(SCOPES));
    let first = number_from_env("EXEC_SOAK_SEED").unwrap_or(1);
    let server = TestServer::new().await;
    let mut other_subject = OtherSubject::new(&server).await;
    let mut counts = Counts::default();
    for seed in (first..first + scopes).chain(REMARKABLE) {
        ScopeCheck::play(&server, &other_subject, seed, &mut counts).await;
        other_subject.has_everything(&server, seed).await;
    }
    println!("{counts:?}");
    let Counts { kept_out, done, refused } = counts;
    let scopes = usize::try_from(scopes).expect("few");
    assert!(first > 1 || kept_out > 0, "{counts:?}");
    assert!(done > scopes * 10 && refused > scopes * 10, "{counts:?}");
}

/// So that the test cannot pass by refusing everything, or by asking for nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    kept_out: usize,
    done: usize,
    refused: usize,
}

/// A server with this machine and a far one, which lets in who has a token.
struct TestServer {
    tree: Tree,
    secrets: Vec<SecretFile>,
    keys: tempfile::TempDir,
    target: Target,
    local: Arc<LocalEnvironment>,
    router: Arc<Router>,
    /// A port of somebody else, how many have connected to it, and how many of these were we.
    port: u16,
    connected: Arc<AtomicUsize>,
    probes: AtomicUsize,
    _far: (InProcessServer, tempfile::TempDir),
    _tasks: JoinSet<()>,
}

impl TestServer {
    async fn new() -> Self {
        let tree = Tree::new();
        let keys = tempfile::tempdir().expect("a folder can be made");
        let (private, public) = new_key_pair().expect("a key pair");
        create_secret_file(&keys.path().join("key"), &private).expect("the folder is ours");
        std::fs::write(keys.path().join("key.pub"), public).expect("the folder is ours");
        let auth = Auth::from_settings(&AuthSettings {
            mode: Some(AuthMode::ScopedToken),
            public_key_file: Some(keys.path().join("key.pub")),
            audience: Some(ENVIRONMENT.to_owned()),
            ..AuthSettings::default()
        });
        let options = ListenOptions { auth: auth.expect("the settings are good"), ..ListenOptions::default() };
        let url = "ws://127.0.0.1:0".parse().expect("a URL");
        let mut listener = Listener::bind(&url, options).await.expect("a free port");
        let target = listener.url().to_string().parse().expect("it is ours");

        let far_folder = tempfile::tempdir().expect("a folder can be made");
        let (far_url, far) = remote::listen(ListenUrl::Unix(far_folder.path().join("far"))).await;
        let text = format!("default = \"local\"\n[[environments]]\nid = \"far\"\nurl = \"{far_url}\"\n");
        let configured = Environments::parse(&text, "environments.toml".as_ref()).expect("it is well formed");
        let local = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let local = Arc::new(local);
        let options = RouterOptions { state_dir: None, patience: Duration::from_secs(10) };
        let router = Router::open(&configured, Some(local.clone()), options).expect("there is nothing to open");
        let options = ServerOptions { allow_environment_add: true, ..ServerOptions::default() };
        let server = Server::start_with(router.clone(), options).await.expect("a server can begin");

        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(connection) = listener.accept().await {
                let server = server.clone();
                connections.spawn(async move { server.serve(connection).await });
            }
        });
        let connected = Arc::new(AtomicUsize::new(0));
        let somebody = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = somebody.local_addr().expect("it is bound").port();
        let count = Arc::clone(&connected);
        tasks.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((mut stream, _)) = somebody.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                streams.spawn(async move {
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                });
            }
        });
        let secrets = tree.secrets();
        let (probes, far) = (AtomicUsize::new(0), (far, far_folder));
        Self { tree, secrets, keys, target, local, router, port, connected, probes, _far: far, _tasks: tasks }
    }

    async fn connect(&self, scope: &Scope) -> Result<Connection, ConnectError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let claims = scope.claims(i64::try_from(now).expect("before the end of time"));
        let bearer_token = Some(claims.sign(&self.keys.path().join("key")).expect("it can be signed"));
        connect(&self.target, &ConnectOptions { bearer_token, ..ConnectOptions::default() }).await
    }

    /// What a refused request must not add to, beside files.
    async fn effects(&self) -> Effects {
        let processes = self.local.processes().list().await.expect("the keeper answers");
        let processes = processes.into_iter().map(|process| process.id.to_string()).collect();
        // Connections are accepted in their order: when ours was, all that came before it were counted.
        let mut probe = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        probe.read_u8().await.expect("it answers");
        let probes = self.probes.fetch_add(1, Ordering::SeqCst) + 1;
        let connections = self.connected.load(Ordering::SeqCst) - probes;
        Effects { processes, environments: self.router.list().len(), connections }
    }
}

struct Effects {
    processes: BTreeSet<String>,
    environments: usize,
    connections: usize,
}

impl Effects {
    /// Whether nothing has come since. Processes of sessions that have ended may go meanwhile.
    fn are_all_of(&self, before: &Self) -> bool {
        self.processes.is_subset(&before.processes)
            && (self.environments, self.connections) == (before.environments, before.connections)
    }
}

struct Client {
    connection: Connection,
    /// All that the server has said since this was last looked at.
    heard: Vec<String>,
}

impl Client {
    fn new(connection: Connection) -> Self {
        Self { connection, heard: Vec::new() }
    }

    async fn begin(connection: Connection) -> (Self, String) {
        let mut client = Self::new(connection);
        let opened = client.call("initialize", &json!({"clientName": "test"})).await;
        let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
        client.send(&json!({"method": "initialized"})).await;
        (client, session)
    }

    async fn send(&mut self, message: &Value) {
        let message = Message::Text(Bytes::from(message.to_string()));
        self.connection.sender.feed(message).await.expect("the server reads");
        self.connection.sender.flush().await.expect("the server reads");
    }

    /// The next message, which must come.
    async fn hear(&mut self, what: &str) -> Value {
        let next = tokio::time::timeout(Duration::from_secs(20), self.connection.receiver.next()).await;
        let Ok(Received::Message(message)) = next else { panic!("nothing is heard of {what}") };
        let text = String::from_utf8(message.bytes().to_vec()).expect("text");
        let message = serde_json::from_str(&text).expect("JSON");
        self.heard.push(text);
        message
    }

    async fn call(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({"id": 1, "method": method, "params": params})).await;
        loop {
            let message = self.hear(&format!("{method} {params}")).await;
            if message.get("id").is_some() {
                return message;
            }
        }
    }
}

/// The other subject, and what it has.
struct OtherSubject {
    client: Client,
    session: String,
}

impl OtherSubject {
    async fn new(server: &TestServer) -> Self {
        let scope = Scope {
            methods: vec!["*".to_owned()],
            roots: None,
            weakest: None,
            environments: Some(vec![ENVIRONMENT]),
            is_expired: false,
            subject: Some("alice"),
        };
        let (client, session) = Client::begin(server.connect(&scope).await.expect("the token is good")).await;
        let mut other_subject = Self { client, session };
        let tcp = |port: u16| json!({"kind": "tcp", "host": "127.0.0.1", "port": port});
        let file = format!("file://{}", server.tree.root.join("outside/file").display());
        for (method, params) in [
            (
                "process/start",
                json!({"processId": OTHERS_ID, "argv": ["/bin/cat"], "cwd": "file:///", "env": {}, "tty": true}),
            ),
            ("fs/open", json!({"handleId": OTHERS_ID, "path": file})),
            ("net/open", json!({"streamId": OTHERS_ID, "to": tcp(server.port)})),
            ("net/listen", json!({"listenerId": OTHERS_ID, "at": tcp(0)})),
            ("fs/watch", json!({"watchId": OTHERS_ID, "path": format!("file://{}", server.keys.path().display())})),
        ] {
            other_subject.done(method, &params, 0).await;
        }
        other_subject
    }

    async fn done(&mut self, method: &str, params: &Value, seed: u64) -> Value {
        let answer = self.client.call(method, params).await;
        assert!(answer.get("result").is_some(), "{method} of the other subject, EXEC_SOAK_SEED={seed}: {answer}");
        answer
    }

    /// Nothing of it was taken, ended or written to.
    async fn has_everything(&mut self, server: &TestServer, seed: u64) {
        let read = self.done("process/read", &json!({"processId": OTHERS_ID}), seed).await;
        assert_eq!(read["result"]["exited"], false, "EXEC_SOAK_SEED={seed}: {read}");
        assert_eq!(read["result"]["chunks"], json!([]), "EXEC_SOAK_SEED={seed}: {read}");
        let block = json!({"handleId": OTHERS_ID, "offset": 0, "len": 10});
        assert_eq!(self.done("fs/readBlock", &block, seed).await["result"]["chunk"], "cGxhaW4=");
        let written = json!({"streamId": OTHERS_ID, "offset": 0, "chunk": ""});
        self.done("net/write", &written, seed).await;
        let processes = self.done("process/list", &json!({}), seed).await;
        assert_eq!(processes["result"]["processes"].as_array().map(Vec::len), Some(1), "{processes}");
        // The id of a listener that is there means that listener.
        let at = json!({"kind": "tcp", "host": "127.0.0.1", "port": 0});
        self.done("net/listen", &json!({"listenerId": OTHERS_ID, "at": at}), seed).await;
        if !seed.is_multiple_of(8) {
            return;
        }
        // A watch that was ended would say nothing.
        std::fs::write(server.keys.path().join("seen"), seed.to_string()).expect("the folder is ours");
        while !self.client.heard.iter().any(|heard| heard.contains("fs/changed") && heard.contains("seen")) {
            self.client.hear(&format!("the watch of the other subject, EXEC_SOAK_SEED={seed}")).await;
        }
        self.client.heard.clear();
    }
}

/// One scope, and all that is asked with it.
struct ScopeCheck<'a> {
    server: &'a TestServer,
    other_subject: &'a OtherSubject,
    scope: Scope,
    seed: u64,
    client: Client,
    random: SeededRng,
}

impl<'a> ScopeCheck<'a> {
    async fn play(server: &'a TestServer, other_subject: &'a OtherSubject, seed: u64, counts: &mut Counts) {
        let mut random = SeededRng::new(seed);
        let scope = Scope::random(&server.tree, &mut random);
        let connected = server.connect(&scope).await;
        if !scope.is_let_in() {
            let is_refused = matches!(connected, Err(ConnectError::Refused { status: 401, .. }));
            assert!(is_refused, "EXEC_SOAK_SEED={seed} {scope:?}");
            counts.kept_out += 1;
            return;
        }
        let connection = connected.unwrap_or_else(|error| panic!("EXEC_SOAK_SEED={seed} {scope:?}: {error}"));
        for role in ["driver", "observer"] {
            let mut stranger = Client::new(server.connect(&scope).await.expect("the token is good"));
            let resume = json!({"clientName": "x", "resumeSessionId": other_subject.session, "role": role});
            let answer = stranger.call("initialize", &resume).await;
            assert_eq!(answer["error"]["data"]["kind"], "unknownSession", "EXEC_SOAK_SEED={seed}: {answer}");
        }
        let (client, _) = Client::begin(connection).await;
        let mut check = Self { server, other_subject, scope, seed, client, random };
        let own = check.builder("start", 0).own_process(&check.scope);
        check.judge(&own, false, "start", counts).await;
        for (at, method) in Method::ALL.iter().enumerate() {
            let names_paths = method.name().starts_with("fs/") || *method == Method::ProcessStart;
            for again in 0..if names_paths && check.scope.permits_method(*method) { PATHS } else { 1 } {
                let fresh = format!("new-{seed}-{at}-{again}-");
                let mut random = SeededRng::new(check.random.below(usize::MAX) as u64);
                let requests = check.builder(&fresh, at * PATHS + again).requests(*method, &mut random);
                let mut done = false;
                for request in &requests {
                    done = check.judge(request, done, &fresh, counts).await;
                }
                server.tree.remove_fresh(&fresh);
            }
        }
    }

    fn builder<'b>(&'b self, fresh: &'b str, number: usize) -> RequestBuilder<'b> {
        let others_session = &self.other_subject.session;
        let near = self.server.tree.places().into_iter().filter(|place| self.scope.reads(place)).collect();
        RequestBuilder { tree: &self.server.tree, port: self.server.port, fresh, others_session, near, number }
    }

    /// Makes a request and compares what becomes of it with the model. Returns whether it was carried out.
    async fn judge(&mut self, request: &TestRequest, before_was_done: bool, fresh: &str, counts: &mut Counts) -> bool {
        let TestRequest { method, params, expect } = request;
        let expected = self.expected(*method, expect, before_was_done);
        let files = self.server.tree.snapshot();
        let has_effects = !method.name().starts_with("fs/");
        let effects = if has_effects { Some(self.server.effects().await) } else { None };
        let answer = self.client.call(method.name(), params).await;
        let at = format!("EXEC_SOAK_SEED={}\n{} {params}\n{:?}\nanswer {answer}", self.seed, method.name(), self.scope);
        let is_done = answer.get("result").is_some();
        let rule = answer["error"]["data"]["rule"].as_str();
        match &expected {
            Outcome::Done => assert!(is_done, "it is permitted\n{at}"),
            Outcome::Refused(expected) => {
                assert_eq!(rule, Some(*expected), "{at}");
                let error = &answer["error"];
                assert_eq!((&error["data"]["kind"], &error["code"]), (&json!("forbidden"), &json!(-32600)), "{at}");
                assert!(error["data"]["detail"].as_str().is_some_and(|instead| !instead.is_empty()), "{at}");
            }
            Outcome::DoneOrRefused(expected) => assert!(is_done || rule == Some(*expected), "{at}"),
            Outcome::Fails => assert!(!is_done, "{at}"),
            Outcome::NotForbidden => assert_eq!(rule, None, "{at}"),
            Outcome::Anything => {}
        }
        match expect {
            Expectation::Told(path_use, is_told) if expected == Outcome::Done => {
                let (is_told, is_permitted) = (is_told(&answer["result"]), self.scope.permits(path_use));
                // Where links lead, nobody needs to watch.
                let may_differ = if is_told { self.scope.may_show_the_way(path_use) } else { !path_use.is_plain() };
                assert!(is_told == is_permitted || may_differ, "{at}");
            }
            Expectation::AsUnknown if self.scope.permits_method(*method) => {
                let text =
                    |value: &Value| value.to_string().replace(&self.other_subject.session, "?").replace(OTHERS_ID, "?");
                let absent: Value = serde_json::from_str(
                    &params.to_string().replace(OTHERS_ID, ABSENT).replace(&self.other_subject.session, ABSENT),
                )
                .expect("JSON");
                let answer_if_absent = self.client.call(method.name(), &absent).await;
                assert_eq!(text(&answer), text(&answer_if_absent).replace(ABSENT, "?"), "{at}");
            }
            Expectation::Unserved => assert_eq!(answer["error"]["code"], -32601, "{at}"),
            _ => {}
        }
        if *method == Method::SessionList {
            assert!(!answer.to_string().contains(&self.other_subject.session), "{at}");
        }
        let mut now = self.server.tree.snapshot();
        let mut then = files;
        if is_done {
            counts.done += 1;
            then.retain(|path, _| !is_fresh(path, fresh));
            now.retain(|path, _| !is_fresh(path, fresh));
        } else {
            counts.refused += usize::from(rule.is_some());
            if let (Some(_), Some(effects)) = (rule, effects) {
                assert!(self.server.effects().await.are_all_of(&effects), "it had an effect\n{at}");
            }
        }
        assert!(then == now, "files have changed: {:?}\n{at}", changed(&then, &now));
        self.nothing_hidden_was_told(&at);
        is_done
    }

    fn expected(&self, method: Method, expect: &Expectation, before_was_done: bool) -> Outcome {
        if matches!(expect, Expectation::Unserved) {
            return Outcome::Fails;
        }
        if !self.scope.permits_method(method) {
            return Outcome::Refused("token/methods");
        }
        let is_files_or_start = matches!(expect, Expectation::Files(_) | Expectation::Start(_));
        match self.expected_of_roots(expect, before_was_done) {
            Outcome::Done if is_files_or_start && self.scope.has_a_root_that_is_none() => {
                Outcome::DoneOrRefused(self.scope.file_rule())
            }
            Outcome::NotForbidden if is_files_or_start && self.scope.has_a_root_that_is_none() => Outcome::Anything,
            expected => expected,
        }
    }

    fn expected_of_roots(&self, expect: &Expectation, before_was_done: bool) -> Outcome {
        match expect {
            Expectation::Files(uses) if uses.iter().all(|path_use| self.scope.permits(path_use)) => Outcome::Done,
            Expectation::Files(uses) if uses.iter().all(|path_use| self.permits_or_shows(path_use)) => {
                Outcome::DoneOrRefused(self.scope.file_rule())
            }
            Expectation::Files(_) => Outcome::Refused(self.scope.file_rule()),
            Expectation::Start(asked) => match asked.refused_by(&self.scope) {
                Some(rule) => Outcome::Refused(rule),
                None if asked.runs() => Outcome::Done,
                None => Outcome::NotForbidden,
            },
            Expectation::Refused(rule) => Outcome::Refused(rule),
            Expectation::Told(..) | Expectation::Done => Outcome::Done,
            Expectation::AsBefore if before_was_done => Outcome::Done,
            Expectation::AsBefore => Outcome::Fails,
            Expectation::NotForbidden | Expectation::AsUnknown => Outcome::NotForbidden,
            Expectation::Unserved => Outcome::Fails,
        }
    }

    fn permits_or_shows(&self, path_use: &PathUse) -> bool {
        self.scope.permits(path_use) || self.scope.may_show_the_way(path_use)
    }

    fn nothing_hidden_was_told(&mut self, at: &str) {
        for secret in self.server.secrets.iter().filter(|secret| !self.scope.reads(&secret.path)) {
            for heard in &self.client.heard {
                let told = secret.signs.iter().find(|sign| heard.contains(*sign));
                assert!(told.is_none(), "it was told of {}: {heard}\n{at}", secret.path.display());
            }
        }
        self.client.heard.clear();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused(&'static str),
    Fails,
    DoneOrRefused(&'static str),
    NotForbidden,
    Anything,
}

fn changed(then: &tree::Snapshot, now: &tree::Snapshot) -> Vec<PathBuf> {
    let paths = then.keys().chain(now.keys());
    paths.filter(|path| then.get(*path) != now.get(*path)).cloned().collect()
}
