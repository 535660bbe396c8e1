//! Cases: steps that are run against both servers, and what they show must be equal, but for declared differences.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_testkit::{binaries, codex};
use serde_json::{Value, json};

use super::peer::{DEADLINE, Peer, collect_output};

/// How long a change may stay untold before it is made again.
const CHANGE_AGAIN: Duration = Duration::from_secs(2);

/// A step that shows nothing for so long is compared as one that shows nothing. Before [`DEADLINE`], which ends the test.
const STEP_DEADLINE: Duration = DEADLINE.saturating_sub(Duration::from_secs(5));

/// Stands for the folder of the server in params and in what is compared.
pub(super) const ROOT: &str = "$ROOT";

/// How often Codex is asked before ours counts as different: what it shows sometimes depends on chance.
const TRIES: usize = 3;

pub(super) struct Case {
    name: &'static str,
    steps: Vec<(Step, Option<Difference>)>,
    fresh: bool,
}

/// What ours shows instead, on purpose.
struct Difference {
    /// As docs/app-server.md has it.
    name: &'static str,
    ours: Value,
}

enum Step {
    /// A request and its answer, with the output of commands that came before it.
    Call(&'static str, Value),
    /// A request whose answer is compared later.
    Send(&'static str, Value),
    /// The answer to the request that was sent so many [`Step::Send`]s ago: 0 is the last.
    Answer(usize),
    /// A line, and what is answered before a request that follows it.
    Line(String),
    /// `process/exited`, with the output before it.
    Exited(String),
    /// Waits until a process has printed this; compared later.
    Printed(&'static str, &'static str),
    /// Something done to the files, not compared.
    Do(fn(&Path)),
    /// Paths that watches must tell of, and all that they told until then.
    Changed(&'static [(&'static str, &'static str)]),
    /// The same of a change that is made again and again until it is told: Codex watches a folder that has just been made
    /// a moment late.
    ChangedBy(fn(&Path), &'static [(&'static str, &'static str)]),
    /// The status of an environment once it is not pending.
    Settled(&'static str),
}

impl Case {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, steps: Vec::new(), fresh: false }
    }

    /// On a connection of its own, without the handshake.
    pub(super) fn fresh(name: &'static str) -> Self {
        Self { fresh: true, ..Self::new(name) }
    }

    pub(super) fn call(self, method: &'static str, params: Value) -> Self {
        self.step(Step::Call(method, params))
    }

    pub(super) fn send(self, method: &'static str, params: Value) -> Self {
        self.step(Step::Send(method, params))
    }

    pub(super) fn answer(self, ago: usize) -> Self {
        self.step(Step::Answer(ago))
    }

    pub(super) fn line(self, line: impl Into<String>) -> Self {
        self.step(Step::Line(line.into()))
    }

    pub(super) fn exited(self, handle: &str) -> Self {
        self.step(Step::Exited(handle.to_owned()))
    }

    pub(super) fn printed(self, id: &'static str, text: &'static str) -> Self {
        self.step(Step::Printed(id, text))
    }

    pub(super) fn does(self, work: fn(&Path)) -> Self {
        self.step(Step::Do(work))
    }

    pub(super) fn changed(self, wanted: &'static [(&'static str, &'static str)]) -> Self {
        self.step(Step::Changed(wanted))
    }

    pub(super) fn changed_by(self, change: fn(&Path), wanted: &'static [(&'static str, &'static str)]) -> Self {
        self.step(Step::ChangedBy(change, wanted))
    }

    pub(super) fn settled(self, environment: &'static str) -> Self {
        self.step(Step::Settled(environment))
    }

    /// The last step shows this with ours.
    pub(super) fn differs(mut self, name: &'static str, ours: Value) -> Self {
        self.steps.last_mut().expect("a step comes first").1 = Some(Difference { name, ours });
        self
    }

    pub(super) fn differences(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().filter_map(|(_, difference)| difference.as_ref().map(|difference| difference.name))
    }

    pub(super) fn compared_steps(&self) -> usize {
        self.steps.iter().filter(|(step, _)| !matches!(step, Step::Do(_) | Step::Send(..) | Step::Printed(..))).count()
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push((step, None));
        self
    }
}

/// Calls of one method, one case for each of the params.
pub(super) fn calls(method: &'static str, all: impl IntoIterator<Item = Value>) -> Vec<Case> {
    all.into_iter().map(|params| Case::new(method).call(method, params)).collect()
}

/// Runs all cases against both servers and reports every difference.
pub(super) async fn compare(cases: Vec<Case>) {
    let Some(codex) = codex::codex_binary() else { return };
    // Codex's sandbox does not start from a home below /tmp.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let start = |program: &Path, name: &str| {
        let (root, home) = (folder.path().join(name), folder.path().join(format!("{name}-home")));
        std::fs::create_dir_all(root.join("tmpdir")).expect("a folder can be made");
        std::fs::create_dir_all(&home).expect("a folder can be made");
        Server { program: program.to_owned(), root, home }
    };
    let servers = [start(&codex, "codex"), start(&binaries::exec_server(), "ours")];
    let (mut codex, mut ours) = tokio::join!(servers[0].connect(), servers[1].connect());
    let mut differences = Vec::new();
    for case in &cases {
        let (shown_by_codex, shown_by_ours) =
            tokio::join!(servers[0].run(&mut codex, case), servers[1].run(&mut ours, case));
        let mut difference = find_difference(case, &shown_by_codex, &shown_by_ours);
        for _ in 1..TRIES {
            if difference.is_some() {
                let again = servers[0].run(&mut codex, case).await;
                difference = find_difference(case, &again, &shown_by_ours).and(difference);
            }
        }
        differences.extend(difference);
    }
    assert!(differences.is_empty(), "{} differences:\n\n{}", differences.len(), differences.join("\n"));
}

/// So many calls are answered before a line that has no answer yet counts as one that has none.
const LATER_CALLS: usize = 3;

/// So often a command is asked for until it is forgotten.
const FORGET_CALLS: usize = 500;

struct Server {
    program: PathBuf,
    root: PathBuf,
    home: PathBuf,
}

impl Server {
    async fn connect(&self) -> Peer {
        let mut peer = Peer::start(&self.program, &self.root, &self.home);
        peer.initialize().await;
        peer
    }

    /// What each step shows.
    async fn run(&self, peer: &mut Peer, case: &Case) -> Vec<Value> {
        let mut own;
        let peer = match case.fresh {
            true => {
                own = Peer::start(&self.program, &self.root, &self.home);
                &mut own
            }
            false => peer,
        };
        let mut sent = Vec::new();
        let mut shown = Vec::new();
        peer.notes.clear();
        for (step, _) in &case.steps {
            let root = peer.root.to_string_lossy().into_owned();
            let running = run_step(peer, step, &mut sent);
            let result = tokio::time::timeout(STEP_DEADLINE, running).await;
            let result = result.unwrap_or_else(|_| json!("nothing came"));
            shown.push(normalize(&result, &root));
        }
        if !case.fresh {
            forget_commands(peer, case).await;
        }
        shown
    }
}

/// Codex answers a command a moment before its id may be used again, and the next case uses the same. Whatever keeps an id for
/// longer (a child that holds the output) is not waited for.
async fn forget_commands(peer: &mut Peer, case: &Case) {
    let ids = case.steps.iter().filter_map(|(step, _)| match step {
        Step::Call("command/exec", params) | Step::Send("command/exec", params) => params["processId"].as_str(),
        _ => None,
    });
    for id in ids {
        for _ in 0..FORGET_CALLS {
            let answer = peer.call("command/exec/terminate", json!({ "processId": id })).await;
            if answer["error"]["message"].as_str().is_some_and(|why| why.starts_with("no active command/exec")) {
                break;
            }
        }
    }
}

/// All that watches tell until they have told of these.
async fn told_changes(peer: &mut Peer, wanted: &[(&str, &str)], again: Option<fn(&Path)>) -> Value {
    let root = peer.root.clone();
    let mut told = std::collections::BTreeSet::new();
    let is_told = |told: &std::collections::BTreeSet<(String, String)>| {
        wanted.iter().all(|(id, path)| {
            let path = root.join(path).to_string_lossy().into_owned();
            told.contains(&((*id).to_owned(), path))
        })
    };
    if let Some(change) = again {
        change(&root);
    }
    while !is_told(&told) {
        let note = peer.note(|note| note["method"] == "fs/changed");
        let note = match again {
            None => note.await,
            Some(change) => match tokio::time::timeout(CHANGE_AGAIN, note).await {
                Ok(note) => note,
                Err(_) => {
                    change(&root);
                    continue;
                }
            },
        };
        peer.notes.retain(|other| *other != note);
        let id = note["params"]["watchId"].as_str().expect("it has an id").to_owned();
        let paths = note["params"]["changedPaths"].as_array().expect("it has paths").clone();
        told.extend(paths.iter().map(|path| (id.clone(), path.as_str().expect("text").to_owned())));
    }
    json!(told)
}

async fn run_step(peer: &mut Peer, step: &Step, sent: &mut Vec<i64>) -> Value {
    match step {
        Step::Call(method, params) => {
            let params = with_root(params, &peer.root);
            let answer = peer.call(method, params).await;
            with_output(peer, answer, *method == "command/exec")
        }
        Step::Send(method, params) => {
            let params = with_root(params, &peer.root);
            sent.push(peer.send(method, params).await);
            Value::Null
        }
        Step::Answer(ago) => {
            let answer = peer.answer(sent[sent.len() - 1 - ago]).await;
            with_output(peer, answer, true)
        }
        Step::Line(line) => {
            peer.send_line(line.as_bytes()).await;
            let mut answers = Vec::new();
            // Codex carries out requests at the same time, so the answer to the line may come after that to the first.
            for _ in 0..LATER_CALLS {
                let id = peer.send("fs/unwatch", json!({ "watchId": "after the line" })).await;
                loop {
                    match peer.next_message().await {
                        Some(message) if message["id"] == id => break,
                        Some(message) if message.get("id").is_some() => answers.push(message),
                        Some(_) => {}
                        None => return json!("it ended"),
                    }
                }
            }
            json!(answers)
        }
        Step::Exited(handle) => {
            let is_wanted =
                |note: &Value| note["method"] == "process/exited" && note["params"]["processHandle"] == handle.as_str();
            let exited = peer.note(is_wanted).await;
            assert!(exited["emittedAtMs"].is_u64(), "{exited}");
            with_output(peer, exited["params"].clone(), true)
        }
        Step::Printed(id, text) => {
            peer.printed(id, text).await;
            Value::Null
        }
        Step::Do(work) => {
            work(&peer.root);
            Value::Null
        }
        Step::Changed(wanted) => told_changes(peer, wanted, None).await,
        Step::ChangedBy(change, wanted) => told_changes(peer, wanted, Some(*change)).await,
        Step::Settled(id) => loop {
            let answer = peer.call("environment/status", json!({ "environmentId": id })).await;
            if answer["result"]["status"] != "pending" {
                return answer;
            }
            tokio::task::yield_now().await;
        },
    }
}

/// Adds what was printed until now. Other notes stay: on a slow machine the exit of one process may be told before the answer
/// to a later request, and a later step waits for it.
fn with_output(peer: &mut Peer, mut answer: Value, take: bool) -> Value {
    if take {
        for ((id, stream), (bytes, cap_reached)) in collect_output(&peer.notes) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            answer[format!("{id}:{stream}")] = json!([text, cap_reached]);
        }
        peer.notes.retain(|note| note["params"].get("deltaBase64").is_none());
    }
    answer
}

fn with_root(value: &Value, root: &Path) -> Value {
    let text = value.to_string().replace(ROOT, &root.to_string_lossy());
    serde_json::from_str(&text).expect("a path changes no JSON")
}

/// Removes what may differ: folders, times, the order of names, and lists of other methods.
fn normalize(value: &Value, root: &str) -> Value {
    match value {
        Value::String(text) => {
            let text = text.replace(root, ROOT);
            match text.split_once(", expected one of `initialize`") {
                Some((before, _)) => json!(before),
                None => json!(text),
            }
        }
        Value::Array(items) => json!(items.iter().map(|item| normalize(item, root)).collect::<Vec<_>>()),
        Value::Object(members) => {
            let mut normal = serde_json::Map::new();
            for (key, member) in members {
                let member = match key.as_str() {
                    "createdAtMs" | "userAgent" | "codexHome" => json!("*"),
                    "modifiedAtMs" if member.as_i64().is_some_and(|ms| ms > 1_000_000_000_000) => json!("now"),
                    "entries" => sorted(normalize(member, root)),
                    _ => normalize(member, root),
                };
                normal.insert(key.clone(), member);
            }
            Value::Object(normal)
        }
        other => other.clone(),
    }
}

fn sorted(entries: Value) -> Value {
    let mut entries = entries.as_array().cloned().unwrap_or_default();
    entries.sort_by_key(Value::to_string);
    json!(entries)
}

fn find_difference(case: &Case, codex: &[Value], ours: &[Value]) -> Option<String> {
    let mut found = Vec::new();
    for (at, (step, difference)) in case.steps.iter().enumerate() {
        let (codex, ours) = (&codex[at], &ours[at]);
        let shown = || format!("    codex: {}\n    ours:  {}", short(codex), short(ours));
        match difference {
            None if codex == ours => {}
            None => found.push(format!("  {}\n{}", describe(step), shown())),
            Some(declared) if declared.ours != *ours => found.push(format!(
                "  {}\n    declared ({}): {}\n{}",
                describe(step),
                declared.name,
                short(&declared.ours),
                shown()
            )),
            Some(declared) if codex == ours => {
                found.push(format!("  {}\n    does not differ any more ({})", describe(step), declared.name));
            }
            Some(_) => {}
        }
    }
    (!found.is_empty()).then(|| format!("{}\n{}\n", case.name, found.join("\n")))
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(1000).collect()
}

fn describe(step: &Step) -> String {
    let text = match step {
        Step::Call(method, params) | Step::Send(method, params) => format!("{method} {params}"),
        Step::Answer(ago) => format!("answer {ago}"),
        Step::Line(line) => format!("line {line}"),
        Step::Exited(handle) => format!("exited {handle}"),
        Step::Printed(id, text) => format!("printed {id} {text}"),
        Step::Do(_) => "does".to_owned(),
        Step::Changed(wanted) | Step::ChangedBy(_, wanted) => format!("changed {wanted:?}"),
        Step::Settled(id) => format!("settled {id}"),
    };
    text.chars().take(200).collect()
}
