//! Views, against a reference that has the whole log in memory and looks at it byte by byte.

use exec_core::{Head, Seq, Stream};
use exec_env::view::{
    Amount, Chunk, Flow, Grep, LINE_BYTES, LINE_OVERHEAD_BYTES, Outside, Position, VIEW_BYTES, View, ViewEngine,
    ViewLine, ViewPart, ViewQuery, without_escapes,
};
use proptest::prelude::*;

type Log = Vec<(Stream, Vec<u8>)>;

/// What the engine says, told the entries one by one, several at a time, or in two halves.
fn view(log: &Log, query: &ViewQuery) -> View {
    let mut engine = ViewEngine::new(query.clone()).expect("a good expression");
    let (mut range_bytes, mut flow) = (0, Flow::More);
    for (index, (stream, bytes)) in log.iter().enumerate() {
        let seq = index as Seq + 1;
        if seq <= query.from.after || query.stream.is_some_and(|wanted| wanted != *stream) {
            continue;
        }
        let skipped = if seq == query.from.after + 1 { query.from.skip_bytes as usize } else { 0 };
        let ends = &[(bytes.len(), seq)];
        let bytes = &bytes[skipped.min(bytes.len())..];
        range_bytes += bytes.len() as u64;
        if flow == Flow::More {
            flow = engine.push(Chunk { stream: *stream, bytes, ends, skipped_bytes: skipped });
        }
    }
    engine.finish(outside(log, query, range_bytes))
}

fn outside(log: &Log, query: &ViewQuery, range_bytes: u64) -> Outside {
    let head = Head {
        first_seq: 1,
        next_seq: log.len() as Seq + 1,
        held_bytes: log.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
        dropped_bytes: 0,
        exit: None,
        closed: false,
        stalled: None,
    };
    let last_seq = log.len() as Seq;
    Outside { range_bytes, first_seq: query.from.after + 1, last_seq, gap: None, head, began_late: false }
}

/// A line of the reference: its stream, its text, whether it ended, and how many lines it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    stream: Stream,
    text: Vec<u8>,
    ended: bool,
    repeats: u64,
    number: u64,
    is_match: bool,
}

/// The lines of a log in the order in which they end, byte by byte.
fn lines(log: &Log, query: &ViewQuery) -> Vec<(Stream, Vec<u8>, bool)> {
    let mut lines = Vec::new();
    let mut open: Vec<(Stream, Vec<u8>, usize)> = Vec::new();
    for (at, (stream, bytes)) in log.iter().enumerate() {
        if query.stream.is_some_and(|wanted| wanted != *stream) {
            continue;
        }
        for byte in bytes {
            let index = open.iter().position(|(of, ..)| of == stream).unwrap_or_else(|| {
                open.push((*stream, Vec::new(), at));
                open.len() - 1
            });
            open[index].2 = at;
            if *byte == b'\n' {
                let (stream, text, _) = open.remove(index);
                lines.push((stream, text, true));
            } else {
                open[index].1.push(*byte);
            }
        }
    }
    open.sort_by_key(|(.., at)| *at);
    lines.extend(open.into_iter().map(|(stream, text, _)| (stream, text, false)));
    lines
}

fn reference(log: &Log, query: &ViewQuery) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for (index, (stream, mut text, ended)) in lines(log, query).into_iter().enumerate() {
        if query.collapse_overwritten {
            while text.last() == Some(&b'\r') {
                text.pop();
            }
            text = text.split(|byte| *byte == b'\r').next_back().unwrap_or_default().to_vec();
        }
        if query.plain {
            text = without_escapes(&text);
        }
        all.push(Shown { stream, text, ended, repeats: 0, number: index as u64 + 1, is_match: true });
    }
    if let ViewPart::Lines { first, last } = query.part {
        all.retain(|line| (first..=last).contains(&line.number));
    }
    if let Some(grep) = &query.grep {
        let regex = regex::bytes::RegexBuilder::new(&grep.regex).multi_line(true).crlf(true).build().expect("a regex");
        let matches: Vec<usize> = (0..all.len())
            .filter(|at| regex.is_match(all[*at].text.strip_suffix(b"\r").unwrap_or(&all[*at].text)))
            .collect();
        let shown: Vec<usize> = matches.iter().copied().take(grep.max_matches as usize).collect();
        // Context ends where a match begins that is not shown any more.
        let refused = matches.get(shown.len()).copied().unwrap_or(all.len());
        for (at, line) in all.iter_mut().enumerate() {
            line.is_match = shown.contains(&at);
        }
        let near = |at: usize| {
            shown.iter().any(|found| {
                at <= *found && found - at <= grep.before as usize || at > *found && at - found <= grep.after as usize
            }) && (at < refused)
        };
        let mut at = 0;
        all.retain(|_| {
            at += 1;
            near(at - 1)
        });
    }
    if query.collapse_repeats {
        let mut collapsed: Vec<Shown> = Vec::new();
        for line in all {
            match collapsed.last_mut() {
                Some(last)
                    if last.number + last.repeats + 1 == line.number
                        && (last.stream, &last.text, last.is_match) == (line.stream, &line.text, line.is_match)
                        && last.ended
                        && line.ended =>
                {
                    last.repeats += 1;
                }
                _ => collapsed.push(line),
            }
        }
        all = collapsed;
    }
    if let ViewPart::HeadTail { head: Amount::Lines(head), tail: Amount::Lines(tail) } = query.part {
        let (head, tail) = (head.min(all.len() as u64) as usize, tail.min(all.len() as u64) as usize);
        if head + tail < all.len() {
            all.drain(head..all.len() - tail);
        }
    }
    all
}

