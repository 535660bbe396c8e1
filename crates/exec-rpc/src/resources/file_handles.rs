//! Files that a connection keeps open, by the ids that the client gave them.
//!
//! An id is reserved while its file is being opened. A read or write of a block holds its file, so closing a handle only
//! frees the id while one runs.

use std::sync::Arc;

use exec_env::files::{FileError, OpenFile};
use exec_wire::limits::{HANDLE_ID_BYTES, OPEN_HANDLES};

use crate::reservations::{Lookup, Reservation, Reservations, ReserveError};

/// A file that concurrent blocks share, and the environment that it is in.
#[derive(Clone)]
pub(crate) struct SharedFile {
    pub(crate) file: Arc<Box<dyn OpenFile>>,
    pub(crate) environment: Arc<str>,
}

pub(crate) struct FileHandles {
    files: Arc<Reservations<String, SharedFile>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandleError {
    IdTooLong,
    NotReserved(ReserveError),
}

impl Default for FileHandles {
    fn default() -> Self {
        Self { files: Reservations::new(OPEN_HANDLES) }
    }
}

impl FileHandles {
    /// Reserves an id for a file that is about to be opened.
    pub(crate) fn reserve(&self, id: &str) -> Result<Reservation<String, SharedFile>, HandleError> {
        check_handle_id(id)?;
        self.files.reserve(id.to_owned()).map_err(HandleError::NotReserved)
    }

    pub(crate) fn find(&self, id: &str) -> Option<SharedFile> {
        match self.files.find(id) {
            Lookup::Present(file) => Some(file),
            Lookup::Reserved | Lookup::Free => None,
        }
    }

    /// Closes a handle. It is no error if there is none; one that is still being opened is left alone.
    pub(crate) async fn close(&self, id: &str) -> Result<(), FileError> {
        match self.files.remove_if(id, |_| true) {
            Some(file) => close(file).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn close_all(&self) {
        for file in self.files.drain() {
            // The client is gone; there is nobody to report an error to.
            let _ = close(file).await;
        }
    }
}

pub(crate) fn check_handle_id(id: &str) -> Result<(), HandleError> {
    if id.len() > HANDLE_ID_BYTES { Err(HandleError::IdTooLong) } else { Ok(()) }
}

async fn close(file: SharedFile) -> Result<(), FileError> {
    match Arc::into_inner(file.file) {
        Some(file) => file.close().await,
        // A block still uses the file; the last one closes it by dropping it.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_unique_and_few() {
        let handles = FileHandles::default();
        let long = "x".repeat(HANDLE_ID_BYTES + 1);
        assert_eq!(handles.reserve(&long).err(), Some(HandleError::IdTooLong));
        let held: Vec<_> =
            (0..OPEN_HANDLES).map(|id| handles.reserve(&id.to_string()).expect("there is room")).collect();
        assert_eq!(handles.reserve("7").err(), Some(HandleError::NotReserved(ReserveError::Taken)));
        let full = ReserveError::Full { limit: OPEN_HANDLES };
        assert_eq!(handles.reserve("one more").err(), Some(HandleError::NotReserved(full)));
        drop(held);
        assert!(handles.reserve("7").is_ok(), "an open that failed gives its name back");
    }
}
