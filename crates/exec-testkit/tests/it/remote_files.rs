//! Files at the far end of a connection: the conformance suite of files, and what that cannot see: [`sizes`] and their
//! error messages, [`streams`], [`requests`], [`hung_files`].

mod hung_files;
mod plain_client;
mod requests;
mod sandboxed;
mod sizes;
mod streams;

use exec_testkit::files_conformance;
use exec_testkit::suite_files::FilesTestEnvironment;

use crate::{environments, remote};

async fn local() -> FilesTestEnvironment {
    FilesTestEnvironment::new(environments::keeper_as_thread().await)
}

async fn memory() -> FilesTestEnvironment {
    FilesTestEnvironment::new(remote::over_memory().await).remote()
}

async fn unix_socket() -> FilesTestEnvironment {
    FilesTestEnvironment::new(remote::over_unix_socket().await).remote()
}

async fn websocket() -> FilesTestEnvironment {
    FilesTestEnvironment::new(remote::over_websocket().await).remote()
}

async fn stdio() -> FilesTestEnvironment {
    FilesTestEnvironment::new(remote::over_stdio().await).remote()
}

async fn transport_that_breaks() -> FilesTestEnvironment {
    FilesTestEnvironment::new(remote::over_a_transport_that_breaks().await).remote().breaking()
}

files_conformance!(files_of_the_local_environment, local());
files_conformance!(files_over_memory, memory());
files_conformance!(files_over_a_unix_socket, unix_socket());
files_conformance!(files_over_websocket, websocket());
files_conformance!(files_over_stdio, stdio());
files_conformance!(files_over_a_transport_that_breaks, transport_that_breaks());
