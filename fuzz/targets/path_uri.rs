//! Path URIs: every text is parsed or refused, every path round-trips byte for byte, and a path has one spelling.

#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_wire::PathUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_uri(text);
    }
    check_path(Path::new(OsStr::from_bytes(bytes)));
});

fn check_uri(text: &str) {
    let Ok(uri) = PathUri::parse(text) else { return };
    assert_eq!(PathUri::parse(uri.as_str()).as_ref(), Ok(&uri), "what was read reads differently again");
    if let Ok(path) = uri.to_path() {
        assert!(!path.as_os_str().as_bytes().contains(&0) || uri.as_str().starts_with("file:///%00/"));
        check_path(&path);
    }
}

fn check_path(path: &Path) {
    let Ok(uri) = PathUri::from_path(path) else {
        assert!(path.is_relative(), "only relative paths have no URI");
        return;
    };
    let parsed = PathUri::parse(uri.as_str()).expect("our own URI reads");
    assert_eq!(parsed, uri, "our own URI is not canonical");
    let parsed = parsed.to_path().expect("a path of this machine is a path of this machine");
    assert_eq!(parsed, path, "compared by components, as the kernel does");
}
