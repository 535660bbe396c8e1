//! Repeats calls that change something, where the caller can tell from the second result whether the first call was
//! carried out.

use exec_env::files::{FileError, FileReason};

/// A connection that is lost for good fails at once each time.
const TRIES: u32 = 5;

/// Returns the last result, and whether an earlier call may have been carried out though its reply was lost.
pub(super) async fn retry_unreachable<T, F>(mut call: impl FnMut() -> F) -> (Result<T, FileError>, bool)
where
    F: Future<Output = Result<T, FileError>>,
{
    let mut unsure = false;
    for _ in 1..TRIES {
        match call().await {
            Err(FileError { reason: FileReason::Unreachable { .. }, .. }) => unsure = true,
            result => return (result, unsure),
        }
    }
    (call().await, unsure)
}
