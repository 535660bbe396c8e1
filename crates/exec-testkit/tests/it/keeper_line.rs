//! The line to a real keeper process, in the hands of owners that mean harm: they send garbage, cut messages short, ask
//! without reading, leave in the middle. What the keeper holds is there for the next true owner, whole.

use std::path::Path;
use std::time::Duration;

use exec_core::Stream;
use exec_env::Environment;
use exec_keeper::channel::Channel;
use exec_keeper::protocol::{KeeperRequest, Message, VERSION};
use exec_testkit::os_process::{eventually, poll_pause};
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::{SeededBytes, SeededRng};
use exec_testkit::test_environment::process_id;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::durability::support::{self, LONG_TTL, number_from_env};

const FLOOD_BYTES: usize = 4 << 20;

/// Owners in a row; a soak has more.
const OWNERS: u64 = 40;

#[test]
fn hostile_owners_cost_no_process_and_no_byte() {
    support::run(async {
        let state = tempfile::tempdir().expect("a temporary folder");
        let (env, environment) = support::test_environment(state.path(), LONG_TTL).await;
        let counter = env.start_with_stdin("counter", "cat-count").await;
        let leader = counter.os_process();
        // Not in the folder of the environment, which is gone before a slow child has opened it.
        let folder = tempfile::tempdir().expect("a temporary folder");
        let go = FifoSemaphore::new(folder.path().join("go"));
        let script = format!("{} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3", go.acquire());
        env.start("flood", &script).await;
        let keeper = support::keeper_of(state.path());
        support::into_environment(env, environment).hand_over().await;

        let mut random = SeededRng::new(number_from_env("EXEC_SOAK_SEED").unwrap_or(7));
        let owners = number_from_env("EXEC_SOAK_ROUNDS").map_or(OWNERS, |rounds| rounds * OWNERS);
        for owner in 0..owners {
            if owner == owners / 2 {
                go.release();
            }
            hostile_owner(state.path(), owner, &mut random).await;
            assert!(keeper.is_alive() && leader.is_alive(), "owner {owner} has ended something");
        }

        let environment = open(state.path()).await;
        let processes = environment.processes();
        let log = support::read_log(processes, "flood").await;
        let (got, printed) = (log.bytes(Stream::Stdout), SeededBytes::new(51).bytes(FLOOD_BYTES));
        let differs_at = got.iter().zip(&printed).position(|(got, printed)| got != printed);
        let exit = log.exit();
        assert!(got == printed, "{} of {} bytes, different from {differs_at:?} on; {exit:?}", got.len(), printed.len());
        assert_eq!(log.exit().shell_code(), 3);
        processes.close_stdin(&process_id("counter")).await.expect("it is ours");
        assert_eq!(support::read_log(processes, "counter").await.stdout(), "0 bytes\n");
        support::shut_down(environment, keeper).await;
    });
}

/// The keeper may still be busy with the owner before.
async fn open(state: &Path) -> exec_local::LocalEnvironment {
    let mut found = None;
    for _ in 0..1000 {
        match support::open(state, LONG_TTL).await {
            Ok(environment) => return environment,
            Err(error) => found = Some(error),
        }
        poll_pause().await;
    }
    panic!("the keeper serves a true owner: {found:?}");
}

/// One connection that does something wrong, and is dropped at the end of it.
async fn hostile_owner(state: &Path, owner: u64, random: &mut SeededRng) {
    let channel = connect(state).await;
    let says_hello = !owner.is_multiple_of(5);
    if says_hello {
        let _ = channel.send(0, &KeeperRequest::Hello { version: VERSION }.encode(), &[]);
    }
    match owner % 8 {
        // Garbage, each packet beginning with a tag that no request has.
        0 | 1 => {
            for _ in 0..50 {
                let mut bytes: Vec<u8> = (0..random.below(3000)).map(|_| random.below(256) as u8).collect();
                bytes.insert(0, 0x40 | random.below(0x40) as u8);
                let _ = channel.send(random.below(1000) as u64, &bytes, &[]);
            }
        }
        // Packets below the framing: flags that nobody knows, headers that are cut.
        2 => {
            for length in 0..24 {
                let bytes: Vec<u8> = (0..length).map(|_| 0xf0 | random.below(16) as u8).collect();
                let _ = rustix::net::send(channel.socket(), &bytes, rustix::net::SendFlags::DONTWAIT);
            }
        }
        // True questions about nobody, many more than fit the socket, and not an answer is read.
        3 | 4 => {
            for at in 0..20_000 {
                let request = KeeperRequest::Members { number: (1 << 40) + at };
                if channel.send(at + 1, &request.encode(), &[]).is_err() {
                    break;
                }
            }
        }
        // Slowly: one question at a time, and every other answer is read.
        5 => {
            for at in 0..40 {
                let request = KeeperRequest::Signal { number: (1 << 40) + at, signal: 9, key: Some([7; 16]) };
                let _ = channel.send(at + 1, &request.encode(), &[]);
                if at % 2 == 0 {
                    receive_something(&channel).await;
                }
            }
        }
        // Messages cut in the middle, of which nothing is carried out.
        6 => {
            let whole = KeeperRequest::Terminate { number: (1 << 40) + owner, grace: Duration::from_secs(3) }.encode();
            for end in 1..whole.len() {
                let _ = channel.send(end as u64, &whole[..end], &[]);
            }
        }
        // Descriptors that nobody asked for.
        _ => {
            use std::os::fd::AsFd;
            let plug = std::fs::File::open("/dev/null").expect("there is one");
            for at in 0..40 {
                let request = KeeperRequest::Members { number: (1 << 40) + at };
                let _ = channel.send(at + 1, &request.encode(), &[plug.as_fd(), plug.as_fd()]);
            }
        }
    }
}

async fn connect(state: &Path) -> Channel {
    let address = SocketAddrUnix::new(state.join("keeper.sock")).expect("a short path");
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("one more descriptor");
    eventually("the keeper listens", || rustix::net::connect(&socket, &address).is_ok()).await;
    Channel::from_socket(socket).expect("it is a socket")
}

/// Waits a little for one message, or the end of the connection. To whoever did not say hello, nothing is said.
async fn receive_something(channel: &Channel) {
    for _ in 0..20 {
        match channel.receive() {
            Err(Errno::AGAIN) => poll_pause().await,
            Ok(_) | Err(_) => return,
        }
    }
}
