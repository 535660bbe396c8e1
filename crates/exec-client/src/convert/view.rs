//! Views: what is asked of a server, and what it answers.

use std::os::unix::ffi::OsStringExt;
use std::time::SystemTime;

use bytes::Bytes;
use exec_core::{Exit, Gap, Head, ProcessId};
use exec_env::view::{Amount, Collapsed, LeftOut, Position, Since, View, ViewLine, ViewPart, ViewQuery};
use exec_wire::process::{self as wire, round_up_to_millis};

pub(crate) fn view_params(id: &ProcessId, query: ViewQuery) -> wire::ViewParams {
    let (lines, head, tail) = match query.part {
        ViewPart::Lines { first, last } => (Some(wire::ViewLines { first, last }), None, None),
        ViewPart::HeadTail { head, tail } => (None, Some(amount(head)), Some(amount(tail))),
    };
    let (since_ms, since_age_ms) = match query.since {
        None => (None, None),
        // Rounded down, so that nothing from that time on is missing.
        Some(Since::Time(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            (Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)), None)
        }
        Some(Since::Age(age)) => (None, Some(round_up_to_millis(age).unwrap_or(i64::MAX as u64))),
    };
    wire::ViewParams {
        process_id: id.as_str().to_owned(),
        after_seq: Some(query.from.after),
        skip_bytes: Some(query.from.skip_bytes).filter(|bytes| *bytes > 0),
        upto_seq: query.upto,
        since_ms,
        since_age_ms,
        stream: query.stream.map(Into::into),
        head,
        tail,
        lines,
        grep: query.grep.map(|grep| wire::ViewGrep {
            regex: grep.regex,
            ignore_case: grep.ignore_case,
            before: Some(grep.before).filter(|lines| *lines > 0),
            after: Some(grep.after).filter(|lines| *lines > 0),
            max_matches: Some(grep.max_matches).filter(|matches| *matches < u64::MAX),
        }),
        plain: query.plain,
        collapse_overwritten: query.collapse_overwritten,
        collapse_repeats: query.collapse_repeats,
        max_bytes: Some(query.max_bytes as u64),
    }
}

fn amount(amount: Amount) -> wire::ViewAmount {
    match amount {
        Amount::Lines(lines) => wire::ViewAmount { lines: Some(lines), bytes: None },
        Amount::Bytes(bytes) => wire::ViewAmount { lines: None, bytes: Some(bytes) },
    }
}

pub(crate) fn view(result: wire::ViewResult) -> View {
    let exit = result.exit.map(Into::into);
    let lines: Vec<ViewLine> = result
        .lines
        .into_iter()
        .map(|line| ViewLine {
            seq: line.seq,
            stream: line.stream.into(),
            number: line.number,
            is_match: !line.context,
            text: Bytes::from(line.text.0.into_vec()),
            ended: !line.unended,
            repeats: line.repeats,
            cut_bytes: line.cut_bytes,
        })
        .collect();
    View {
        // Whatever a server says, it is a place among the lines.
        head_lines: usize::try_from(result.head_lines).unwrap_or(usize::MAX).min(lines.len()),
        lines,
        left_out: LeftOut {
            bytes: result.left_out.bytes,
            lines: result.left_out.lines,
            matches: result.left_out.matches,
        },
        collapsed: Collapsed { bytes: result.collapsed.bytes, lines: result.collapsed.lines },
        matches: result.matches,
        first_seq: result.first_seq,
        last_seq: result.last_seq,
        next: Position { after: result.next_after_seq, skip_bytes: result.next_skip_bytes },
        gap: result.gap.map(|gap| Gap { from_seq: gap.from_seq, to_seq: gap.to_seq, dropped_bytes: gap.dropped_bytes }),
        head: head(&result.head, exit),
    }
}

pub(super) fn head(told: &wire::LogHead, exit: Option<Exit>) -> Head {
    Head {
        // Seqs begin with 1; a server that says otherwise must not make our arithmetic underflow.
        first_seq: told.first_seq.max(1),
        next_seq: told.next_seq.max(1),
        held_bytes: told.held_bytes,
        dropped_bytes: told.dropped_bytes,
        exit: told.exit_seq.zip(exit),
        closed: told.closed && exit.is_some(),
        stalled: wire::stall(told.stalled, told.stalled_by),
    }
}
