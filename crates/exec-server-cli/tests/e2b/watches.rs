//! Watches that are polled, when more happens than anybody can tell.

use std::collections::BTreeSet;

use serde_json::json;

use crate::raw_client::shell;
use crate::support::Account;

const FILES: usize = 6_000;

#[tokio::test]
async fn a_flood_of_changes_is_told_whole_or_said_to_be_lost() {
    let account = Account::new();
    let server = account.start(&[]).await;
    assert_eq!(server.call("filesystem.Filesystem/MakeDir", json!({ "path": "d" })).await.status, 200);
    let watcher = server.call("filesystem.Filesystem/CreateWatcher", json!({ "path": "d" })).await.json();
    let script = format!("cd d && seq 1 {FILES} | xargs touch");
    let made = server.stream("process.Process/Start", &[], shell(&script)).await.messages();
    assert_eq!(made[1]["event"]["end"]["exited"], true, "{made:?}");
    let (mut told, mut lost) = (BTreeSet::new(), false);
    loop {
        let poll = server.call("filesystem.Filesystem/GetWatcherEvents", watcher.clone()).await;
        if poll.status != 200 {
            assert_eq!(poll.json()["code"], "data_loss", "{}", poll.text());
            lost = true;
            continue;
        }
        let poll = poll.json();
        let events = poll["events"].as_array().expect("a list");
        if events.is_empty() {
            break;
        }
        told.extend(events.iter().map(|event| event["name"].as_str().expect("a name").to_owned()));
    }
    assert!(lost || told.len() == FILES, "{} of {FILES} were told, and nothing was said of the rest", told.len());
    // It goes on.
    server.stream("process.Process/Start", &[], shell("echo x > d/after")).await;
    let after = server.call("filesystem.Filesystem/GetWatcherEvents", watcher.clone()).await.json();
    assert_eq!(after["events"][0]["name"], "after", "{after}");
    assert_eq!(server.call("filesystem.Filesystem/RemoveWatcher", watcher.clone()).await.status, 200);
    assert_eq!(server.call("filesystem.Filesystem/GetWatcherEvents", watcher).await.status, 404);
}
