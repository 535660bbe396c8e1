//! Views: what a client asks to see of a log, and what it gets.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};

use exec_env::view::{Amount, Grep, Position, Since, VIEW_BYTES, View, ViewPart, ViewQuery};
use exec_wire::process as wire;
use exec_wire::text::OsText;

use super::seq;

/// The query of these params; the error says which of them contradict each other.
pub(crate) fn view_query(params: &wire::ViewParams) -> Result<ViewQuery, &'static str> {
    let since = match (params.since_ms, params.since_age_ms) {
        (Some(_), Some(_)) => return Err("sinceMs and sinceAgeMs exclude each other"),
        (Some(ms), None) => {
            let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
            Some(Since::Time(time.ok_or("sinceMs is too large")?))
        }
        (None, age) => age.map(|ms| Since::Age(Duration::from_millis(ms))),
    };
    Ok(ViewQuery {
        from: Position { after: seq(params.after_seq.unwrap_or(0)), skip_bytes: params.skip_bytes.unwrap_or(0) },
        since,
        upto: params.upto_seq.map(seq),
        stream: params.stream.map(Into::into),
        part: part(params)?,
        grep: params.grep.as_ref().map(|grep| Grep {
            regex: grep.regex.clone(),
            ignore_case: grep.ignore_case,
            before: grep.before.unwrap_or(0),
            after: grep.after.unwrap_or(0),
            max_matches: grep.max_matches.unwrap_or(u64::MAX),
        }),
        plain: params.plain,
        collapse_overwritten: params.collapse_overwritten,
        collapse_repeats: params.collapse_repeats,
        max_bytes: params.max_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(VIEW_BYTES).min(VIEW_BYTES),
    })
}

fn part(params: &wire::ViewParams) -> Result<ViewPart, &'static str> {
    let nothing = Amount::Lines(0);
    match (params.lines, params.head, params.tail) {
        (Some(wire::ViewLines { first, last }), None, None) => Ok(ViewPart::Lines { first, last }),
        (Some(_), _, _) => Err("lines excludes head and tail"),
        (None, None, None) => Ok(ViewPart::ALL),
        (None, head, tail) => {
            Ok(ViewPart::HeadTail { head: head.map_or(Ok(nothing), amount)?, tail: tail.map_or(Ok(nothing), amount)? })
        }
    }
}

fn amount(amount: wire::ViewAmount) -> Result<Amount, &'static str> {
    match (amount.lines, amount.bytes) {
        (Some(lines), None) => Ok(Amount::Lines(lines)),
        (None, Some(bytes)) => Ok(Amount::Bytes(bytes)),
        _ => Err("head and tail need either lines or bytes"),
    }
}

pub(crate) fn view(view: View) -> wire::ViewResult {
    let lines = view.lines.into_iter().map(|line| wire::ViewLine {
        seq: line.seq,
        stream: line.stream.into(),
        number: line.number,
        text: OsText(OsString::from_vec(line.text.into())),
        context: !line.is_match,
        unended: !line.ended,
        repeats: line.repeats,
        cut_bytes: line.cut_bytes,
    });
    wire::ViewResult {
        lines: lines.collect(),
        head_lines: view.head_lines as u64,
        left_out: wire::ViewLeftOut {
            bytes: view.left_out.bytes,
            lines: view.left_out.lines,
            matches: view.left_out.matches,
        },
        collapsed: wire::ViewCollapsed { bytes: view.collapsed.bytes, lines: view.collapsed.lines },
        matches: view.matches,
        first_seq: view.first_seq,
        last_seq: view.last_seq,
        next_after_seq: view.next.after,
        next_skip_bytes: view.next.skip_bytes,
        gap: view.gap.map(|gap| wire::ViewGap {
            from_seq: gap.from_seq,
            to_seq: gap.to_seq,
            dropped_bytes: gap.dropped_bytes,
        }),
        head: (&view.head).into(),
        exit: view.head.exit.map(|(_, exit)| exit.into()),
    }
}
