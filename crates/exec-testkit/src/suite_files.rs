//! The conformance suite for files: what every [`Files`] must do, one file per area, one function per behaviour.
//!
//! The functions know the waist and nothing below it; what they find on the disk they look at directly, because the
//! scratch folder is on the same machine. [`files_conformance!`](crate::files_conformance) turns them into tests:
//!
//! ```ignore
//! exec_testkit::files_conformance!(local, local_files());
//! ```
//!
//! makes one `#[test]` of each behaviour in a module `local`, on a bench of its own that `local_files().await` gives.
//!
//! Deliberately absent: what is not visible through the waist (memory, kill -9 of a writer, speed).

pub mod blocks;
pub mod content;
pub mod copies;
pub mod full;
pub mod links;
pub mod names;
pub mod races;
pub mod search;
pub mod special;
pub mod trees;
pub mod watch;

use std::any::Any;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use exec_env::files::{FileError, Files, FileReason};
use tempfile::TempDir;

/// Longest time one behaviour may take, on a loaded machine with two cores. A test that needs it has failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// What every round of a soak may add.
const DEADLINE_PER_ROUND: Duration = Duration::from_secs(20);

/// Rounds of a soak, where one is asked for by `EXEC_SOAK_ROUNDS`.
pub(crate) fn soak_rounds() -> Option<u32> {
    std::env::var("EXEC_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok())
}

/// Files under judgement, and a folder to judge them in.
pub struct FilesBench {
    holder: Box<dyn Holder>,
    scratch: TempDir,
    /// How many times fewer races are enough: over a wire each takes longer, and the kernel below is the same.
    fewer_races: u64,
    /// Whether the connection to them breaks. Then a watch may tell, instead of a change, that some may have been missed.
    breaks: bool,
    /// Kept until the files are gone: a server's task, a state folder.
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

/// Somebody who has files: the files themselves, or an environment.
trait Holder: Send + Sync {
    fn files(&self) -> &dyn Files;
}

struct Held<T>(T, fn(&T) -> &dyn Files);

impl<T: Send + Sync> Holder for Held<T> {
    fn files(&self) -> &dyn Files {
        (self.1)(&self.0)
    }
}

impl FilesBench {
    /// A bench for the files that `files` finds in `owner`.
    pub fn new<T: Send + Sync + 'static>(owner: T, files: fn(&T) -> &dyn Files) -> Self {
        Self {
            holder: Box::new(Held(owner, files)),
            scratch: tempfile::tempdir().expect("a test needs a temporary folder"),
            fewer_races: 1,
            breaks: false,
            guards: Vec::new(),
        }
    }

    /// Says that the files are at the far end of a connection.
    #[must_use]
    pub fn far(mut self) -> Self {
        self.fewer_races = 20;
        self
    }

    /// Says that the connection to them breaks.
    #[must_use]
    pub fn breaking(mut self) -> Self {
        self.breaks = true;
        self
    }

    /// Keeps `guard` alive until the test is over.
    #[must_use]
    pub fn keep(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    /// What is judged.
    pub fn files(&self) -> &dyn Files {
        self.holder.files()
    }

    /// A folder for this test alone, without symbolic links in its path.
    pub fn scratch(&self) -> PathBuf {
        std::fs::canonicalize(self.scratch.path()).expect("it exists as long as the bench")
    }

    /// A path in the scratch folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch().join(name)
    }

    /// A file in the scratch folder, with the folders it needs.
    pub fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let parent = path.parent().expect("it is below the scratch folder");
        std::fs::create_dir_all(parent).expect("the scratch folder is ours");
        std::fs::write(&path, contents).expect("the scratch folder is ours");
        path
    }

    /// A folder in the scratch folder.
    pub fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("the scratch folder is ours");
        path
    }

    /// A symbolic link in the scratch folder.
    pub fn link(&self, name: impl AsRef<Path>, text: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        std::os::unix::fs::symlink(text, &path).expect("the scratch folder is ours");
        path
    }
}

/// What is in a file, looked at directly.
pub(crate) fn contents(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the test knows that the file is there")
}

/// The names in a folder, sorted, looked at directly.
pub(crate) fn names_in(path: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(path).expect("the test knows that the folder is there");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("it can be read").file_name()).collect();
    names.sort();
    names
}

/// Why something failed.
pub(crate) fn reason<T>(outcome: Result<T, FileError>) -> Option<FileReason> {
    outcome.err().map(|error| error.reason)
}

