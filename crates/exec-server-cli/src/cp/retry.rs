//! Questions that may be asked again, though they change something: because whoever asks can tell from the second answer
//! what became of the first.

use exec_env::files::{FileError, FileReason};

/// How often one is asked again. A link that is lost for good answers at once each time.
const TRIES: u32 = 5;

/// The last answer, and whether an earlier question may have been carried out without one.
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
