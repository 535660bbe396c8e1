//! The one table of methods: names, families, priorities, and the types of their params and results.
//!
//! Everything else that must know all methods is made from it: parsing a name, the typed calls of a client
//! ([`Call`]), the notifications ([`NotificationParams`]), the schema, and the tests over golden files. Who answers a method is not
//! known here.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::DecodeError;
use crate::scan::RawJson;
use crate::{discovery, environment, fs, http, initialize, network, process, session};

/// Which methods a client may not use before the handshake is told by family.
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
    /// `network/*`, which the server asks.
    Network,
}

impl MethodFamily {
    /// As error texts name it.
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

/// How a request waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Never behind anything.
    Control,
    /// Behind as many others as the server runs at once.
    Ordinary,
}

/// Params that know their method and what it answers.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    /// The method.
    const METHOD: Method;
    /// What it answers.
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// Params that know their notification.
pub trait NotificationParams: Serialize + DeserializeOwned + Send + 'static {
    /// The notification.
    const METHOD: NotificationMethod;
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct MethodSpec {
    /// As it is written.
    pub name: &'static str,
    /// In which family.
    pub family: MethodFamily,
    /// Whether it waits behind other requests.
    pub priority: Priority,
    /// The params.
    pub params: JsonType,
    /// The result.
    pub result: JsonType,
}

/// A type, for those who must handle all of them alike.
#[derive(Clone, Copy)]
pub struct JsonType {
    /// Its Rust name.
    pub type_name: &'static str,
    /// Reads a value and forgets it.
    pub check: fn(RawJson<'_>) -> Result<(), DecodeError>,
    /// Reads a value and writes it again.
    pub rewrite: fn(RawJson<'_>) -> Result<String, DecodeError>,
    /// Its schema.
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
        /// A request.
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

            /// Its row.
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
        /// A notification.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum NotificationMethod {
            $($(#[$doc])* $variant,)*
        }

        impl NotificationMethod {
            /// All of them.
            pub const ALL: &'static [NotificationMethod] = &[$(Self::$variant,)*];

            /// The notification of that name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// As it is written.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Its params.
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
    /// Where is this?
    EnvironmentInfo "environment/info" EnvironmentInfo Control environment::InfoParams => environment::EnvironmentInfo;
    /// Is anybody there?
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
    /// Waits for something to be true of one. Ours.
    ProcessWait "process/wait" Exec Ordinary process::WaitParams => process::WaitResult;
    /// Lets go of one. Ours.
    ProcessForget "process/forget" Exec Ordinary process::ForgetParams => process::ForgetResult;
    /// Makes an HTTP request from there.
    HttpRequest "http/request" Http Ordinary http::RequestParams => http::RequestResult;
    /// Looks through roots for skills and plugins.
    CapabilityRootsDiscover "capabilityRoots/discoverV1" CapabilityDiscovery Ordinary discovery::DiscoverRootsParams => discovery::DiscoverRootsResult;
    /// Looks for all that count in a directory.
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
    /// What is known about a file.
    FsGetMetadata "fs/getMetadata" Filesystem Ordinary fs::GetMetadataParams => fs::GetMetadataResult;
    /// The one path without links.
    FsCanonicalize "fs/canonicalize" Filesystem Ordinary fs::CanonicalizeParams => fs::CanonicalizeResult;
    /// The entries of a directory.
    FsReadDirectory "fs/readDirectory" Filesystem Ordinary fs::ReadDirectoryParams => fs::ReadDirectoryResult;
    /// A tree.
    FsWalk "fs/walk" Filesystem Ordinary fs::WalkParams => fs::WalkResult;
    /// Removes.
    FsRemove "fs/remove" Filesystem Ordinary fs::RemoveParams => fs::RemoveResult;
    /// Copies.
    FsCopy "fs/copy" Filesystem Ordinary fs::CopyParams => fs::CopyResult;
    /// Tells once when something appears.
    FsWatchMissing "fs/watchMissing" Filesystem Ordinary fs::WatchMissingParams => fs::WatchMissingResult;
    /// Renames. Ours.
    FsRename "fs/rename" Filesystem Ordinary fs::RenameParams => fs::RenameResult;
    /// Sets permission bits. Ours.
    FsSetPermissions "fs/setPermissions" Filesystem Ordinary fs::SetPermissionsParams => fs::SetPermissionsResult;
    /// Sets times. Ours.
    FsSetTimes "fs/setTimes" Filesystem Ordinary fs::SetTimesParams => fs::SetTimesResult;
    /// What a link says. Ours.
    FsReadLink "fs/readLink" Filesystem Ordinary fs::ReadLinkParams => fs::ReadLinkResult;
    /// Makes a link. Ours.
    FsCreateSymlink "fs/createSymlink" Filesystem Ordinary fs::CreateSymlinkParams => fs::CreateSymlinkResult;
    /// Tells what changes. Ours.
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
    /// May a process reach a destination? The server asks this.
    NetworkPolicyRequest "network/policyRequest" Network Ordinary network::PolicyRequestParams => network::PolicyRequestResult;
}

notifications! {
    /// The client has read the answer to `initialize`. The only one that clients send.
    Initialized "initialized" initialize::InitializedParams;
    /// There is output.
    ProcessOutput "process/output" process::OutputParams;
    /// The leader has ended.
    ProcessExited "process/exited" process::ExitedParams;
    /// No more output can come.
    ProcessClosed "process/closed" process::ClosedParams;
    /// A piece of a streamed body.
    HttpBodyDelta "http/request/bodyDelta" http::BodyDeltaParams;
    /// What was decided about a destination.
    NetworkPolicyDecision "network/policyDecision" network::PolicyDecisionParams;
    /// What was missing appeared.
    FsMissingChanged "fs/missingChanged" fs::MissingChangedParams;
    /// What changed. Ours.
    FsChanged "fs/changed" fs::ChangedParams;
    /// How far a copy is. Ours.
    FsCopyProgress "fs/copyProgress" fs::CopyProgressParams;
    /// What was found. Ours.
    FsFound "fs/found" fs::FoundParams;
    /// The session now belongs to another connection. Ours.
    SessionTakenOver "session/takenOver" session::TakenOverParams;
}

impl Method {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The request of that name that a server answers.
    pub fn parse_for_server(name: &str) -> Option<Self> {
        Self::parse(name).filter(|method| method.spec().family != MethodFamily::Network)
    }
}
