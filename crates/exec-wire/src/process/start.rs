//! `process/start`: what to run, where, with which variables, and within which bounds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::base64::Base64;
use crate::environment::ShellInfo;
use crate::initialize::is_false;
use crate::network::{ManagedNetwork, NetworkProxy};
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};
use crate::text::OsText;

shapes! {
    #[serde(expecting = "struct WireExecParams")]
    pub struct StartParams {
        /// The id that the client gave the process; unique in its session.
        pub process_id: String,
        /// What the client knows about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub metadata: Nullable<Metadata>,
        /// Program and arguments; never empty.
        pub argv: Vec<OsText>,
        pub cwd: PathUri,
        /// What of the server's environment the child inherits; nothing if absent.
        pub env_policy: Option<EnvPolicy>,
        /// Variables that are always set.
        pub env: BTreeMap<String, OsText>,
        /// Whether the process gets a terminal rather than pipes.
        pub tty: bool,
        /// Whether stdin is a pipe; `/dev/null` otherwise.
        #[serde(default)]
        pub pipe_stdin: bool,
        /// The child's `argv[0]`, if it is to differ from the program.
        pub arg0: Option<OsText>,
        /// A login shell's state to start from.
        pub shell_snapshot: Option<ShellSnapshot>,
        pub sandbox: Option<SandboxContext>,
        /// Whether it must have no network but the managed one.
        #[serde(default, skip_serializing_if = "is_false")]
        pub enforce_managed_network: bool,
        pub managed_network: Option<ManagedNetwork>,
        /// The proxy of this process.
        pub network_proxy: Option<NetworkProxy>,
        /// Ours: the terminal's size; 24 × 80 if absent.
        pub size: Option<Size>,
        /// Ours: when to end it, from its start.
        pub timeout_ms: Option<u64>,
        /// Ours: time between TERM and KILL when the time is up.
        pub grace_ms: Option<u64>,
        /// Ours: what a full spool does.
        pub overflow: Option<Overflow>,
        /// Ours: how much output is held.
        pub spool_bytes: Option<u64>,
        /// Ours: how long the output and the exit are kept after the end; the server's own limit still holds.
        pub keep_ms: Option<u64>,
        /// Ours: opaque; found again in `process/list`.
        pub label: Option<Base64>,
        /// Ours: what it and all that it starts may use.
        pub limits: Option<Limits>,
        /// Ours: whose rights it has; those of the server's own user if absent.
        pub run_as: Option<RunAs>,
    }

    /// What a process and all that it starts may use at most. What the machine cannot enforce is refused.
    #[derive(Copy)]
    pub struct Limits {
        /// Memory of all together.
        pub memory_bytes: Option<u64>,
        /// Processes and threads of all together, at the same time.
        pub pids: Option<u64>,
        /// Processor time of all together.
        pub cpu_seconds: Option<u64>,
        /// Open files of each process.
        pub open_files: Option<u64>,
        /// Size of each file that is written.
        pub file_bytes: Option<u64>,
    }

    /// What enforces each limit that was asked for: `cgroupV1` or `cgroupV2`, of all processes together; `rlimit`, of each.
    pub struct LimitReport {
        pub memory_bytes: Option<String>,
        pub pids: Option<String>,
        pub cpu_seconds: Option<String>,
        pub open_files: Option<String>,
        pub file_bytes: Option<String>,
    }

    /// Whose rights a process has.
    pub struct RunAs {
        /// A name, or a number if no user has it as a name.
        pub user: String,
    }

    /// What a client knows about a process.
    #[derive(Default)]
    #[serde(expecting = "struct ExecMetadata")]
    pub struct Metadata {
        pub thread_id: Option<ThreadId>,
        /// The model's call.
        pub tool_call_id: Option<String>,
    }

    /// What of the server's environment a child inherits. Patterns are wildcards without regard to case.
    #[serde(expecting = "struct ExecEnvPolicy")]
    pub struct EnvPolicy {
        pub inherit: EnvInherit,
        /// Keep names that look like secrets.
        pub ignore_default_excludes: bool,
        /// Names to drop.
        pub exclude: Vec<String>,
        /// Variables to set.
        pub set: BTreeMap<String, String>,
        /// If not empty, names to keep.
        pub include_only: Vec<String>,
    }

    /// What of the server's environment to begin with.
    pub enum EnvInherit {
        /// What every shell needs.
        Core,
        /// All variables.
        All,
        /// No variables.
        None,
    }

    /// A login shell's state to start from.
    #[serde(expecting = "struct ShellSnapshotRequest")]
    pub struct ShellSnapshot {
        pub scope_id: String,
        pub shell: ShellInfo,
    }

    /// Rows and columns of a terminal.
    #[derive(Copy)]
    pub struct Size {
        pub rows: u16,
        pub cols: u16,
    }

    /// What a full spool does.
    #[derive(Default)]
    pub enum Overflow {
        /// Forget the oldest output, and say so.
        #[default]
        DropOldest,
        /// Let the child wait until there is space.
        Block,
    }

    pub struct StartResult {
        /// The id that the client gave.
        pub process_id: String,
        /// The sandbox that is enforced; older servers do not say.
        pub sandbox_type: Option<SandboxType>,
        /// Ours: the kernel's process id; for people, never for signals.
        pub pid: Option<u32>,
        /// Ours: what confines it; absent if nothing does.
        pub sandbox: Option<SandboxReport>,
        /// Ours: what enforces its limits; absent if it has none.
        pub limits: Option<LimitReport>,
    }

    /// What confines a process.
    pub struct SandboxReport {
        /// `namespaces`, `landlock-7`, `seccomp`, `supervisor`, in the order in which they were applied.
        pub means: Vec<String>,
    }

    /// The kind of sandbox that is enforced.
    pub enum SandboxType {
        /// No sandbox.
        None,
        /// Seatbelt.
        MacosSeatbelt,
        /// Namespaces, Landlock and seccomp.
        LinuxSeccomp,
        /// A token with fewer rights.
        WindowsRestrictedToken,
        /// A container.
        WindowsMxc,
    }
}

