//! What an actor costs: processor, memory, ports.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use rustix::stdio::stdout;
use rustix::time::{ClockId, clock_gettime};

use crate::Stage;
use crate::script::{Step, reject};
use crate::speech::line;

pub(crate) fn perform(stage: &mut Stage, step: &Step) -> bool {
    match step.verb.as_str() {
        "spin" => spin(Duration::from_millis(step.number(0))),
        // Every page is written, or the kernel would not count it.
        "rss" => stage.ballast.push(vec![1; step.number(0)]),
        "listen" => listen(stage, step.number(0)),
        _ => return false,
    }
    true
}

/// Burns this much processor time, however long that takes on a busy machine.
fn spin(cost: Duration) {
    let spent = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    };
    let end = spent() + cost;
    while spent() < end {
        std::hint::spin_loop();
    }
}

fn listen(stage: &mut Stage, port: u16) {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    match bound {
        Ok((port, listener)) => {
            stage.listeners.push(listener);
            line(stdout(), format!("port {port}").as_bytes());
        }
        Err(error) => reject(&format!("cannot listen on port {port}: {error}")),
    }
}
