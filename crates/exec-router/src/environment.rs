//! One far server as an environment: each call connects first, if it must, and does not wait for ever for a server that is
//! away.
//!
//! What goes on after its call (followers, watches, searches, bodies) belongs to the client library: a follower waits until
//! the server is back, the others end with their connection.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exec_core::sandbox::{FileCeiling, SandboxPolicy};
use exec_core::{Command, Page, ProcessId, Seq, Signal, TerminalSize, WriteId};
use exec_env::files::{
    AttributeChanges, Attributes, ChangeSet, ChangeStream, Copied, CopyOptions, CreateDirectoryOptions, DirectoryEntry,
    DirectoryPage, FileBlock, FileError, FileFuture, FileHash, FileReason, FileTimes, FileVerb, GlobMatches, GlobQuery,
    HashAlgorithm, LinkPolicy, Metadata, MissingPathWatch, OpenFile, OpenMode, RemoveOptions, RenameOptions,
    SearchQuery, SearchResults, WalkListing, WalkOptions, WalkPage, WalkPosition, WatchOptions, WriteOptions,
};
use exec_env::http::{HttpError, HttpRequest, HttpResponse};
use exec_env::process::{
    LogFollower, ProcessError, ProcessInfo, ProcessVerb, ReadQuery, Signalled, Started, Terminated, Unreachable,
    WaitCondition, Waited, Written,
};
use exec_env::screen::{Screen, ScreenQuery};
use exec_env::streams::{Accepted, ByteStream, StreamAddress, StreamError, StreamListener, StreamReason, StreamVerb};
use exec_env::view::{View, ViewQuery};
use exec_env::{BoxFuture, Environment, Files, Http, MachineInfo, NetworkDecider, Processes, Streams};

use crate::server_connection::{LinkedEnvironment, ServerConnection};

/// An environment whose machine is reached when it is needed.
pub(crate) struct RoutedEnvironment {
    processes: RoutedProcesses,
    files: Arc<RoutedFiles>,
    http: RoutedHttp,
    streams: RoutedStreams,
    connection: Arc<ServerConnection>,
    /// What is said of the machine before it was reached.
    unknown: MachineInfo,
}

impl RoutedEnvironment {
    pub(crate) fn new(connection: Arc<ServerConnection>) -> Self {
        Self {
            processes: RoutedProcesses { connection: Arc::clone(&connection) },
            files: Arc::new(RoutedFiles {
                connection: Arc::clone(&connection),
                user: None,
                policy: None,
                ceilings: Vec::new(),
            }),
            http: RoutedHttp { connection: Arc::clone(&connection) },
            streams: RoutedStreams { connection: Arc::clone(&connection) },
            connection,
            unknown: MachineInfo::unknown(),
        }
    }
}

impl Environment for RoutedEnvironment {
    fn processes(&self) -> &dyn Processes {
        &self.processes
    }

    fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// To the far server we are one caller; what it gives each is its business.
    fn files_for_caller(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as Arc<dyn Files>
    }

    fn http(&self) -> &dyn Http {
        &self.http
    }

    fn streams(&self) -> &dyn Streams {
        &self.streams
    }

    fn info(&self) -> &MachineInfo {
        self.connection.info.get().unwrap_or(&self.unknown)
    }
}

struct RoutedHttp {
    connection: Arc<ServerConnection>,
}

impl Http for RoutedHttp {
    fn request(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let environment = self.connection.connected().await?;
            self.connection.perform(&*environment, environment.http().request(request)).await?
        })
    }
}

struct RoutedStreams {
    connection: Arc<ServerConnection>,
}

