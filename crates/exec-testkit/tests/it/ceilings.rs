//! What the ceiling of a server and the scope of a token permit, and that they permit nothing else: over real sockets, with
//! real files and processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use exec_local::{LocalEnvironment, LocalOptions};
use exec_rpc::{Ceiling, Server, ServerOptions};
use exec_transport::token::{
    Audience, Root, TokenClaims, TokenScope, WeakestSandbox, create_secret_file, new_key_pair,
};
use exec_transport::{
    Auth, AuthMode, AuthSettings, ConnectError, ConnectOptions, Connection, Grant, Identity, ListenOptions, Listener,
    Message, Received, connect, memory_pair,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A server of this machine under a ceiling.
struct BoundServer {
    server: Arc<Server>,
    tasks: JoinSet<()>,
}

impl BoundServer {
    async fn start(ceiling: &str) -> Self {
        let ceiling = Arc::new(Ceiling::parse(ceiling, Path::new("ceiling.toml")).expect("the test's ceiling is good"));
        let environment = LocalEnvironment::open(LocalOptions::default()).await.expect("this machine can be set up");
        let options = ServerOptions { ceiling, ..ServerOptions::default() };
        let server = Server::start(Arc::new(environment), options).await.expect("a server can begin");
        Self { server, tasks: JoinSet::new() }
    }

    /// A client with a session, whose token says this.
    async fn client(&mut self, grant: Grant, resume: Option<&str>) -> Client {
        let (client, server_end) = memory_pair(64);
        let identity = Identity { grant, ..Identity::default() };
        let (server, connection) = (self.server.clone(), Connection { identity, ..server_end });
        self.tasks.spawn(async move { server.serve(connection).await });
        Client::begin(client, resume).await
    }
}

struct Client {
    connection: Connection,
    session: String,
}

impl Client {
    async fn begin(connection: Connection, resume: Option<&str>) -> Self {
        let mut client = Self { connection, session: String::new() };
        let opened = client.call("initialize", json!({"clientName": "test", "resumeSessionId": resume})).await;
        client.session = opened["result"]["sessionId"].as_str().expect("a session").to_owned();
        client.send(json!({"method": "initialized"})).await;
        client
    }

    async fn send(&mut self, message: Value) {
        let message = Message::Text(Bytes::from(message.to_string()));
        self.connection.sender.feed(message).await.expect("the server reads");
        self.connection.sender.flush().await.expect("the server reads");
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({"id": 1, "method": method, "params": params})).await;
        loop {
            let Received::Message(message) = self.connection.receiver.next().await else {
                panic!("the connection is over")
            };
            let message: Value = serde_json::from_slice(message.bytes()).expect("JSON");
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    /// The rule that refuses a call; `None` if it is carried out.
    async fn refused_by(&mut self, method: &str, params: Value) -> Option<String> {
        let answer = self.call(method, params.clone()).await;
        if answer.get("result").is_some() {
            return None;
        }
        let error = &answer["error"];
        assert_eq!(error["data"]["kind"], "forbidden", "{method} {params}: {answer}");
        assert!(error["data"]["detail"].as_str().is_some_and(|instead| !instead.is_empty()), "{answer}");
        Some(error["data"]["rule"].as_str().expect("it names its rule").to_owned())
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folder {
    A,
    B,
    Outside,
}

/// A folder with the folders `a`, `b` and `outside`, each with a file, a folder and links into the others.
struct Tree {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let root = folder.path().canonicalize().expect("it is there");
        for name in ["a", "b", "outside"] {
            let folder = root.join(name);
            std::fs::create_dir_all(folder.join("folder")).expect("the folder is ours");
            std::fs::write(folder.join("file"), name).expect("the folder is ours");
            for target in ["a", "b", "outside"] {
                let link = folder.join(format!("to-{target}"));
                std::os::unix::fs::symlink(root.join(target), link).expect("the folder is ours");
            }
        }
        Self { _folder: folder, root }
    }

    fn folder_of(&self, folder: Folder) -> PathBuf {
        self.root.join(match folder {
            Folder::A => "a",
            Folder::B => "b",
            Folder::Outside => "outside",
        })
    }

    /// Removes what was made with names that begin so.
    fn tidy(&self, folder: Folder, fresh: &str) {
        let entries = std::fs::read_dir(self.folder_of(folder)).expect("it is ours").flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(fresh)) {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
            removed.expect("it is ours");
        }
    }

    /// Ways to write the three folders, with what they lead through: a link must be within the roots to be followed.
    fn ways(&self) -> Vec<(PathBuf, Folder, Folder)> {
        let mut ways = Vec::new();
        for folder in [Folder::A, Folder::B, Folder::Outside] {
            let path = self.folder_of(folder);
            ways.push((path.clone(), folder, folder));
            ways.push((path.join("folder/.."), folder, folder));
            let name = path.file_name().expect("it has a name").to_owned();
            for through in [Folder::A, Folder::Outside] {
                let link = self.folder_of(through).join(format!("to-{}", name.display()));
                ways.push((link, folder, through));
            }
        }
        ways
    }
}

/// What a call does with a folder that it is about: its method, its params, and whether it writes.
fn calls(at: &Path, fresh: &str) -> Vec<(&'static str, Value, bool)> {
    let (file, new) = (uri(&at.join("file")), uri(&at.join(fresh)));
    let folder = uri(at);
    let walk = json!({"maxDepth": 1, "maxDirectories": 10, "maxEntries": 100,
        "followDirectorySymlinks": false, "pruneHiddenDirectories": false});
    vec![
        ("fs/readFile", json!({"path": file}), false),
        ("fs/getMetadata", json!({"path": file}), false),
        ("fs/canonicalize", json!({"path": file}), false),
        ("fs/hash", json!({"path": file, "algorithm": "blake3"}), false),
        ("fs/readDirectory", json!({"path": folder}), false),
        ("fs/walk", json!({"path": folder, "options": walk}), false),
        ("fs/glob", json!({"path": folder, "patterns": ["*"]}), false),
        ("fs/open", json!({"handleId": format!("r{fresh}"), "path": file}), false),
        ("fs/writeFile", json!({"path": new, "dataBase64": "eA=="}), true),
        ("fs/applyChanges", json!({"changes": [{"kind": "write", "path": new, "dataBase64": "eQ=="}]}), true),
        ("fs/setPermissions", json!({"path": new, "mode": 0o600}), true),
        ("fs/setAttributes", json!({"path": new, "attributes": [{"name": "n", "dataBase64": "eA=="}]}), true),
        ("fs/copy", json!({"sourcePath": new, "destinationPath": format!("{new}.copy"), "recursive": false}), true),
        ("fs/rename", json!({"sourcePath": format!("{new}.copy"), "destinationPath": format!("{new}.moved")}), true),
        ("fs/createSymlink", json!({"path": format!("{new}.link"), "target": "file"}), true),
        ("fs/createDirectory", json!({"path": format!("{new}.folder")}), true),
        ("fs/open", json!({"handleId": format!("w{fresh}"), "path": format!("{new}.moved"), "mode": "append"}), true),
        ("fs/remove", json!({"path": new}), true),
    ]
}

/// The audience of the server in the test.
const ENVIRONMENT: &str = "build";

#[derive(Debug, Clone)]
struct Token {
    methods: Vec<&'static str>,
    roots: Option<Vec<Folder>>,
    read_only: bool,
    environments: Vec<&'static str>,
}

impl Token {
    fn all() -> Vec<Self> {
        let mut tokens = Vec::new();
        for methods in [vec!["*"], vec!["fs/*"], vec!["fs/read*", "fs/getMetadata", "fs/w*"], vec!["process/*"]] {
            for roots in [None, Some(vec![Folder::A]), Some(vec![Folder::B]), Some(vec![Folder::A, Folder::B])] {
                for read_only in [false, true] {
                    // In turn, so that each kind of environments meets each kind of the rest.
                    let environments =
                        [vec![ENVIRONMENT], vec!["prod"], vec!["prod", ENVIRONMENT]][tokens.len() % 3].clone();
                    tokens.push(Self { methods: methods.clone(), roots: roots.clone(), read_only, environments });
                }
            }
        }
        tokens
    }

    fn permits_method(&self, method: &str) -> bool {
        self.methods.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => method.starts_with(beginning),
            None => *pattern == method,
        })
    }

    fn permits_folder(&self, folder: Folder) -> bool {
        self.roots.as_ref().is_none_or(|roots| roots.contains(&folder))
    }

    fn sign(&self, tree: &Tree, key: &Path) -> String {
        let root = |folder: &Folder| Root::Path(tree.folder_of(*folder));
        let scope = TokenScope {
            methods: self.methods.iter().map(|pattern| pattern.parse().expect("a pattern")).collect(),
            roots: self.roots.as_ref().map(|roots| roots.iter().map(root).collect()),
            weakest_sandbox: self.read_only.then_some(WeakestSandbox::ReadOnly),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let environments = self.environments.iter().map(|name| (*name).to_owned()).collect();
        let claims = TokenClaims {
            exp: i64::try_from(now).expect("before the end of time") + 3600,
            sub: Some("alice".to_owned()),
            aud: Some(Audience::Many(environments)),
            scope: Some(scope),
            ..TokenClaims::default()
        };
        claims.sign(key).expect("it can be signed")
    }
}

/// Every method of files with every way to write a path, for tokens of every kind, at a server of one environment: what
/// is refused, and by which rule, is compared with a model that knows where the paths lead and no rules.
#[tokio::test]
async fn a_scoped_token_can_do_what_it_says_and_nothing_else() {
    let tree = Tree::new();
    let keys = tempfile::tempdir().expect("a folder can be made");
    let (private, public) = new_key_pair().expect("a key pair");
    let (key, public_key) = (keys.path().join("key"), keys.path().join("key.pub"));
    create_secret_file(&key, &private).expect("the folder is ours");
    std::fs::write(&public_key, public).expect("the folder is ours");
    let auth = Auth::from_settings(&AuthSettings {
        mode: Some(AuthMode::ScopedToken),
        public_key_file: Some(public_key),
        audience: Some(ENVIRONMENT.to_owned()),
        ..AuthSettings::default()
    });
    let options = ListenOptions { auth: auth.expect("the settings are good"), ..ListenOptions::default() };
    let mut listener = Listener::bind(&"ws://127.0.0.1:0".parse().expect("a URL"), options).await.expect("a free port");
    let target = listener.url().to_string().parse().expect("it is ours");
    let mut bound = BoundServer::start("").await;
    let server = bound.server.clone();
    bound.tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok(connection) = listener.accept().await {
            let server = server.clone();
            connections.spawn(async move { server.serve(connection).await });
        }
    });
    let mut judged = 0;
    for (at, token) in Token::all().iter().enumerate() {
        let bearer_token = Some(token.sign(&tree, &key));
        let connected = connect(&target, &ConnectOptions { bearer_token, ..ConnectOptions::default() }).await;
        if !token.environments.contains(&ENVIRONMENT) {
            assert!(matches!(connected, Err(ConnectError::Refused { status: 401, .. })), "{token:?}");
            continue;
        }
        let mut client = Client::begin(connected.expect("the token is good"), None).await;
        for (way_at, (way, folder, through)) in tree.ways().into_iter().enumerate() {
            let within = token.permits_folder(folder) && token.permits_folder(through);
            let fresh = format!("new-{at}-{way_at}");
            // What the calls need is there, whether or not those before them are permitted.
            for name in [fresh.clone(), format!("{fresh}.copy")] {
                std::fs::write(tree.folder_of(folder).join(name), "x").expect("the folder is ours");
            }
            for (method, params, writes) in calls(&way, &fresh) {
                let expected = match (token.permits_method(method), within) {
                    (false, _) => Some("token/methods"),
                    (true, false) if token.roots.is_some() => Some("token/roots"),
                    (true, _) if writes && token.read_only && token.roots.is_some() => Some("token/roots"),
                    (true, _) if writes && token.read_only => Some("token/sandbox"),
                    (true, _) => None,
                };
                let told = client.refused_by(method, params.clone()).await;
                assert_eq!(told.as_deref(), expected, "{method} {params} with {token:?}");
                judged += 1;
            }
            tree.tidy(folder, &fresh);
        }
    }
    assert!(judged > 4_000, "{judged}");
    assert_eq!(std::fs::read_to_string(tree.root.join("outside/file")).expect("it is there"), "outside");
}

