//! The sizes that a terminal had are known to every later owner.

use exec_core::{ProcessId, TerminalSize};
use exec_env::Environment;
use exec_env::screen::ScreenQuery;

use super::support::{self, LONG_TTL, OwnerProcess, SPOOL_BYTES};

#[test]
fn a_screen_of_the_past_has_its_size_also_after_a_kill_of_the_owner() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        let mut owner = OwnerProcess::durable(&state, LONG_TTL, SPOOL_BYTES);
        owner.expect("open");
        owner.send(&format!("start p pty {} winch", crate::environments::ACTOR));
        owner.expect("started p");
        owner.send("match p size");
        owner.expect("matched p");
        owner.kill();

        let id = ProcessId::new("p").expect("short");
        let second = support::open(&state, LONG_TTL).await.expect("the keeper is there");
        let before = second.processes().screen(&id, ScreenQuery::default()).await.expect("it can be drawn");
        assert_eq!((before.size, before.rows[0].text.as_str()), (TerminalSize { rows: 24, cols: 80 }, "size 24 80"));
        let size = TerminalSize { rows: 50, cols: 132 };
        second.processes().resize(&id, size).await.expect("it has a terminal");
        support::read_log(second.processes(), "p").await;
        second.hand_over().await;
        drop(second);

        let third = support::open(&state, LONG_TTL).await.expect("the keeper is there");
        let earlier = ScreenQuery { seq: Some(before.seq), colors: false };
        let earlier = third.processes().screen(&id, earlier).await.expect("it can be drawn");
        assert_eq!((earlier.size, earlier.rows), (before.size, before.rows));
        let now = third.processes().screen(&id, ScreenQuery::default()).await.expect("it can be drawn");
        assert_eq!((now.size, now.rows[1].text.as_str()), (size, "size 50 132"));
        let keeper = support::keeper_of(&state);
        support::shut_down(third, keeper).await;
    });
}