impl Streams for RoutedStreams {
    fn connect(&self, to: StreamAddress) -> BoxFuture<'_, Result<Box<dyn ByteStream>, StreamError>> {
        Box::pin(async move {
            let away = |unreachable| StreamError::new(StreamVerb::Connect, &to, StreamReason::Unreachable(unreachable));
            let environment = self.connection.connected().await.map_err(away)?;
            let connecting = environment.streams().connect(to.clone());
            let stream = self.connection.perform(&*environment, connecting).await.map_err(away)??;
            Ok(Box::new(RoutedStream { stream, _environment: environment }) as Box<dyn ByteStream>)
        })
    }

    fn listen(&self, at: StreamAddress) -> BoxFuture<'_, Result<Box<dyn StreamListener>, StreamError>> {
        Box::pin(async move {
            let away = |unreachable| StreamError::new(StreamVerb::Listen, &at, StreamReason::Unreachable(unreachable));
            let environment = self.connection.connected().await.map_err(away)?;
            let listening = environment.streams().listen(at.clone());
            let listener = self.connection.perform(&*environment, listening).await.map_err(away)??;
            Ok(Box::new(RoutedListener { listener, environment }) as Box<dyn StreamListener>)
        })
    }
}

/// A stream at the server. The client library finds it again after a break; it needs the connection as long as it lives.
struct RoutedStream {
    stream: Box<dyn ByteStream>,
    _environment: Arc<dyn LinkedEnvironment>,
}

impl ByteStream for RoutedStream {
    fn read(&self) -> BoxFuture<'_, Result<Bytes, StreamError>> {
        self.stream.read()
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), StreamError>> {
        self.stream.write(bytes)
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), StreamError>> {
        self.stream.finish()
    }

    fn reset(&self) {
        self.stream.reset();
    }
}

/// A listener at the server.
struct RoutedListener {
    listener: Box<dyn StreamListener>,
    environment: Arc<dyn LinkedEnvironment>,
}

impl StreamListener for RoutedListener {
    fn address(&self) -> &StreamAddress {
        self.listener.address()
    }

    fn accept(&self) -> BoxFuture<'_, Result<Accepted, StreamError>> {
        Box::pin(async move {
            let Accepted { stream, peer } = self.listener.accept().await?;
            let stream = RoutedStream { stream, _environment: Arc::clone(&self.environment) };
            Ok(Accepted { stream: Box::new(stream), peer })
        })
    }
}

struct RoutedProcesses {
    connection: Arc<ServerConnection>,
}

/// The verbs that are addressed to one process: each connects, then calls the verb of the same name there.
macro_rules! process_verbs {
    ($($verb:ident $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name<'a>(&'a self, id: &'a ProcessId, $($argument: $type),*) -> BoxFuture<'a, Result<$result, ProcessError>> {
            Box::pin(async move {
                let away = |unreachable: Unreachable| ProcessError::new(ProcessVerb::$verb, id, unreachable.into());
                let environment = self.connection.connected().await.map_err(away)?;
                let call = environment.processes().$name(id, $($argument),*);
                self.connection.perform(&*environment, call).await.map_err(away)?
            })
        })*
    };
}

