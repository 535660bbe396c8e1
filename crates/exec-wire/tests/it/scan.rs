//! The scanner: it agrees with `serde_json` about what is JSON, and its bounds are the original's to the value.

use exec_wire::{RawJson, envelope};
use proptest::prelude::*;

/// What `serde_json` says; `None` where it gives up at a number beyond a double, which the scanner lets through.
fn serde_takes(text: &str) -> Option<bool> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => Some(true),
        Err(error) if error.to_string().starts_with("number out of range") => None,
        Err(_) => Some(false),
    }
}

fn reason(text: &str) -> Option<String> {
    envelope::decode(text).err().map(|malformed| malformed.reason)
}

fn array_message(items: usize, item: &str) -> String {
    let items = vec![item; items].join(",");
    format!(r#"{{"id":1,"method":"m","params":[{items}]}}"#)
}

#[test]
fn the_largest_array_is_taken_and_one_value_more_is_not() {
    assert_eq!(reason(&array_message(262_140, "0")), None);
    let exceeds = "JSON-RPC message exceeds the limit of 262144 JSON values at line 1 column";
    assert_eq!(reason(&array_message(262_141, "0")), Some(format!("{exceeds} 524311")));
    assert_eq!(reason(&array_message(262_141, "[]")), Some(format!("{exceeds} 786451")));
}

#[test]
fn a_large_object_is_searched_for_repeated_keys_too() {
    let members = |last: &str| {
        let many: String = (0..50_000).map(|number| format!("\"{number}\":0,")).collect();
        format!(r#"{{"id":1,"method":"m","params":{{{many}"{last}":0}}}}"#)
    };
    assert_eq!(reason(&members("end")), None);
    let twice = reason(&members("7")).expect("a key is said twice");
    assert!(twice.starts_with("duplicate JSON object key `7` at line 1 column"));
}

#[test]
fn a_message_may_nest_127_containers_and_no_more() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"id":1,"method":"x","params":{open}{close}}}"#)
    };
    assert_eq!(reason(&nested(126)), None);
    assert_eq!(reason(&nested(127)).as_deref(), Some("recursion limit exceeded at line 1 column 157"));
}

#[test]
fn lines_and_columns_are_counted_as_serde_counts_them() {
    assert_eq!(
        reason("{\n  \"id\": 1,\n  \"id\": 2\n}").as_deref(),
        Some("duplicate JSON object key `id` at line 3 column 6")
    );
    assert_eq!(reason("").as_deref(), Some("EOF while parsing a value at line 1 column 0"));
}

/// JSON with all the odd spellings: escapes, exponents, white space.
fn json() -> impl Strategy<Value = String> {
    let space = proptest::sample::select(vec!["", " ", "\t", "\n ", "\r\n"]);
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        // Eighths, because serde's own floats are not exact to the last bit and ours are.
        any::<i32>().prop_map(|eighths| format!("{:e}", f64::from(eighths) / 8.0)),
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a string is JSON")),
        Just(r#""\u0041\ud83d\ude00\/\b\f""#.to_owned()),
    ];
    scalar.prop_recursive(6, 64, 8, move |inner| {
        let spaced =
            (space.clone(), inner, space.clone()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        prop_oneof![
            proptest::collection::vec(spaced.clone(), 0..8).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::btree_map(any::<String>(), spaced, 0..8).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| {
                        let key = serde_json::to_string(&key).expect("a string is JSON");
                        format!("{key}:{value}")
                    })
                    .collect();
                format!("{{{}}}", members.join(" ,"))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_writes_the_scanner_takes_and_decodes_to_the_same(text in json()) {
        let raw = RawJson::parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let ours: serde_json::Value =
            raw.decode().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let theirs: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn a_damaged_text_is_refused_exactly_if_serde_refuses_it(
        text in json(),
        position in any::<proptest::sample::Index>(),
        damage in proptest::sample::select(vec!["", "\"", "\\", ",", "0", "{", "]", "-", ".", "e", " ", "\u{1}", "u"]),
    ) {
        let mut characters: Vec<String> = text.chars().map(String::from).collect();
        let position = position.index(characters.len());
        characters[position] = damage.to_owned();
        let damaged = characters.concat();
        match (RawJson::parse(&damaged), serde_takes(&damaged)) {
            (Err(error), _) if error.reason().starts_with("duplicate JSON object key") => {}
            (ours, Some(theirs)) => prop_assert_eq!(ours.is_ok(), theirs, "{}", damaged),
            (_, None) => {}
        }
    }

    #[test]
    fn no_text_at_all_makes_the_decoder_panic(text in ".{0,64}") {
        let _ = envelope::decode(&text);
    }
}
