//! A keeper of version 1 holds a state folder: its owner of today is refused in words, and does not harm it.

use exec_keeper::start_keeper::KeeperProgram;
use exec_local::{LocalEnvironment, LocalOptions, OpenError};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

#[tokio::test]
async fn an_owner_hears_which_version_an_older_keeper_speaks() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("one more descriptor");
    let address = SocketAddrUnix::new(state.path().join("keeper.sock")).expect("a short path");
    rustix::net::bind(&listener, &address).expect("the name is new");
    rustix::net::listen(&listener, 1).expect("it is bound");
    let old_keeper = std::thread::spawn(move || {
        let owner = rustix::net::accept(&listener).expect("an owner connects");
        let mut hello = [0; 64];
        let (received, _) = rustix::net::recv(&owner, &mut hello, RecvFlags::empty()).expect("it says hello");
        // What version 1 answers: kind 0, message 1, its version, its pid, the number of its processes.
        let welcome = [0, 1, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        rustix::net::send(&owner, &welcome, SendFlags::empty()).expect("the owner listens");
        hello[..received].to_vec()
    });
    let program = KeeperProgram { program: "/nonexistent".into(), args: Vec::new() };
    let opened = LocalEnvironment::open(LocalOptions::durable(program, state.path())).await;
    assert!(matches!(opened.err(), Some(OpenError::Version { theirs: 1, ours: 7, .. })));
    let hello = old_keeper.join().expect("it does not panic");
    assert_eq!(hello, [0, 1, 7, 0, 0, 0], "version 1 reads this as a hello of version 7");
}
