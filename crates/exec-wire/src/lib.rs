//! The wire: what goes over a connection, as types.
//!
//! In the order in which a message meets them: [`envelope`] asks what kind of message it is, with the help of the
//! scanner ([`RawJson`]); [`method`] knows what the params must be; the shapes are in [`initialize`], [`environment`],
//! [`process`], [`fs`], [`http`], [`network`], [`discovery`], [`sandbox`] and [`session`], made of [`path_uri`],
//! [`base64`] and [`text`]; errors leave by [`error`]. Output leaves by [`output_codec`], or by [`binary`] where the peer
//! asked for it. [`schema`] writes all of it down, [`limits`] bounds it.
//!
//! Untrusted text becomes a checked value here and nowhere else. Both ends use the same shapes, so each can be written
//! and read. Deliberately absent: sockets, sessions, handlers, and any conversion to the domain, which the server and
//! the client do at their own rims. The words of errors equal those of Codex's server wherever a client could see them.

pub mod base64;
pub mod binary;
mod decode;
pub mod discovery;
mod empty;
pub mod envelope;
pub mod environment;
pub mod error;
pub mod fs;
pub mod http;
pub mod initialize;
pub mod limits;
pub mod method;
pub mod network;
pub mod output_codec;
pub mod path_uri;
pub mod process;
pub mod sandbox;
mod scan;
pub mod schema;
pub mod session;
pub mod text;

pub use decode::DecodeError;
pub use envelope::{Incoming, MalformedMessage, RequestId, SharedJson};
pub use error::{ErrorData, RpcError};
pub use method::{Call, Method, NotificationMethod, NotificationParams};
pub use path_uri::PathUri;
pub use scan::RawJson;
