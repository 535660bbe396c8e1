//! Screens: what a person would see on a terminal, now and earlier.

use exec_core::{Command, Io, TerminalSize};
use exec_env::process::ProcessReason;
use exec_env::screen::{Color, Cursor, SCREEN_SIZE, Screen, ScreenQuery};

use crate::process::TestProcess;
use crate::test_environment::TestEnvironment;

/// Text at places of its own, a colour, a title, and a cursor that is hidden.
pub async fn a_screen_is_what_the_program_has_drawn(env: &TestEnvironment) {
    let script =
        r"printf '\033]0;my title\007\033[2J\033[3;5Hhere\033[1;1H\033[1;31mred\033[0m gr\303\266\303\237e\033[?25l'";
    let process = drawn(env, "p", script, TerminalSize { rows: 5, cols: 20 }).await;
    let screen = process.screen(ScreenQuery { seq: None, colors: true }).await;
    assert_eq!(texts(&screen), ["red größe", "", "    here", "", ""]);
    assert_eq!(screen.size, TerminalSize { rows: 5, cols: 20 });
    assert_eq!(screen.cursor, Cursor { row: 0, col: 9, visible: false });
    assert_eq!((screen.title.as_deref(), screen.alternate), (Some("my title"), false));
    let run = screen.rows[0].runs[0];
    assert_eq!((run.col, run.cols, run.style.bold, run.style.foreground), (0, 3, true, Color::Palette(1)));
    let plain = process.screen(ScreenQuery::default()).await;
    assert!(plain.rows.iter().all(|row| row.runs.is_empty()));
}

/// An editor leaves the screen as it found it; what it showed is in the log.
pub async fn any_earlier_screen_can_be_drawn(env: &TestEnvironment) {
    let fifo = env.semaphore("semaphore");
    let path = fifo.path().display();
    let script = format!(
        r"printf 'shell$ \033[?1049h\033[H\033[2Jeditor'; head -c 1 {path}; printf '\033[?1049l'; printf 'done'"
    );
    let mut command = Command::new(["/bin/sh", "-c", &script], "/");
    command.io = Io::Pty(TerminalSize { rows: 4, cols: 20 });
    let process = env.start_command("p", command).await;
    process.reader().await.read_until("editor", |seen| seen.terminal().ends_with("editor")).await;
    let editor = process.screen(ScreenQuery::default()).await;
    assert_eq!((texts(&editor)[0].as_str(), editor.alternate), ("editor", true));
    fifo.release();
    process.read_to_end().await;
    let end = process.screen(ScreenQuery::default()).await;
    assert_eq!((texts(&end)[0].as_str(), end.alternate), ("shell$ done", false));
    let earlier = process.screen(ScreenQuery { seq: Some(editor.seq), colors: false }).await;
    assert_eq!((texts(&earlier), earlier.alternate), (texts(&editor), true));
    let first = process.screen(ScreenQuery { seq: Some(0), colors: false }).await;
    assert!(texts(&first).iter().all(String::is_empty));
    assert_eq!(texts(&process.screen(ScreenQuery::default()).await), texts(&end), "an earlier look changes nothing");
}

pub async fn a_screen_has_the_size_that_the_terminal_had(env: &TestEnvironment) {
    let process = env.start_on_terminal("p", "winch").await;
    let reader = process.reader_at_line("size 24 80").await;
    let before = process.screen(ScreenQuery::default()).await;
    assert_eq!(before.size, TerminalSize { rows: 24, cols: 80 });
    assert_eq!(process.resize(50, 132).await, Ok(()));
    reader.read_to_end().await;
    let after = process.screen(ScreenQuery::default()).await;
    assert_eq!((after.size, after.rows.len()), (TerminalSize { rows: 50, cols: 132 }, 50));
    assert_eq!(texts(&after)[..2], ["size 24 80", "size 50 132"]);
    let earlier = process.screen(ScreenQuery { seq: Some(before.seq), colors: false }).await;
    assert_eq!((earlier.size, texts(&earlier)), (before.size, texts(&before)));
}

/// A child may claim any size; no more is drawn than there may be.
pub async fn a_huge_terminal_is_drawn_as_far_as_a_screen_goes(env: &TestEnvironment) {
    let process = drawn(env, "p", "echo text", TerminalSize { rows: 60_000, cols: 60_000 }).await;
    let screen = process.screen(ScreenQuery { seq: None, colors: true }).await;
    assert_eq!((screen.size, texts(&screen)[0].as_str()), (SCREEN_SIZE, "text"));
}

pub async fn a_process_without_a_terminal_has_no_screen(env: &TestEnvironment) {
    let process = env.start("p", "say x ; exit 0").await;
    process.read_to_end().await;
    let refused = process.try_screen(ScreenQuery::default()).await.map_err(|error| error.reason);
    assert_eq!(refused.map(|screen| screen.rows), Err(ProcessReason::NoTerminal));
}

/// So does a client whose server draws none; on a terminal of the usual size it is the same.
pub async fn a_screen_made_of_pages_is_the_same(env: &TestEnvironment) {
    let script =
        r"for i in $(seq 1 3000); do printf '\033[%d;%dHline %d\033[K' $((i % 24 + 1)) $((i % 60 + 1)) $i; done";
    let process = drawn(env, "p", script, TerminalSize::default()).await;
    let screen = process.screen(ScreenQuery { seq: None, colors: true }).await;
    let made_of_pages = process.screen_by_reading(ScreenQuery { seq: None, colors: true }).await;
    assert_eq!(Ok(screen), made_of_pages);
}

async fn drawn<'a>(env: &'a TestEnvironment, id: &str, script: &str, size: TerminalSize) -> TestProcess<'a> {
    let mut command = Command::new(["/bin/sh", "-c", script], "/");
    command.io = Io::Pty(size);
    let process = env.start_command(id, command).await;
    process.read_to_end().await;
    process
}

fn texts(screen: &Screen) -> Vec<String> {
    screen.rows.iter().map(|row| row.text.clone()).collect()
}