/// The id of a conversation: a UUID in any of its spellings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(pub Uuid);

/// What is wrong with a UUID, in the words of Codex's server, whose `uuid` crate said more than today's.
fn uuid_error(text: &str) -> String {
    let bare =
        text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).or_else(|| text.strip_prefix("urn:uuid:"));
    let inside = bare.unwrap_or(text);
    let offset = text.find(inside).unwrap_or(0);
    let odd = |(_, character): &(usize, char)| *character != '-' && !character.is_ascii_hexdigit();
    if let Some((index, character)) = inside.char_indices().find(odd) {
        let place = offset + index + 1;
        return format!(
            "invalid character: expected an optional prefix of `urn:uuid:` followed by [0-9a-fA-F-], found `{character}` at {place}"
        );
    }
    let groups = inside.split('-').map(str::len).collect::<Vec<_>>();
    if groups.len() == 1 && bare.is_none() {
        let found = text.len();
        return format!("invalid length: expected length 32 for simple format, found {found}");
    }
    if groups.len() != 5 {
        let found = groups.len();
        return format!("invalid group count: expected 5, found {found}");
    }
    let lengths = [8, 4, 4, 4, 12].into_iter().zip(groups).enumerate();
    let wrong = lengths.filter(|(_, (expected, found))| expected != found);
    match wrong.into_iter().next() {
        Some((group, (expected, found))) => {
            format!("invalid group length in group {group}: expected {expected}, found {found}")
        }
        None => "invalid UUID".to_owned(),
    }
}

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Uuid::parse_str(&text).map(Self).map_err(|_| serde::de::Error::custom(uuid_error(&text)))
    }
}

impl Serialize for ThreadId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl JsonSchema for ThreadId {
    fn schema_name() -> Cow<'static, str> {
        "ThreadId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}
