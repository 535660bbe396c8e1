//! Search in contents, in a build without the feature `search`: every query answers an error.

use exec_env::files::{FileError, FileReason, FileVerb, SearchQuery, SearchResults};

use super::blocking::PoolWithRights;
use super::policy::CallPolicy;

pub(super) async fn search(
    _policy: impl FnOnce() -> Result<CallPolicy, FileReason> + Send + 'static,
    query: SearchQuery,
    _short: &PoolWithRights,
    _searches: PoolWithRights,
) -> Result<Box<dyn SearchResults>, FileError> {
    let why = r#"this build has no search in contents: build exec-local with the feature "search""#.to_owned();
    Err(FileError::new(FileVerb::Search, query.root, FileReason::Unsupported { why }))
}
