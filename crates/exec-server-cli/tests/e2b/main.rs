//! `exec-server e2b` as the E2B SDKs meet it: the real binary, the real SDKs, and clients that mean harm.
//!
//! Reading order: [`support`] (the server and its account), [`raw_client`] (HTTP and Connect by hand), then the behaviours:
//! [`sdks`] (those of others, with the scripts in `sdk/` and `snippets/`), [`processes`], [`names`], [`watches`], [`hostile`],
//! [`restarts`].

mod hostile;
mod names;
mod processes;
mod raw_client;
mod restarts;
mod sdks;
mod support;
mod watches;