impl Processes for RoutedProcesses {
    process_verbs! {
        Start start(command: Command) -> Started;
        Read read(query: ReadQuery) -> Page;
        View view(query: ViewQuery) -> View;
        Screen screen(query: ScreenQuery) -> Screen;
        Follow follow(after: Seq) -> Box<dyn LogFollower>;
        Write write(write_id: WriteId, bytes: Bytes) -> Written;
        CloseStdin close_stdin() -> Written;
        Resize resize(size: TerminalSize) -> ();
        Signal signal(signal: Signal) -> Signalled;
        Signal signal_once(signal: Signal, key: &'a str) -> Signalled;
        Terminate terminate(grace: Duration) -> Terminated;
        Wait wait(until: WaitCondition, deadline: Option<Duration>) -> Waited;
        Forget forget() -> ();
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, Unreachable>> {
        Box::pin(async move {
            let environment = self.connection.connected().await?;
            self.connection.perform(&*environment, environment.processes().list()).await?
        })
    }

    fn set_network_decider(&self, decider: Arc<dyn NetworkDecider>) {
        self.connection.set_decider(decider);
    }
}

#[derive(Clone)]
struct RoutedFiles {
    connection: Arc<ServerConnection>,
    user: Option<Arc<str>>,
    policy: Option<Arc<SandboxPolicy>>,
    ceilings: Vec<Arc<FileCeiling>>,
}

impl RoutedFiles {
    /// The far files, under what these are bound by.
    async fn files_of(&self, environment: &dyn LinkedEnvironment) -> Result<Arc<dyn Files>, FileReason> {
        let mut files = environment.files_for_caller();
        if let Some(user) = &self.user {
            files = files.as_user(user).await?;
        }
        let files = self.policy.iter().fold(files, |files, policy| files.under_policy(Arc::clone(policy)));
        Ok(self.ceilings.iter().fold(files, |files, ceiling| files.under_ceiling(Arc::clone(ceiling))))
    }
}

fn away(verb: FileVerb, path: &Path, unreachable: Unreachable) -> FileError {
    FileError::new(verb, path, FileReason::Unreachable { why: unreachable.why })
}

/// The verbs over files: each connects, then calls the verb of the same name there. An error is about the path in braces.
macro_rules! file_verbs {
    ($($verb:ident $name:ident($($argument:ident: $type:ty),*) at { $path:expr } -> $result:ty;)*) => {
        $(#[allow(clippy::needless_lifetimes, reason = "most verbs borrow their arguments, too")]
        fn $name<'a>(&'a self, $($argument: $type),*) -> FileFuture<'a, $result> {
            Box::pin(async move {
                let path: PathBuf = $path;
                let away = |unreachable| away(FileVerb::$verb, &path, unreachable);
                let environment = self.connection.connected().await.map_err(away)?;
                let files = self.files_of(&*environment).await;
                let files = files.map_err(|reason| FileError::new(FileVerb::$verb, path.clone(), reason))?;
                self.connection.perform(&*environment, files.$name($($argument),*)).await.map_err(away)?
            })
        })*
    };
}

