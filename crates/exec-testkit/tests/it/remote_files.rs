//! Files at the far end of a connection: the suite of files judges them unchanged, and what lies beyond the waist is
//! judged here: [`sizes`] and their texts, [`streams`], [`requests`].

mod raw;
mod requests;
mod sizes;
mod streams;

use exec_testkit::suite_files::FilesBench;
use exec_testkit::{Bench, files_conformance};

use crate::{environments, remote};

fn files_of(bench: Bench) -> FilesBench {
    FilesBench::new(bench, |bench| bench.environment.files())
}

async fn local() -> FilesBench {
    files_of(environments::keeper_as_thread().await)
}

async fn memory() -> FilesBench {
    files_of(remote::over_memory().await).far()
}

async fn unix_socket() -> FilesBench {
    files_of(remote::over_unix_socket().await).far()
}

async fn websocket() -> FilesBench {
    files_of(remote::over_websocket().await).far()
}

async fn stdio() -> FilesBench {
    files_of(remote::over_stdio().await).far()
}

async fn transport_that_breaks() -> FilesBench {
    files_of(remote::over_a_transport_that_breaks().await).far().breaking()
}

files_conformance!(files_of_the_local_environment, local());
files_conformance!(files_over_memory, memory());
files_conformance!(files_over_a_unix_socket, unix_socket());
files_conformance!(files_over_websocket, websocket());
files_conformance!(files_over_stdio, stdio());
files_conformance!(files_over_a_transport_that_breaks, transport_that_breaks());
