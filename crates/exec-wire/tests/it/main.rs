//! The wire judged from outside: against the original server's recorded answers, against golden files, against serde.

mod binary;
mod envelope;
mod golden;
mod oracle;
mod output_codec;
mod path_uri;
mod protocol;
mod scan;
mod schema;
