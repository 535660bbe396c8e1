//! What has a name is renamed, looked at and listed by it: links, too, wherever they lead. Needs no SDK.

use serde_json::json;

use crate::support::Account;

#[tokio::test]
async fn a_link_is_renamed_itself_wherever_it_leads() {
    let account = Account::new();
    let server = account.start(&[]).await;
    let path = |name: &str| account.path().join("names").join(name);
    std::fs::create_dir_all(path("directory")).expect("it is ours");
    std::fs::write(path("file"), "1").expect("it is ours");
    for leads_to in ["nowhere", "link", "directory", "file", "file/below"] {
        std::os::unix::fs::symlink(leads_to, path("link")).expect("it is new");
        let asked = json!({ "source": path("link"), "destination": path("made/renamed") });
        let answer = server.call("filesystem.Filesystem/Move", asked).await;
        assert_eq!((answer.status, &answer.json()["entry"]["name"]), (200, &json!("renamed")), "{}", answer.text());
        assert_eq!(answer.json()["entry"]["type"], "FILE_TYPE_SYMLINK", "{leads_to}");
        assert!(!path("link").is_symlink(), "{leads_to}");
        assert_eq!(std::fs::read_link(path("made/renamed")).expect("it is a link").to_str(), Some(leads_to));
        let listed = server.call("filesystem.Filesystem/ListDir", json!({ "path": path("made") })).await;
        assert_eq!(listed.json()["entries"].as_array().map(Vec::len), Some(1), "{leads_to}: {}", listed.text());
        let removed = server.call("filesystem.Filesystem/Remove", json!({ "path": path("made/renamed") })).await;
        assert_eq!(removed.status, 200, "{leads_to}: {}", removed.text());
        assert!(
            !path("made/renamed").is_symlink() && path("file").exists() && path("directory").exists(),
            "{leads_to}"
        );
    }
    let asked = json!({ "source": path("missing"), "destination": path("other/renamed") });
    let answer = server.call("filesystem.Filesystem/Move", asked).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("not_found")), "{}", answer.text());
    assert!(!path("other").exists(), "nothing is made for what is missing");
}
