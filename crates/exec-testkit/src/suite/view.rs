//! Views: what is shown of a log, and what is said about the rest.

use std::time::{Duration, SystemTime};

use exec_core::{Command, Io, Stream, TerminalSize};
use exec_env::process::ProcessReason;
use exec_env::view::{Amount, Grep, Position, Since, VIEW_BYTES, View, ViewPart, ViewQuery};

use crate::process::TestProcess;
use crate::test_environment::TestEnvironment;

pub async fn the_last_lines_of_a_log_and_how_many_there_are(env: &TestEnvironment) {
    let process = finished(env, "seq 1 1000").await;
    let view = process.view(ViewQuery { part: ViewPart::tail(3), ..ViewQuery::default() }).await;
    assert_eq!(texts(&view), ["998", "999", "1000"]);
    assert_eq!(view.lines[0].number, Some(998));
    assert_eq!((view.left_out.lines, view.left_out.bytes), (Some(997), 3893 - 13));
    assert_eq!(view.head_lines, 0);
    let head = view.head;
    assert_eq!((view.last_seq, view.next), (head.next_seq - 1, Position { after: head.next_seq - 1, skip_bytes: 0 }));
    assert!(head.closed && head.exit.is_some());
}

/// Far more than is looked at from the end, in lines of very different lengths.
pub async fn the_last_lines_of_a_long_log_are_whole(env: &TestEnvironment) {
    let script = "seq 1 300000; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last; printf unended";
    let process = finished(env, script).await;
    let view = process.view(ViewQuery { part: ViewPart::tail(4), ..ViewQuery::default() }).await;
    let found = texts(&view);
    assert_eq!(
        (found[0].as_str(), found[1].len(), &found[2..]),
        ("300000", 300_000, &["last".to_owned(), "unended".to_owned()][..])
    );
    assert_eq!(view.lines.iter().map(|line| line.ended).collect::<Vec<_>>(), [true, true, true, false]);
    let shown: usize = found.iter().map(|line| line.len() + 1).sum::<usize>() - 1;
    assert_eq!(view.left_out.bytes + shown as u64, view.head.held_bytes);
    let bytes = ViewPart::HeadTail { head: Amount::Lines(0), tail: Amount::Bytes(12) };
    let view = process.view(ViewQuery { part: bytes, ..ViewQuery::default() }).await;
    assert_eq!(texts(&view), ["last", "unended"]);
}

/// Long enough to be read ahead while it is searched.
pub async fn a_search_of_a_long_log_finds_what_is_anywhere_in_it(env: &TestEnvironment) {
    let process = finished(env, "seq 1 400000; seq 1 3 >&2; seq 400001 1000000").await;
    let view = async |query: ViewQuery| process.view(query).await;
    let grep = || Some(Grep::new("^(1|2|399999|400000|400001|1000000)$"));
    let found = view(ViewQuery { grep: grep(), stream: Some(Stream::Stdout), ..ViewQuery::default() }).await;
    assert_eq!(texts(&found), ["1", "2", "399999", "400000", "400001", "1000000"]);
    let numbers: Vec<_> = found.lines.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [1, 2, 399_999, 400_000, 400_001, 1_000_000].map(Some));
    let found = view(ViewQuery { grep: grep(), ..ViewQuery::default() }).await;
    assert_eq!((found.matches, found.left_out.matches), (8, 0), "the other stream has two of them");
    // What is needed is found at the beginning, and the rest is not waited for.
    let lines = view(ViewQuery { part: ViewPart::Lines { first: 2, last: 3 }, ..ViewQuery::default() }).await;
    assert_eq!(texts(&lines), ["2", "3"]);
}

pub async fn the_beginning_and_the_end_with_what_lies_between_left_out(env: &TestEnvironment) {
    let process = finished(env, "seq 1 100").await;
    let part = ViewPart::HeadTail { head: Amount::Lines(2), tail: Amount::Lines(1) };
    let view = process.view(ViewQuery { part, ..ViewQuery::default() }).await;
    assert_eq!((texts(&view), view.head_lines), (vec!["1".to_owned(), "2".to_owned(), "100".to_owned()], 2));
    assert_eq!((view.left_out.lines, view.left_out.bytes), (Some(97), 292 - 8));
    let part = ViewPart::HeadTail { head: Amount::Bytes(3), tail: Amount::Bytes(7) };
    let view = process.view(ViewQuery { part, ..ViewQuery::default() }).await;
    assert_eq!(
        (texts(&view), view.head_lines),
        (vec!["1".to_owned(), "2".to_owned(), "99".to_owned(), "100".to_owned()], 2)
    );
    let part = ViewPart::Lines { first: 50, last: 51 };
    let view = process.view(ViewQuery { part, ..ViewQuery::default() }).await;
    assert_eq!(
        view.lines.iter().map(|line| (line.number, &line.text[..])).collect::<Vec<_>>(),
        [(Some(50), &b"50"[..]), (Some(51), b"51")]
    );
}

