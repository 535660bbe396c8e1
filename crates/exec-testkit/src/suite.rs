//! The conformance suite: what every environment must do, one file per area, one function per behaviour.
//!
//! The functions know the waist and nothing below it. [`conformance!`](crate::conformance) turns them into tests:
//!
//! ```ignore
//! exec_testkit::conformance!(local, local_bench());
//! ```
//!
//! makes one `#[test]` of each behaviour in a module `local`, on a bench of its own that `local_bench().await` gives.
//! Behaviours wait for events; where the kernel sends none they look again, and every test has one overall deadline.
//!
//! Deliberately absent: what is not visible through the waist (memory, kill -9 of an owner, speed).

pub mod crowd;
pub mod exit;
pub mod follow;
pub mod limit;
pub mod list;
pub mod log;
pub mod overflow;
pub mod refusal;
pub mod signal;
pub mod start;
pub mod stdin;
pub mod terminal;
pub mod terminate;
pub mod wait;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use exec_core::{Exit, ExitStatus, Stream};

use crate::bench::Bench;
use crate::pattern::Pattern;
use crate::transcript::Transcript;

/// Longest time one behaviour may take, on a loaded machine with two cores. A test that needs it has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// One behaviour at work on a bench.
pub type Trial<'bench> = Pin<Box<dyn Future<Output = ()> + 'bench>>;

/// Tries one behaviour on a fresh bench, and clears up behind it.
pub fn judge(
    name: &str,
    setup: impl Future<Output = Bench>,
    behaviour: impl for<'bench> FnOnce(&'bench Bench) -> Trial<'bench>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test can make a runtime");
    let verdict = runtime.block_on(async {
        tokio::time::timeout(DEADLINE, async {
            let bench = setup.await;
            behaviour(&bench).await;
            bench.clear().await;
            // Dropped here, inside the runtime, because an environment may have tasks to stop.
            drop(bench);
        })
        .await
    });
    // A blocking task that hangs must not hide the verdict.
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(verdict.is_ok(), "{name} was not over after {DEADLINE:?}");
}

