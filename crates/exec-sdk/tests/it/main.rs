//! The SDKs, each tried in its own language against a server of ours, with a proxy between that cuts.

mod python;
mod stage;
mod typescript;
