//! `exec-server logs`: prints the output of a process, as an observer of its session. Stdin and signals are not forwarded to
//! it, and whoever drives the session notices nothing. `attach --observe` is the same, until its end.

mod view;

use anyhow::Context;
use exec_client::LinkState;
use exec_core::limits::ATTACHED_READER_TIMEOUT;
use exec_core::{Exit, Page, Seq};
use exec_env::process::{ProcessError, ProcessReason, ReadQuery};

use crate::args::LogsArgs;
use crate::connection_status::LinkMonitor;
use crate::detached_session::{DetachedSession, ResumeError};
use crate::detached_store::DetachedStore;
use crate::interactive::PAGE_BYTES;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::output_thread::{OutputError, OutputThread};
use crate::{exit_code, find_process, messages, ps};

pub(crate) async fn run(args: &LogsArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let (process, remote) = find_process::find(&store, &args.target, &args.id).await?;
    let session = match args.take_over {
        true => DetachedSession::resume(&store, process, true).await?,
        false => DetachedSession::observe(&store, process, &remote, false).await?,
    };
    if let Some(stall) = session.info.head.stalled {
        let why = ps::describe_stall(stall);
        messages::print_note(format_args!("{} has more to print and waits: {why}", session.process.id));
    }
    let options = PrintOptions { since_seq: args.since_seq, follow: args.follow, json: args.json, quiet: false };
    let printed = match view::is_asked_for(args) {
        true => view::print(args, &session).await,
        false => print(&session, options).await.map(drop),
    };
    let process = session.process.clone();
    session.close().await;
    match printed {
        // It was there a moment ago.
        Err(error) if error.downcast_ref().is_some_and(is_unknown) => {
            Err(ResumeError::forgotten(&store, &process).into())
        }
        Err(error) if error.downcast_ref().is_some_and(OutputError::is_broken_pipe) => Ok(exit_code::BROKEN_PIPE),
        other => other.map(|_| 0),
    }
}

/// What is printed of a log, and how.
pub(crate) struct PrintOptions {
    pub(crate) since_seq: Seq,
    /// Until its end.
    pub(crate) follow: bool,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

fn is_unknown(error: &ProcessError) -> bool {
    error.reason == ProcessReason::UnknownProcess
}

enum Event {
    Page(Result<Option<Page>, ProcessError>),
    Written(Result<(), OutputError>),
    Link(LinkState),
}

/// The result is how the process has exited, if the log was printed so far.
pub(crate) async fn print(session: &DetachedSession, options: PrintOptions) -> anyhow::Result<Option<Exit>> {
    let processes = session.processes();
    let last = if options.follow { Seq::MAX } else { last_entry(options.since_seq, session).await? };
    let mut output = OutputThread::open().context("cannot start the thread that writes output")?;
    let mut formatter = OutputFormatter::new(options.json, false);
    let at = session.process.at.to_string();
    let mut link = LinkMonitor::new(session.environment.link(), at, None, options.quiet);
    let mut follower = processes.follow(&session.id, options.since_seq).await.context("cannot follow the output")?;
    let (mut cursor, mut exit) = (options.since_seq, None);
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
                    exit = page.head.exit.map(|(_, exit)| exit);
                    // Whoever reads our output may be stopped or slow; then the program waits, as at a pipe.
                    follower.acknowledge(cursor, ATTACHED_READER_TIMEOUT);
                    output.enqueue(formatter.page(page));
                }
                None => cursor = Seq::MAX,
            },
            Event::Written(written) => written?,
            Event::Link(state) => drop(link.report(&state, false)),
        }
    }
    output.close();
    Ok(exit)
}

/// The newest entry now. Only `--follow` prints what comes later.
async fn last_entry(after: Seq, session: &DetachedSession) -> anyhow::Result<Seq> {
    let query = ReadQuery { after, max_bytes: Some(0), ..ReadQuery::default() };
    let page = session.processes().read(&session.id, query).await.context("cannot read the output")?;
    Ok(page.head.next_seq.saturating_sub(1))
}
