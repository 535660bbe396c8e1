//! `logs` with `--tail`, `--grep`, `--since` or `--plain`: the server chooses the lines, and what it leaves out is said on
//! stderr, in numbers. What comes later (`--follow`) is chosen here, line by line, with the same engine.

use std::fmt::Write as _;

use anyhow::Context;
use bytes::{BufMut, BytesMut};
use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{EntryBody, Page, Stream};
use exec_env::view::{Chunk, Grep, Position, Since, View, ViewEngine, ViewLine, ViewPart, ViewQuery};

use crate::args::LogsArgs;
use crate::detached_session::DetachedSession;
use crate::interactive::PAGE_BYTES;
use crate::interactive::output_thread::{OutputBatch, OutputChunk, OutputStream, OutputThread};
use crate::messages;

/// How much of a page the engine is told before its lines are taken out, in bytes. However short the lines are, so many fit
/// a view.
const PIECE_BYTES: usize = 8 << 10;

pub(super) fn is_asked_for(args: &LogsArgs) -> bool {
    args.tail.is_some() || args.grep.is_some() || args.since.is_some() || args.plain
}

pub(super) async fn print(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<()> {
    let mut output = OutputThread::open().context("cannot start the thread that writes output")?;
    let mut query = query(args);
    let mut notes = LeftOutNotes::default();
    loop {
        let view = session.processes().view(&session.id, query.clone()).await.context("cannot read the output")?;
        write(&mut output, batch(&view.lines)).await?;
        notes.add(&view, args);
        query.from = view.next;
        // The range of the first view holds for all, so that a program that prints faster than we do does not keep us here.
        query.upto.get_or_insert(view.last_seq);
        query.since = None;
        if args.tail.is_some() || view.next.after >= view.last_seq {
            break;
        }
    }
    notes.print(args);
    if args.follow {
        follow(&mut output, session, query).await?;
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

/// What comes after the view, until the output ends.
async fn follow(output: &mut OutputThread, session: &DetachedSession, query: ViewQuery) -> anyhow::Result<()> {
    let after = query.from.after;
    let mut follower = session.processes().follow(&session.id, after).await.context("cannot follow the output")?;
    let query = ViewQuery { part: ViewPart::ALL, upto: None, ..query };
    let mut engine = ViewEngine::new(query).map_err(|why| anyhow::anyhow!("bad regular expression: {why}"))?;
    let mut cursor = after;
    while let Some(page) = follower.next(PAGE_BYTES).await.context("cannot read the output")? {
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
