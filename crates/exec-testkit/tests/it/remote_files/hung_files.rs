//! Files that hang: nobody but the client that uses them, or starts a program from them, waits for them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use exec_testkit::mount::Mount;
use rustix::fs::{Mode, OFlags};
use serde_json::json;

use super::plain_client::{PlainClient, uri};
use crate::durability::support::run;

/// A file system whose server never answers, as that of a network that is gone. Every call on it blocks in the kernel until
/// this is dropped.
struct HungFileSystem {
    /// Dropped first: the end of the server ends the calls.
    _server: OwnedFd,
    _mount: Mount,
}

impl HungFileSystem {
    /// Needs root and FUSE; without them the test prints that it tests nothing, and skips.
    fn mounted(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).expect("the folder is ours");
        // Not close-on-exec: the program that mounts needs it.
        let server = match rustix::fs::open("/dev/fuse", OFlags::RDWR, Mode::empty()) {
            Ok(server) => server,
            Err(errno) => {
                eprintln!("not tested: there is no FUSE: {errno}");
                return None;
            }
        };
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let mount = Mount::new(&["-i", "-t", "fuse", "-o", &options, "none"], at)?;
        Some(Self { _server: server, _mount: mount })
    }
}

#[test]
fn calls_on_files_that_hang_stop_only_the_client_that_makes_them() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let hung = folder.path().join("hung");
        let Some(file_system) = HungFileSystem::mounted(&hung) else { return };
        let mut one = PlainClient::connected().await;
        let mut other = one.another().await;
        for _ in 0..64 {
            one.send_request("fs/getMetadata", json!({"path": uri(&hung.join("x"))})).await;
            one.send_request("fs/readFile", json!({"path": uri(&hung.join("x"))})).await;
        }
        // It never waits behind them, so the server has them all when it is answered.
        assert_eq!(one.call("environment/status", json!(null)).await, json!({"status": "ready"}));
        let found = other.call("fs/getMetadata", json!({"path": uri(folder.path())})).await;
        assert_eq!(found["isDirectory"], true, "{found}");
        drop(file_system);
        let found = one.call("fs/getMetadata", json!({"path": uri(folder.path())})).await;
        assert_eq!(found["isDirectory"], true, "{found}");
    });
}

#[test]
fn a_start_on_files_that_hang_stops_no_other_start_and_can_be_terminated() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let hung = folder.path().join("hung");
        let Some(_file_system) = HungFileSystem::mounted(&hung) else { return };
        let mut one = PlainClient::connected().await;
        let mut other = one.another().await;
        let program = hung.join("program").display().to_string();
        one.send_request("process/start", start_params("hung", &program)).await;
        // Its session has nothing else to do, so the server has asked for the start when this is answered.
        assert_eq!(one.call("environment/status", json!(null)).await, json!({"status": "ready"}));
        let started = other.call("process/start", start_params("other", "/bin/true")).await;
        assert_eq!(started["processId"], "other", "{started}");
        let ended = one.call("process/terminate", json!({"processId": "hung"})).await;
        assert_eq!((&ended["running"], &ended["left"]), (&json!(true), &json!(0)), "{ended}");
        let cancelled = one.notification().await;
        assert_eq!(cancelled["error"]["message"], "process hung start was cancelled", "{cancelled}");
    });
}

fn start_params(id: &str, program: &str) -> serde_json::Value {
    json!({"processId": id, "argv": [program], "cwd": "file:///", "env": {}, "tty": false, "arg0": null})
}
