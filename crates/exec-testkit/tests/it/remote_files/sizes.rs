//! Sizes, limits and their error messages, as a client without our library meets them.

use serde_json::json;

use super::plain_client::{PlainClient, uri};
use crate::durability::support::run;

const MIB: u64 = 1 << 20;

#[test]
fn a_file_of_40_mebibytes_reaches_a_client_with_16_mebibyte_frames_and_one_of_60_is_told_to_open() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        let file = std::fs::File::create(&path).expect("the folder is ours");
        let mut client = PlainClient::connected().await;
        file.set_len(40 * MIB).expect("a hole takes no room");
        let read = client.call("fs/readFile", json!({"path": uri(&path)})).await;
        assert_eq!(read["dataBase64"].as_str().map(|text| text.len() as u64), Some((40 * MIB).div_ceil(3) * 4));
        file.set_len(60 * MIB).expect("a hole takes no room");
        let refused = client.call("fs/readFile", json!({"path": uri(&path)})).await;
        assert_eq!(refused[0], -32600);
        assert!(refused[1].as_str().is_some_and(|text| text.contains("fs/open")), "{refused}");
        file.set_len(513 * MIB).expect("a hole takes no room");
        let refused = client.call("fs/readFile", json!({"path": uri(&path)})).await;
        assert_eq!(refused, json!([-32600, "file is too large to read: limit is 536870912 bytes"]));
        assert_eq!(client.call("environment/status", json!(null)).await, json!({"status": "ready"}));
    });
}

#[test]
fn a_folder_that_does_not_fit_one_answer_is_told_to_be_read_in_pages_and_they_fit() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let fill = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                std::fs::File::create(folder.path().join(number.to_string())).expect("the folder is ours");
            }
        };
        let mut client = PlainClient::connected().await;
        // A message has at most 262,144 values: of so many entries there is only room for what Codex's server tells.
        for (count, members) in [(43_689, 5), (45_000, 3)] {
            fill(if members == 5 { 0..count } else { 43_689..count });
            let whole = client.call("fs/readDirectory", json!({"path": uri(folder.path())})).await;
            let entries = whole["entries"].as_array().expect("a listing has entries");
            assert_eq!((entries.len(), entries[0].as_object().map(serde_json::Map::len)), (count, Some(members)));
        }
        fill(45_000..50_001);
        let refused = client.call("fs/readDirectory", json!({"path": uri(folder.path())})).await;
        assert_eq!(refused[0], -32603);
        assert!(refused[1].as_str().is_some_and(|text| text.contains("nextCursor")), "{refused}");
        let (mut names, mut params) = (Vec::new(), json!({"path": uri(folder.path()), "maxEntries": 1_000_000}));
        loop {
            let page = client.call("fs/readDirectory", params.clone()).await;
            let entries = page["entries"].as_array().expect("a page has entries");
            assert!(entries.len() <= 16_384);
            names.extend(entries.iter().map(|entry| entry["fileName"].as_str().expect("a name").to_owned()));
            params["cursor"] = page["nextCursor"].clone();
            if params["cursor"].is_null() {
                break;
            }
        }
        assert_eq!((names.len(), names.is_sorted()), (50_001, true));
        let options =
            json!({"maxDepth": 64, "maxDirectories": 1, "maxEntries": 50_000, "followDirectorySymlinks": false});
        let walk = json!({"path": uri(folder.path()), "options": options, "cursor": "eA=="});
        assert_eq!(client.call("fs/walk", walk).await, json!([-32602, "cursor is none of ours"]));
    });
}

