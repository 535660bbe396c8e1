//! Places where the server sees less of the machine than usual.

use std::os::unix::fs::{PermissionsExt, chown};

use exec_testkit::binaries;
use serde_json::json;

use super::client::{ServerFixture, shell, with_deadline};

/// The user and group `nobody`.
const NOBODY: u32 = 65534;

/// With `hidepid=2`, an ordinary user sees no process in `/proc` but its own. The tree of a child is found all the same.
#[tokio::test]
async fn where_proc_hides_other_users_a_tree_is_ended_and_counted() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can mount /proc anew and become somebody else");
    }
    let directory = tempfile::tempdir().expect("a temporary folder");
    let copy = directory.path().join("exec-server");
    std::fs::copy(binaries::exec_server(), &copy).expect("the folder is ours");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("we are root");
    let script = format!(
        "exec unshare -m -- sh -c 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid {NOBODY} --regid {NOBODY} \
         --clear-groups {} \"$@\"' sh \"$@\"",
        copy.display()
    );
    let server = ServerFixture::start_by_script(directory, &script, &[]).await;
    let mut client = server.client().await;
    let hidden = "[ -e /proc/1/stat ] && echo seen || echo hidden";
    let tree = format!("{hidden}; sleep 600 & setsid sleep 600 & trap '' TERM; echo ready; wait");
    client.call("process/start", shell("tree", &tree, false)).await;
    let until = json!({"kind": "output", "regex": "ready", "afterSeq": 0});
    with_deadline(client.call("process/wait", json!({"processId": "tree", "until": until}))).await;
    let page = client.call("process/read", json!({"processId": "tree"})).await;
    let first = page["result"]["chunks"][0]["chunk"].as_str().expect("base64");
    let first = base64_simd::STANDARD.decode_to_vec(first).expect("base64");
    assert!(first.starts_with(b"hidden"), "others are hidden: {page}");
    let ended = client.call("process/terminate", json!({"processId": "tree"})).await;
    assert_eq!((&ended["result"]["ended"], &ended["result"]["left"]), (&json!(3), &json!(0)), "{ended}");
}