/// Makes one test of each behaviour for one more environment.
///
/// `conformance!(name, setup)`: `setup` is an expression that gives a future of a [`Bench`](crate::Bench); it is
/// evaluated once per test, inside the test's runtime.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $setup:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            // A long name, because it would hide a function of the same name in `$setup`.
            async fn bench_for_one_behaviour() -> $crate::Bench {
                $setup.await
            }

            $crate::behaviours! {
                start:
                    a_started_process_exists_when_start_returns,
                    arguments_arrive_byte_for_byte,
                    the_child_sees_arg0_instead_of_its_program,
                    the_child_begins_in_its_folder,
                    the_environment_is_exactly_what_was_asked_for,
                    an_empty_environment_is_empty,
                    an_inherited_environment_has_the_machines_and_the_callers_variables,
                    the_child_sees_descriptors_0_1_and_2_only,
                    the_program_is_found_in_the_childs_path,
                    without_a_path_the_usual_places_are_searched,
                    a_relative_program_with_a_slash_is_taken_from_the_childs_folder,
                    a_script_runs_by_the_interpreter_it_names,
                    a_child_on_pipes_leads_its_own_session_without_a_terminal,
                    the_child_begins_with_default_signals,
                    without_a_stdin_the_child_reads_the_end_at_once,
                    a_later_child_does_not_hold_the_pipes_of_an_earlier_one;
                refusal:
                    an_empty_argv_is_refused,
                    a_nul_byte_is_refused_wherever_it_hides,
                    a_relative_folder_no_cells_and_a_tiny_spool_are_refused,
                    a_missing_program_is_told_by_its_name,
                    a_file_that_is_not_executable_and_a_folder_are_told_apart_from_a_missing_one,
                    a_file_in_no_executable_format_is_not_given_to_a_shell,
                    a_missing_folder_and_a_file_as_folder_are_told_by_name,
                    an_environment_of_three_mebibytes_is_too_long,
                    arguments_beyond_every_kernel_are_refused,
                    an_id_in_use_is_refused_and_its_process_left_alone,
                    of_many_starts_with_one_id_exactly_one_wins,
                    a_refused_start_leaves_its_id_free,
                    a_process_on_pipes_cannot_be_resized,
                    a_terminal_cannot_be_resized_to_nothing,
                    a_write_beyond_the_limit_is_refused;
                exit:
                    the_exit_code_is_the_childs_own,
                    death_by_every_signal_is_told_by_its_number,
                    an_abort_is_signal_6,
                    a_child_that_prints_nothing_logs_exited_and_closed,
                    streams_that_end_before_the_leader_do_not_close_the_log,
                    a_leader_that_executes_again_stays_the_leader,
                    exited_does_not_wait_for_a_grandchild_that_holds_the_pipe,
                    what_the_leader_printed_stands_before_exited,
                    an_exited_leader_is_no_zombie,
                    usage_tells_processor_time_and_memory;
                limit:
                    a_child_over_its_time_is_asked_and_after_the_grace_killed,
                    a_child_that_ends_when_its_time_is_up_is_not_killed,
                    without_a_grace_the_limit_kills_at_once,
                    the_limit_ends_the_whole_tree,
                    a_child_within_its_time_ends_by_itself,
                    an_endless_limit_is_no_limit;
                terminate:
                    terminate_without_a_grace_kills_at_once,
                    terminate_with_a_grace_asks_first,
                    a_child_that_ignores_term_is_killed_after_the_grace,
                    a_second_terminate_hastens_the_first,
                    terminating_what_is_over_does_nothing,
                    terminate_reaches_a_forked_descendant,
                    terminate_reaches_a_setsid_descendant,
                    terminate_reaches_a_nohup_descendant,
                    terminate_reaches_a_double_forked_descendant,
                    terminate_reaches_a_daemon,
                    terminate_after_the_leaders_exit_ends_what_it_left_behind,
                    descendants_are_asked_before_they_are_killed,
                    terminate_counts_everybody_it_ended,
                    terminate_with_a_grace_reaches_a_stopped_child,
                    a_start_after_many_terminations_is_not_touched_by_them,
                    terminate_leaves_other_processes_alone;
                signal:
                    a_deadly_signal_is_told_by_its_number,
                    a_signal_reaches_the_whole_group,
                    a_child_that_ignores_a_signal_goes_on,
                    stop_stops_and_continue_continues,
                    a_child_that_stops_itself_has_not_ended,
                    a_signal_after_the_end_finds_nobody,
                    a_signal_after_the_leaders_exit_reaches_its_group,
                    what_a_signal_leaves_behind_can_be_terminated;
                stdin:
                    writes_arrive_in_order_and_then_the_end,
                    every_byte_value_can_be_written,
                    a_conversation_goes_line_by_line,
                    a_large_write_waits_for_a_slow_reader_and_arrives_exactly,
                    a_large_echo_does_not_lock_up,
                    the_same_write_id_is_applied_once,
                    the_same_write_id_asked_at_once_is_applied_once,
                    write_ids_belong_to_their_process,
                    the_last_4096_write_ids_are_remembered,
                    a_process_without_a_stdin_says_that_it_is_closed,
                    a_write_after_close_stdin_says_that_it_is_closed,
                    a_write_to_a_child_that_closed_its_stdin_says_so,
                    a_write_after_the_end_says_that_stdin_is_closed,
                    a_waiting_write_is_answered_when_the_child_dies,
                    closing_stdin_twice_is_no_mistake,
                    close_stdin_comes_after_the_writes_before_it;
                terminal:
                    the_terminal_controls_the_childs_session_and_has_its_size,
                    a_terminal_has_one_stream,
                    a_child_on_a_terminal_is_told_its_shell_and_nothing_else,
                    what_is_typed_is_echoed_and_read,
                    a_resize_reaches_the_child,
                    ctrl_c_as_a_byte_interrupts_the_foreground,
                    a_child_may_handle_ctrl_c,
                    close_stdin_is_the_end_of_file_character,
                    death_by_signal_on_a_terminal_is_told_as_a_signal,
                    signals_and_terminate_reach_a_process_on_a_terminal,
                    a_survivor_on_the_terminal_is_still_heard,
                    a_flood_of_lines_through_a_terminal_arrives_in_order,
                    many_lines_typed_at_once_all_arrive;
                log:
                    every_byte_of_both_streams_arrives_in_order,
                    bytes_written_one_by_one_all_arrive,
                    pages_hold_what_fits_their_budget_and_at_least_one_entry,
                    exit_and_closed_are_entries_of_the_page,
                    paging_with_any_budget_sees_the_same_log,
                    a_waiting_read_wakes_on_output_on_exit_and_on_closed,
                    a_waiting_read_is_over_at_its_deadline,
                    a_read_without_a_wait_answers_at_once,
                    a_read_beyond_the_end_of_a_closed_log_answers_at_once,
                    a_closed_log_reads_the_same_again_and_again,
                    a_cancelled_read_takes_nothing_away;
                follow:
                    all_followers_see_the_same_log,
                    a_follower_from_the_middle_begins_behind_its_place,
                    a_follower_beyond_the_end_of_a_closed_log_ends_at_once,
                    cancelling_next_loses_nothing,
                    small_bites_see_the_same_log,
                    an_idle_follower_holds_nobody_up,
                    alternate_writes_keep_their_order_across_streams;
                overflow:
                    an_overflow_is_told_with_its_exact_bytes_and_the_tail_is_exact,
                    a_slow_poller_is_told_what_it_missed,
                    the_exit_is_known_even_when_its_entry_is_forgotten,
                    a_child_that_just_filled_a_blocking_log_ends,
                    a_blocked_child_waits_and_nothing_is_dropped,
                    a_child_within_its_cap_is_not_blocked,
                    records_of_tiny_entries_count_against_the_cap;
                wait:
                    waiting_for_exit_and_for_closed_ends_with_them,
                    a_deadline_that_passes_is_an_outcome,
                    output_of_the_past_is_found_at_once,
                    a_match_may_span_entries_of_one_stream,
                    a_match_does_not_span_two_streams,
                    a_match_begins_behind_its_place,
                    a_match_is_found_behind_bytes_that_are_not_text,
                    a_match_is_found_on_a_terminal,
                    a_bad_expression_is_refused,
                    waiting_for_what_cannot_come_any_more_is_an_error,
                    silence_is_found_when_nothing_is_printed_for_a_while,
                    a_child_that_keeps_talking_is_not_silent,
                    a_port_the_leader_listens_on_is_found,
                    a_port_of_a_descendant_is_found_and_a_strangers_is_not,
                    a_cancelled_wait_takes_nothing_away;
                list:
                    the_list_tells_all_of_a_process,
                    the_list_is_in_the_order_of_start_and_keeps_closed_ones,
                    an_empty_place_lists_nothing,
                    a_forgotten_id_can_be_used_again,
                    forgetting_a_running_process_ends_its_tree,
                    every_verb_says_that_an_id_is_unknown;
                crowd:
                    three_hundred_awkward_children_end_as_they_should_and_leave_nothing,
                    forgotten_processes_leave_no_descriptor_behind,
                    many_quick_processes_at_once_all_deliver;
            }
        }
    };
}

