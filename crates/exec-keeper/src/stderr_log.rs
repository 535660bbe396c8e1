//! What the keeper says on stderr, for whoever looks for the cause of something strange.
//!
//! Nobody may read that stderr, its reader may be gone, or its disk full. None of that is a reason for the keeper to wait or to
//! end, so what cannot be written now is left out.

use std::fmt::Display;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) fn log(text: impl Display) {
    let stderr = rustix::stdio::stderr();
    let mut takes_more = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut takes_more, Some(&now)).is_ok_and(|ready| ready > 0) {
        // Not by the standard library, whose lock others in this process may hold while they wait for that reader.
        let _ = rustix::io::write(stderr, format!("{text}\n").as_bytes());
    }
}