pub async fn lines_that_match_with_their_surroundings(env: &TestEnvironment) {
    let process = finished(env, "seq 1 100").await;
    let grep = |regex: &str, before, after, max_matches| {
        let grep = Some(Grep { before, after, max_matches, ..Grep::new(regex) });
        process.view(ViewQuery { grep, ..ViewQuery::default() })
    };
    let view = grep("^[35]0$", 1, 1, u64::MAX).await;
    assert_eq!(texts(&view), ["29", "30", "31", "49", "50", "51"]);
    assert_eq!(
        view.lines.iter().map(|line| line.is_match).collect::<Vec<_>>(),
        [false, true, false, false, true, false]
    );
    assert_eq!(view.lines[1].number, Some(30));
    assert_eq!((view.matches, view.left_out.matches, view.left_out.lines), (2, 0, Some(94)));
    let view = grep("0", 0, 0, 3).await;
    assert_eq!((texts(&view), view.matches, view.left_out.matches), (strings(&["10", "20", "30"]), 10, 7));
    // Where it says, it goes on.
    let grep = Some(Grep { max_matches: 2, ..Grep::new("0") });
    let rest = process.view(ViewQuery { from: view.next, grep, ..ViewQuery::default() }).await;
    assert_eq!(texts(&rest), ["40", "50"]);
}

pub async fn a_bad_expression_is_refused_before_the_log_is_read(env: &TestEnvironment) {
    let process = finished(env, "seq 1 100").await;
    for regex in ["(unclosed", "((a{1000}){1000}){1000}"] {
        let query = ViewQuery { grep: Some(Grep::new(regex)), ..ViewQuery::default() };
        let refused = process.try_view(query).await.map_err(|error| error.reason);
        assert!(matches!(refused, Err(ProcessReason::BadRegex { .. })), "{refused:?}");
    }
}

/// Each look shows what is new, wherever the program has stopped.
pub async fn what_came_since_the_last_look(env: &TestEnvironment) {
    let process =
        env.start_with_stdin("p", "say one ; out-raw tw ; read-line ; out-raw o ; say ; say three ; exit 0").await;
    process.reader().await.read_until("tw", |seen| seen.printed() == "one\ntw").await;
    let first = process.view(ViewQuery::default()).await;
    assert_eq!(texts(&first), ["one", "tw"]);
    let again = process.view(ViewQuery { from: first.next, ..ViewQuery::default() }).await;
    assert_eq!((texts(&again), again.next, again.left_out.bytes), (vec![], first.next, 0));
    process.write("1", "\n").await;
    process.read_to_end().await;
    let second = process.view(ViewQuery { from: first.next, ..ViewQuery::default() }).await;
    assert_eq!(texts(&second), ["o", "three"]);
    let upto = process.view(ViewQuery { upto: Some(first.last_seq), ..ViewQuery::default() }).await;
    assert_eq!((texts(&upto), upto.next), (texts(&first), first.next));
}

pub async fn what_was_printed_since_a_time(env: &TestEnvironment) {
    let process = env.start_with_stdin("p", "say old ; read-line ; say new ; exit 0").await;
    process.reader_at_line("old").await;
    // By the clock of the machine; all of a suite's environments are on this one. The entry that was just read was made before
    // now, and one is made after the write.
    let between = SystemTime::now() + Duration::from_millis(1);
    while SystemTime::now() <= between {
        tokio::task::yield_now().await;
    }
    process.write("1", "\n").await;
    process.read_to_end().await;
    let since = |since| process.view(ViewQuery { since: Some(since), ..ViewQuery::default() });
    assert_eq!(texts(&since(Since::Time(between)).await), ["new"]);
    assert_eq!(texts(&since(Since::Age(Duration::from_secs(3600))).await), ["old", "new"]);
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(texts(&since(Since::Time(later)).await), strings(&[]));
}

/// A line belongs to one stream, and is not torn by the other.
pub async fn the_lines_of_one_stream_or_of_both(env: &TestEnvironment) {
    let process =
        env.start_with_stdin("p", "out-raw left ; read-line ; err between ; read-line ; say right ; exit 0").await;
    let mut reader = process.reader().await;
    reader.read_until("left", |seen| seen.printed() == "left").await;
    process.write("1", "\n").await;
    reader.read_until("between", |seen| seen.printed() == "leftbetween\n").await;
    process.write("2", "\n").await;
    reader.read_to_end().await;
    let both = process.view(ViewQuery::default()).await;
    assert_eq!(texts(&both), ["between", "leftright"]);
    assert_eq!(both.lines[0].stream, Stream::Stderr);
    for (stream, text) in [(Stream::Stdout, "leftright"), (Stream::Stderr, "between")] {
        let one = process.view(ViewQuery { stream: Some(stream), ..ViewQuery::default() }).await;
        assert_eq!((texts(&one), one.left_out.bytes), (strings(&[text]), 0));
    }
}

