//! `exec-server logs`: what a process that was left somewhere has printed. It is only looked at: our stdin and our
//! signals are our own.

use std::process::ExitCode;

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_core::{Page, Seq};
use exec_env::process::{ReadError, ReadQuery};

use crate::args::LogsArgs;
use crate::detached_session::DetachedSession;
use crate::detached_store::DetachedStore;
use crate::interactive::PAGE_BYTES;
use crate::interactive::formatter::OutputFormatter;
use crate::interactive::output_thread::{OutputError, OutputThread};
use crate::spinner::LinkMonitor;
use crate::{exit_code, runtime};

/// Prints them.
pub(crate) fn main(args: &LogsArgs) -> ExitCode {
    runtime::run(logs(args), exit_code::FAILED)
}

async fn logs(args: &LogsArgs) -> anyhow::Result<u8> {
    let store = DetachedStore::open()?;
    let session = DetachedSession::resume(&store, store.find(&args.id)?, args.take_over).await?;
    session.process_info(&store).await?;
    let printed = print(args, &session).await;
    session.close().await;
    match printed? {
        Ok(()) => Ok(0),
        Err(broken) if broken.is_broken_pipe() => Ok(exit_code::BROKEN_PIPE),
        Err(OutputError { to, errno }) => bail!("cannot write to {to}: {errno}"),
    }
}

enum Event {
    Page(Result<Option<Page>, ReadError>),
    Written(Result<(), OutputError>),
    Link(LinkState),
}

async fn print(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<Result<(), OutputError>> {
    let processes = session.processes();
    let last = if args.follow { Seq::MAX } else { last_entry(args, session).await? };
    let mut output = OutputThread::open().context("cannot start the thread that writes output")?;
    let mut formatter = OutputFormatter::new(args.json, false);
    let mut link = LinkMonitor::new(session.environment().link(), session.process.at.to_string(), false, false);
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
                    output.enqueue(formatter.page(page));
                }
                None => cursor = Seq::MAX,
            },
            Event::Written(Err(broken)) => return Ok(Err(broken)),
            Event::Written(Ok(())) => {}
            Event::Link(state) => link.report(&state),
        }
    }
    output.close();
    Ok(Ok(()))
}

/// The newest entry there is now; what is printed from here on is for `--follow`.
async fn last_entry(args: &LogsArgs, session: &DetachedSession) -> anyhow::Result<Seq> {
    let query = ReadQuery { after: args.since_seq, max_bytes: Some(0), ..ReadQuery::default() };
    let page = session.processes().read(&session.id, query).await.context("cannot read the output")?;
    Ok(page.head.next_seq.saturating_sub(1))
}