fn sandbox(read: &[&Path], write: &[&Path], network: &str) -> Value {
    let entry = |path: &&Path, access: &str| json!({"path": {"type": "path", "path": uri(path)}, "access": access});
    let read = read.iter().map(|path| entry(path, "read"));
    let entries: Vec<Value> = read.chain(write.iter().map(|path| entry(path, "write"))).collect();
    let files = json!({"type": "restricted", "entries": entries});
    json!({"permissions": {"type": "managed", "file_system": files, "network": network}, "windowsSandboxLevel": "disabled"})
}

fn start(id: &str, script: &str, cwd: &Path, sandbox: &Value) -> Value {
    let variables = json!({"PATH": "/usr/local/bin:/usr/bin:/bin"});
    json!({"processId": id, "argv": ["/bin/sh", "-c", script], "cwd": uri(cwd), "env": variables, "tty": false,
        "pipeStdin": true, "sandbox": sandbox})
}

#[tokio::test]
async fn a_start_that_asks_for_more_than_the_ceiling_is_refused_and_nothing_runs() {
    let tree = Tree::new();
    let (a, outside) = (tree.folder_of(Folder::A), tree.folder_of(Folder::Outside));
    let ceiling = format!("read = ['/']\nwrite = ['{}']\nnetwork = false\nsandbox = 'workspace-write'", a.display());
    let mut server = BoundServer::start(&ceiling).await;
    let mut client = server.client(Grant::Everything, None).await;
    let (root, link, git) = (Path::new("/"), a.join("to-outside"), a.join(".git"));
    for (at, (asked, rule)) in [
        (Value::Null, Some("server/sandbox")),
        (json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}), Some("server/sandbox")),
        (sandbox(&[root], &[&a], "enabled"), Some("server/network")),
        (sandbox(&[root], &[&outside], "restricted"), Some("server/roots")),
        (sandbox(&[root], &[&tree.root], "restricted"), Some("server/roots")),
        // Its target is what counts, and nobody can swap it between the decision and the mount.
        (sandbox(&[root], &[&link], "restricted"), Some("server/roots")),
        // The sandbox of that name protects repositories.
        (sandbox(&[root], &[&a, &git], "restricted"), Some("server/roots")),
        (sandbox(&[root], &[&a], "restricted"), None),
        (sandbox(&[root], &[&a.join("folder")], "restricted"), None),
        (sandbox(&[root], &[], "restricted"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let script = format!("touch {}/ran-{at}", outside.display());
        let told = client.refused_by("process/start", start(&format!("p{at}"), &script, &a, &asked)).await;
        assert_eq!(told.as_deref(), rule, "{asked}");
    }
    let ran = std::fs::read_dir(&outside).expect("it is ours").flatten();
    assert_eq!(ran.filter(|entry| entry.file_name().to_string_lossy().starts_with("ran")).count(), 0);
}

