//! URLs to listen on and to connect to: any text is parsed or refused, and what was parsed round-trips.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use exec_transport::{ConnectUrl, ListenUrl};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    round_trips::<ListenUrl>(text);
    round_trips::<ConnectUrl>(text);
});

fn round_trips<T: FromStr<Err: Display + Debug> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(url) => {
            let again = url.to_string();
            let read: T = again.parse().expect("what is written can be read");
            assert_eq!(read, url, "written as {again}");
        }
        Err(error) => drop(error.to_string()),
    }
}
