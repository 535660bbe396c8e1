//! Requests for every method of the table, each with what it does, in words that the model knows. A method that is new has
//! no requests, and does not compile.

use std::path::{Path, PathBuf};

use exec_testkit::test_data::SeededRng;
use exec_transport::token::WeakestSandbox;
use exec_wire::method::Method;
use serde_json::{Value, json};

use super::model::{PathUse, Scope, end_of, folder_of};
use super::tree::{SpelledPath, Tree, pick, spell};

/// What the other subject has, and nobody has: requests about the two must not differ.
pub(super) const OTHERS_ID: &str = "victim-has-this";
pub(super) const ABSENT: &str = "nobody-has-this!";

/// The process that each client tries to have.
pub(super) const OWN: &str = "own";

pub(super) struct TestRequest {
    pub(super) method: Method,
    pub(super) params: Value,
    pub(super) expect: Expectation,
}

/// What becomes of a request whose method is permitted.
pub(super) enum Expectation {
    /// It is carried out if all of this is permitted.
    Files(Vec<PathUse>),
    /// The same, and where it is not permitted, the answer says so in this way and not by an error.
    Told(PathUse, fn(&Value) -> bool),
    Start(StartRequest),
    /// It is refused by this rule.
    Refused(&'static str),
    /// It is carried out.
    Done,
    /// No rule refuses it.
    NotForbidden,
    /// It is carried out if the request before it was, and fails if that did.
    AsBefore,
    /// It is about something of another subject, and answered as if nobody had that.
    AsUnknown,
    /// No server of ours knows the method.
    Unserved,
}

/// The process that a start asks for.
pub(super) struct StartRequest {
    pub(super) cwd: PathBuf,
    /// What its sandbox reads and writes; `None` without one.
    pub(super) sandbox: Option<(Vec<PathBuf>, Vec<PathBuf>)>,
    /// Whether it can run if it is permitted.
    runs: bool,
}

impl StartRequest {
    /// The rule that refuses it.
    pub(super) fn refused_by(&self, scope: &Scope) -> Option<&'static str> {
        let Some((reads, writes)) = &self.sandbox else {
            return match (scope.weakest, &scope.roots) {
                (Some(_), _) => Some("token/sandbox"),
                (None, Some(_)) => Some("token/roots"),
                (None, None) => None,
            };
        };
        if scope.weakest == Some(WeakestSandbox::ReadOnly) && !writes.is_empty() {
            return Some("token/sandbox");
        }
        let may_write = |folder: &PathBuf| {
            let end = end_of(folder);
            // What the scope protects below, the sandbox must protect, too: it does so right below what it writes.
            let is_open = |guarded: &PathBuf| !writes.iter().any(|folder| guarded.parent() == Some(&end_of(folder)));
            scope.writes(&end) && !scope.guarded_below(&end).iter().any(is_open)
        };
        let is_within = !scope.restricts_files()
            || (reads.iter().all(|folder| scope.reads(&end_of(folder)))
                && writes.iter().all(may_write)
                && scope.reads(&end_of(&self.cwd)));
        (!is_within).then(|| scope.file_rule())
    }

    pub(super) fn runs(&self) -> bool {
        self.runs
    }
}

/// What requests are made of.
pub(super) struct RequestBuilder<'a> {
    pub(super) tree: &'a Tree,
    /// A port that counts who connects, and says something to everybody.
    pub(super) port: u16,
    /// Begins the names of all that a request makes.
    pub(super) fresh: &'a str,
    pub(super) others_session: &'a str,
    /// Places that the scope can read, for requests that it permits.
    pub(super) near: Vec<PathBuf>,
    /// Larger than in all requests before.
    pub(super) number: usize,
}

/// What may be read at a place.
const READABLE: [&str; 5] = ["file", "folder/file", ".git/config", "file-out", "to-outside/file"];
const LISTED: [&str; 5] = ["", "folder", "to-a", "to-outside", ".."];

