//! Resources that an actor uses: processor time, memory, ports.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use rustix::stdio::stdout;
use rustix::time::{ClockId, clock_gettime};

use crate::ActorState;
use crate::output::line;
use crate::program::{VerbCall, fail};

pub(crate) fn run(state: &mut ActorState, call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "spin" => spin(Duration::from_millis(call.number(0))),
        // Every page is written, or the kernel would not count it.
        "rss" => state.allocations.push(vec![1; call.number(0)]),
        "listen" => listen(state, call.number(0)),
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

fn listen(state: &mut ActorState, port: u16) {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    match bound {
        Ok((port, listener)) => {
            state.listeners.push(listener);
            line(stdout(), format!("port {port}").as_bytes());
        }
        Err(error) => fail(&format!("cannot listen on port {port}: {error}")),
    }
}
