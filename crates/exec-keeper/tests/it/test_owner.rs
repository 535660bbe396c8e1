//! A keeper in a thread of the test, and an owner that speaks to it message by message.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use exec_core::flow::Quota;
use exec_core::{Io, Overflow, ProcessId};
use exec_keeper::channel::{Channel, NO_REQUEST, Received};
use exec_keeper::keeper;
use exec_keeper::protocol::{
    KeeperEvent, KeeperRequest, LaunchRequest, Message, ProcessNumber, ProcessRecord, VERSION,
};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::{KeeperConfig, OwnerExitPolicy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A keeper that answers at all answers within this, on any machine.
pub(crate) const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

pub(crate) fn start(owner: &Channel, launch: LaunchRequest) -> ProcessNumber {
    ask(owner, 1, KeeperRequest::Start { launch: Box::new(launch) });
    let Some(KeeperEvent::Started { number, .. }) = receive(owner) else { panic!("it starts") };
    number
}

pub(crate) fn launch(argv: &[&str], path: Option<&str>) -> LaunchRequest {
    let record = ProcessRecord {
        id: ProcessId::new("p").expect("short"),
        argv: argv.iter().map(Into::into).collect(),
        cwd: "/".into(),
        io: Io::Pipes { stdin: false },
        quota: Quota { cap_bytes: 1 << 20, overflow: Overflow::DropOldest },
        started: SystemTime::now(),
        sandbox: None,
        limits: None,
        placeholders: Vec::new(),
        network_proxy: None,
        label: Vec::new(),
    };
    LaunchRequest {
        record,
        arg0: None,
        environ: Vec::new(),
        path: path.map(Into::into),
        time_limit: None,
        limits: exec_core::ResourceLimits::default(),
        identity: None,
        confinement: None,
        proxy_sockets: 0,
    }
}

/// The keeper has no owner and serves a new one: it ends when told to.
pub(crate) fn end(folder: &tempfile::TempDir, keeper_thread: JoinHandle<Result<(), Errno>>) {
    let last = connect_and_say_hello(folder.path());
    send(&last, KeeperRequest::Shutdown);
    assert_eq!(receive(&last), None);
    assert_eq!(keeper_thread.join().expect("the loop does not panic"), Ok(()));
}

pub(crate) fn keeper_in_a_thread() -> (tempfile::TempDir, JoinHandle<Result<(), Errno>>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = socket();
    let address = SocketAddrUnix::new(folder.path().join("socket")).expect("a short path");
    rustix::net::bind(&listener, &address).expect("the name is new");
    rustix::net::listen(&listener, 8).expect("it is bound");
    let config = KeeperConfig {
        owner: None,
        listener: Some(listener),
        spool_directory: Arc::new(SpoolDirectory::new(folder.path(), 1 << 30)),
        on_owner_exit: OwnerExitPolicy::KeepProcesses { orphan_ttl: Duration::from_secs(600) },
        own_process: false,
        cgroups: false,
    };
    (folder, std::thread::spawn(move || keeper::run(config)))
}

pub(crate) fn connect(folder: &Path) -> Channel {
    let socket = socket();
    let address = SocketAddrUnix::new(folder.join("socket")).expect("a short path");
    rustix::net::connect(&socket, &address).expect("the keeper listens");
    Channel::from_socket(socket).expect("it is a socket")
}

pub(crate) fn socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("one more descriptor")
}

pub(crate) fn connect_and_say_hello(folder: &Path) -> Channel {
    let channel = connect(folder);
    send(&channel, KeeperRequest::Hello { version: VERSION });
    let answer = receive(&channel);
    assert!(matches!(answer, Some(KeeperEvent::Welcome { version: VERSION, processes: 0, .. })), "{answer:?}");
    channel
}

pub(crate) fn send(channel: &Channel, request: KeeperRequest) {
    ask(channel, NO_REQUEST, request);
}

pub(crate) fn ask(channel: &Channel, request_id: u64, request: KeeperRequest) {
    channel.send(request_id, &request.encode(), &[]).expect("there is space");
}

/// `None` when the keeper has closed the connection.
pub(crate) fn receive(channel: &Channel) -> Option<KeeperEvent> {
    receive_answer(channel).map(|(_, event)| event)
}

/// With the id of the request that it answers.
pub(crate) fn receive_answer(channel: &Channel) -> Option<(u64, KeeperEvent)> {
    loop {
        match channel.receive() {
            Ok(Received::Message { request_id, message, .. }) => {
                return Some((request_id, KeeperEvent::decode(&message).expect("it is one of ours")));
            }
            Ok(Received::Closed) => return None,
            Err(Errno::AGAIN) => wait_until_readable(channel),
            other => panic!("the connection holds: {other:?}"),
        }
    }
}

pub(crate) fn wait_until_readable(channel: &Channel) {
    let mut ready = [PollFd::from_borrowed_fd(channel.socket(), PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&ANSWER_TIMEOUT)), Ok(1), "the keeper sends nothing");
}
