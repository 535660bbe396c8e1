//! Whether its sandbox seems to be the reason why a process failed.
//!
//! A fact is better than words, but the kernel tells only the process itself what it refused, so for most failures there
//! are only the words that the process has printed, as Codex's server looks for them. Clients are told which of the two it
//! was. What is found is kept, so that the log is looked through once.

use std::sync::Arc;

use exec_core::{EntryBody, Exit, ExitStatus, Page, ProcessId, Seq, Stream};
use exec_env::BoxFuture;
use exec_env::process::{DENIAL_SIGNAL, DENIAL_WORDS, LogFollower, ProcessError, Processes, ReadQuery};
use exec_wire::process::DenialEvidence;
use memchr::memmem;

use super::SessionProcess;

/// How far back the words are looked for, in entries, nearest first: a failure is mostly told at the end.
const DISTANCES: [Seq; 4] = [64, 1024, 8192, 50_000];

/// How much output is looked through. Reading it takes some milliseconds.
const SCAN_BYTES: usize = 8 << 20;

/// How much is read in one go.
const PAGE_BYTES: usize = 1 << 20;

/// What says that the sandbox stopped `process`, which ended with `exit` at `exit_seq`; `None` if nothing does.
pub(crate) async fn find(
    processes: &dyn Processes,
    process: &SessionProcess,
    exit_seq: Seq,
    exit: Exit,
) -> Option<DenialEvidence> {
    if !process.sandboxed {
        return None;
    }
    if let Some(known) = process.denial.get() {
        return *known;
    }
    let found = match exit.status {
        ExitStatus::Code(0) => None,
        ExitStatus::Signal { number: DENIAL_SIGNAL, .. } => Some(DenialEvidence::Signal),
        // A shell passes on how its child ended as a code.
        ExitStatus::Code(code) if code == 128 + DENIAL_SIGNAL => Some(DenialEvidence::Signal),
        _ => has_words(processes, &process.id, exit_seq).await.then_some(DenialEvidence::Words),
    };
    *process.denial.get_or_init(|| found)
}

async fn has_words(processes: &dyn Processes, id: &ProcessId, exit_seq: Seq) -> bool {
    let mut budget = SCAN_BYTES;
    let mut upto = exit_seq;
    for distance in DISTANCES {
        let mut after = exit_seq.saturating_sub(distance + 1);
        let mut scanner = WordScanner::default();
        while after + 1 < upto {
            let query = ReadQuery { after, max_bytes: Some(PAGE_BYTES.min(budget)), ..ReadQuery::default() };
            let Ok(page) = processes.read(id, query).await else { return false };
            for entry in page.entries.iter().take_while(|entry| entry.seq < upto) {
                if let EntryBody::Output { stream, bytes } = &entry.body {
                    budget = budget.saturating_sub(bytes.len());
                    if scanner.finds_words(*stream, bytes) {
                        return true;
                    }
                }
            }
            let next = page.cursor(after);
            if budget == 0 || next == after {
                return false;
            }
            after = next;
        }
        if exit_seq <= distance + 1 {
            return false;
        }
        upto = exit_seq - distance;
    }
    false
}

/// Looks through output that comes in pieces.
#[derive(Default)]
struct WordScanner {
    /// The end of what came before, in lower case, by stream: a word may be cut in two.
    ends: [Vec<u8>; 3],
}

impl WordScanner {
    fn finds_words(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        let end = &mut self.ends[match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Pty => 2,
        }];
        end.extend(bytes.iter().map(u8::to_ascii_lowercase));
        let found = DENIAL_WORDS.iter().any(|word| memmem::find(end, word.as_bytes()).is_some());
        let longest = DENIAL_WORDS.iter().map(|word| word.len()).max().unwrap_or(0);
        end.drain(..end.len().saturating_sub(longest));
        found
    }
}

/// Follows the log of a sandboxed process, and knows whether it was denied something before it returns its exit.
pub(crate) struct DenialFollower {
    pub(crate) follower: Box<dyn LogFollower>,
    pub(crate) process: Arc<SessionProcess>,
}

impl LogFollower for DenialFollower {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.follower.ready().await;
            // Here nobody waits for us, unlike in `next`.
            let query = ReadQuery { max_bytes: Some(0), ..ReadQuery::default() };
            if let Ok(Page { head, .. }) = self.process.environment.processes().read(&self.process.id, query).await
                && let Some((exit_seq, exit)) = head.exit
            {
                find(self.process.environment.processes(), &self.process, exit_seq, exit).await;
            }
        })
    }

    fn next(&mut self, max_bytes: usize) -> BoxFuture<'_, Result<Option<Page>, ProcessError>> {
        Box::pin(async move {
            let page = self.follower.next(max_bytes).await?;
            // Only if it has exited since it was ready.
            for entry in page.iter().flat_map(|page| &page.entries) {
                if let EntryBody::Exited(exit) = entry.body {
                    find(self.process.environment.processes(), &self.process, entry.seq, exit).await;
                }
            }
            Ok(page)
        })
    }

    fn acknowledge(&mut self, upto: Seq, patience: std::time::Duration) {
        self.follower.acknowledge(upto, patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_case_and_across_pieces_of_one_stream() {
        let mut scanner = WordScanner::default();
        assert!(!scanner.finds_words(Stream::Stdout, b"touch: Permission den"));
        assert!(!scanner.finds_words(Stream::Stderr, b"ied"));
        assert!(scanner.finds_words(Stream::Stdout, b"ied\n"));
        assert!(WordScanner::default().finds_words(Stream::Pty, b"EROFS: READ-ONLY file system"));
        assert!(!WordScanner::default().finds_words(Stream::Pty, b"permission was denied"));
    }
}