pub async fn text_without_escapes_progress_and_repeats(env: &TestEnvironment) {
    let script = r"printf '\033[1;31mred\033[0m\n10%%\r\033[K50%%\r\033[K100%%\nsame\nsame\nsame\nend\n'";
    let mut command = Command::new(["/bin/sh", "-c", script], "/");
    command.io = Io::Pty(TerminalSize::default());
    let process = env.start_command("p", command).await;
    process.read_to_end().await;
    let raw = process.view(ViewQuery::default()).await;
    assert_eq!(texts(&raw)[0], "\u{1b}[1;31mred\u{1b}[0m\r");
    let query = ViewQuery { plain: true, collapse_overwritten: true, collapse_repeats: true, ..ViewQuery::default() };
    let clean = process.view(query.clone()).await;
    assert_eq!(texts(&clean), ["red", "100%", "same", "end"]);
    assert_eq!((clean.lines[2].repeats, clean.collapsed.lines, clean.left_out.bytes), (2, 2, 0));
    let shown: u64 = clean.lines.iter().map(|line| line.text.len() as u64 + 1).sum();
    assert_eq!(shown + clean.collapsed.bytes, clean.head.held_bytes);
    let grep = Some(Grep::new("^100%$"));
    assert_eq!(texts(&process.view(ViewQuery { grep, ..query }).await), ["100%"]);
}

/// However much there is, a view is no larger than it may be, and views that go on from one another show everything.
pub async fn a_view_is_bounded_and_says_where_to_go_on(env: &TestEnvironment) {
    let process = finished(env, "seq 1 20000").await;
    let (mut from, mut seen, mut views) = (Position::default(), Vec::new(), 0);
    loop {
        let view = process.view(ViewQuery { from, max_bytes: 200_000, ..ViewQuery::default() }).await;
        assert!(view.lines.iter().map(|line| line.text.len()).sum::<usize>() <= 200_000);
        seen.extend(texts(&view));
        views += 1;
        from = view.next;
        if from.after == view.head.next_seq - 1 {
            break;
        }
    }
    assert!(views > 5, "{views}");
    assert_eq!(seen, (1..=20_000).map(|number| number.to_string()).collect::<Vec<_>>());
    let most = process.view(ViewQuery { max_bytes: usize::MAX, ..ViewQuery::default() }).await;
    assert!(most.lines.len() < 20_000 && most.lines.len() > VIEW_BYTES / 200, "{}", most.lines.len());
}

/// So does a client whose server knows no views.
pub async fn a_view_made_of_pages_is_the_same(env: &TestEnvironment) {
    let process = finished(env, "seq 1 3000; printf '10%%\\r20%%\\n'; yes | head -n 50; seq 1 50 >&2").await;
    let parts = [ViewPart::ALL, ViewPart::head(7), ViewPart::tail(7), ViewPart::Lines { first: 90, last: 3100 }];
    let greps = [None, Some(Grep { before: 2, after: 1, max_matches: 4, ..Grep::new("7$|y") })];
    let froms = [Position::default(), Position { after: 1, skip_bytes: 5 }];
    for part in parts {
        for grep in greps.clone() {
            for from in froms {
                let (grep, collapse_repeats) = (grep.clone(), from.after == 0);
                let query = ViewQuery {
                    part,
                    grep,
                    from,
                    collapse_repeats,
                    collapse_overwritten: true,
                    ..ViewQuery::default()
                };
                let made_of_pages = process.view_by_reading(query.clone()).await;
                assert_eq!(Ok(process.view(query.clone()).await), made_of_pages, "{query:?}");
            }
        }
    }
    let since = ViewQuery { since: Some(Since::Age(Duration::from_secs(1))), ..ViewQuery::default() };
    let refused = process.view_by_reading(since).await.map_err(|error| error.reason);
    assert_eq!(refused.map(|view| view.lines), Err(ProcessReason::NoTimes));
}

pub async fn a_view_of_nothing_is_empty(env: &TestEnvironment) {
    let process = env.start("p", "wait-forever").await;
    for part in [ViewPart::ALL, ViewPart::tail(5), ViewPart::Lines { first: 1, last: 5 }] {
        let view = process.view(ViewQuery { part, ..ViewQuery::default() }).await;
        assert_eq!((view.lines.len(), view.left_out.bytes, view.next), (0, 0, Position::default()));
    }
}

async fn finished<'a>(env: &'a TestEnvironment, script: &str) -> TestProcess<'a> {
    let process = env.start_command("p", Command::new(["/bin/sh", "-c", script], "/")).await;
    process.read_to_end().await;
    process
}

fn texts(view: &View) -> Vec<String> {
    view.lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
