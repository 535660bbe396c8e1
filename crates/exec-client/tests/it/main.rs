//! Tests of the client: its rules in virtual time, the link against scripted peers, the original server, the file.

mod environments;
mod files;
mod following;
mod link;
mod original;
mod peer;
mod recovery;
mod simulation;
