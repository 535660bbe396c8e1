//! `logs` with `--tail`, `--grep`, `--since` or `--plain`: the server chooses the lines, and what it leaves out is said on
//! stderr, in numbers. What comes later (`--follow`) is chosen here, line by line, with the same engine. A line on which
//! that may depend waits for its end meanwhile.

use std::fmt::Write as _;

use anyhow::Context;
use bytes::{BufMut, BytesMut};
use exec_client::LinkState;
use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{EntryBody, Page, Seq, Stream};
use exec_env::process::ProcessError;
use exec_env::view::{Chunk, Grep, Position, Since, View, ViewEngine, ViewLine, ViewPart, ViewQuery};

use crate::args::LogsArgs;
use crate::connection_status::LinkMonitor;
use crate::detached_session::DetachedSession;
use crate::interactive::PAGE_BYTES;
use crate::interactive::output_thread::{OutputBatch, OutputChunk, OutputStream, OutputThread};
use crate::messages;

/// How much of a page the engine is told before its lines are taken out, in bytes. However short the lines are, so many fit
/// a view.
const PIECE_BYTES: usize = 8 << 10;

/// Only stdout and stderr can have unfinished lines at once: with a terminal there is one stream.
const MOST_UNFINISHED: u64 = 2;

pub(super) fn is_asked_for(args: &LogsArgs) -> bool {
    args.tail.is_some() || args.grep.is_some() || args.since.is_some() || args.plain
}