#[tokio::test]
async fn a_process_begins_within_the_roots_or_not_at_all() {
    let tree = Tree::new();
    let a = tree.folder_of(Folder::A);
    let mut server = BoundServer::start(&format!("read = ['system-files']\nwrite = ['{}']", a.display())).await;
    let mut client = server.client(Grant::Everything, None).await;
    let system: Vec<PathBuf> = ["/bin", "/usr", "/lib", "/lib64", "/etc"].map(PathBuf::from).to_vec();
    let system: Vec<&Path> = system.iter().map(PathBuf::as_path).filter(|path| path.exists()).collect();
    let asked = sandbox(&system, &[&a], "restricted");
    for (at, (cwd, rule)) in [
        (a.join("folder"), None),
        (a.join("to-outside"), Some("server/roots")),
        (tree.root.clone(), Some("server/roots")),
    ]
    .into_iter()
    .enumerate()
    {
        let told = client.refused_by("process/start", start(&format!("p{at}"), "true", &cwd, &asked)).await;
        assert_eq!(told.as_deref(), rule, "{cwd:?}");
    }
}

#[tokio::test]
async fn a_file_call_under_a_sandbox_is_bound_by_both() {
    let tree = Tree::new();
    let (a, b) = (tree.folder_of(Folder::A), tree.folder_of(Folder::B));
    let mut server = BoundServer::start(&format!("read = ['{}']\nwrite = ['{}']", b.display(), a.display())).await;
    let mut client = server.client(Grant::Everything, None).await;
    let denied = |at: &Path, folder: &Path, access: &str| {
        let asked = if access == "write" {
            sandbox(&[], &[folder], "restricted")
        } else {
            sandbox(&[folder], &[], "restricted")
        };
        json!({"path": uri(&at.join("x")), "dataBase64": "eA==", "sandbox": asked})
    };
    let wide = client.call("fs/writeFile", denied(&a, &tree.root, "write")).await;
    assert!(wide.get("result").is_some(), "{wide}");
    let own = client.call("fs/writeFile", denied(&a, &a, "read")).await;
    assert_eq!(own["error"]["data"]["kind"], "EROFS", "its own sandbox refuses it: {own}");
    assert_eq!(
        client.refused_by("fs/writeFile", denied(&b, &tree.root, "write")).await.as_deref(),
        Some("server/roots")
    );
    let hidden = client.call("fs/writeFile", denied(&a, &b, "write")).await;
    assert_eq!(hidden["error"]["data"]["kind"], "ENOENT", "{hidden}");
}

