//! `exec-server logs`: what a process that was left somewhere has printed. It is only looked at: our stdin and our
//! signals are our own.

use std::process::ExitCode;

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_core::{Page, Seq};
use exec_env::process::{ReadError, ReadQuery};

use crate::args::LogsArgs;
use crate::attend::PAGE_BYTES;
use crate::attend::outlet::{Broken, Outlet};
use crate::attend::view::View;
use crate::notebook::Notebook;
use crate::spinner::LinkNews;
use crate::visit::{Visit, visit};
use crate::{errand, exit_code};

/// Prints them.
pub(crate) fn main(args: &LogsArgs) -> ExitCode {
    errand::run(logs(args), exit_code::FAILED)
}

async fn logs(args: &LogsArgs) -> anyhow::Result<u8> {
    let notebook = Notebook::open()?;
    let visit = visit(&notebook, notebook.find(&args.id)?, args.take_over).await?;
    visit.look(&notebook).await?;
    let printed = print(args, &visit).await;
    visit.leave().await;
    match printed? {
        Ok(()) => Ok(0),
        Err(broken) if broken.nobody_reads() => Ok(exit_code::NOBODY_READS),
        Err(Broken { to, errno }) => bail!("cannot write to {to}: {errno}"),
    }
}

enum Event {
    Page(Result<Option<Page>, ReadError>),
    Written(Result<(), Broken>),
    Link(LinkState),
}

async fn print(args: &LogsArgs, visit: &Visit) -> anyhow::Result<Result<(), Broken>> {
    let processes = visit.processes();
    let last = if args.follow { Seq::MAX } else { last_entry(args, visit).await? };
    let mut outlet = Outlet::open().context("cannot start the thread that writes output")?;
    let mut view = View::new(args.json, false);
    let mut link = LinkNews::of(visit.environment().link(), visit.note.at.to_string(), false, false);
    let mut follower = processes.follow(&visit.id, args.since_seq).await.context("cannot follow the output")?;
    let mut cursor = args.since_seq;
    loop {
        let over = cursor >= last;
        if over && outlet.is_idle() {
            break;
        }
        let follows = !over && outlet.has_room();
        let event = tokio::select! {
            page = follower.next(PAGE_BYTES), if follows => Event::Page(page),
            written = outlet.written() => Event::Written(written),
            state = link.changed() => Event::Link(state),
        };
        match event {
            Event::Page(page) => match page.context("cannot read the output")? {
                Some(page) => {
                    cursor = page.cursor(cursor);
                    outlet.put(view.page(page));
                }
                None => cursor = Seq::MAX,
            },
            Event::Written(Err(broken)) => return Ok(Err(broken)),
            Event::Written(Ok(())) => {}
            Event::Link(state) => link.tell(&state),
        }
    }
    outlet.close();
    Ok(Ok(()))
}

/// The newest entry there is now; what is printed from here on is for `--follow`.
async fn last_entry(args: &LogsArgs, visit: &Visit) -> anyhow::Result<Seq> {
    let query = ReadQuery { after: args.since_seq, max_bytes: Some(0), ..ReadQuery::default() };
    let page = visit.processes().read(&visit.id, query).await.context("cannot read the output")?;
    Ok(page.head.next_seq.saturating_sub(1))
}