impl RequestBuilder<'_> {
    /// Requests of this method, and what is needed before them.
    pub(super) fn requests(&self, method: Method, random: &mut SeededRng) -> Vec<TestRequest> {
        let request = |params: Value, expect: Expectation| TestRequest { method, params, expect };
        let one = |params: Value, expect: Expectation| vec![request(params, expect)];
        // What belongs to a session: of one's own, and of somebody else's.
        let process = |more: Value| {
            vec![
                request(with(&more, "processId", OWN), Expectation::NotForbidden),
                request(with(&more, "processId", OTHERS_ID), Expectation::AsUnknown),
            ]
        };
        match method {
            Method::Initialize => one(json!({"clientName": "again"}), Expectation::NotForbidden),
            Method::EnvironmentInfo | Method::EnvironmentStatus | Method::EnvironmentList => {
                one(json!({}), Expectation::Done)
            }
            Method::EnvironmentAdd => {
                let add = |url: &str| json!({"environmentId": self.fresh, "execServerUrl": url});
                vec![
                    request(add("ws://127.0.0.1:9"), Expectation::Done),
                    TestRequest {
                        method: Method::EnvironmentRemove,
                        params: json!({"environmentId": self.fresh}),
                        expect: Expectation::NotForbidden,
                    },
                ]
            }
            Method::EnvironmentRemove => one(json!({"environmentId": ABSENT}), Expectation::NotForbidden),
            Method::EnvironmentConfigRead => {
                let cwd = self.path(&LISTED, random);
                let params = json!({"cwd": cwd.uri, "configPaths": [["mcp_servers"]], "requirementsPaths": []});
                one(params, Expectation::NotForbidden)
            }
            Method::ProcessStart => vec![self.start(random), self.start(random)],
            Method::ProcessRead => process(json!({})),
            Method::ProcessView => process(json!({"tail": {"lines": 5}})),
            Method::ProcessScreen => process(json!({})),
            Method::ProcessWrite => process(json!({"chunk": "eA==", "writeId": self.fresh})),
            Method::ProcessSignal => process(json!({"signal": "continue"})),
            Method::ProcessTerminate => process(json!({})),
            Method::ProcessResize => process(json!({"size": {"rows": 20, "cols": 50}})),
            Method::ProcessCloseStdin => process(json!({})),
            Method::ProcessList => one(json!({}), Expectation::Done),
            Method::ProcessWait => process(json!({"until": {"kind": "exited"}, "timeoutMs": 1})),
            Method::ProcessForget => process(json!({})),
            Method::HttpRequest => {
                let url = format!("http://127.0.0.1:{}/", self.port);
                one(
                    json!({"method": "GET", "url": url, "requestId": self.fresh, "timeoutMs": 5000}),
                    Expectation::NotForbidden,
                )
            }
            Method::HttpAcknowledge => vec![
                request(json!({"requestId": OTHERS_ID, "seq": 1}), Expectation::AsUnknown),
                request(json!({"requestId": self.fresh, "seq": 1}), Expectation::Done),
            ],
            Method::HttpCancel => vec![
                request(json!({"requestId": OTHERS_ID}), Expectation::AsUnknown),
                request(json!({"requestId": self.fresh}), Expectation::Done),
            ],
            Method::NetOpen => {
                let socket = self.path(&["file"], random);
                let unix = json!({"kind": "unix", "path": socket.uri});
                vec![
                    self.open_stream(),
                    request(
                        json!({"streamId": format!("{}u", self.fresh), "to": unix}),
                        Expectation::Refused("token/network"),
                    ),
                ]
            }
            Method::NetRead => self.streams(method, json!({"seq": 0, "acknowledged": 0})),
            Method::NetWrite => self.streams(method, json!({"offset": 0, "chunk": "eA=="})),
            Method::NetAwaitRoom => self.streams(method, json!({})),
            Method::NetClose => self.streams(method, json!({})),
            Method::NetListen => {
                let socket = self.fresh_path("", random);
                let at = json!({"kind": "unix", "path": socket.uri});
                vec![
                    self.listen(),
                    request(
                        json!({"listenerId": format!("{}u", self.fresh), "at": at}),
                        Expectation::Refused("token/network"),
                    ),
                ]
            }
            Method::NetAccept => {
                one(json!({"listenerId": OTHERS_ID, "streamId": format!("{}a", self.fresh)}), Expectation::AsUnknown)
            }
            Method::NetUnlisten => {
                let id = format!("{}l", self.fresh);
                vec![
                    self.listen(),
                    request(json!({"listenerId": id}), Expectation::Done),
                    request(json!({"listenerId": OTHERS_ID}), Expectation::AsUnknown),
                ]
            }
            Method::CapabilityRootsDiscover => {
                let root = self.path(&["", "skill", "to-a", "to-outside"], random);
                let params = json!({"roots": [{"id": "r", "path": root.uri, "sandbox": null}]});
                one(params, Expectation::Told(PathUse::Look(root), |result| result["roots"][0]["error"].is_null()))
            }
            Method::CapabilitiesDiscoverV2 | Method::NetworkPolicyRequest => one(json!({}), Expectation::Unserved),
            Method::FsReadFile => {
                let path = self.path(&READABLE, random);
                vec![
                    request(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Read(path)])),
                    self.of_the_machine(method),
                ]
            }
            Method::FsHash => {
                let path = self.path(&READABLE, random);
                one(json!({"path": path.uri, "algorithm": "sha256"}), Expectation::Files(vec![PathUse::Read(path)]))
            }
            Method::FsGetAttributes => {
                let path = self.path(&READABLE, random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Read(path)]))
            }
            Method::FsGetMetadata | Method::FsCanonicalize => {
                let path = self.path(&[READABLE, LISTED].concat(), random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Look(path)]))
            }
            Method::FsReadDirectory => {
                let path = self.path(&LISTED, random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Look(path)]))
            }
            Method::FsWalk => {
                let path = self.path(&LISTED, random);
                let follow = random.below(2) == 0;
                let options = json!({"maxDepth": 4, "maxDirectories": 100, "maxEntries": 1000,
                    "followDirectorySymlinks": follow, "pruneHiddenDirectories": false});
                one(json!({"path": path.uri, "options": options}), Expectation::Files(vec![PathUse::Look(path)]))
            }
            Method::FsGlob => {
                let path = self.path(&LISTED, random);
                let patterns = json!([*pick(random, &["**", "*", "hidden*", "to-outside/*"])]);
                one(json!({"path": path.uri, "patterns": patterns}), Expectation::Files(vec![PathUse::Look(path)]))
            }
            Method::FsSearch => {
                let path = self.path(&LISTED, random);
                let follow = random.below(2) == 0;
                let params = json!({"searchId": self.fresh, "path": path.uri, "pattern": {"literal": "secret"},
                    "followSymlinks": follow, "hidden": true});
                one(params, Expectation::Files(vec![PathUse::Read(path)]))
            }
            Method::FsCancelSearch => vec![
                request(json!({"searchId": OTHERS_ID}), Expectation::AsUnknown),
                request(json!({"searchId": self.fresh}), Expectation::Done),
            ],
            Method::FsWatch => {
                let path = self.path(&LISTED, random);
                one(json!({"watchId": self.fresh, "path": path.uri}), Expectation::Files(vec![PathUse::Read(path)]))
            }
            Method::FsUnwatch => vec![
                request(json!({"watchId": OTHERS_ID}), Expectation::AsUnknown),
                request(json!({"watchId": self.fresh}), Expectation::Done),
            ],
            Method::FsWatchMissing => {
                let path = self.fresh_path("", random);
                let params = json!({"watchId": self.number, "missing": [path.uri], "present": null});
                one(params, Expectation::Told(PathUse::ReadName(path), |result| result["watching"] == true))
            }
            Method::FsReadLink => {
                let path = self.path(&["to-a", "to-outside", "file-out"], random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::ReadName(path)]))
            }
            Method::FsOpen => {
                let mode = *pick(random, &["read", "append", "replace"]);
                vec![self.open_file(mode, random)]
            }
            Method::FsReadBlock => {
                let params = |id: &str| json!({"handleId": id, "offset": 0, "len": 10});
                vec![
                    self.open_file("read", random),
                    request(params(self.fresh), Expectation::AsBefore),
                    request(params(OTHERS_ID), Expectation::AsUnknown),
                ]
            }
            Method::FsWriteBlock => {
                let params = |id: &str| json!({"handleId": id, "offset": 0, "chunk": "eA=="});
                vec![
                    self.open_file("append", random),
                    request(params(self.fresh), Expectation::AsBefore),
                    request(params(OTHERS_ID), Expectation::AsUnknown),
                ]
            }
            Method::FsClose => vec![
                self.open_file("read", random),
                request(json!({"handleId": self.fresh}), Expectation::NotForbidden),
                request(json!({"handleId": OTHERS_ID}), Expectation::AsUnknown),
            ],
            Method::FsWriteFile => {
                let path = self.path_to_write(random);
                let append = random.below(2) == 0;
                let params = json!({"path": path.uri, "dataBase64": "eA==", "append": append});
                one(params, Expectation::Files(vec![PathUse::Write(path)]))
            }
            Method::FsCreateDirectory => {
                let path = self.absent_path(random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Make(path)]))
            }
            Method::FsCreateSymlink => {
                let path = self.absent_path(random);
                one(
                    json!({"path": path.uri, "target": "../outside/file"}),
                    Expectation::Files(vec![PathUse::Make(path)]),
                )
            }
            Method::FsSetPermissions => {
                let path = self.path_to_write(random);
                one(json!({"path": path.uri, "mode": 0o600}), Expectation::Files(vec![PathUse::Write(path)]))
            }
            Method::FsSetTimes => {
                let path = self.path_to_write(random);
                let params = json!({"path": path.uri, "accessedNs": 1, "modifiedNs": 1});
                one(params, Expectation::Files(vec![PathUse::Write(path)]))
            }
            Method::FsSetAttributes => {
                let path = self.path_to_write(random);
                let params = json!({"path": path.uri, "attributes": [{"name": "n", "dataBase64": "eA=="}]});
                one(params, Expectation::Files(vec![PathUse::Write(path)]))
            }
            Method::FsRemove => {
                let path = self.path_to_remove(random);
                one(json!({"path": path.uri}), Expectation::Files(vec![PathUse::Remove(path)]))
            }
            Method::FsCopy => {
                let (from, to) = (self.path(&READABLE, random), self.absent_path(random));
                let params = json!({"sourcePath": from.uri, "destinationPath": to.uri, "recursive": true});
                one(params, Expectation::Files(vec![PathUse::ReadName(from), PathUse::Make(to)]))
            }
            Method::FsRename => {
                let (from, to) = (self.path_to_remove(random), self.absent_path(random));
                let params = json!({"sourcePath": from.uri, "destinationPath": to.uri});
                one(params, Expectation::Files(vec![PathUse::Remove(from), PathUse::Make(to)]))
            }
            Method::FsApplyChanges => {
                let (write, remove, from, to) = (
                    self.absent_path(random),
                    self.fresh_path("1", random),
                    self.fresh_path("2", random),
                    self.fresh_path("3", random),
                );
                for made in [&remove, &from] {
                    write_fresh(&made.path);
                }
                let changes = json!([
                    {"kind": "write", "path": write.uri, "dataBase64": "eA=="},
                    {"kind": "remove", "path": remove.uri},
                    {"kind": "rename", "path": from.uri, "destinationPath": to.uri},
                ]);
                let uses =
                    vec![PathUse::Make(write), PathUse::Remove(remove), PathUse::Remove(from), PathUse::Make(to)];
                one(json!({"changes": changes}), Expectation::Files(uses))
            }
            Method::SessionList => one(json!({}), Expectation::NotForbidden),
            Method::SessionClose => one(json!({"sessionId": self.others_session}), Expectation::AsUnknown),
            Method::SessionDrive => one(json!({"force": true}), Expectation::NotForbidden),
        }
    }

    /// A process that waits, as far as the scope can be given one.
    pub(super) fn own_process(&self, scope: &Scope) -> TestRequest {
        let reads = system_folders();
        let (sandbox, cwd) = match scope.restricts_files() {
            true => (Some((reads, Vec::new())), PathBuf::from("/usr")),
            false => (None, PathBuf::from("/usr")),
        };
        let params = start_params(OWN, &["/bin/cat"], &format!("file://{}", cwd.display()), sandbox.as_ref());
        TestRequest {
            method: Method::ProcessStart,
            params,
            expect: Expectation::Start(StartRequest { cwd, sandbox, runs: true }),
        }
    }

    fn start(&self, random: &mut SeededRng) -> TestRequest {
        let cwd = self.path(&["", "folder", "to-outside", "to-a"], random);
        let sandbox = match random.below(5) {
            0 => None,
            1 => Some((vec![PathBuf::from("/")], Vec::new())),
            _ => {
                let mut reads = system_folders();
                reads.extend((0..random.below(4) / 3).map(|_| self.tree.way(&self.near, random)));
                let writes = (0..random.below(3)).map(|_| self.tree.way(&self.near, random)).collect();
                let near = self.near.iter().take(random.below(2)).cloned().collect();
                Some((reads, if random.below(2) == 0 { near } else { writes }))
            }
        };
        let runs = sandbox.as_ref().is_none_or(|(reads, _)| reads == &[PathBuf::from("/")]);
        let id = format!("{}-{}", self.fresh, random.below(1 << 30));
        let params = start_params(&id, &["/bin/true"], &cwd.uri, sandbox.as_ref());
        let expect = Expectation::Start(StartRequest { cwd: cwd.path, sandbox, runs });
        TestRequest { method: Method::ProcessStart, params, expect }
    }

    fn open_stream(&self) -> TestRequest {
        let to = json!({"kind": "tcp", "host": "127.0.0.1", "port": self.port});
        let params = json!({"streamId": format!("{}s", self.fresh), "to": to});
        TestRequest { method: Method::NetOpen, params, expect: Expectation::Done }
    }

    fn listen(&self) -> TestRequest {
        let at = json!({"kind": "tcp", "host": "127.0.0.1", "port": 0});
        let params = json!({"listenerId": format!("{}l", self.fresh), "at": at});
        TestRequest { method: Method::NetListen, params, expect: Expectation::Done }
    }

    fn streams(&self, method: Method, more: Value) -> Vec<TestRequest> {
        let id = format!("{}s", self.fresh);
        let own = if method == Method::NetClose { Expectation::Done } else { Expectation::AsBefore };
        let closes = method == Method::NetClose;
        let mut requests = vec![
            self.open_stream(),
            TestRequest { method, params: with(&more, "streamId", &id), expect: own },
            TestRequest { method, params: with(&more, "streamId", OTHERS_ID), expect: Expectation::AsUnknown },
        ];
        if !closes {
            requests.push(TestRequest {
                method: Method::NetClose,
                params: json!({"streamId": id}),
                expect: Expectation::Done,
            });
        }
        requests
    }

    fn open_file(&self, mode: &str, random: &mut SeededRng) -> TestRequest {
        let path = if mode == "read" { self.path(&READABLE, random) } else { self.path_to_write(random) };
        let params = json!({"handleId": self.fresh, "path": path.uri, "mode": mode});
        let path_use = if mode == "read" { PathUse::Read(path) } else { PathUse::Write(path) };
        TestRequest { method: Method::FsOpen, params, expect: Expectation::Files(vec![path_use]) }
    }

    /// A file of the machine, outside of all places.
    fn of_the_machine(&self, method: Method) -> TestRequest {
        let (uri, path) = ("file:///etc/passwd".to_owned(), PathBuf::from("/etc/passwd"));
        let params = json!({"path": uri});
        TestRequest { method, params, expect: Expectation::Files(vec![PathUse::Read(SpelledPath { uri, path })]) }
    }

    /// Something that is there.
    fn path(&self, names: &[&str], random: &mut SeededRng) -> SpelledPath {
        self.tree.path(names, &self.near, random)
    }

    /// Something that nobody has made yet.
    fn absent_path(&self, random: &mut SeededRng) -> SpelledPath {
        self.fresh_path("", random)
    }

    fn fresh_path(&self, end: &str, random: &mut SeededRng) -> SpelledPath {
        loop {
            let way = self.tree.way(&self.near, random).join(pick(random, &["", "", "folder", ".git"]));
            let spelled = spell(way.join(format!("{}{end}", self.fresh)), random);
            // A way may lead to where there is no such folder.
            if folder_of(&spelled.path).is_dir() {
                return spelled;
            }
        }
    }

    /// A file that was made for this request, or a link to it.
    fn path_to_write(&self, random: &mut SeededRng) -> SpelledPath {
        let path = self.absent_path(random);
        write_fresh(&path.path);
        path
    }

    /// The same, or a folder with something in it.
    fn path_to_remove(&self, random: &mut SeededRng) -> SpelledPath {
        let path = self.absent_path(random);
        if random.below(3) == 0 {
            let folder = in_folder_without_links(&path.path);
            std::fs::create_dir_all(folder.join(".git")).expect("the folder is ours");
            std::fs::write(folder.join("file"), "x").expect("the folder is ours");
        } else {
            write_fresh(&path.path);
        }
        path
    }
}

