//! What the token of a connection permits, and that it permits nothing else.

use std::sync::atomic::Ordering;

use exec_transport::Grant;
use exec_transport::token::TokenScope;
use exec_wire::method::Method;
use proptest::prelude::*;
use serde_json::json;

use crate::{TestClient, TestServer, error_of};

fn methods(patterns: &[&str]) -> Grant {
    let methods = patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect();
    Grant::Scope(TokenScope { methods, ..TokenScope::default() })
}

/// A pattern, and by another rule than the server's whether it permits a method: names, and beginnings of names.
fn pattern() -> impl Strategy<Value = (String, Vec<bool>)> {
    let names: Vec<&'static str> = Method::ALL.iter().map(|method| method.name()).collect();
    let picked = (0..names.len(), any::<prop::sample::Index>(), any::<bool>());
    picked.prop_map(move |(at, cut, whole)| {
        let name = names[at];
        if whole {
            return (name.to_owned(), names.iter().map(|other| *other == name).collect());
        }
        let beginning: String = name.chars().take(cut.index(name.len() + 1)).collect();
        let permits = names.iter().map(|other| other.chars().take(beginning.len()).eq(beginning.chars())).collect();
        (format!("{beginning}*"), permits)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_token_permits_the_methods_that_it_names_and_no_other(patterns in prop::collection::vec(pattern(), 0..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = TestServer::start().await;
            let names: Vec<&str> = patterns.iter().map(|(pattern, _)| pattern.as_str()).collect();
            let mut client = server.client_with(methods(&names)).await;
            for (at, method) in Method::ALL.iter().enumerate().filter(|(_, method)| method.is_served()) {
                if *method == Method::Initialize {
                    continue;
                }
                let permitted = patterns.iter().any(|(_, permits)| permits[at]);
                // The params are wrong for most methods. That is told to those who may call them, and to nobody else.
                let (_, kind, text) = error_of(&client.call(method.name(), json!({})).await);
                let refused = kind == "forbidden" && text.starts_with("the token of this connection does not permit");
                prop_assert_eq!(refused, !permitted, "{} with {:?}: {} {}", method.name(), &names, kind, text);
            }
            Ok(())
        })?;
    }
}

impl TestServer {
    /// A connection with a session of its own and a token that permits so much.
    async fn client_with(&self, grant: Grant) -> TestClient {
        let mut client = self.connect_with(grant);
        let answer = client.initialize(json!({"clientName": "test"})).await;
        assert!(answer["result"].is_object(), "{answer}");
        client
    }
}

#[tokio::test]
async fn a_refused_method_does_nothing() {
    let server = TestServer::start().await;
    let mut client = server.client_with(methods(&["fs/*"])).await;
    let (code, kind, text) = error_of(&client.start_process("p").await);
    assert_eq!((code, kind.as_str()), (-32600, "forbidden"));
    assert_eq!(text, "the token of this connection does not permit process/start: connect with one that does");
    assert_eq!(server.environment.started.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn output_is_pushed_only_to_a_token_that_may_read_it() {
    for (patterns, followed) in [(&["process/start", "process/list"][..], 0), (&["process/*"], 1)] {
        let server = TestServer::start().await;
        let mut client = server.client_with(methods(patterns)).await;
        assert_eq!(client.start_process("p").await["result"]["processId"], "p");
        // The writer has had its command by the time that it writes the next answer.
        client.call("process/list", json!({})).await;
        assert_eq!(server.environment.followed.load(Ordering::Relaxed), followed, "{patterns:?}");
    }
}

#[tokio::test]
async fn a_remembered_answer_is_not_repeated_to_a_token_that_may_not_ask() {
    let server = TestServer::start().await;
    let mut first = server.connect();
    first.initialize(json!({"clientName": "test", "requestScope": "mine"})).await;
    first.start_process("p").await;
    let (session, id) = (first.session.clone(), first.next_id);
    let signal = json!({"processId": "p", "signal": "terminate"});
    assert_eq!(first.call("process/signal", signal.clone()).await["result"]["status"], "sent");
    let mut second = server.connect_with(methods(&["process/list"]));
    second.initialize(json!({"clientName": "test", "requestScope": "mine", "resumeSessionId": session})).await;
    second.next_id = id;
    assert_eq!(error_of(&second.call("process/signal", signal).await).1, "forbidden");
}
