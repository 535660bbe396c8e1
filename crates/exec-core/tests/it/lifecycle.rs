//! Sets of streams, and the two entries that end a log, step by step; random orders are in `history`.

use exec_core::lifecycle::{Append, Lifecycle, StreamSet};
use exec_core::{Exit, Stream};

const EXITED: Append = Append::Exited(Exit::LOST);

fn streams(set: StreamSet) -> Vec<Stream> {
    set.iter().collect()
}

#[test]
fn a_set_has_what_was_put_into_it() {
    assert_eq!(streams(StreamSet::PIPES), [Stream::Stdout, Stream::Stderr]);
    assert_eq!(streams(StreamSet::PTY), [Stream::Pty]);
    assert_eq!(streams(StreamSet::NONE), []);
    let mut set = StreamSet::NONE;
    assert!(set.is_empty());
    set.insert(Stream::Stderr);
    set.insert(Stream::Pty);
    set.insert(Stream::Pty);
    assert_eq!(streams(set), [Stream::Stderr, Stream::Pty]);
    assert!(!set.is_empty() && set.contains(Stream::Pty) && !set.contains(Stream::Stdout));
    assert_eq!((set.remove(Stream::Stdout), set.remove(Stream::Pty), set.remove(Stream::Pty)), (false, true, false));
    assert_eq!(streams(set), [Stream::Stderr]);
}

#[test]
fn a_log_is_closed_by_the_last_stream_after_the_exit() {
    let mut life = Lifecycle::new(StreamSet::PIPES);
    assert_eq!((life.open(), life.exited(), life.closed()), (StreamSet::PIPES, false, false));
    assert_eq!(life.on_eof(Stream::Stdout), None);
    assert_eq!(streams(life.open()), [Stream::Stderr]);
    assert_eq!(life.on_exit(Exit::LOST), (Some(EXITED), None));
    assert_eq!((life.exited(), life.closed()), (true, false));
    assert_eq!(life.on_eof(Stream::Stdout), None, "a second end changes nothing");
    assert_eq!(life.on_eof(Stream::Stderr), Some(Append::Closed));
    assert!(life.closed());
    assert_eq!(life.on_eof(Stream::Stderr), None, "closed comes once");
    assert_eq!(life.on_exit(Exit::LOST), (None, None), "so does the exit");
}

#[test]
fn without_streams_the_exit_closes_the_log() {
    let mut life = Lifecycle::new(StreamSet::PTY);
    assert_eq!(life.on_eof(Stream::Pty), None);
    assert_eq!(life.on_exit(Exit::LOST), (Some(EXITED), Some(Append::Closed)));
}

#[test]
fn a_process_of_an_earlier_owner_goes_on_where_it_was() {
    let mut life = Lifecycle::resume(StreamSet::PTY, true, false);
    assert_eq!((life.open(), life.exited(), life.closed()), (StreamSet::PTY, true, false));
    assert_eq!(life.on_exit(Exit::LOST), (None, None));
    assert_eq!(life.on_eof(Stream::Pty), Some(Append::Closed));
    let mut closed = Lifecycle::resume(StreamSet::NONE, true, true);
    assert_eq!(closed.on_eof(Stream::Pty), None);
    assert!(closed.closed());
}