impl Files for RoutedFiles {
    file_verbs! {
        Read read(path: &'a Path, links: LinkPolicy) at { path.to_owned() } -> Bytes;
        Read hash(path: &'a Path, algorithm: HashAlgorithm, links: LinkPolicy) at { path.to_owned() } -> FileHash;
        Write write(path: &'a Path, bytes: Bytes, options: WriteOptions) at { path.to_owned() } -> ();
        ChangeSet change_set(changes: ChangeSet) at { changes.changes.first().map(|change| change.path.clone()).unwrap_or_default() } -> ();
        CreateDirectory create_directory(path: &'a Path, options: CreateDirectoryOptions) at { path.to_owned() } -> ();
        Remove remove(path: &'a Path, options: RemoveOptions) at { path.to_owned() } -> ();
        Copy copy(source: &'a Path, destination: &'a Path, options: CopyOptions) at { source.to_owned() } -> Copied;
        Rename rename(from: &'a Path, to: &'a Path, options: RenameOptions) at { from.to_owned() } -> ();
        Metadata metadata(path: &'a Path, links: LinkPolicy) at { path.to_owned() } -> Metadata;
        Canonicalize canonicalize(path: &'a Path) at { path.to_owned() } -> PathBuf;
        ReadDirectory read_directory(path: &'a Path) at { path.to_owned() } -> Vec<DirectoryEntry>;
        ReadDirectory read_directory_page(path: &'a Path, after: Option<&'a OsStr>, max_entries: usize) at { path.to_owned() } -> DirectoryPage;
        Walk walk(root: &'a Path, options: WalkOptions) at { root.to_owned() } -> WalkListing;
        Walk walk_page(root: &'a Path, options: WalkOptions, after: Option<WalkPosition>) at { root.to_owned() } -> WalkPage;
        SetPermissions set_permissions(path: &'a Path, mode: u32, links: LinkPolicy) at { path.to_owned() } -> ();
        SetTimes set_times(path: &'a Path, times: FileTimes, links: LinkPolicy) at { path.to_owned() } -> ();
        Attributes attributes(path: &'a Path, links: LinkPolicy) at { path.to_owned() } -> Attributes;
        SetAttributes set_attributes(path: &'a Path, attributes: AttributeChanges, links: LinkPolicy) at { path.to_owned() } -> ();
        ReadLink read_link(path: &'a Path, links: LinkPolicy) at { path.to_owned() } -> PathBuf;
        CreateSymlink create_symlink(target: &'a Path, path: &'a Path, links: LinkPolicy) at { path.to_owned() } -> ();
        Watch watch_missing(missing: &'a [PathBuf], present: Option<&'a Path>) at { missing.first().cloned().unwrap_or_default() } -> Option<Box<dyn MissingPathWatch>>;
        Watch watch(root: &'a Path, options: WatchOptions) at { root.to_owned() } -> Box<dyn ChangeStream>;
        Search search(query: SearchQuery) at { query.root.clone() } -> Box<dyn SearchResults>;
        Glob glob(query: GlobQuery) at { query.root.clone() } -> GlobMatches;
    }

    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode, links: LinkPolicy) -> FileFuture<'a, Box<dyn OpenFile>> {
        Box::pin(async move {
            let away = |unreachable| away(FileVerb::Open, path, unreachable);
            let environment = self.connection.connected().await.map_err(away)?;
            let files = self.files_of(&*environment).await;
            let files = files.map_err(|reason| FileError::new(FileVerb::Open, path, reason))?;
            let file = self.connection.perform(&*environment, files.open(path, mode, links)).await.map_err(away)??;
            let (connection, path) = (Arc::clone(&self.connection), path.to_owned());
            Ok(Box::new(RoutedFile { connection, environment, file, path }) as Box<dyn OpenFile>)
        })
    }

    fn as_user<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Arc<dyn Files>, FileReason>> {
        Box::pin(async move { Ok(Arc::new(Self { user: Some(user.into()), ..self.clone() }) as Arc<dyn Files>) })
    }

    fn under_policy(&self, policy: Arc<SandboxPolicy>) -> Arc<dyn Files> {
        Arc::new(Self { policy: Some(policy), ..self.clone() })
    }

    fn under_ceiling(&self, ceiling: Arc<FileCeiling>) -> Arc<dyn Files> {
        let ceilings = self.ceilings.iter().cloned().chain([ceiling]).collect();
        Arc::new(Self { ceilings, ..self.clone() })
    }
}

/// A file that is open at the server. The client library opens it again after a break.
struct RoutedFile {
    connection: Arc<ServerConnection>,
    environment: Arc<dyn LinkedEnvironment>,
    file: Box<dyn OpenFile>,
    path: PathBuf,
}

impl OpenFile for RoutedFile {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn read_block(&self, offset: u64, len: usize) -> FileFuture<'_, FileBlock> {
        Box::pin(async move {
            let read = self.connection.perform(&*self.environment, self.file.read_block(offset, len)).await;
            read.map_err(|unreachable| away(FileVerb::ReadBlock, &self.path, unreachable))?
        })
    }

    fn write_block(&self, offset: u64, bytes: Bytes) -> FileFuture<'_, ()> {
        Box::pin(async move {
            let written = self.connection.perform(&*self.environment, self.file.write_block(offset, bytes)).await;
            written.map_err(|unreachable| away(FileVerb::WriteBlock, &self.path, unreachable))?
        })
    }

    fn close(self: Box<Self>) -> FileFuture<'static, ()> {
        Box::pin(async move {
            let Self { connection, environment, file, path } = *self;
            let closed = connection.perform(&*environment, file.close()).await;
            closed.map_err(|unreachable| away(FileVerb::Close, &path, unreachable))?
        })
    }
}
