//! What this machine's environment does beyond the conformance suite: files under kills and overflow, HTTP, an older keeper,
//! requests that are too large, and builds without a feature.

mod absent;
mod bounds;
mod files;
#[cfg(feature = "http")]
mod http;
mod other_version;