/// One behaviour at work on a bench.
pub type Trial<'bench> = Pin<Box<dyn Future<Output = ()> + 'bench>>;

/// Tries one behaviour on a fresh bench.
pub fn judge(
    name: &str,
    setup: impl Future<Output = FilesBench>,
    behaviour: impl for<'bench> FnOnce(&'bench FilesBench) -> Trial<'bench>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test can make a runtime");
    let deadline = DEADLINE + DEADLINE_PER_ROUND * soak_rounds().unwrap_or(0);
    let verdict = runtime.block_on(async {
        tokio::time::timeout(deadline, async {
            let bench = setup.await;
            behaviour(&bench).await;
            // Dropped here, inside the runtime, because an environment may have tasks to stop.
            drop(bench);
        })
        .await
    });
    // A blocking task that hangs must not hide the verdict.
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(verdict.is_ok(), "{name} was not over after {deadline:?}");
}

/// Makes one test of each behaviour of files for one more place.
///
/// `files_conformance!(name, setup)`: `setup` is an expression that gives a future of a
/// [`FilesBench`](crate::suite_files::FilesBench); it is evaluated once per test, inside the test's runtime.
#[macro_export]
macro_rules! files_conformance {
    ($module:ident, $setup:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            async fn bench() -> $crate::suite_files::FilesBench {
                $setup.await
            }

            $crate::file_calls!();
            $crate::file_streams!();
        }
    };
}

/// What is asked and answered, and files that stay open.
#[doc(hidden)]
#[macro_export]
macro_rules! file_calls {
    () => {
        $crate::file_behaviours! {
            content:
                a_file_reads_as_it_was_written,
                a_missing_file_is_not_found_and_names_its_path,
                a_new_file_has_mode_0666_less_the_umask,
                a_replaced_file_keeps_its_mode_and_attributes,
                a_replaced_file_keeps_its_owner,
                a_link_stays_a_link_and_its_target_is_written,
                a_dangling_link_gets_its_target,
                a_circle_of_links_is_told,
                a_folder_cannot_be_written_and_a_missing_one_is_not_made,
                no_temporary_file_is_left_beside_what_was_written,
                a_reader_sees_the_old_or_the_new_file_but_no_mixture,
                a_wanted_mode_is_set_whatever_the_umask,
                an_append_adds_to_the_end_and_creates,
                appends_at_once_all_arrive,
                a_write_that_expects_other_contents_is_refused_with_the_present_hash,
                of_many_writers_with_one_expectation_exactly_one_wins,
                a_write_that_expects_nothing_finds_something,
                a_synced_write_arrives_like_any_other,
                a_read_only_file_is_refused_to_those_it_is_closed_to,
                a_running_program_can_be_replaced,
                a_large_file_arrives_whole;
            blocks:
                blocks_read_anywhere_and_know_the_end,
                blocks_written_anywhere_leave_holes,
                a_replaced_file_is_empty_at_once_and_an_appended_one_is_kept,
                a_block_may_not_be_empty_nor_too_long,
                a_block_may_not_end_beyond_every_file,
                the_wrong_mode_is_a_bad_descriptor,
                reads_at_once_do_not_disturb_each_other,
                an_open_file_survives_its_name,
                only_regular_files_open;
            names:
                a_folder_is_made_with_its_parents_and_again_without_complaint,
                a_folder_is_not_made_where_a_file_is,
                without_recursive_a_parent_must_exist_and_the_folder_must_not,
                metadata_tells_what_the_kernel_knows,
                metadata_follows_a_link_and_says_that_it_was_one,
                metadata_of_a_dangling_link_is_not_found,
                a_path_becomes_canonical,
                a_rename_replaces_unless_told_not_to,
                a_rename_moves_a_link_itself,
                a_rename_across_file_systems_is_told,
                permissions_are_set_with_their_special_bits,
                times_are_set_to_the_nanosecond,
                a_link_reads_back_its_text_byte_for_byte,
                names_that_are_not_text_work_everywhere,
                a_name_too_long_is_told;
            trees:
                a_folder_lists_its_entries_with_links_resolved,
                a_file_is_no_folder,
                a_folder_of_ten_thousand_entries_is_listed_whole,
                a_folder_of_more_than_fifty_thousand_is_refused_with_its_number,
                a_walk_goes_breadth_first_and_sorted,
                a_walk_stops_at_its_depth_without_calling_itself_truncated,
                a_walk_counts_what_it_leaves_out,
                a_walk_counts_folders_with_the_root,
                a_walk_follows_links_to_folders_once,
                a_walk_prunes_hidden_folders_but_lists_them,
                a_walk_of_a_file_or_a_link_is_empty_and_of_nothing_not_found,
                a_walk_asks_for_no_more_than_it_may,
                fifty_thousand_entries_are_walked_whole,
                a_file_a_link_and_a_tree_are_removed,
                a_full_folder_needs_recursive,
                force_only_forgives_what_is_not_there,
                removing_a_tree_leaves_what_its_links_lead_to,
                a_glob_finds_sorted_paths_and_obeys_ignore_files,
                a_glob_stops_at_its_limit_and_refuses_a_bad_pattern;
            copies:
                a_copied_file_has_contents_and_mode,
                a_copy_replaces_a_file_but_not_a_folder,
                a_copied_link_is_a_link_and_replaces_nothing,
                a_folder_is_copied_only_on_request_and_merges,
                a_folder_is_not_copied_into_itself,
                a_file_is_not_copied_onto_itself,
                special_files_are_not_copied,
                holes_stay_holes,
                a_file_of_proc_is_copied_though_it_says_it_is_empty,
                a_copy_keeps_times_where_it_is_asked_to,
                a_copy_reports_its_progress;
            links:
                a_link_as_the_last_component_is_refused_by_each_verb_in_its_words,
                a_link_on_the_way_is_not_a_folder,
                without_links_everything_works_as_usual,
                a_whole_tree_is_not_removed_without_following;
            races:
                no_race_lets_a_write_escape,
                no_race_lets_an_append_escape,
                no_race_lets_an_open_escape,
                no_race_lets_a_folder_escape,
                no_race_lets_a_removal_escape,
                no_race_lets_a_rename_escape,
                no_race_lets_permissions_escape,
                no_race_lets_a_link_escape;
            special:
                a_fifo_without_a_writer_does_not_hang_a_read,
                a_fifo_without_a_reader_does_not_hang_a_write,
                devices_are_not_files_but_can_be_written,
                files_of_proc_are_read_though_they_say_they_are_empty,
                files_of_sys_and_proc_are_written_in_place,
                a_file_too_large_to_read_is_told_with_the_limit;
            full:
                a_full_disk_leaves_the_old_contents,
                a_full_disk_takes_an_append_back,
                a_read_only_file_system_is_told,
                a_file_that_is_mounted_is_written_in_place;
        }
    };
}