fn in_folder_without_links(path: &Path) -> PathBuf {
    folder_of(path).join(path.file_name().expect("it has a name"))
}

fn write_fresh(path: &Path) {
    std::fs::write(in_folder_without_links(path), "x").expect("the folder is ours");
}

fn with(params: &Value, member: &str, value: &str) -> Value {
    let mut params = params.clone();
    params[member] = json!(value);
    params
}

/// What a program needs to run.
fn system_folders() -> Vec<PathBuf> {
    let folders = ["/bin", "/usr", "/lib", "/lib64", "/etc"].map(PathBuf::from);
    folders.into_iter().filter(|folder| folder.exists()).collect()
}

fn start_params(id: &str, argv: &[&str], cwd: &str, sandbox: Option<&(Vec<PathBuf>, Vec<PathBuf>)>) -> Value {
    let entry = |path: &PathBuf, access: &str| {
        let uri = exec_wire::PathUri::from_path(path).expect("it is absolute");
        json!({"path": {"type": "path", "path": uri.as_str()}, "access": access})
    };
    let sandbox = sandbox.map(|(reads, writes)| {
        let reads = reads.iter().map(|path| entry(path, "read"));
        let entries: Vec<Value> = reads.chain(writes.iter().map(|path| entry(path, "write"))).collect();
        let files = json!({"type": "restricted", "entries": entries});
        json!({"permissions": {"type": "managed", "file_system": files, "network": "restricted"},
            "windowsSandboxLevel": "disabled"})
    });
    json!({"processId": id, "argv": argv, "cwd": cwd, "env": {}, "tty": false, "pipeStdin": true, "sandbox": sandbox})
}
