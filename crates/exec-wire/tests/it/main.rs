//! The wire judged from outside: against the original server's recorded answers, against golden files, against serde.

mod binary;
mod envelope;
mod golden;
mod hot;
mod oracle;
mod path_uri;
mod protocol;
mod scan;
mod schema;