/// What goes on after its answer.
#[doc(hidden)]
#[macro_export]
macro_rules! file_streams {
    () => {
        $crate::file_behaviours! {
            watch:
                creating_writing_renaming_and_removing_are_told,
                folders_that_come_later_are_watched_too,
                a_renamed_folder_keeps_being_watched_under_its_new_name,
                a_move_out_is_a_removal_and_a_move_in_a_creation,
                without_recursive_only_the_root_is_watched,
                a_burst_of_writes_is_told_in_few_words,
                ignored_files_are_not_told,
                a_watch_ends_with_its_root,
                a_single_file_can_be_watched,
                a_cancelled_wait_loses_nothing,
                changes_in_five_thousand_folders_are_told,
                after_a_flood_everything_was_told_or_an_overflow_says_so,
                what_is_missing_is_told_when_it_comes,
                an_intermediate_folder_is_told,
                a_present_file_is_told_when_it_changes,
                what_cannot_be_waited_for_is_not;
            search:
                lines_are_found_in_order_with_their_places,
                a_literal_is_taken_literally,
                case_matters_as_it_is_told_to,
                ignore_files_and_globs_choose_the_files,
                context_stands_around_a_match,
                a_search_stops_at_its_limits,
                long_lines_are_cut_and_binary_files_left_out,
                a_bad_expression_and_a_missing_root_are_told,
                what_cannot_be_read_is_told_at_the_end,
                a_search_nobody_reads_waits_and_ends_when_dropped,
                a_fifo_does_not_hang_a_search,
                a_single_file_is_searched;
        }
    };
}

/// One test of each behaviour, by area.
#[doc(hidden)]
#[macro_export]
macro_rules! file_behaviours {
    ($($area:ident: $($behaviour:ident),+;)+) => {
        $(
            mod $area {
                $(
                    #[test]
                    fn $behaviour() {
                        $crate::suite_files::judge(stringify!($behaviour), super::bench(), |bench| {
                            Box::pin($crate::suite_files::$area::$behaviour(bench))
                        });
                    }
                )+
            }
        )+
    };
}
