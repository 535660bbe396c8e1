//! The one table of methods: names, families, priorities, and the types of their params and results.
//!
//! Everything else that must know all methods is made from it: parsing a name, the typed calls of a client
//! ([`Call`]), the notifications ([`NotificationParams`]), the schema, and the tests over golden files. Handlers are not
//! known here.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::DecodeError;
use crate::scan::RawJson;
use crate::{discovery, environment, fs, http, initialize, network, process, session};

/// Errors about the handshake name the family of the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodFamily {
    /// The handshake itself.
    Handshake,
    /// `process/*`
    Exec,
    /// `fs/*`
    Filesystem,
    /// `http/*`
    Http,
    /// `environment/info`
    EnvironmentInfo,
    /// `environment/status`
    EnvironmentStatus,
    /// `environmentConfig/*`
    EnvironmentConfig,
    /// Both discovery methods.
    CapabilityDiscovery,
    /// `session/*`, ours.
    Session,
    /// `network/*`, which the server sends.
    Network,
}

impl MethodFamily {
    /// The name in error texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Exec => "exec",
            Self::Filesystem => "filesystem",
            Self::Http => "http",
            Self::EnvironmentInfo => "environment info",
            Self::EnvironmentStatus => "environment status",
            Self::EnvironmentConfig => "environment config",
            Self::CapabilityDiscovery => "capability discovery",
            Self::Session => "session",
            Self::Network => "network",
        }
    }
}

/// Whether a request waits behind others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// It starts at once.
    Control,
    /// It waits while the server runs as many ordinary requests as it may.
    Ordinary,
}

/// The params of a request, which name their method and the type of its result.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    const METHOD: Method;
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// The params of a notification, which name it.
pub trait NotificationParams: Serialize + DeserializeOwned + Send + 'static {
    const METHOD: NotificationMethod;
}

#[derive(Clone, Copy)]
pub struct MethodSpec {
    pub name: &'static str,
    pub family: MethodFamily,
    /// Whether it waits behind other requests.
    pub priority: Priority,
    pub params: JsonType,
    pub result: JsonType,
}

/// A type of the table, for code that handles all of them alike.
#[derive(Clone, Copy)]
pub struct JsonType {
    pub type_name: &'static str,
    /// Whether a value can be read as this type.
    pub check: fn(RawJson<'_>) -> Result<(), DecodeError>,
    /// Reads a value as this type and writes it again.
    pub rewrite: fn(RawJson<'_>) -> Result<String, DecodeError>,
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl JsonType {
    const fn of<T: Serialize + DeserializeOwned + JsonSchema>(type_name: &'static str) -> Self {
        Self {
            type_name,
            check: |raw| raw.decode::<T>().map(drop),
            rewrite: rewrite::<T>,
            schema: SchemaGenerator::subschema_for::<T>,
        }
    }
}

fn rewrite<T: Serialize + DeserializeOwned>(raw: RawJson<'_>) -> Result<String, DecodeError> {
    let value: T = raw.decode()?;
    serde_json::to_string(&value).map_err(serde::de::Error::custom)
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal $family:ident $priority:ident $params:ty => $result:ty;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Method] = &[$(Self::$variant,)*];

            /// The method of that name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub const fn spec(self) -> &'static MethodSpec {
                match self {
                    $(Self::$variant => const { &MethodSpec {
                        name: $name,
                        family: MethodFamily::$family,
                        priority: Priority::$priority,
                        params: JsonType::of::<$params>(stringify!($params)),
                        result: JsonType::of::<$result>(stringify!($result)),
                    } },)*
                }
            }
        }

        $(impl Call for $params {
            const METHOD: Method = Method::$variant;
            type Result = $result;
        })*
    };
}