pub(super) async fn print(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<()> {
    let mut output = OutputThread::open().context("cannot start the thread that writes output")?;
    let mut query = query(args);
    let mut notes = LeftOutNotes::default();
    let (mut first_seq, mut begun) = (None, FollowStart::default());
    loop {
        let mut view = session.processes().view(&session.id, query.clone()).await.context("cannot read the output")?;
        let first_seq = *first_seq.get_or_insert(view.first_seq);
        let is_last = args.tail.is_some() || view.next.after >= view.last_seq;
        if is_last && args.follow && (args.grep.is_some() || args.plain) {
            begun.unfinished = unfinished_lines(session, first_seq, view.last_seq).await?;
            view.lines.retain(|line| !begun.unfinished.iter().any(|begun| is_shown_of(begun, line)));
        }
        begun.owed_context = owed_context(&view.lines, args.context, begun.owed_context);
        write(&mut output, batch(&view.lines)).await?;
        notes.add(&view, args);
        query.from = view.next;
        // The range of the first view holds for all, so that a program that prints faster than we do does not keep us here.
        query.upto.get_or_insert(view.last_seq);
        query.since = None;
        if is_last {
            break;
        }
    }
    notes.print(args);
    if args.follow {
        follow(&mut output, session, query, &begun).await?;
    }
    output.close();
    Ok(())
}

fn query(args: &LogsArgs) -> ViewQuery {
    ViewQuery {
        from: Position { after: args.since_seq, skip_bytes: 0 },
        since: args.since.map(Since::Age),
        part: args.tail.map_or(ViewPart::ALL, ViewPart::tail),
        grep: args.grep.as_ref().map(|regex| Grep {
            before: args.context,
            after: args.context,
            ignore_case: args.ignore_case,
            ..Grep::new(regex)
        }),
        plain: args.plain,
        collapse_overwritten: args.plain,
        ..ViewQuery::default()
    }
}

/// The lines at the end of this range that the program has not ended yet, as it has printed them. What it prints next
/// belongs to them, so that only then is known whether they match, and how they look without escape sequences.
async fn unfinished_lines(session: &DetachedSession, first_seq: Seq, last_seq: Seq) -> anyhow::Result<Vec<ViewLine>> {
    let query = ViewQuery {
        from: Position { after: first_seq.saturating_sub(1), skip_bytes: 0 },
        upto: Some(last_seq),
        part: ViewPart::tail(MOST_UNFINISHED),
        ..ViewQuery::default()
    };
    let view = session.processes().view(&session.id, query).await.context("cannot read the output")?;
    let mut unfinished: Vec<ViewLine> = Vec::new();
    for line in view.lines.into_iter().rev().take_while(|line| !line.ended) {
        // Before the end of a line that is too long come pieces of it, which have not ended either.
        if unfinished.iter().all(|later| later.stream != line.stream) {
            unfinished.push(line);
        }
    }
    unfinished.reverse();
    Ok(unfinished)
}

/// Whether a line of the view is what it shows of this unfinished one, and no piece before it.
fn is_shown_of(unfinished: &ViewLine, line: &ViewLine) -> bool {
    !line.ended
        && (line.stream, line.seq) == (unfinished.stream, unfinished.seq)
        && line.text.len() <= unfinished.text.len()
}

enum Event {
    Page(Result<Option<Page>, ProcessError>),
    Link(LinkState),
}

/// What is shown in part when following begins.
#[derive(Default)]
struct FollowStart {
    /// Lines that the view has left unfinished.
    unfinished: Vec<ViewLine>,
    /// Lines to be shown after the last match.
    owed_context: u32,
}

/// How many of the `context` lines after the last match are not shown yet, after a view of these lines.
fn owed_context(lines: &[ViewLine], context: u32, owed_before: u32) -> u32 {
    let (owed, behind) = match lines.iter().rposition(|line| line.is_match) {
        Some(last) => (context, &lines[last + 1..]),
        None => (owed_before, lines),
    };
    let shown: u64 = behind.iter().map(|line| 1 + line.repeats).sum();
    owed.saturating_sub(u32::try_from(shown).unwrap_or(u32::MAX))
}

/// What comes after the view, until the output ends.
async fn follow(
    output: &mut OutputThread,
    session: &DetachedSession,
    query: ViewQuery,
    begun: &FollowStart,
) -> anyhow::Result<()> {
    let after = query.from.after;
    let mut follower = session.processes().follow(&session.id, after).await.context("cannot follow the output")?;
    let query = ViewQuery { part: ViewPart::ALL, upto: None, ..query };
    let mut engine = ViewEngine::new(query).map_err(|why| anyhow::anyhow!("bad regular expression: {why}"))?;
    engine.owes_context(begun.owed_context);
    for ViewLine { stream, text, seq, .. } in &begun.unfinished {
        engine.push(Chunk { stream: *stream, bytes: text, ends: &[(text.len(), *seq)], skipped_bytes: 0 });
    }
    let mut link = LinkMonitor::new(session.environment.link(), session.process.at.to_string(), None, false);
    let mut cursor = after;
    loop {
        let event = tokio::select! {
            page = follower.next(PAGE_BYTES) => Event::Page(page),
            state = link.changed() => Event::Link(state),
        };
        let page = match event {
            Event::Page(page) => page.context("cannot read the output")?,
            Event::Link(state) => {
                link.report(&state, false);
                continue;
            }
        };
        let Some(page) = page else { break };
        cursor = page.cursor(cursor);
        // Whoever reads our output may be stopped or slow; then the program waits, as at a pipe.
        follower.acknowledge(cursor, ATTACHED_READER_TIMEOUT);
        for lines in lines_of(&mut engine, page) {
            write(output, batch(&lines)).await?;
        }
    }
    write(output, batch(&engine.finish_lines())).await
}

fn lines_of(engine: &mut ViewEngine, page: Page) -> Vec<Vec<ViewLine>> {
    if page.gap.is_some() {
        engine.gap();
        messages::print_note("some output is lost here: it was read too slowly; raise --spool");
    }
    let mut lines = Vec::new();
    for entry in page.entries {
        let EntryBody::Output { stream, bytes } = entry.body else { continue };
        for piece in bytes.chunks(PIECE_BYTES) {
            let ends = &[(piece.len(), entry.seq)];
            engine.push(Chunk { stream, bytes: piece, ends, skipped_bytes: 0 });
            lines.push(engine.take_lines());
        }
    }
    lines
}

fn batch(lines: &[ViewLine]) -> OutputBatch {
    let same_stream = |one: &ViewLine, other: &ViewLine| one.stream == other.stream;
    let chunks = lines.chunk_by(same_stream).map(|lines| {
        let mut text = BytesMut::new();
        for line in lines {
            text.put_slice(&line.text);
            if line.ended {
                text.put_u8(b'\n');
            }
        }
        let to = match lines[0].stream {
            Stream::Stderr => OutputStream::Stderr,
            Stream::Stdout | Stream::Pty => OutputStream::Stdout,
        };
        OutputChunk { to, bytes: text.freeze() }
    });
    chunks.collect()
}

async fn write(output: &mut OutputThread, batch: OutputBatch) -> anyhow::Result<()> {
    output.enqueue(batch);
    while !output.is_idle() {
        output.next_result().await?;
    }
    Ok(())
}

/// What was not shown, of all views together.
#[derive(Default)]
struct LeftOutNotes {
    lines: Option<u64>,
    bytes: u64,
    dropped_bytes: Option<u64>,
    cut_bytes: u64,
}

impl LeftOutNotes {
    fn add(&mut self, view: &View, args: &LogsArgs) {
        // Without a tail, what one view leaves out the next one shows, but for lines that do not match.
        if args.tail.is_some() {
            self.lines = view.left_out.lines;
            self.bytes = view.left_out.bytes;
        }
        self.cut_bytes += view.lines.iter().map(|line| line.cut_bytes).sum::<u64>();
        self.dropped_bytes = view.gap.map(|gap| gap.dropped_bytes).or(self.dropped_bytes);
    }

    fn print(&self, args: &LogsArgs) {
        let id = &args.id;
        if let Some(bytes) = self.dropped_bytes {
            messages::print_note(format_args!(
                "the first output, {bytes} bytes, is lost: the log was full; raise --spool"
            ));
        }
        if self.cut_bytes > 0 {
            let bytes = self.cut_bytes;
            messages::print_note(format_args!(
                "{bytes} bytes of very long lines are not shown: `exec-server logs {id}`"
            ));
        }
        if self.bytes > 0 && args.grep.is_none() {
            let mut what = String::new();
            if let Some(lines) = self.lines {
                let _ = write!(what, "{lines} lines, ");
            }
            let bytes = self.bytes;
            messages::print_note(format_args!(
                "{what}{bytes} bytes before these are not shown: `exec-server logs {id}`"
            ));
        }
    }
}
