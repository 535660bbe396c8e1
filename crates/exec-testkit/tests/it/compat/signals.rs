//! WIRE 2.8 and 2.9: signals, and ends by force.

use serde_json::json;

use super::case::{Case, initialized};
use super::declared_differences::DeclaredDifference;

pub(super) fn cases() -> Vec<Case> {
    let terminate = |process: &str| ("process/terminate", json!({"processId": process}));
    let interrupt = |process: &str| ("process/signal", json!({"processId": process, "signal": "interrupt"}));
    let call = |case: Case, (method, params): (&str, serde_json::Value)| case.call(method, params);
    vec![
        call(initialized("interrupt is answered with nothing").sh("p", "exec sleep 1000"), interrupt("p")).log("p"),
        call(
            initialized("interrupt can be caught")
                .sh("p", "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done")
                .printed("p", "ready\n"),
            interrupt("p"),
        )
        .log("p"),
        call(
            initialized("interrupt reaches the group")
                .sh("p", "(trap 'echo child' INT; echo ready; sleep 1000 & wait) & trap 'echo leader' INT; wait; wait; exit 3")
                .printed("p", "ready\n"),
            interrupt("p"),
        ),
        call(initialized("interrupt of nobody"), interrupt("none")),
        call(initialized("interrupt after the exit").sh("p", "exit 2").log("p"), interrupt("p")),
        call(initialized("interrupt on a terminal")
            .sh_on_tty("p", "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done")
            .printed("p", "ready"), interrupt("p")).log("p"),
        call(initialized("terminate of a running process").sh("p", "exec sleep 1000"), terminate("p")).log("p"),
        call(
            initialized("terminate does not ask")
                .sh("p", "trap 'echo caught' TERM INT HUP; echo ready; while :; do sleep 0.05; done")
                .printed("p", "ready\n"),
            terminate("p"),
        )
        .log("p"),
        call(initialized("terminate on a terminal").sh_on_tty("p", "exec sleep 1000"), terminate("p"))
            .closed("p")
            .step(super::case::CaseStep::Log("p".to_owned()))
            .differs(
                DeclaredDifference::SignalOfPtyChild,
                json!({"dense": true, "lines": [["exited", 137, false], ["closed"]]}),
            ),
        call(initialized("terminate of nobody"), terminate("none")),
        call(initialized("terminate after the exit").sh("p", "exit 2").log("p"), terminate("p")).read("p", json!({})),
        call(
            call(initialized("terminate twice").sh("p", "exec sleep 1000"), terminate("p")).closed("p"),
            terminate("p"),
        ),
        call(
            initialized("terminate takes the group along").sh("p", "sleep 1000 & echo ready; wait").printed("p", "ready\n"),
            terminate("p"),
        )
        .log("p"),
        call(
            initialized("what was printed before terminate is kept").sh("p", "echo kept; exec sleep 1000").printed("p", "kept\n"),
            terminate("p"),
        )
        .closed("p")
        .read("p", json!({})),
        call(
            initialized("a descendant in a session of its own does not hold up the end")
                .sh("p", "setsid sleep 3 & echo ready; wait")
                .printed("p", "ready\n"),
            terminate("p"),
        )
        .log("p"),
        call(
            initialized("terminate after the leader's exit, while a grandchild holds stdout")
                .sh("p", "sleep 2 & echo ready; exit 5")
                .exited("p"),
            terminate("p"),
        )
        .closed("p")
        .read("p", json!({"afterSeq": 3})),
    ]
}
