//! No update is lost: editors of one file, and of several at once, in one environment and in two servers.

use std::sync::Arc;

use exec_env::files::ContentHash;
use exec_testkit::test_environment::TestEnvironment;
use exec_tools::files::{EditManyRequest, EditRequest, FileEdit, FileToolError, FileTools, ReadRequest};
use tokio::task::JoinSet;

use crate::{environments, remote};

const EDITORS: usize = 50;

/// Each editor reads the number and its hash, and replaces the number by the next one if the hash still holds.
async fn count_up(tools: FileTools, name: &'static str) {
    loop {
        let viewed = tools.read(ReadRequest::new(name)).await.expect("the counter is there");
        let number = number_in(&viewed.text());
        let edit = EditRequest {
            if_hash: Some(viewed.hash),
            ..EditRequest::new(name, format!("<{number}>"), format!("<{}>", number + 1))
        };
        match tools.edit(edit).await {
            Ok(_) => return,
            Err(FileToolError::Changed { .. }) => {}
            Err(error) => panic!("an edit fails only because somebody else was faster: {error}"),
        }
    }
}

fn number_in(text: &str) -> usize {
    let (_, rest) = text.split_once('<').expect("a number is in angle brackets");
    rest.split_once('>').and_then(|(number, _)| number.parse().ok()).expect("it is a number")
}

async fn fifty_editors(environments: &[TestEnvironment], scratch: &std::path::Path) -> String {
    std::fs::write(scratch.join("counter"), "count: <0>\n").expect("the scratch directory is ours");
    let mut editors = JoinSet::new();
    for number in 0..EDITORS {
        let environment = &environments[number % environments.len()].environment;
        let tools = FileTools::of(&**environment, scratch).expect("the scratch directory is absolute");
        editors.spawn(count_up(tools, "counter"));
    }
    editors.join_all().await;
    std::fs::read_to_string(scratch.join("counter")).expect("the counter is there")
}

#[tokio::test]
async fn fifty_editors_of_one_counter_race_and_lose_no_update() {
    let environment = environments::keeper_as_thread().await;
    let scratch = environment.scratch();
    assert_eq!(fifty_editors(&[environment], &scratch).await, "count: <50>\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_editors_over_two_servers_and_embedded_race_and_lose_no_update() {
    // Two daemons in processes of their own, and an environment in this one: they share only the kernel.
    let environments = [remote::over_stdio().await, remote::over_stdio().await, environments::keeper_as_thread().await];
    let scratch = environments[0].scratch();
    assert_eq!(fifty_editors(&environments, &scratch).await, "count: <50>\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editors_of_two_files_at_once_race_over_two_servers_and_both_files_agree() {
    let environments = [remote::over_stdio().await, environments::keeper_as_thread().await];
    let scratch = environments[0].scratch();
    for name in ["a", "b"] {
        std::fs::write(scratch.join(name), "first\n").expect("the scratch directory is ours");
    }
    let before = ContentHash(blake3::hash(b"first\n"));
    let scratch = Arc::new(scratch);
    let mut editors = JoinSet::new();
    for number in 0..12_usize {
        let environment = &environments[number % environments.len()].environment;
        let tools = FileTools::of(&**environment, &**scratch).expect("the scratch directory is absolute");
        editors.spawn(async move {
            // Without a guard each is made on what is there, however often somebody else was faster.
            let append =
                |name: &str| FileEdit::Replace(EditRequest::new(name, "first\n", format!("first\n{number}\n")));
            // Half of them name the files in the other order.
            let mut edits = vec![append("a"), append("b")];
            if number % 2 == 0 {
                edits.reverse();
            }
            tools.edit_many(EditManyRequest { edits, make_directories: false }).await.expect("it fits")
        });
    }
    let changed = editors.join_all().await;
    let first = changed.iter().filter(|changed| changed.files[0].before.is_some_and(|old| old.hash == before)).count();
    assert_eq!(first, 1, "one was the first");
    let (a, b) = (std::fs::read_to_string(scratch.join("a")), std::fs::read_to_string(scratch.join("b")));
    let (a, b) = (a.expect("it is there"), b.expect("it is there"));
    assert_eq!(a, b, "both files were changed together every time");
    assert_eq!(a.lines().count(), 13);
}