/// What may be read there and not written is never the second path of a call either.
#[tokio::test]
async fn both_paths_of_a_call_are_bound() {
    let tree = Tree::new();
    let (a, b) = (tree.folder_of(Folder::A), tree.folder_of(Folder::B));
    let mut server = BoundServer::start(&format!("read = ['{}']\nwrite = ['{}']", b.display(), a.display())).await;
    let mut client = server.client(Grant::Everything, None).await;
    let (own, foreign) = (uri(&a.join("file")), uri(&b.join("file")));
    let (own_new, foreign_new) = (uri(&a.join("new")), uri(&b.join("new")));
    let change = |kind: &str, from: &str, to: &str| json!({"changes": [{"kind": kind, "path": from, "dataBase64": "eA==", "destinationPath": to}]});
    for (method, params) in [
        ("fs/rename", json!({"sourcePath": own, "destinationPath": foreign_new})),
        ("fs/rename", json!({"sourcePath": own, "destinationPath": foreign})),
        ("fs/rename", json!({"sourcePath": foreign, "destinationPath": own_new})),
        ("fs/copy", json!({"sourcePath": own, "destinationPath": foreign_new, "recursive": false})),
        ("fs/copy", json!({"sourcePath": own, "destinationPath": foreign, "recursive": false})),
        ("fs/applyChanges", change("rename", &own, &foreign_new)),
        ("fs/applyChanges", change("rename", &foreign, &own_new)),
        ("fs/applyChanges", change("write", &foreign_new, "")),
        ("fs/applyChanges", change("remove", &foreign, "")),
        ("fs/createSymlink", json!({"path": foreign_new, "target": "file"})),
        ("fs/writeFile", json!({"path": uri(&a.join("to-b/file")), "dataBase64": "eA=="})),
        ("fs/open", json!({"handleId": "h", "path": uri(&a.join("to-b/file")), "mode": "replace"})),
        ("fs/setPermissions", json!({"path": uri(&a.join("to-b/file")), "mode": 0o777})),
    ] {
        let told = client.refused_by(method, params.clone()).await;
        assert_eq!(told.as_deref(), Some("server/roots"), "{method} {params}");
    }
    // And what is allowed of them goes on.
    let copied = client.call("fs/copy", json!({"sourcePath": foreign, "destinationPath": own_new, "recursive": false}));
    assert!(copied.await.get("result").is_some());
    for (folder, text) in [(&a, "a"), (&b, "b")] {
        assert_eq!(std::fs::read_to_string(folder.join("file")).expect("it is there"), text);
    }
    assert!(!b.join("new").exists());
}