fn shown(line: &ViewLine) -> Shown {
    Shown {
        stream: line.stream,
        text: line.text.to_vec(),
        ended: line.ended,
        repeats: line.repeats,
        number: line.number.expect("it was counted"),
        is_match: line.is_match,
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "a",
        "b",
        "error",
        "\n",
        "\n",
        "\r",
        "\r\n",
        "größe",
        "\u{1F600}",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b]0;t\x07",
        "same\n",
        "same\n",
        "\t",
        "10%\r",
        "\x1b",
        "[",
        "",
    ]);
    // Cut anywhere, so that characters, sequences and line ends fall on both sides of an entry's end.
    (prop::collection::vec(words, 0..12), any::<prop::sample::Index>()).prop_map(|(words, cut)| {
        let bytes = words.concat().into_bytes();
        let at = cut.index(bytes.len() + 1);
        bytes[at..].to_vec()
    })
}

fn log() -> impl Strategy<Value = Log> {
    let stream = prop_oneof![3 => Just(Stream::Stdout), 1 => Just(Stream::Stderr)];
    prop::collection::vec((stream, piece()), 0..24)
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..6_u64, Just(u64::MAX)]
}

fn part() -> impl Strategy<Value = ViewPart> {
    prop_oneof![
        Just(ViewPart::ALL),
        (amount(), amount())
            .prop_map(|(head, tail)| ViewPart::HeadTail { head: Amount::Lines(head), tail: Amount::Lines(tail) }),
        (1..8_u64, 0..8_u64).prop_map(|(first, more)| ViewPart::Lines { first, last: first + more }),
    ]
}

fn grep() -> impl Strategy<Value = Option<Grep>> {
    let regex = prop::sample::select(vec![
        "error",
        "^a",
        "b$",
        "^$",
        "e.*r",
        "[^x]b",
        r"\s",
        "größe",
        "(?i)ERROR",
        r"\Aa",
        r"a\z",
        "(?-m)^b",
        "",
        "same|a",
    ]);
    let max = prop_oneof![Just(u64::MAX), 0..4_u64];
    let some = (regex, 0..3_u32, 0..3_u32, max)
        .prop_map(|(regex, before, after, max_matches)| Some(Grep { before, after, max_matches, ..Grep::new(regex) }));
    prop_oneof![1 => Just(None), 2 => some]
}

