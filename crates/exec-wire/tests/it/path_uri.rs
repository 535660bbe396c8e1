//! Paths and URIs, byte-exact both ways. What a malformed URI is answered is among the oracle's recordings.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use exec_wire::PathUri;
use proptest::prelude::*;

fn native(uri: &str) -> Result<String, String> {
    let parsed = PathUri::parse(uri).map_err(|error| format!("decode: {error}"))?;
    match parsed.to_path() {
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(foreign) => Err(foreign.to_string()),
    }
}

fn uri(path: &str) -> String {
    PathUri::from_path(Path::new(path)).expect("an absolute path").to_string()
}

#[test]
fn many_spellings_mean_one_path() {
    for spelling in [
        "file:///tmp",
        "file:///tmp/",
        "file:///tmp//",
        "file:////tmp",
        "file:/tmp",
        "file:tmp",
        "FILE:///tmp",
        "file://localhost/tmp",
        "file://LOCALHOST/tmp",
        "file:///x/../tmp",
        "file:///x/%2e%2E/tmp",
        "file:///./tmp/.",
        "  file:///tmp ",
        "file:///t\nmp",
        "file:\\tmp",
    ] {
        assert_eq!(native(spelling).as_deref(), Ok("/tmp"), "{spelling}");
    }
    for root in ["file:", "file:/", "file://", "file:///", "file://localhost"] {
        assert_eq!(native(root).as_deref(), Ok("/"), "{root}");
    }
}

#[test]
fn escapes_are_bytes_and_stray_percents_stand_for_themselves() {
    assert_eq!(native("file:///a%20b%2Fc").as_deref(), Ok("/a b/c"));
    assert_eq!(native("file:///%zz%2").as_deref(), Ok("/%zz%2"));
    let path = PathUri::parse("file:///%ff").expect("a URI").to_path().expect("a path");
    assert_eq!(path.as_os_str().as_bytes(), b"/\xff");
}

#[test]
fn foreign_paths_decode_and_are_refused_where_they_are_used() {
    for (given, canonical) in [
        ("file:///c:/x", "file:///C:/x"),
        ("file:///C%3a/x", "file:///C%3a/x"),
        ("file:///a/../C:/x", "file:///C:/x"),
        ("file://HOST/x", "file://host/x"),
        ("file://HOST/C:/x", "file:///C:/x"),
        ("file://HOST//C:/x", "file:///C:/x"),
        ("file:/c:\n.", "file:///C:/"),
        ("file:///%00/bad/path/L3RtcA", "file:///%00/bad/path/L3RtcA"),
        ("file:///%00/bad/path/AAA", "file:///%00/bad/path/AAA"),
    ] {
        assert_eq!(native(given), Err(format!("'{canonical}' is invalid on 'linux'")));
    }
    assert_eq!(native("file:///tmp/%00"), Err("decode: 'file:///tmp/%00' is invalid on 'linux'".to_owned()));
}

#[test]
fn output_is_the_canonical_spelling() {
    assert_eq!(uri("/"), "file:///");
    assert_eq!(uri("/a b/ü%/?#/"), "file:///a%20b/%C3%BC%25/%3F%23");
    assert_eq!(uri("/[x]^|~'"), "file:///[x]^|~'");
    assert_eq!(uri("/C:/x"), "file:///%00/bad/path/L0M6L3g");
    assert_eq!(uri("/a/C:/x"), "file:///a/C:/x");
    assert!(PathUri::from_path(Path::new("a/b")).is_err());
}

#[test]
fn a_path_that_climbs_is_not_resolved_on_the_way() {
    let path = Path::new("/link/../x");
    let uri = PathUri::from_path(path).expect("an absolute path");
    let there = PathUri::parse(uri.as_str()).expect("our own URI").to_path();
    assert_eq!(there.as_deref(), Ok(path));
}

proptest! {
    #[test]
    fn every_path_arrives_byte_for_byte(
        names in proptest::collection::vec(proptest::collection::vec(1..=255u8, 1..12), 0..5),
    ) {
        let mut bytes = Vec::new();
        for name in &names {
            bytes.push(b'/');
            bytes.extend(name.iter().filter(|byte| **byte != b'/'));
        }
        bytes.insert(0, b'/');
        let path = PathBuf::from(OsString::from_vec(bytes));
        let uri = PathUri::from_path(&path).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let there = PathUri::parse(uri.as_str()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&there, &uri);
        let there = there.to_path().map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&there, &path);
        let clean: PathBuf = path.components().collect();
        if uri.as_str().starts_with("file:///%00") {
            prop_assert_eq!(there.as_os_str(), path.as_os_str());
        } else {
            prop_assert_eq!(there.as_os_str(), clean.as_os_str());
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(file:)?[/\\\\]{0,4}.{0,24}") {
        if let Ok(uri) = PathUri::parse(&text) {
            let _ = uri.to_path();
            prop_assert_eq!(PathUri::parse(uri.as_str()), Ok(uri.clone()));
        }
    }
}
