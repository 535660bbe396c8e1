//! A program that tries to get out of its sandbox. For tests only.
//!
//! ```text
//!   prober list                                    every probe, a line each: GROUP NAME
//!   prober NAME KEY=VALUE…                         one probe
//!   prober all GROUP-OR-NAME… KEY=VALUE…           every probe of these groups, each in a process of its own
//!   prober prepare KEY=VALUE…                      makes the files that the probes attack; run it without a sandbox
//!   prober race ROUNDS KEY=VALUE…                 changes what paths lead to while they are used (`races`)
//!   prober under CONDITION… -- PROGRAM ARGUMENTS   runs a program on a host that lacks something (`host_condition`)
//! ```
//!
//! A probe tries one thing and prints exactly one line: `NAME escaped: WHAT IT GOT`, `NAME denied: ERRNO`, or `NAME
//! absent: WHY` if it cannot be tried. It exits with 0. A probe that the kernel kills by SIGSYS was denied. What is a
//! success for some policies and none for others (a write in the workspace, a socket pair) says `escaped` as well: the
//! test that runs this program knows what each policy allows.
//!
//! The keys name what is attacked, see [`targets`]. A probe that gets through does no harm: it changes only files that
//! `prepare` made for it, opens files of the system without writing to them, and hands system calls that would change
//! the machine arguments that the kernel refuses after it has checked who asks.
//!
//! The sources are in this crate because raw system calls are unsafe code; the binary is built by `exec-testkit`, so
//! that nothing of it is published.

#![allow(unsafe_code)]

mod attempt;
mod system_call;
mod targets;

mod confinement;
mod daily_work;
mod host_condition;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod legacy_calls;
mod network;
mod processes;
mod protected;
mod races;
mod reading;
mod system_files;
mod writing;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

use attempt::{Failure, Probe};
use targets::Targets;

/// What `list` shows, and the order in which `all` tries them.
const GROUPS: &[(&str, &[Probe])] = &[
    ("confinement", confinement::PROBES),
    ("daily-work", daily_work::PROBES),
    ("writing", writing::PROBES),
    ("system-files", system_files::PROBES),
    ("protected", protected::PROBES),
    ("reading", reading::PROBES),
    ("processes", processes::PROBES),
    ("network", network::PROBES),
    ("kernel", kernel::PROBES),
    #[cfg(target_arch = "x86_64")]
    ("legacy-calls", legacy_calls::PROBES),
];

/// A probe that takes longer has hung, which is neither an escape nor a denial.
const PROBE_SECONDS: u32 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = arguments.split_first() else { return usage("a verb or a probe is needed") };
    match verb.as_str() {
        "list" => list(),
        "all" => return all(rest),
        "prepare" => return prepare(rest),
        "under" => return usage(&host_condition::run(rest)),
        "race" => return race(rest),
        "privileges" => println!("{}", confinement::privileges()),
        name => return one(name, rest),
    }
    ExitCode::SUCCESS
}

fn list() {
    for (group, probes) in GROUPS {
        for probe in *probes {
            println!("{group} {}", probe.name);
        }
    }
}

fn one(name: &str, arguments: &[String]) -> ExitCode {
    let mut probes = GROUPS.iter().flat_map(|(_, probes)| *probes);
    let Some(probe) = probes.find(|probe| probe.name == name) else {
        return usage(&format!("{name:?} is neither a verb nor a probe"));
    };
    attempt(probe, arguments);
    ExitCode::SUCCESS
}

fn attempt(probe: &Probe, arguments: &[String]) {
    system_call::end_after(PROBE_SECONDS);
    let name = probe.name;
    let verdict = match (probe.attempt)(&Targets::new(name, arguments)) {
        Ok(gain) => format!("escaped: {gain}"),
        Err(Failure::Errno(errno)) => format!("denied: {}", attempt::errno_name(errno)),
        Err(Failure::Refused(why)) => format!("denied: {why}"),
        Err(Failure::Absent(why)) => format!("absent: {why}"),
    };
    // One write, so that lines of two processes never mix, and one line, whatever was told.
    let line = format!("{name} {}\n", verdict.replace('\n', " "));
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
}

fn all(arguments: &[String]) -> ExitCode {
    let (keys, wanted): (Vec<String>, Vec<String>) = arguments.iter().cloned().partition(|word| word.contains('='));
    let is_wanted = |group: &str, name: &str| wanted.iter().any(|word| word == group || word == name);
    let probes = GROUPS.iter().flat_map(|(group, probes)| probes.iter().map(move |probe| (*group, probe)));
    let probes: Vec<&Probe> =
        probes.filter(|(group, probe)| is_wanted(group, probe.name)).map(|found| found.1).collect();
    if probes.is_empty() {
        return usage("no group and no probe has one of these names");
    }
    for probe in probes {
        // Whatever a probe does to itself, and whatever kills it, the next one begins where this one did.
        match system_call::in_a_child(|| attempt(probe, &keys)) {
            Ok(status) if status.success() => {}
            Ok(status) if status.signal() == Some(libc::SIGSYS) => println!("{} denied: SIGSYS", probe.name),
            Ok(status) => println!("{} broken: {status}", probe.name),
            Err(failure) => println!("{} broken: it cannot be started: {failure:?}", probe.name),
        }
    }
    ExitCode::SUCCESS
}

fn prepare(arguments: &[String]) -> ExitCode {
    let names = GROUPS.iter().flat_map(|(group, probes)| probes.iter().map(|probe| (*group, probe.name)));
    match targets::prepare(&Targets::new("prepare", arguments), names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => usage(&format!("the files cannot be made: {error}")),
    }
}

fn race(arguments: &[String]) -> ExitCode {
    let Some((rounds, keys)) = arguments.split_first() else { return usage("race ROUNDS KEY=VALUE…") };
    let Ok(rounds) = rounds.parse() else { return usage("the rounds are not a number") };
    match races::run(rounds, keys) {
        Ok(told) => println!("{told}"),
        Err(failure) => return usage(&format!("no race could be run: {failure:?}")),
    }
    ExitCode::SUCCESS
}

fn usage(mistake: &str) -> ExitCode {
    eprintln!("prober: {mistake}");
    ExitCode::from(64)
}