fn query() -> impl Strategy<Value = ViewQuery> {
    let stream = prop_oneof![2 => Just(None), 1 => Just(Some(Stream::Stdout)), 1 => Just(Some(Stream::Stderr))];
    (part(), grep(), stream, any::<[bool; 3]>()).prop_map(|(part, grep, stream, flags)| {
        let [plain, collapse_overwritten, collapse_repeats] = flags;
        ViewQuery { part, grep, stream, plain, collapse_overwritten, collapse_repeats, ..ViewQuery::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_view_is_what_the_reference_says(log in log(), query in query()) {
        let view = view(&log, &query);
        let found: Vec<Shown> = view.lines.iter().map(shown).collect();
        prop_assert_eq!(found, reference(&log, &query));
        let counted: u64 = view.lines.iter().map(|line| line.repeats + 1).sum();
        if let Some(left_out) = view.left_out.lines {
            prop_assert_eq!(left_out + counted, lines(&log, &query).len() as u64);
        }
        let stream = |of: Stream| query.stream.is_none_or(|wanted| wanted == of);
        let bytes: u64 = log.iter().filter(|(of, _)| stream(*of)).map(|(_, bytes)| bytes.len() as u64).sum();
        let text: u64 = view.lines.iter().map(|line| line.text.len() as u64 + u64::from(line.ended)).sum();
        prop_assert_eq!(text + view.left_out.bytes + view.collapsed.bytes, bytes);
    }

    /// However the output was cut into entries, and however they come together, the view is the same.
    #[test]
    fn the_pieces_do_not_matter(bytes in prop::collection::vec(piece(), 0..12), query in query(), cuts in any::<u64>()) {
        let whole = bytes.concat();
        let one: Log = vec![(Stream::Stdout, whole.clone())];
        let mut pieces: Log = Vec::new();
        let mut rest = &whole[..];
        let mut state = cuts | 1;
        while !rest.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (piece, behind) = rest.split_at(1 + (state >> 33) as usize % 7 % rest.len());
            pieces.push((Stream::Stdout, piece.to_vec()));
            rest = behind;
        }
        let text = |view: &View| view.lines.iter().map(shown).collect::<Vec<_>>();
        let (one, pieces) = (view(&one, &query), view(&pieces, &query));
        prop_assert_eq!(text(&one), text(&pieces));
        prop_assert_eq!((one.left_out.bytes, one.collapsed), (pieces.left_out.bytes, pieces.collapsed));
        prop_assert_eq!((one.left_out.matches, one.matches), (pieces.left_out.matches, pieces.matches));
    }

    /// Whether pieces were searched beforehand or not, the whole view is the same, with its numbers and positions:
    /// wherever entries are cut and come together, with holes between them, and also if the engine goes on where the
    /// search gave up.
    #[test]
    fn pieces_that_were_searched_beforehand_give_the_same_view(
        log in prop::collection::vec((log(), any::<bool>()), 0..4),
        query in query(),
        repeats in prop_oneof![4 => Just(1), 1 => 2..400_usize],
        max_bytes in prop_oneof![Just(VIEW_BYTES), 0..2000_usize],
    ) {
        let query = ViewQuery { max_bytes, ..query };
        let mut plain = ViewEngine::new(query.clone()).expect("a good expression");
        let mut searched = ViewEngine::new(query.clone()).expect("a good expression");
        let search = searched.line_search();
        let (mut seq, mut range_bytes) = (0, 0);
        for (part, gap_follows) in &log {
            for run in part.chunk_by(|(one, _), (other, _)| one == other) {
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                for (_, entry) in std::iter::repeat_n(run, repeats).flatten() {
                    bytes.extend_from_slice(entry);
                    seq += 1;
                    ends.push((bytes.len(), seq));
                }
                if query.stream.is_none_or(|wanted| wanted == run[0].0) {
                    range_bytes += bytes.len() as u64;
                }
                let chunk = Chunk { stream: run[0].0, bytes: &bytes, ends: &ends, skipped_bytes: 0 };
                let flow = match &search {
                    Some(search) => searched.push_searched(chunk, &search.search(&bytes)),
                    None => searched.push(chunk),
                };
                prop_assert_eq!(flow, plain.push(chunk));
            }
            if *gap_follows {
                plain.gap();
                searched.gap();
            }
        }
        let outside = outside(&Log::new(), &query, range_bytes);
        prop_assert_eq!(searched.finish(outside), plain.finish(outside));
    }

    /// Views that go on from one another show every line of one stream once, however small each of them is.
    #[test]
    fn going_on_loses_and_repeats_nothing(log in log(), max_bytes in 200..600_usize) {
        let log: Log = log.into_iter().map(|(_, bytes)| (Stream::Stdout, bytes)).collect();
        let mut query = ViewQuery { max_bytes, ..ViewQuery::default() };
        let mut text = Vec::new();
        loop {
            let view = view(&log, &query);
            let cost: usize = view.lines.iter().map(|line| line.text.len() + LINE_OVERHEAD_BYTES).sum();
            prop_assert!(cost <= max_bytes, "{cost}");
            for line in &view.lines {
                prop_assert_eq!(line.cut_bytes, 0);
                text.extend_from_slice(&line.text);
                text.extend(line.ended.then_some(b'\n'));
            }
            if view.next.after >= log.len() as Seq {
                break;
            }
            prop_assert!(view.next > query.from, "{:?}", view.next);
            query.from = view.next;
        }
        prop_assert_eq!(text, log.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>());
    }

    /// The first and the last bytes are those of the output, but for a character that would be cut.
    #[test]
    fn head_and_tail_may_be_counted_in_bytes(log in log(), head in 0..40_u64, tail in 0..40_u64) {
        let log: Log = log.into_iter().map(|(_, bytes)| (Stream::Stdout, bytes)).collect();
        let whole: Vec<u8> = log.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let part = ViewPart::HeadTail { head: Amount::Bytes(head), tail: Amount::Bytes(tail) };
        let view = view(&log, &ViewQuery { part, ..ViewQuery::default() });
        let text = |lines: &[ViewLine]| -> Vec<u8> {
            lines.iter().flat_map(|line| line.text.iter().copied().chain(line.ended.then_some(b'\n'))).collect()
        };
        let (first, last) = (text(&view.lines[..view.head_lines]), text(&view.lines[view.head_lines..]));
        prop_assert!(whole.starts_with(&first) && first.len() as u64 <= head + 1, "{first:?}");
        prop_assert!(whole.ends_with(&last) && last.len() as u64 <= tail, "{last:?}");
        prop_assert_eq!((first.len() + last.len()) as u64 + view.left_out.bytes, whole.len() as u64);
        if head + tail >= whole.len() as u64 + 8 {
            prop_assert_eq!(view.left_out.bytes, 0);
        }
    }
}

#[test]
fn a_line_without_an_end_takes_no_more_memory_than_a_line_may_have() {
    let block = vec![b'x'; 1 << 20];
    let mut engine = ViewEngine::new(ViewQuery { part: ViewPart::tail(2), ..ViewQuery::default() }).expect("a query");
    for seq in 1..=100 {
        let ends = &[(block.len(), seq)];
        engine.push(Chunk { stream: Stream::Stdout, bytes: &block, ends, skipped_bytes: 0 });
    }
    let log: Log = vec![(Stream::Stdout, Vec::new()); 100];
    let view = engine.finish(outside(&log, &ViewQuery::default(), 100 << 20));
    assert_eq!(view.left_out.lines, Some(99));
    assert_eq!(view.lines[0].text.len(), VIEW_BYTES - LINE_OVERHEAD_BYTES);
    assert_eq!(view.left_out.bytes + view.lines[0].text.len() as u64, 100 << 20);
    assert_eq!(LINE_BYTES, 1 << 20);
}

#[test]
fn matches_beyond_the_maximum_are_counted() {
    let log: Log = vec![(Stream::Stdout, b"hit\n".repeat(16 << 10)); 64];
    let grep = Grep { max_matches: 3, ..Grep::new("hit") };
    let view = view(&log, &ViewQuery { grep: Some(grep), ..ViewQuery::default() });
    assert_eq!((view.lines.len(), view.matches, view.left_out.matches), (3, 1 << 20, (1 << 20) - 3));
    assert_eq!(view.next, Position { after: 0, skip_bytes: 12 });
}

/// What is found in a piece is bounded, and its last lines are left to the engine then.
#[test]
fn a_piece_with_more_matches_than_are_noted_is_searched_to_its_end() {
    let bytes = b"hit\n".repeat(16 << 10);
    let query = ViewQuery { grep: Some(Grep::new("hit")), part: ViewPart::tail(1), ..ViewQuery::default() };
    let mut engine = ViewEngine::new(query.clone()).expect("a good expression");
    let found = engine.line_search().expect("lines can be judged alone").search(&bytes);
    let ends = &[(bytes.len(), 1)];
    engine.push_searched(Chunk { stream: Stream::Stdout, bytes: &bytes, ends, skipped_bytes: 0 }, &found);
    let view = engine.finish(outside(&Log::new(), &query, bytes.len() as u64));
    assert_eq!(
        (view.matches, view.lines[0].number, view.left_out.lines),
        (16 << 10, Some(16 << 10), Some((16 << 10) - 1))
    );
}

#[test]
fn an_expression_that_would_take_too_much_is_refused() {
    for regex in ["(((a{1000}){1000}){1000})", "(", &"a".repeat(1 << 20)] {
        let query = ViewQuery { grep: Some(Grep::new(regex)), ..ViewQuery::default() };
        assert!(ViewEngine::new(query).is_err());
    }
}