#[tokio::test]
async fn a_ceiling_without_network_makes_no_request_and_one_of_methods_knows_no_other() {
    let mut server = BoundServer::start("network = false\nmethods = ['http/*', 'fs/readFile']").await;
    let mut client = server.client(Grant::Everything, None).await;
    let request = json!({"method": "GET", "url": "http://127.0.0.1:9/", "requestId": "r"});
    assert_eq!(client.refused_by("http/request", request).await.as_deref(), Some("server/network"));
    assert_eq!(client.refused_by("process/list", json!({})).await.as_deref(), Some("server/methods"));
}

#[tokio::test]
async fn a_ceiling_counts_processes_until_they_exit() {
    let mut server = BoundServer::start("processes_per_session = 2\nprocesses = 3\nspool_bytes = 1048576").await;
    let mut first = server.client(Grant::Everything, None).await;
    let mut second = server.client(Grant::Everything, None).await;
    let waiting = |id: &str| start(id, "read line", Path::new("/"), &Value::Null);
    for id in ["1", "2"] {
        assert_eq!(first.refused_by("process/start", waiting(id)).await, None);
    }
    assert_eq!(first.refused_by("process/start", waiting("3")).await.as_deref(), Some("server/processesPerSession"));
    assert_eq!(second.refused_by("process/start", waiting("1")).await, None);
    assert_eq!(second.refused_by("process/start", waiting("2")).await.as_deref(), Some("server/processes"));
    first.call("process/terminate", json!({"processId": "1"})).await;
    first.call("process/wait", json!({"processId": "1", "until": {"type": "exited"}})).await;
    // The count follows the exit, which another task waits for as well.
    while second.refused_by("process/start", waiting("3")).await.is_some() {
        tokio::task::yield_now().await;
    }
    let mut large = waiting("4");
    large["spoolBytes"] = json!(2 << 20);
    assert_eq!(second.refused_by("process/start", large).await.as_deref(), Some("server/spoolBytes"));
}

