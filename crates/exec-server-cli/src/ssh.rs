//! `exec-server ssh`: `run` on a machine that exec-server is brought to, with a login shell if no program is named.
//!
//! How it is brought there is exec-client's `bootstrap`; this file says what the words of the command mean.

use std::ffi::OsString;
use std::io::IsTerminal;

use anyhow::bail;
use exec_client::Options;
use exec_client::bootstrap::BootstrapTarget;
use exec_client::environments::{self, SavedEnvironment};

use crate::args::{RunArgs, SshArgs};
use crate::target::{self, Target};
use crate::{exit_code, messages, run};

/// The shell is the one of the account there, which only the far end knows.
const LOGIN_SHELL: [&str; 3] = ["sh", "-c", r#"exec "${SHELL:-/bin/sh}" -l"#];

pub(crate) async fn run(args: &SshArgs) -> anyhow::Result<u8> {
    match run_there(args).await {
        Ok(code) => Ok(code),
        Err(error) => {
            messages::print_note(messages::error_chain(&error));
            Ok(exit_code::OWN_FAILURE)
        }
    }
}

async fn run_there(args: &SshArgs) -> anyhow::Result<u8> {
    if args.run.target.connect.is_some() || args.run.target.environment.is_some() {
        bail!("`ssh` names the machine by HOST: leave out --connect and --environment, or use `run`");
    }
    let url = BootstrapTarget::from_words(&args.host)?.to_string();
    let mut run = RunArgs::clone(&args.run);
    run.target.connect = Some(url.clone());
    run.target.binary.clone_from(&args.binary);
    if let Some(id) = &args.save {
        save(&run, id, &url).await?;
    }
    if run.argv.is_empty() {
        if !std::io::stdin().is_terminal() && args.save.is_some() {
            return Ok(0);
        }
        if !std::io::stdin().is_terminal() {
            bail!("a login shell needs a terminal, and stdin is none: name a program after `--`");
        }
        run.argv = LOGIN_SHELL.map(OsString::from).to_vec();
        run.tty = true;
    }
    run::run(&run).await
}

/// It is saved once it has answered: an entry that cannot work would only be in the way.
async fn save(run: &RunArgs, id: &str, url: &str) -> anyhow::Result<()> {
    let Target::Remote(remote) = target::choose(&run.target)? else { bail!("{url} is no other machine") };
    target::end_session(remote.connect(Options::default()).await?).await;
    let saved = environments::save(id, url)?;
    if !run.quiet {
        match saved {
            SavedEnvironment::Added(path) => messages::print_note(format_args!(
                "{} has it as `{id}` now: --environment {id}, and {id}:PATH",
                path.display()
            )),
            SavedEnvironment::WasThere(path) => {
                messages::print_note(format_args!("{} had it as `{id}` already", path.display()));
            }
        }
    }
    Ok(())
}
