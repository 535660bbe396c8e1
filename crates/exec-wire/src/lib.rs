//! The wire: what goes over a connection, as types.
//!
//! The modules in the order in which a message meets them:
//!
//! ```text
//! envelope      which kind of message it is: request, notification, response or error reply
//! scan          one pass over the text: JSON, within bounds, no key twice
//! method        the table of all methods and notifications: types of params and results, and how each behaves
//! extension     what this wire adds to that of Codex's server, by the names that servers advertise
//! decode        typed values out of scanned text, and the error text if that fails
//! initialize, environment, process, fs, http, net, network, discovery, sandbox, session
//!               the types, declared by shape, made of path_uri, base64, text (strings that need not be UTF-8) and empty
//!               (no members)
//! error         error codes, and the texts that belong to no single operation
//! output_codec, binary
//!               output and file blocks, written without serde, and as binary frames where the client asked for them
//! schema        the JSON Schema of all of it
//! limits        every bound
//! ```
//!
//! The wire is that of Codex's exec-server with additions, which comments mark as "Ours". Error texts equal those of
//! Codex's server wherever a client could see them. The doc comments of the types are the descriptions in the schema.
//!
//! Untrusted text becomes a checked value here and nowhere else. Both ends use the same types, so each can be written
//! and read, and so do conversions from and to values of `exec-core` (`process/domain`). Deliberately absent: sockets,
//! sessions, handlers, and what `exec-env` knows, which the server and the client convert for themselves.

pub mod base64;
pub mod binary;
mod decode;
pub mod discovery;
mod empty;
pub mod envelope;
pub mod environment;
pub mod error;
pub mod extension;
pub mod fs;
pub mod http;
pub mod initialize;
pub mod limits;
pub mod method;
pub mod net;
pub mod network;
pub mod output_codec;
pub mod path_uri;
pub mod process;
pub mod sandbox;
mod scan;
pub mod schema;
pub mod session;
mod shape;
pub mod text;

pub use decode::DecodeError;
pub use envelope::{Incoming, MalformedMessage, RequestId, SharedJson};
pub use error::{ErrorData, RpcError};
pub use extension::Extension;
pub use method::{Call, Method, NotificationMethod, NotificationParams, RetryPolicy};
pub use path_uri::PathUri;
pub use scan::RawJson;