#[test]
fn handles_are_few_short_and_unique_and_say_so_in_known_words() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "0123456789").expect("the folder is ours");
        let mut client = PlainClient::connected().await;
        let open = |id: &str| json!({"handleId": id, "path": uri(&path)});
        let opened = client.call("fs/open", open("a")).await;
        assert_eq!((&opened["handleId"], &opened["sizeBytes"]), (&json!("a"), &json!(10)));
        assert_eq!(client.call("fs/open", open("a")).await, json!([-32600, "file handle `a` already exists"]));
        let long = "x".repeat(33);
        assert_eq!(
            client.call("fs/open", open(&long)).await,
            json!([-32600, "file handle ID must not exceed 32 bytes"])
        );
        let block = client.call("fs/readBlock", json!({"handleId": "a", "offset": 6, "len": 9})).await;
        assert_eq!(block, json!({"chunk": "Njc4OQ==", "eof": true}));
        let refused = client.call("fs/readBlock", json!({"handleId": "a", "offset": 0, "len": 1_048_577})).await;
        assert_eq!(refused, json!([-32600, "file read block length must be between 1 and 1048576"]));
        let refused = client.call("fs/writeBlock", json!({"handleId": "a", "offset": 0, "chunk": "eA=="})).await;
        assert_eq!(refused, json!([-32603, "Bad file descriptor (os error 9)"]));
        let refused = client.call("fs/readBlock", json!({"handleId": "b", "offset": 0, "len": 1})).await;
        assert_eq!(refused, json!([-32004, "unknown file handle `b`"]));
        assert_eq!(client.call("fs/close", json!({"handleId": "b"})).await, json!({}));
        for number in 1..128 {
            client.call("fs/open", open(&number.to_string())).await;
        }
        let refused = client.call("fs/open", open("one more")).await;
        assert_eq!(refused, json!([-32600, "at most 128 file handles may be open per connection"]));
        assert_eq!(client.call("fs/close", json!({"handleId": "a"})).await, json!({}));
        assert_eq!(client.call("fs/open", open("one more")).await["handleId"], "one more");
    });
}

#[test]
fn bad_base64_foreign_paths_and_writes_against_a_sandbox_are_refused_in_known_words() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        let mut client = PlainClient::connected().await;
        let refused = client.call("fs/writeFile", json!({"path": uri(&path), "dataBase64": "*"})).await;
        let text = refused[1].as_str().unwrap_or_default();
        assert_eq!(refused[0], -32600);
        assert!(text.starts_with("fs/writeFile requires valid base64 dataBase64: "), "{text}");
        let refused = client.call("fs/readFile", json!({"path": "file:///C:/x"})).await;
        assert_eq!(refused, json!([-32600, "'file:///C:/x' is invalid on 'linux'"]));
        let entries = json!([{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]);
        let sandbox = json!({
            "permissions": {"type": "managed", "network": "restricted",
                "file_system": {"type": "restricted", "entries": entries}},
            "windowsSandboxLevel": "disabled",
        });
        let write = json!({"path": uri(&path), "dataBase64": "eA==", "sandbox": sandbox});
        let refused = client.call("fs/writeFile", write).await;
        assert_eq!(refused, json!([-32603, "Read-only file system (os error 30)"]));
        assert!(!path.exists());
        let look = client.call("fs/getMetadata", json!({"path": uri(folder.path()), "sandbox": sandbox})).await;
        assert_eq!(look["isDirectory"], true);
        assert_eq!(client.call("capabilities/discoverV2", json!({"cwd": "file:///"})).await[0], -32601);
    });
}

#[test]
fn a_missing_watch_tells_once_and_a_greater_id_replaces_it() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let mut client = PlainClient::connected().await;
        let watch = |id: u64, path| json!({"watchId": id, "missing": [uri(path)], "present": null});
        assert_eq!(client.call("fs/watchMissing", watch(5, &one)).await, json!({"watching": true}));
        assert_eq!(client.call("fs/watchMissing", watch(5, &one)).await, json!({"watching": false}));
        assert_eq!(client.call("fs/watchMissing", watch(6, &other)).await, json!({"watching": true}));
        std::fs::write(&one, "").expect("the folder is ours");
        std::fs::write(&other, "").expect("the folder is ours");
        let notification = client.notification().await;
        assert_eq!(notification, json!({"method": "fs/missingChanged", "params": {"watchId": 6}}));
        assert_eq!(client.call("fs/watchMissing", watch(7, &other)).await, json!({"watching": false}));
    });
}
