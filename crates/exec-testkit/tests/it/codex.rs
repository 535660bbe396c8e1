//! The real Codex CLI: the released client, a fake model server, and a server behind a proxy that can cut.
//!
//! A behaviour is written once and run against our server and against Codex's own; what fails on ours alone is our
//! fault. The few that only ours can show (WIRE A.1) say so. Reading order: [`agent`] (Codex and all it needs),
//! [`report`] (what its tools report to the model), then the behaviours.
//!
//! Deliberately absent: the wire. What passes between Codex and a server is compared in `compat`; here it only matters
//! what the model gets to see.

pub(crate) mod agent;
mod report;

mod commands;
mod cuts;
mod files;
mod observed;
mod sandboxed;
mod terminals;

use exec_testkit::codex::codex_binary;

use crate::compat::server_program::Implementation;
use crate::durability::support::run;
use agent::{Agent, Setting};

/// Commands that may do what their user may.
const FREE: Setting = Setting { sandbox: "danger-full-access", unprivileged: false, in_container: false };
const WORKSPACE_WRITE: Setting = Setting { sandbox: "workspace-write", unprivileged: false, in_container: false };
const WORKSPACE_WRITE_AS_NOBODY: Setting =
    Setting { sandbox: "workspace-write", unprivileged: true, in_container: false };
const WORKSPACE_WRITE_IN_CONTAINER: Setting = Setting { in_container: true, ..WORKSPACE_WRITE };
const WORKSPACE_WRITE_IN_CONTAINER_AS_NOBODY: Setting = Setting { in_container: true, ..WORKSPACE_WRITE_AS_NOBODY };
const READ_ONLY: Setting = Setting { sandbox: "read-only", unprivileged: false, in_container: false };
const READ_ONLY_AS_NOBODY: Setting = Setting { sandbox: "read-only", unprivileged: true, in_container: false };

/// Runs a behaviour of a Codex that uses this server.
fn run_behaviour(implementation: Implementation, setting: Setting, behaviour: impl AsyncFnOnce(&mut Agent)) {
    let Some(codex) = codex_binary() else { return };
    if setting.unprivileged && !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can start a server as another user");
        return;
    }
    run(async {
        let mut agent = Agent::start(implementation, &codex, setting).await;
        behaviour(&mut agent).await;
        agent.finish().await;
    });
}

macro_rules! behaviours {
    ($implementation:ident, $setting:ident: $($module:ident::$name:ident;)*) => { $(
        #[test]
        fn $name() {
            use $crate::codex::*;
            run_behaviour(Implementation::$implementation, $setting, $module::$name);
        }
    )* };
}

macro_rules! on_both {
    ($setting:ident: $($behaviours:tt)*) => {
        mod ours {
            behaviours! { Ours, $setting: $($behaviours)* }
        }
        mod theirs {
            behaviours! { Codex, $setting: $($behaviours)* }
        }
    };
}

on_both! { FREE:
    commands::a_command_over_pipes_tells_its_output_and_exit_code;
    commands::both_streams_of_a_command_arrive;
    commands::a_command_runs_where_it_is_told_to;
    commands::a_command_that_goes_on_is_polled_to_its_end;
    commands::an_interrupt_reaches_a_command_over_pipes;
    commands::two_commands_run_side_by_side;
    terminals::a_command_on_a_terminal_knows_it;
    terminals::a_shell_remembers_between_two_writes;
    terminals::an_interrupt_typed_into_a_terminal_leaves_the_shell;
    cuts::a_command_outlives_a_cut_and_loses_nothing;
    cuts::output_printed_while_nobody_was_connected_arrives;
    cuts::a_shell_takes_input_after_a_cut;
    files::a_patch_adds_updates_moves_and_deletes;
    files::a_patch_that_does_not_fit_changes_nothing;
    files::a_patch_typed_as_a_command_is_applied;
    files::an_image_reaches_the_model_unchanged;
}

/// What only ours can show: Codex's server lost the middle of three megabytes on a busy machine. These move megabytes
/// and the client waits only seconds for them, so they must run alone, which nextest recognises by the name.
mod ours_alone {
    behaviours! { Ours, FREE:
        commands::three_megabytes_are_counted_to_the_last_byte;
        cuts::megabytes_printed_while_nobody_was_connected_are_counted_to_the_last_byte;
        cuts::a_flood_survives_cut_after_cut;
    }
}

mod ours_observed {
    behaviours! { Ours, FREE: observed::a_command_is_seen_by_an_observer_as_codex_sees_it; }
}

mod workspace_write {
    on_both! { WORKSPACE_WRITE:
        sandboxed::a_command_writes_in_the_workspace_and_is_told_that_the_rest_is_read_only;
        sandboxed::the_repository_of_the_workspace_is_protected;
        sandboxed::a_command_has_no_network;
        sandboxed::a_patch_in_the_workspace_is_applied;
    }

    mod ours_with_a_terminal {
        behaviours! { Ours, WORKSPACE_WRITE: sandboxed::a_shell_on_a_terminal_works; }
    }

    mod ours_as_nobody {
        behaviours! { Ours, WORKSPACE_WRITE_AS_NOBODY:
            sandboxed::a_command_writes_in_the_workspace_and_is_told_that_the_rest_is_read_only;
            sandboxed::a_command_has_no_network;
            sandboxed::a_patch_in_the_workspace_is_applied;
            sandboxed::a_shell_on_a_terminal_works;
        }
    }

    /// Where Codex's own sandbox does not start.
    mod ours_in_a_container {
        behaviours! { Ours, WORKSPACE_WRITE_IN_CONTAINER:
            sandboxed::a_command_writes_in_the_workspace_and_is_told_that_the_rest_is_read_only;
            sandboxed::the_repository_of_the_workspace_is_protected;
            sandboxed::a_command_has_no_network;
            sandboxed::a_patch_in_the_workspace_is_applied;
            sandboxed::a_shell_on_a_terminal_works;
        }
    }

    mod ours_in_a_container_as_nobody {
        behaviours! { Ours, WORKSPACE_WRITE_IN_CONTAINER_AS_NOBODY:
            sandboxed::a_command_writes_in_the_workspace_and_is_told_that_the_rest_is_read_only;
            sandboxed::a_command_has_no_network;
            sandboxed::a_patch_in_the_workspace_is_applied;
            sandboxed::a_shell_on_a_terminal_works;
        }
    }
}

mod read_only {
    on_both! { READ_ONLY:
        sandboxed::a_command_reads_and_writes_nothing;
        sandboxed::a_patch_is_refused_and_changes_nothing;
    }

    mod ours_as_nobody {
        behaviours! { Ours, READ_ONLY_AS_NOBODY:
            sandboxed::a_command_reads_and_writes_nothing;
            sandboxed::a_patch_is_refused_and_changes_nothing;
        }
    }
}
