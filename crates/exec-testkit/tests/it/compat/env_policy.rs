//! WIRE 2.5.2: which variables a policy lets through. Both servers have the variables of
//! [`super::server_program::VARIABLES`].

use serde_json::{Value, json};

use super::case::{Case, initialized, start, with};

pub(super) fn cases() -> Vec<Case> {
    let everything = json!({"inherit": "all", "ignoreDefaultExcludes": true});
    vec![
        policy("all", everything.clone(), json!({})),
        policy("all but what looks secret", json!({"inherit": "all"}), json!({})),
        policy("core", json!({"inherit": "core"}), json!({})),
        policy("core with what looks secret", json!({"inherit": "core", "ignoreDefaultExcludes": true}), json!({})),
        policy("none", json!({"inherit": "none"}), json!({})),
        policy("none, and the caller's own", json!({"inherit": "none"}), json!({"OWN_KEY": "1"})),
        policy("exclude by name", with(everything.clone(), json!({"exclude": ["PLAIN"]})), json!({})),
        policy("exclude in another case", with(everything.clone(), json!({"exclude": ["plain"]})), json!({})),
        policy(
            "exclude with a star",
            with(everything.clone(), json!({"exclude": ["PLAIN*", "*_password"]})),
            json!({}),
        ),
        policy("exclude with a question mark", with(everything.clone(), json!({"exclude": ["PLAIN?"]})), json!({})),
        policy(
            "exclude with brackets",
            with(everything.clone(), json!({"exclude": ["PLAIN[0-9]", "{PLAIN}"]})),
            json!({}),
        ),
        policy("exclude everything", with(everything.clone(), json!({"exclude": ["*"]})), json!({"A": "1"})),
        policy("exclude nothing by an empty pattern", with(everything.clone(), json!({"exclude": [""]})), json!({})),
        policy("set comes after exclude", json!({"inherit": "none", "exclude": ["A"], "set": {"A": "1"}}), json!({})),
        policy("set comes after the default excludes", json!({"inherit": "none", "set": {"A_KEY": "1"}}), json!({})),
        policy("set wins over what is inherited", json!({"inherit": "core", "set": {"USER": "other"}}), json!({})),
        policy(
            "set of another case is another variable",
            json!({"inherit": "core", "set": {"user": "other"}}),
            json!({}),
        ),
        policy("includeOnly", with(everything.clone(), json!({"includeOnly": ["PLAIN*"]})), json!({})),
        policy("includeOnly in another case", with(everything.clone(), json!({"includeOnly": ["plain"]})), json!({})),
        policy(
            "includeOnly filters set, not the caller's own",
            json!({"inherit": "none", "set": {"A": "1", "B": "2"}, "includeOnly": ["B"]}),
            json!({"C": "3"}),
        ),
        policy("the caller's own wins", json!({"inherit": "all", "set": {"PLAIN": "set"}}), json!({"PLAIN": "own"})),
        policy(
            "the caller's own is never filtered",
            json!({"inherit": "none", "exclude": ["*"]}),
            json!({"A_TOKEN": "1"}),
        ),
        policy(
            "names that are never passed on cannot be set",
            json!({"inherit": "none", "set": {"NODE_REPL_AUTH_TOKEN": "1", "A": "1"}}),
            json!({}),
        ),
        initialized("what the real client sends")
            .call(
                "process/start",
                with(
                    start("p", &["/usr/bin/env"]),
                    json!({
                        "envPolicy": {"inherit": "all", "ignoreDefaultExcludes": true,
                            "exclude": ["CODEX_PERMISSION_PROFILE", "CODEX_VERSION"], "set": {}, "includeOnly": []},
                        "env": {"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "CODEX_CI": "1"},
                        "arg0": null, "sandbox": null, "enforceManagedNetwork": false, "managedNetwork": null,
                    }),
                ),
            )
            .sorted_output("p"),
        initialized("a policy on a terminal")
            .call(
                "process/start",
                with(
                    start("p", &["/usr/bin/env"]),
                    json!({"envPolicy": whole(json!({"inherit": "core"})), "env": {}, "tty": true}),
                ),
            )
            .sorted_output("p"),
    ]
}

fn policy(name: &str, policy: Value, env: Value) -> Case {
    let params = with(start("p", &["/usr/bin/env"]), json!({"envPolicy": whole(policy), "env": env}));
    initialized(&format!("policy: {name}")).call("process/start", params).sorted_output("p")
}

/// All five members are mandatory.
fn whole(policy: Value) -> Value {
    with(json!({"inherit": "all", "ignoreDefaultExcludes": false, "exclude": [], "set": {}, "includeOnly": []}), policy)
}
