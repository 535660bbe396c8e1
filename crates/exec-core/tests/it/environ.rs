//! Which variables a child gets, seen from outside.

use std::ffi::OsString;

use exec_core::environ::Variables;
use exec_core::{EnvPolicy, Environ, Inherit};

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

const MACHINE: &[(&str, &str)] = &[("PATH", "/bin"), ("HOME", "/root"), ("EDITOR", "vi"), ("A_TOKEN", "t"), ("A", "1")];

fn resolve(policy: EnvPolicy, own: &[(&str, &str)]) -> Variables {
    Environ { policy: Some(policy), vars: variables(own) }.resolve(variables(MACHINE))
}

fn keeps(change: impl FnOnce(&mut EnvPolicy)) -> Vec<String> {
    let mut policy = EnvPolicy::everything();
    change(&mut policy);
    resolve(policy, &[]).into_keys().map(|name| name.into_string().expect("ASCII")).collect()
}

#[test]
fn everything_is_inherited_and_the_callers_own_override_it() {
    let environ = Environ::inherit_and([("EDITOR", "ed"), ("NEW", "1")]);
    let mut expected = variables(MACHINE);
    expected.extend(variables(&[("EDITOR", "ed"), ("NEW", "1")]));
    assert_eq!(environ.resolve(variables(MACHINE)), expected);
}

#[test]
fn what_is_set_overrides_the_machine_and_the_callers_own_override_that() {
    let mut policy = EnvPolicy { inherit: Inherit::None, ..EnvPolicy::everything() };
    policy.set = variables(&[("A", "set"), ("B", "set")]);
    assert_eq!(resolve(policy, &[("B", "own")]), variables(&[("A", "set"), ("B", "own")]));
}

#[test]
fn nothing_but_what_is_set_can_be_inherited() {
    assert_eq!(keeps(|policy| policy.inherit = Inherit::None), Vec::<String>::new());
}

#[test]
fn excluded_names_are_dropped() {
    assert_eq!(keeps(|policy| policy.exclude = vec!["e*".into(), "?".into()]), ["A_TOKEN", "HOME", "PATH"]);
}

#[test]
fn names_are_matched_as_a_whole() {
    let kept = |pattern: &str| keeps(|policy| policy.include_only = vec![pattern.into()]);
    assert_eq!(kept("PAT"), Vec::<String>::new());
    assert_eq!(kept("ATH"), Vec::<String>::new());
    assert_eq!(kept("PATH?"), Vec::<String>::new());
    assert_eq!(kept("PATH*"), ["PATH"]);
    assert_eq!(kept("*TH"), ["PATH"]);
    assert_eq!(kept("*T*"), ["A_TOKEN", "EDITOR", "PATH"]);
    assert_eq!(kept("H??E"), ["HOME"]);
    assert_eq!(kept("*A*H"), ["PATH"]);
    assert_eq!(kept("*O*O*"), Vec::<String>::new());
    assert_eq!(kept("*"), ["A", "A_TOKEN", "EDITOR", "HOME", "PATH"]);
}
