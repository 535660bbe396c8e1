//! WIRE 2.8 and 2.9: `process/signal` and `process/terminate`.

use serde_json::json;

use super::case::{Case, CaseStep, initialized};
use super::declared_differences::DeclaredDifference;

impl Case {
    fn interrupt(self, process: &str) -> Self {
        self.call("process/signal", json!({"processId": process, "signal": "interrupt"}))
    }

    fn terminate(self, process: &str) -> Self {
        self.call("process/terminate", json!({"processId": process}))
    }
}

pub(super) fn cases() -> Vec<Case> {
    let catches_interrupt = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let catches_all = "trap 'echo caught' TERM INT HUP; echo ready; while :; do sleep 0.05; done";
    let group = "(trap 'echo child' INT; echo ready; sleep 1000 & wait) & trap 'echo leader' INT; wait; wait; exit 3";
    let killed = json!({"dense": true, "lines": [["exited", 137, false], ["closed"]]});
    let sleeping = |name: &str| initialized(name).sh("p", "exec sleep 1000");
    vec![
        sleeping("interrupt is answered with nothing").interrupt("p").log("p"),
        initialized("interrupt can be caught")
            .sh("p", catches_interrupt)
            .printed("p", "ready\n")
            .interrupt("p")
            .log("p"),
        initialized("interrupt reaches the group").sh("p", group).printed("p", "ready\n").interrupt("p"),
        initialized("interrupt of nobody").interrupt("none"),
        initialized("interrupt after the exit").sh("p", "exit 2").log("p").interrupt("p"),
        initialized("interrupt on a terminal")
            .sh_on_tty("p", catches_interrupt)
            .printed("p", "ready")
            .interrupt("p")
            .log("p"),
        sleeping("terminate of a running process").terminate("p").log("p"),
        initialized("terminate does not ask").sh("p", catches_all).printed("p", "ready\n").terminate("p").log("p"),
        initialized("terminate on a terminal")
            .sh_on_tty("p", "exec sleep 1000")
            .terminate("p")
            .closed("p")
            .step(CaseStep::Log("p".to_owned()))
            .differs(DeclaredDifference::SignalOfPtyChild, killed),
        initialized("terminate of nobody").terminate("none"),
        initialized("terminate after the exit").sh("p", "exit 2").log("p").terminate("p").read("p", json!({})),
        sleeping("terminate twice").terminate("p").closed("p").terminate("p"),
        initialized("terminate takes the group along")
            .sh("p", "sleep 1000 & echo ready; wait")
            .printed("p", "ready\n")
            .terminate("p")
            .log("p"),
        initialized("what was printed before terminate is kept")
            .sh("p", "echo kept; exec sleep 1000")
            .printed("p", "kept\n")
            .terminate("p")
            .closed("p")
            .read("p", json!({})),
        initialized("a descendant in a session of its own does not hold up the end")
            .sh("p", "setsid sleep 3 & echo ready; wait")
            .printed("p", "ready\n")
            .terminate("p")
            .log("p"),
        initialized("terminate after the leader's exit, while a grandchild holds stdout")
            .sh("p", "sleep 2 & echo ready; exit 5")
            .exited("p")
            .terminate("p")
            .closed("p")
            .read("p", json!({"afterSeq": 3})),
    ]
}
