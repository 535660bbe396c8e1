//! What Codex does to files without starting a command: patches and images.

use std::os::unix::fs::MetadataExt as _;

use serde_json::{Value, json};

use super::agent::Agent;

/// One red pixel.
const IMAGE_BASE64: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

pub(super) async fn a_patch_adds_updates_moves_and_deletes(agent: &mut Agent) {
    put(agent, "updated.txt", "one\ntwo\nthree\n");
    put(agent, "moved.txt", "stays\ngoes\n");
    put(agent, "deleted.txt", "gone\n");
    let patch = "*** Begin Patch
*** Add File: deep/er/added.txt
+first
+zweite – Zeile
*** Update File: updated.txt
@@
 one
-two
+2
 three
*** Update File: moved.txt
*** Move to: other/place.txt
@@
 stays
-goes
+comes
*** Delete File: deleted.txt
*** End Patch";
    let output = agent.patch(patch).await;
    assert!(output.starts_with("Exit code: 0\n"), "{output}");
    let listed = "A deep/er/added.txt\nM updated.txt\nM other/place.txt\nD deleted.txt\n";
    assert!(output.ends_with(listed), "{output}");
    assert_eq!(content(agent, "deep/er/added.txt").as_deref(), Some("first\nzweite – Zeile\n"));
    assert_eq!(content(agent, "updated.txt").as_deref(), Some("one\n2\nthree\n"));
    assert_eq!(content(agent, "other/place.txt").as_deref(), Some("stays\ncomes\n"));
    assert_eq!(content(agent, "moved.txt"), None);
    assert_eq!(content(agent, "deleted.txt"), None);
}

pub(super) async fn a_patch_that_does_not_fit_changes_nothing(agent: &mut Agent) {
    put(agent, "file.txt", "one\n");
    let output = agent.patch("*** Begin Patch\n*** Update File: file.txt\n@@\n-two\n+three\n*** End Patch").await;
    assert!(output.contains("Failed to find expected lines"), "{output}");
    let output = agent.patch("*** Begin Patch\n*** Update File: none.txt\n@@\n-two\n+three\n*** End Patch").await;
    assert!(output.contains("No such file or directory (os error 2)"), "{output}");
    assert_eq!(content(agent, "file.txt").as_deref(), Some("one\n"));
    assert_eq!(content(agent, "none.txt"), None);
}

pub(super) async fn a_patch_typed_as_a_command_is_applied(agent: &mut Agent) {
    let command = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: typed.txt\n+by hand\n*** End Patch\nEOF\n";
    let output = agent.call("exec_command", json!({"cmd": command})).await;
    assert!(output.as_str().is_some_and(|output| output.contains("A typed.txt")), "{output}");
    assert_eq!(content(agent, "typed.txt").as_deref(), Some("by hand\n"));
}

pub(super) async fn an_image_reaches_the_model_unchanged(agent: &mut Agent) {
    let image = base64_simd::STANDARD.decode_to_vec(IMAGE_BASE64).expect("it is written correctly");
    std::fs::write(agent.path("pixel.png"), image).expect("the working directory is ours");
    let seen = agent.call("view_image", json!({"path": agent.path("pixel.png")})).await;
    assert_eq!(seen[0]["type"], "input_image");
    assert_eq!(seen[0]["image_url"], format!("data:image/png;base64,{IMAGE_BASE64}"));
    let missing = agent.call("view_image", json!({"path": agent.path("none.png")})).await;
    assert!(matches!(&missing, Value::String(output) if output.contains("none.png")), "{missing}");
}

pub(super) fn put(agent: &Agent, name: &str, text: &str) {
    let (path, directory) = (agent.path(name), std::fs::metadata(agent.path(".")).expect("it is there"));
    std::fs::write(&path, text).expect("the working directory is ours");
    // A server without rights could not change what is root's.
    std::os::unix::fs::chown(&path, Some(directory.uid()), Some(directory.gid())).expect("it is ours");
}

pub(super) fn content(agent: &Agent, name: &str) -> Option<String> {
    std::fs::read_to_string(agent.path(name)).ok()
}
