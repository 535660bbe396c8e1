//! The one table of methods. A new method is one row here, its shapes, and a handler.
//!
//! Everything that must know all methods reads this table: parsing a name, the typed calls of a client ([`Call`]), the
//! dispatch and the response cache of a server, the order of stdin requests, what a client may send again after a break
//! ([`RetryPolicy`]), the list of extensions ([`crate::extension`]), the schema, and the lists of PROTOCOL.md. Who answers
//! a method is not known here.

mod behaviour;

use bytes::Bytes;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base64::Base64;
use crate::binary::{self, FrameHeader};
use crate::decode::DecodeError;
use crate::extension::Extension;
use crate::path_uri::PathUri;
use crate::scan::RawJson;
use crate::{discovery, environment, fs, http, initialize, net, network, process, session};
pub use behaviour::{Behaviour, MethodFamily, ObserverAccess, Origin, Priority, RetryPolicy};
use behaviour::{CHANGES, READS};

/// Params that know their method and its result.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    const METHOD: Method;
    type Result: Serialize + DeserializeOwned + Send + 'static;

    /// The params that a binary frame carries, if the method has such frames. The payload is not copied.
    fn from_frame(_frame: &Bytes) -> Option<Self> {
        None
    }

    /// Writes the header of the request as a binary frame, if the method has one; its payload is what is returned. They are apart
    /// so that the payload need not be copied.
    fn write_frame_header(&self, _request_id: &str, _out: &mut Vec<u8>) -> Option<Bytes> {
        None
    }

    /// The paths that it changes; of the two of a copy or a rename, the second is where to. For the audit.
    fn changed_paths(&self) -> Vec<&PathUri> {
        Vec::new()
    }

    /// The result that a binary frame with a block of a file carries, if the method has one.
    fn result_from_block(_block: Bytes, _eof: bool) -> Option<Self::Result> {
        None
    }
}

/// Params that know their notification.
pub trait NotificationParams: Serialize + DeserializeOwned + Send + 'static {
    const METHOD: NotificationMethod;
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct MethodSpec {
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    pub family: MethodFamily,
    pub behaviour: Behaviour,
}

/// A type of params or results, for code that handles all of them alike: the tests over golden files. It is no part of a row,
/// because whoever looks at a row would have all of this compiled into the program: some megabytes.
#[derive(Clone, Copy)]
pub struct JsonType {
    pub type_name: &'static str,
    /// Decodes a value and drops it.
    pub check: fn(RawJson<'_>) -> Result<(), DecodeError>,
    /// Decodes a value and encodes it again.
    pub rewrite: fn(RawJson<'_>) -> Result<String, DecodeError>,
}

impl JsonType {
    const fn of<T: Serialize + DeserializeOwned>(type_name: &'static str) -> Self {
        Self { type_name, check: |raw| raw.decode::<T>().map(drop), rewrite: rewrite::<T> }
    }
}

fn rewrite<T: Serialize + DeserializeOwned>(raw: RawJson<'_>) -> Result<String, DecodeError> {
    let value: T = raw.decode()?;
    serde_json::to_string(&value).map_err(serde::de::Error::custom)
}

macro_rules! methods {
    ($(
        #[doc = $summary:literal]
        $variant:ident $name:literal $family:ident, $behaviour:expr, $params:ty => $result:ty $({ $($frame:tt)* })?;
    )*) => {
        /// A request, by its method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = $summary] $variant,)*
        }

        impl Method {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Method] = &[$(Self::$variant,)*];

            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its row of the table.
            pub const fn spec(self) -> &'static MethodSpec {
                match self {
                    $(Self::$variant => const { &MethodSpec {
                        name: $name,
                        summary: $summary.trim_ascii(),
                        family: MethodFamily::$family,
                        behaviour: $behaviour,
                    } },)*
                }
            }

            pub const fn params(self) -> JsonType {
                match self {
                    $(Self::$variant => JsonType::of::<$params>(stringify!($params)),)*
                }
            }

            pub const fn result(self) -> JsonType {
                match self {
                    $(Self::$variant => JsonType::of::<$result>(stringify!($result)),)*
                }
            }

            /// The schemas of its params and of its result.
            pub(crate) fn schemas(self, generator: &mut SchemaGenerator) -> (Schema, Schema) {
                match self {
                    $(Self::$variant => {
                        (generator.subschema_for::<$params>(), generator.subschema_for::<$result>())
                    })*
                }
            }
        }

