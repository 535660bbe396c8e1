//! `exec-server logs`: prints the output of a detached process. Stdin and signals are not forwarded to it.

use anyhow::Context;
use exec_client::LinkState;
use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{Page, Seq};
use exec_env::process::{ProcessError, ProcessReason, ReadQuery};

use crate::args::LogsArgs;
use crate::connection_status::LinkMonitor;
use crate::detached_session::{DetachedSession, ResumeError};
use crate::detached_store::DetachedStore;
use crate::interactive::PAGE_BYTES;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::output_thread::{OutputError, OutputThread};
use crate::{exit_code, messages, ps};

pub(crate) async fn run(args: &LogsArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let session = DetachedSession::resume(&store, store.find(&args.id)?, args.take_over).await?;
    if let Some(stall) = session.info.head.stalled {
        let why = ps::describe_stall(stall);
        messages::print_note(format_args!("{} has more to print and waits: {why}", session.process.id));
    }
    let printed = print(args, &session).await;
    let process = session.process.clone();
    session.close().await;
    match printed {
        // It was there a moment ago.
        Err(error) if error.downcast_ref().is_some_and(is_unknown) => {
            Err(ResumeError::forgotten(&store, &process).into())
        }
        Err(error) if error.downcast_ref().is_some_and(OutputError::is_broken_pipe) => Ok(exit_code::BROKEN_PIPE),
        other => other.map(|()| 0),
    }
}

fn is_unknown(error: &ProcessError) -> bool {
    error.reason == ProcessReason::UnknownProcess
}

enum Event {
    Page(Result<Option<Page>, ProcessError>),
    Written(Result<(), OutputError>),
    Link(LinkState),
}

async fn print(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<()> {
    let processes = session.processes();
    let last = if args.follow { Seq::MAX } else { last_entry(args, session).await? };
    let mut output = OutputThread::open().context("cannot start the thread that writes output")?;
    let mut formatter = OutputFormatter::new(args.json, false);
    let mut link = LinkMonitor::new(session.environment.link(), session.process.at.to_string(), false, false);
    let mut follower = processes.follow(&session.id, args.since_seq).await.context("cannot follow the output")?;
    let mut cursor = args.since_seq;
    loop {
        let finished = cursor >= last;
        if finished && output.is_idle() {
            break;
        }
        let can_read = !finished && output.has_capacity();
        let event = tokio::select! {
            page = follower.next(PAGE_BYTES), if can_read => Event::Page(page),
            written = output.next_result() => Event::Written(written),
            state = link.changed() => Event::Link(state),
        };
        match event {
            Event::Page(page) => match page.context("cannot read the output")? {
                Some(page) => {
                    cursor = page.cursor(cursor);
                    // Whoever reads our output may be stopped or slow; then the program waits, as at a pipe.
                    follower.acknowledge(cursor, ATTACHED_READER_TIMEOUT);
                    output.enqueue(formatter.page(page));
                }
                None => cursor = Seq::MAX,
            },
            Event::Written(written) => written?,
            Event::Link(state) => link.report(&state),
        }
    }
    output.close();
    Ok(())
}

/// The newest entry now. Only `--follow` prints what comes later.
async fn last_entry(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<Seq> {
    let query = ReadQuery { after: args.since_seq, max_bytes: Some(0), ..ReadQuery::default() };
    let page = session.processes().read(&session.id, query).await.context("cannot read the output")?;
    Ok(page.head.next_seq.saturating_sub(1))
}
