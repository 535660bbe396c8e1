//! Messages between owner and keeper: any bytes are decoded or refused, and what was decoded round-trips. The two may
//! be of different builds when a daemon is replaced, so neither trusts the other's bytes.

#![no_main]

use exec_keeper::protocol::{KeeperEvent, KeeperRequest, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ask) = KeeperRequest::decode(bytes) {
        assert_eq!(KeeperRequest::decode(&ask.encode()).as_ref(), Ok(&ask));
    }
    if let Ok(tell) = KeeperEvent::decode(bytes) {
        assert_eq!(KeeperEvent::decode(&tell.encode()).as_ref(), Ok(&tell));
    }
});