#[tokio::test]
async fn a_resumed_session_is_judged_by_the_token_of_the_connection_that_asks() {
    let tree = Tree::new();
    let a = tree.folder_of(Folder::A);
    let mut server = BoundServer::start("").await;
    let mut wide = server.client(Grant::Everything, None).await;
    let shell = start("shell", "while read line; do eval \"$line\"; done", Path::new("/"), &Value::Null);
    assert_eq!(wide.refused_by("process/start", shell).await, None);
    let methods = vec!["*".parse().expect("a pattern")];
    let scope = TokenScope { methods, roots: Some(vec![Root::Path(a.clone())]), weakest_sandbox: None };
    let mut narrow = server.client(Grant::Scope(scope), Some(&wide.session)).await;
    let outside = json!({"path": uri(&tree.root.join("outside/file"))});
    assert_eq!(narrow.refused_by("fs/readFile", outside.clone()).await.as_deref(), Some("token/roots"));
    let line = json!({"processId": "shell", "chunk": "dHJ1ZQo=", "writeId": "1"});
    assert_eq!(narrow.refused_by("process/write", line.clone()).await.as_deref(), Some("token/roots"));
    let inside = json!({"path": uri(&a.join("file"))});
    assert_eq!(narrow.refused_by("fs/readFile", inside).await, None);
    let mut again = server.client(Grant::Everything, Some(&narrow.session)).await;
    assert_eq!(again.refused_by("process/write", line).await, None);
    assert_eq!(again.refused_by("fs/readFile", outside).await, None);
}
