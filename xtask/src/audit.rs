//! `audit`: licences, sources, duplicates and known vulnerabilities of all dependencies, by cargo-deny and `deny.toml`.
//!
//! It is not part of `ci`: what it finds changes with the world and not with a commit. The advisory database lives in a
//! Git repository; where that cannot be reached, everything else is still checked.

use anyhow::{Context, Result};

use crate::setup::{self, CargoTool};
use crate::workspace::{Workspace, run_visible};

const CARGO_DENY: CargoTool = CargoTool { name: "deny", version: "0.20.2", install_arguments: &[] };

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::install_cargo_tool(workspace, &CARGO_DENY)?;
    let check = ["deny", "--workspace", "--all-features", "check"];
    run_visible(workspace.cargo(&check).args(["bans", "licenses", "sources"]))?;
    let fetched = run_visible(&mut workspace.cargo(&["deny", "fetch", "db"]));
    if let Err(error) = fetched {
        println!("audit: the advisory database cannot be fetched ({error:#})");
        println!("audit: advisories were NOT checked; all the rest was, and is in order");
        return Ok(());
    }
    run_visible(workspace.cargo(&check).args(["--disable-fetch", "advisories"]))
        .context("a dependency has an advisory; update it, or argue in deny.toml why it does not concern us")
}