        $(impl Call for $params {
            const METHOD: Method = Method::$variant;
            type Result = $result;
            $($($frame)*)?
        })*
    };
}

macro_rules! notifications {
    ($(#[doc = $summary:literal] $variant:ident $name:literal $params:ty;)*) => {
        /// A notification, by its method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum NotificationMethod {
            $(#[doc = $summary] $variant,)*
        }

        impl NotificationMethod {
            /// All of them, in the order of the table.
            pub const ALL: &'static [NotificationMethod] = &[$(Self::$variant,)*];

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

            /// What it says, in one line.
            pub const fn summary(self) -> &'static str {
                match self {
                    $(Self::$variant => $summary.trim_ascii(),)*
                }
            }

            pub const fn params(self) -> JsonType {
                match self {
                    $(Self::$variant => JsonType::of::<$params>(stringify!($params)),)*
                }
            }

            /// The schema of its params.
            pub(crate) fn schema(self, generator: &mut SchemaGenerator) -> Schema {
                match self {
                    $(Self::$variant => generator.subschema_for::<$params>(),)*
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
    Initialize "initialize" Handshake, CHANGES.once().unrouted(), initialize::InitializeParams => initialize::InitializeResult;
    /// Describes the environment.
    EnvironmentInfo "environment/info" EnvironmentInfo, READS.control().unrouted(), environment::InfoParams => environment::EnvironmentInfo;
    /// Tells whether the environment can be used.
    EnvironmentStatus "environment/status" EnvironmentStatus, READS.control().unrouted(), environment::StatusParams => environment::StatusResult;
    /// Lists the environments of the server.
    EnvironmentList "environment/list" EnvironmentStatus, READS.control().unrouted().ours(), environment::ListParams => environment::ListResult;
    /// Adds an environment, or replaces one.
    EnvironmentAdd "environment/add" EnvironmentStatus, CHANGES.control().unrouted().ours(), environment::AddParams => environment::AddResult;
    /// Takes an environment away.
    EnvironmentRemove "environment/remove" EnvironmentStatus, CHANGES.control().unrouted().ours(), environment::RemoveParams => environment::RemoveResult;
    /// Reads parts of the executor's configuration.
    EnvironmentConfigRead "environmentConfig/read" EnvironmentConfig, READS, environment::ConfigReadParams => environment::ConfigReadResult;
    /// Starts a process. The server knows it again by its process id.
    ProcessStart "process/start" Exec, CHANGES.audited(), process::StartParams => process::StartResult;
    /// Reads a page of a process's log, and may wait for it.
    ProcessRead "process/read" Exec, READS.waits(), process::ReadParams => process::ReadResult;
    /// Shows a part of a process's log: its end, lines that match, without escape sequences.
    ProcessView "process/view" Exec, READS.ours(), process::ViewParams => process::ViewResult;
    /// Draws the screen of a terminal, now or after any entry of the log.
    ProcessScreen "process/screen" Exec, READS.ours(), process::ScreenParams => process::ScreenResult;
    /// Writes to stdin. The server knows a write again by its write id.
    ProcessWrite "process/write" Exec, CHANGES.stdin().waits(), process::WriteParams => process::WriteResult;
    /// Sends a signal to the process group.
    ProcessSignal "process/signal" Exec, CHANGES.remembered().control(), process::SignalParams => process::SignalResult;
    /// Ends a process and everything that it started.
    ProcessTerminate "process/terminate" Exec, CHANGES.control().waits(), process::TerminateParams => process::TerminateResult;
    /// Changes the size of the terminal.
    ProcessResize "process/resize" Exec, CHANGES.control().ours(), process::ResizeParams => process::ResizeResult;
    /// Closes stdin.
    ProcessCloseStdin "process/closeStdin" Exec, CHANGES.stdin().waits().ours(), process::CloseStdinParams => process::CloseStdinResult;
    /// Lists the processes of the session.
    ProcessList "process/list" Exec, READS.control().unrouted().ours(), process::ListParams => process::ListResult;
    /// Waits until something is true of a process.
    ProcessWait "process/wait" Exec, READS.waits().ours(), process::WaitParams => process::WaitResult;
    /// Drops a process and its log.
    ProcessForget "process/forget" Exec, CHANGES.ours(), process::ForgetParams => process::ForgetResult;
    /// Makes an HTTP request from the environment. It is dropped with its connection: nobody else could read the response.
    HttpRequest "http/request" Http, READS.once().waits().audited().for_drivers(), http::RequestParams => http::RequestResult;
    /// Says which pieces of a streamed body were taken.
    HttpAcknowledge "http/acknowledge" Http, CHANGES.once().control().ours(), http::AcknowledgeBodyParams => http::AcknowledgeBodyResult;
    /// Ends a request whose response is streamed.
    HttpCancel "http/cancel" Http, CHANGES.once().control().ours(), http::CancelRequestParams => http::CancelRequestResult;
    /// Connects from the machine. The server knows the stream again by its id.
    NetOpen "net/open" Streams, CHANGES.waits().audited().ours(), net::OpenParams => net::OpenResult;
    /// Reads a chunk of a stream, and waits for it.
    NetRead "net/read" Streams, READS.waits().for_drivers().ours_with("net/open"), net::ReadParams => net::ReadResult {
        fn result_from_block(block: Bytes, eof: bool) -> Option<Self::Result> {
            Some(net::ReadResult { chunk: block.into(), eof })
        }
    };
    /// Writes to a stream. The server knows bytes again by their offset.
    NetWrite "net/write" Streams, CHANGES.control().bulk().ours_with("net/open"), net::WriteParams => net::WriteResult {
        fn from_frame(frame: &Bytes) -> Option<Self> {
            let (FrameHeader::StreamWrite { stream_id, offset, eof, .. }, payload) = binary::decode(frame).ok()? else {
                return None;
            };
            Some(Self { stream_id: stream_id.to_owned(), offset, chunk: Base64(frame.slice_ref(payload)), eof })
        }

        fn write_frame_header(&self, request_id: &str, out: &mut Vec<u8>) -> Option<Bytes> {
            let Self { stream_id, offset, eof, .. } = self;
            let header = FrameHeader::StreamWrite { request_id, stream_id, offset: *offset, eof: *eof };
            binary::encode_header(out, &header).ok().map(|()| self.chunk.0.clone())
        }
    };
    /// Waits until a stream has room for what is to be written.
    NetAwaitRoom "net/awaitRoom" Streams, READS.waits().for_drivers().ours_with("net/open"), net::AwaitRoomParams => net::WriteResult;
    /// Closes a stream.
    NetClose "net/close" Streams, CHANGES.waits().ours_with("net/open"), net::CloseParams => net::CloseResult;
    /// Listens on the machine. The server knows the listener again by its id.
    NetListen "net/listen" Streams, CHANGES.audited().ours(), net::ListenParams => net::ListenResult;
    /// Waits for the next connection to a listener.
    NetAccept "net/accept" Streams, READS.waits().for_drivers().ours_with("net/listen"), net::AcceptParams => net::AcceptResult;
    /// Stops listening.
    NetUnlisten "net/unlisten" Streams, CHANGES.control().ours_with("net/listen"), net::UnlistenParams => net::UnlistenResult;
    /// Looks through directories for skills and plugins.
    CapabilityRootsDiscover "capabilityRoots/discoverV1" CapabilityDiscovery, READS, discovery::DiscoverRootsParams => discovery::DiscoverRootsResult;
    /// Looks for everything that applies to a directory. No server of ours answers it.
    CapabilitiesDiscoverV2 "capabilities/discoverV2" CapabilityDiscovery, READS, discovery::DiscoverV2Params => discovery::DiscoverV2Result;
    /// Reads a whole file.
    FsReadFile "fs/readFile" Filesystem, READS, fs::ReadFileParams => fs::ReadFileResult;
    /// Replaces a file, or appends to it.
    FsWriteFile "fs/writeFile" Filesystem, CHANGES.remembered().bulk().audited(), fs::WriteFileParams => fs::WriteFileResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Opens a file, to read or write it in blocks. The handle belongs to the connection.
    FsOpen "fs/open" Filesystem, CHANGES.audited().for_observers_that_change_no_path(), fs::OpenParams => fs::OpenResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            if self.mode == fs::OpenMode::Read { Vec::new() } else { vec![&self.path] }
        }
    };
    /// Reads a block of an open file.
    FsReadBlock "fs/readBlock" Filesystem, READS.on_its_connection(), fs::ReadBlockParams => fs::ReadBlockResult {
        fn result_from_block(block: Bytes, eof: bool) -> Option<Self::Result> {
            Some(fs::ReadBlockResult { chunk: block.into(), eof })
        }
    };
    /// Writes a block of an open file.
    FsWriteBlock "fs/writeBlock" Filesystem, CHANGES.bulk().on_its_connection(), fs::WriteBlockParams => fs::WriteBlockResult {
        fn from_frame(frame: &Bytes) -> Option<Self> {
            let (FrameHeader::Write { handle_id, offset, .. }, payload) = binary::decode(frame).ok()? else { return None };
            Some(Self { handle_id: handle_id.to_owned(), offset, chunk: Base64(frame.slice_ref(payload)) })
        }

        fn write_frame_header(&self, request_id: &str, out: &mut Vec<u8>) -> Option<Bytes> {
            let header = FrameHeader::Write { request_id, handle_id: &self.handle_id, offset: self.offset };
            binary::encode_header(out, &header).ok().map(|()| self.chunk.0.clone())
        }
    };
    /// Closes an open file.
    FsClose "fs/close" Filesystem, CHANGES.control().for_observers(), fs::CloseParams => fs::CloseResult;
    /// Makes a directory.
    FsCreateDirectory "fs/createDirectory" Filesystem, CHANGES.remembered().audited(), fs::CreateDirectoryParams => fs::CreateDirectoryResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Tells what is known about a file.
    FsGetMetadata "fs/getMetadata" Filesystem, READS, fs::GetMetadataParams => fs::GetMetadataResult;
    /// Resolves a path to the one without links and dots.
    FsCanonicalize "fs/canonicalize" Filesystem, READS, fs::CanonicalizeParams => fs::CanonicalizeResult;
    /// Lists a directory.
    FsReadDirectory "fs/readDirectory" Filesystem, READS, fs::ReadDirectoryParams => fs::ReadDirectoryResult;
    /// Lists a tree.
    FsWalk "fs/walk" Filesystem, READS, fs::WalkParams => fs::WalkResult;
    /// Removes a file, a link or a directory.
    FsRemove "fs/remove" Filesystem, CHANGES.remembered().audited(), fs::RemoveParams => fs::RemoveResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Copies a file, a link or a directory within the environment.
    FsCopy "fs/copy" Filesystem, CHANGES.remembered().audited(), fs::CopyParams => fs::CopyResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.source_path, &self.destination_path]
        }
    };
    /// Watches for the first of some paths that appears. The watch belongs to the connection.
    FsWatchMissing "fs/watchMissing" Filesystem, READS, fs::WatchMissingParams => fs::WatchMissingResult;
    /// Renames a file or a directory.
    FsRename "fs/rename" Filesystem, CHANGES.remembered().ours().audited(), fs::RenameParams => fs::RenameResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.source_path, &self.destination_path]
        }
    };
    /// Makes several changes of files, all or none.
    FsApplyChanges "fs/applyChanges" Filesystem, CHANGES.remembered().bulk().ours().audited(), fs::ApplyChangesParams => fs::ApplyChangesResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            self.changes.iter().flat_map(fs::FileChange::paths).collect()
        }
    };
    /// Sets permission bits.
    FsSetPermissions "fs/setPermissions" Filesystem, CHANGES.ours().audited(), fs::SetPermissionsParams => fs::SetPermissionsResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Sets the times of last access and modification.
    FsSetTimes "fs/setTimes" Filesystem, CHANGES.ours().audited(), fs::SetTimesParams => fs::SetTimesResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Tells the extended attributes that users set.
    FsGetAttributes "fs/getAttributes" Filesystem, READS.ours(), fs::GetAttributesParams => fs::GetAttributesResult;
    /// Sets or removes extended attributes.
    FsSetAttributes "fs/setAttributes" Filesystem, CHANGES.ours().audited(), fs::SetAttributesParams => fs::SetAttributesResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Reads the target of a symbolic link.
    FsReadLink "fs/readLink" Filesystem, READS.ours(), fs::ReadLinkParams => fs::ReadLinkResult;
    /// Makes a symbolic link.
    FsCreateSymlink "fs/createSymlink" Filesystem, CHANGES.remembered().ours().audited(), fs::CreateSymlinkParams => fs::CreateSymlinkResult {
        fn changed_paths(&self) -> Vec<&PathUri> {
            vec![&self.path]
        }
    };
    /// Hashes a file where it is.
    FsHash "fs/hash" Filesystem, READS.ours(), fs::HashParams => fs::HashResult;
    /// Watches a tree. The watch belongs to the connection.
    FsWatch "fs/watch" Filesystem, READS.ours(), fs::WatchParams => fs::WatchResult;
    /// Ends a watch.
    FsUnwatch "fs/unwatch" Filesystem, CHANGES.once().control().for_observers().ours_with("fs/watch"), fs::UnwatchParams => fs::UnwatchResult;
    /// Searches the contents of files. The search belongs to the connection.
    FsSearch "fs/search" Filesystem, READS.ours(), fs::SearchParams => fs::SearchResult;
    /// Ends a search.
    FsCancelSearch "fs/cancelSearch" Filesystem, CHANGES.once().control().for_observers().ours_with("fs/search"), fs::CancelSearchParams => fs::CancelSearchResult;
    /// Finds paths that match patterns.
    FsGlob "fs/glob" Filesystem, READS.ours(), fs::GlobParams => fs::GlobResult;
    /// Lists the sessions of the server.
    SessionList "session/list" Session, READS.control().ours().unrouted(), session::ListParams => session::ListResult;
    /// Ends a session and its processes.
    SessionClose "session/close" Session, CHANGES.control().ours().unrouted(), session::CloseParams => session::CloseResult;
    /// Asks for the drive of a session, takes it, hands it over or refuses it.
    SessionDrive "session/drive" Session, CHANGES.control().waits().for_observers().ours().unrouted(), session::DriveParams => session::DriveResult;
    /// Asks the client whether a process may reach a destination.
    NetworkPolicyRequest "network/policyRequest" Network, READS.once().waits().unrouted(), network::PolicyRequestParams => network::PolicyRequestResult;
}