macro_rules! notifications {
    ($($(#[$doc:meta])* $variant:ident $name:literal $params:ty;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum NotificationMethod {
            $($(#[$doc])* $variant,)*
        }

        impl NotificationMethod {
            pub const ALL: &'static [NotificationMethod] = &[$(Self::$variant,)*];

            /// The notification of that name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            pub const fn params(self) -> JsonType {
                match self {
                    $(Self::$variant => JsonType::of::<$params>(stringify!($params)),)*
                }
            }
        }

        $(impl NotificationParams for $params {
            const METHOD: NotificationMethod = NotificationMethod::$variant;
        })*
    };
}

methods! {
    /// Opens a session, or takes one over.
    Initialize "initialize" Handshake Ordinary initialize::InitializeParams => initialize::InitializeResult;
    /// Describes the machine.
    EnvironmentInfo "environment/info" EnvironmentInfo Control environment::InfoParams => environment::EnvironmentInfo;
    /// Answers `ready`.
    EnvironmentStatus "environment/status" EnvironmentStatus Control environment::StatusParams => environment::StatusResult;
    /// Parts of the executor's configuration.
    EnvironmentConfigRead "environmentConfig/read" EnvironmentConfig Ordinary environment::ConfigReadParams => environment::ConfigReadResult;
    /// Starts a process.
    ProcessStart "process/start" Exec Ordinary process::StartParams => process::StartResult;
    /// Reads its output.
    ProcessRead "process/read" Exec Ordinary process::ReadParams => process::ReadResult;
    /// Writes to its stdin.
    ProcessWrite "process/write" Exec Ordinary process::WriteParams => process::WriteResult;
    /// Sends it a signal.
    ProcessSignal "process/signal" Exec Control process::SignalParams => process::SignalResult;
    /// Ends it and everything it started.
    ProcessTerminate "process/terminate" Exec Control process::TerminateParams => process::TerminateResult;
    /// Changes the size of its terminal. Ours.
    ProcessResize "process/resize" Exec Control process::ResizeParams => process::ResizeResult;
    /// Ends its stdin. Ours.
    ProcessCloseStdin "process/closeStdin" Exec Ordinary process::CloseStdinParams => process::CloseStdinResult;
    /// Lists them. Ours.
    ProcessList "process/list" Exec Control process::ListParams => process::ListResult;
    /// Waits for a condition. Ours.
    ProcessWait "process/wait" Exec Ordinary process::WaitParams => process::WaitResult;
    /// Deletes one. Ours.
    ProcessForget "process/forget" Exec Ordinary process::ForgetParams => process::ForgetResult;
    /// Makes an HTTP request from there.
    HttpRequest "http/request" Http Ordinary http::RequestParams => http::RequestResult;
    /// Looks through roots for skills and plugins.
    CapabilityRootsDiscover "capabilityRoots/discoverV1" CapabilityDiscovery Ordinary discovery::DiscoverRootsParams => discovery::DiscoverRootsResult;
    /// Finds the skills and plugins that apply in a directory.
    CapabilitiesDiscoverV2 "capabilities/discoverV2" CapabilityDiscovery Ordinary discovery::DiscoverV2Params => discovery::DiscoverV2Result;
    /// Reads a file.
    FsReadFile "fs/readFile" Filesystem Ordinary fs::ReadFileParams => fs::ReadFileResult;
    /// Writes a file.
    FsWriteFile "fs/writeFile" Filesystem Ordinary fs::WriteFileParams => fs::WriteFileResult;
    /// Opens a file for blocks.
    FsOpen "fs/open" Filesystem Ordinary fs::OpenParams => fs::OpenResult;
    /// Reads a block.
    FsReadBlock "fs/readBlock" Filesystem Ordinary fs::ReadBlockParams => fs::ReadBlockResult;
    /// Writes a block.
    FsWriteBlock "fs/writeBlock" Filesystem Ordinary fs::WriteBlockParams => fs::WriteBlockResult;
    /// Closes a file.
    FsClose "fs/close" Filesystem Control fs::CloseParams => fs::CloseResult;
    /// Makes a directory.
    FsCreateDirectory "fs/createDirectory" Filesystem Ordinary fs::CreateDirectoryParams => fs::CreateDirectoryResult;
    /// Reads the metadata of a file.
    FsGetMetadata "fs/getMetadata" Filesystem Ordinary fs::GetMetadataParams => fs::GetMetadataResult;
    /// Resolves all links in a path.
    FsCanonicalize "fs/canonicalize" Filesystem Ordinary fs::CanonicalizeParams => fs::CanonicalizeResult;
    /// Lists a directory.
    FsReadDirectory "fs/readDirectory" Filesystem Ordinary fs::ReadDirectoryParams => fs::ReadDirectoryResult;
    /// Lists a tree.
    FsWalk "fs/walk" Filesystem Ordinary fs::WalkParams => fs::WalkResult;
    /// Removes a file or directory.
    FsRemove "fs/remove" Filesystem Ordinary fs::RemoveParams => fs::RemoveResult;
    /// Copies a file or directory.
    FsCopy "fs/copy" Filesystem Ordinary fs::CopyParams => fs::CopyResult;
    /// Sends one notification when something appears.
    FsWatchMissing "fs/watchMissing" Filesystem Ordinary fs::WatchMissingParams => fs::WatchMissingResult;
    /// Renames a file. Ours.
    FsRename "fs/rename" Filesystem Ordinary fs::RenameParams => fs::RenameResult;
    /// Sets permission bits. Ours.
    FsSetPermissions "fs/setPermissions" Filesystem Ordinary fs::SetPermissionsParams => fs::SetPermissionsResult;
    /// Sets times. Ours.
    FsSetTimes "fs/setTimes" Filesystem Ordinary fs::SetTimesParams => fs::SetTimesResult;
    /// Reads a link. Ours.
    FsReadLink "fs/readLink" Filesystem Ordinary fs::ReadLinkParams => fs::ReadLinkResult;
    /// Makes a link. Ours.
    FsCreateSymlink "fs/createSymlink" Filesystem Ordinary fs::CreateSymlinkParams => fs::CreateSymlinkResult;
    /// Sends notifications of changes. Ours.
    FsWatch "fs/watch" Filesystem Ordinary fs::WatchParams => fs::WatchResult;
    /// Ends that. Ours.
    FsUnwatch "fs/unwatch" Filesystem Control fs::UnwatchParams => fs::UnwatchResult;
    /// Searches contents. Ours.
    FsSearch "fs/search" Filesystem Ordinary fs::SearchParams => fs::SearchResult;
    /// Ends that. Ours.
    FsCancelSearch "fs/cancelSearch" Filesystem Control fs::CancelSearchParams => fs::CancelSearchResult;
    /// Searches names. Ours.
    FsGlob "fs/glob" Filesystem Ordinary fs::GlobParams => fs::GlobResult;
    /// Lists sessions. Ours.
    SessionList "session/list" Session Control session::ListParams => session::ListResult;
    /// Ends one. Ours.
    SessionClose "session/close" Session Control session::CloseParams => session::CloseResult;
    /// Asks whether a process may reach a destination. The server sends this.
    NetworkPolicyRequest "network/policyRequest" Network Ordinary network::PolicyRequestParams => network::PolicyRequestResult;
}

notifications! {
    /// Confirms the answer to `initialize`. The only notification that clients send.
    Initialized "initialized" initialize::InitializedParams;
    ProcessOutput "process/output" process::OutputParams;
    /// The leader has ended.
    ProcessExited "process/exited" process::ExitedParams;
    /// No more output can come.
    ProcessClosed "process/closed" process::ClosedParams;
    /// A piece of a streamed body.
    HttpBodyDelta "http/request/bodyDelta" http::BodyDeltaParams;
    /// Reports a decision about a destination.
    NetworkPolicyDecision "network/policyDecision" network::PolicyDecisionParams;
    FsMissingChanged "fs/missingChanged" fs::MissingChangedParams;
    /// Ours.
    FsChanged "fs/changed" fs::ChangedParams;
    /// Ours.
    FsCopyProgress "fs/copyProgress" fs::CopyProgressParams;
    /// Ours.
    FsFound "fs/found" fs::FoundParams;
    /// The session now belongs to another connection. Ours.
    SessionTakenOver "session/takenOver" session::TakenOverParams;
}

impl Method {
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The request of that name that a server answers.
    pub fn parse_for_server(name: &str) -> Option<Self> {
        Self::parse(name).filter(|method| method.spec().family != MethodFamily::Network)
    }
}
