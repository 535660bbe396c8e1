//! Files that a connection keeps open, by the client's names for them.
//!
//! A name is taken while its file is being opened, so that two opens of one name cannot both succeed. A block under way
//! holds its file; closing then only takes the name away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exec_env::files::{FileError, OpenFile};
use exec_wire::limits::{HANDLE_ID_BYTES, OPEN_HANDLES};

/// A file that blocks may share.
pub(crate) type SharedFile = Arc<Box<dyn OpenFile>>;

/// The open files.
#[derive(Default)]
pub(crate) struct FileHandles {
    slots: Mutex<HashMap<String, HandleSlot>>,
}

enum HandleSlot {
    Opening,
    Open(SharedFile),
}

/// Why a name cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenHandleError {
    /// It is too long.
    IdTooLong,
    /// It is taken.
    Exists,
    /// There are as many as there may be.
    TooMany,
}

impl FileHandles {
    /// Takes a name for a file that is about to be opened.
    pub(crate) fn reserve(self: &Arc<Self>, id: &str) -> Result<HandleReservation, OpenHandleError> {
        if id.len() > HANDLE_ID_BYTES {
            return Err(OpenHandleError::IdTooLong);
        }
        let mut slots = self.lock();
        if slots.contains_key(id) {
            return Err(OpenHandleError::Exists);
        }
        if slots.len() >= OPEN_HANDLES {
            return Err(OpenHandleError::TooMany);
        }
        slots.insert(id.to_owned(), HandleSlot::Opening);
        Ok(HandleReservation { handles: self.clone(), id: id.to_owned() })
    }

    /// The file of that name.
    pub(crate) fn find(&self, id: &str) -> Option<SharedFile> {
        match self.lock().get(id) {
            Some(HandleSlot::Open(file)) => Some(file.clone()),
            Some(HandleSlot::Opening) | None => None,
        }
    }

    /// Lets go of a file. One that is not there is closed.
    pub(crate) async fn close(&self, id: &str) -> Result<(), FileError> {
        let slot = {
            let mut slots = self.lock();
            match slots.get(id) {
                Some(HandleSlot::Open(_)) => slots.remove(id),
                // Whoever opens it is not done with the name.
                Some(HandleSlot::Opening) | None => None,
            }
        };
        match slot {
            Some(HandleSlot::Open(file)) => close(file).await,
            Some(HandleSlot::Opening) | None => Ok(()),
        }
    }

    /// Lets go of all of them.
    pub(crate) async fn close_all(&self) {
        let slots = std::mem::take(&mut *self.lock());
        for slot in slots.into_values() {
            if let HandleSlot::Open(file) = slot {
                // The client is gone; there is nobody to tell.
                let _ = close(file).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HandleSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn close(file: SharedFile) -> Result<(), FileError> {
    match Arc::into_inner(file) {
        Some(file) => file.close().await,
        // A block is under way; the last of them closes it.
        None => Ok(()),
    }
}

/// A name that is taken for a file that is being opened; free again if this is dropped.
pub(crate) struct HandleReservation {
    handles: Arc<FileHandles>,
    id: String,
}

impl HandleReservation {
    /// The file is open.
    pub(crate) fn done(self, file: Box<dyn OpenFile>) {
        self.handles.lock().insert(self.id.clone(), HandleSlot::Open(Arc::new(file)));
    }
}

impl Drop for HandleReservation {
    fn drop(&mut self) {
        let mut slots = self.handles.lock();
        if matches!(slots.get(&self.id), Some(HandleSlot::Opening)) {
            slots.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_unique_and_few() {
        let handles = Arc::new(FileHandles::default());
        let long = "x".repeat(HANDLE_ID_BYTES + 1);
        assert_eq!(handles.reserve(&long).err(), Some(OpenHandleError::IdTooLong));
        let held: Vec<HandleReservation> =
            (0..OPEN_HANDLES).map(|id| handles.reserve(&id.to_string()).expect("there is room")).collect();
        assert_eq!(handles.reserve("7").err(), Some(OpenHandleError::Exists));
        assert_eq!(handles.reserve("one more").err(), Some(OpenHandleError::TooMany));
        drop(held);
        assert!(handles.reserve("7").is_ok(), "an open that failed gives its name back");
    }
}