/// One test of each named behaviour; a detail of [`conformance!`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! behaviours {
    ($($area:ident: $($name:ident),+;)+) => {
        $(mod $area {
            $(#[test]
            fn $name() {
                $crate::suite::judge(
                    concat!(stringify!($area), "::", stringify!($name)),
                    super::bench_for_one_behaviour(),
                    |bench| Box::pin($crate::suite::$area::$name(bench)),
                );
            })+
        })+
    };
}

/// The signal that ended it, if one did; whether a core was dumped is the machine's own affair.
fn signal_of(exit: Exit) -> Option<i32> {
    match exit.status {
        ExitStatus::Signal { number, .. } => Some(number),
        ExitStatus::Code(_) | ExitStatus::Lost => None,
    }
}

/// Asserts that a stream is the first `length` bytes of `pattern`, and says where it is not.
pub fn assert_pattern(transcript: &Transcript, stream: Stream, pattern: Pattern, length: usize) {
    let found = transcript.bytes(stream);
    let difference = pattern.first_difference(0, &found);
    assert_eq!(difference, None, "{stream:?} differs at this offset");
    assert_eq!(found.len(), length, "bytes of {stream:?}");
}

/// Writes a file with a mode, as a program that may or may not be one.
fn make_program(path: &Path, content: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, content).expect("the scratch folder is ours");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("the file is ours");
}

#[cfg(test)]
mod tests {
    /// A behaviour that the macro does not name would never be tried.
    #[test]
    fn every_behaviour_is_named_by_the_macro() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite");
        let named = include_str!("suite.rs");
        let mut behaviours = 0;
        for file in std::fs::read_dir(folder).expect("the sources are there") {
            let path = file.expect("the sources are there").path();
            let area = path.file_stem().expect("a file").to_string_lossy().into_owned();
            let source = std::fs::read_to_string(&path).expect("the sources are text");
            let list = named
                .split_once(&format!("                {area}:\n"))
                .and_then(|(_, rest)| rest.split_once(';'))
                .unwrap_or_else(|| panic!("the macro has no area {area}"))
                .0;
            for behaviour in source.split("\npub async fn ").skip(1) {
                let (name, _) = behaviour.split_once('(').expect("a function");
                let known = list.split(',').any(|listed| listed.trim() == name);
                assert!(known, "the macro does not name {area}::{name}");
                behaviours += 1;
            }
        }
        assert!(behaviours > 100, "only {behaviours} were found");
    }
}