notifications! {
    /// The client has read the response to `initialize`.
    Initialized "initialized" initialize::InitializedParams;
    /// The client has read a process's log so far (ours). Sent by clients.
    ProcessAcknowledge "process/acknowledge" process::AcknowledgeParams;
    /// A process has printed something.
    ProcessOutput "process/output" process::OutputParams;
    /// The process itself has ended.
    ProcessExited "process/exited" process::ExitedParams;
    /// No more output can come.
    ProcessClosed "process/closed" process::ClosedParams;
    /// A piece of a streamed HTTP body.
    HttpBodyDelta "http/request/bodyDelta" http::BodyDeltaParams;
    /// What was decided about a destination.
    NetworkPolicyDecision "network/policyDecision" network::PolicyDecisionParams;
    /// A path that was missing has appeared.
    FsMissingChanged "fs/missingChanged" fs::MissingChangedParams;
    /// Something under a watch has changed (ours).
    FsChanged "fs/changed" fs::ChangedParams;
    /// How far a copy is (ours).
    FsCopyProgress "fs/copyProgress" fs::CopyProgressParams;
    /// What a search has found (ours).
    FsFound "fs/found" fs::FoundParams;
    /// Who is attached to the session, and who drives it (ours). To those that named a `role`.
    SessionAttached "session/attached" session::AttachedParams;
    /// The session now belongs to another connection (ours).
    SessionTakenOver "session/takenOver" session::TakenOverParams;
}

impl MethodSpec {
    /// The extension that advertises it; `None` for what every server has.
    pub const fn extension(&self) -> Option<Extension> {
        match self.behaviour.origin {
            Origin::Codex => None,
            Origin::Ours => Some(Extension::of_method(self.name)),
            Origin::OursWith(method) => Some(Extension::of_method(method)),
        }
    }
}

impl Method {
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    pub const fn behaviour(self) -> &'static Behaviour {
        &self.spec().behaviour
    }

    /// Whether `environmentId` in its params says what it is about.
    pub const fn is_for_an_environment(self) -> bool {
        self.behaviour().routed || matches!(self, Self::EnvironmentInfo | Self::EnvironmentStatus | Self::ProcessList)
    }

    /// Whether our servers answer it. The shapes of the others are known, because clients may meet them elsewhere.
    pub const fn is_served(self) -> bool {
        !matches!(self, Self::NetworkPolicyRequest | Self::CapabilitiesDiscoverV2)
    }

    /// The method of that name, if it is one that a server answers.
    pub fn parse_for_server(name: &str) -> Option<Self> {
        Self::parse(name).filter(|method| method.is_served())
    }
}
