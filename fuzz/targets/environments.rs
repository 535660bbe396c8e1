//! `environments.toml`: any text is a list of places or is refused with its line, and the list is in order: every place
//! is found by its name, no name comes twice, and the default is one of them.

#![no_main]

use std::path::Path;

use exec_client::Environments;
use exec_client::environments::{ConfigFileError, FILE_NAME};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Environments::parse(text, Path::new(FILE_NAME)) {
        Ok(environments) => {
            for place in environments.all() {
                let found = environments.get(&place.id).expect("a place is found by its name");
                assert!(std::ptr::eq(found, place), "two places are named {}", place.id);
            }
            if let Some(id) = environments.default_id() {
                environments.get(id).expect("the default is one of the places");
            }
        }
        Err(ConfigFileError::Parse { line, .. } | ConfigFileError::Invalid { line, .. }) => {
            assert!((1..=text.lines().count().max(1) + 1).contains(&line), "line {line} of {}", text.lines().count());
        }
        Err(ConfigFileError::Read { .. }) => panic!("nothing was to be read"),
    }
});
