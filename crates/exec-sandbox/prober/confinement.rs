//! What a confined process knows of itself: no capabilities, no new privileges, no descriptors of anybody else, and
//! what it runs is as confined as it is.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use crate::attempt::{Attempt, Failure, Probe, absent, got, probe, refused};
use crate::system_call::call;
use crate::targets::Targets;

pub(crate) const PROBES: &[Probe] = &[
    probe("inherited-descriptors", |_| {
        let open = (3..4096).filter(|number| call!(libc::SYS_fcntl, *number, libc::F_GETFD).is_ok());
        let open: Vec<i32> = open.collect();
        if open.is_empty() { Err(refused("only 0, 1 and 2 are open")) } else { Ok(format!("descriptors {open:?}")) }
    }),
    probe("new-privileges", |_| match status("NoNewPrivs")?.as_str() {
        "1" => Err(refused("no_new_privs is set")),
        other => Ok(format!("no_new_privs is {other}")),
    }),
    probe("without-filter", |_| match status("Seccomp")?.as_str() {
        "2" => Err(refused("system calls are filtered")),
        other => Ok(format!("the mode of seccomp is {other}")),
    }),
    probe("capabilities-effective", |_| capabilities("CapEff")),
    probe("capabilities-permitted", |_| capabilities("CapPrm")),
    probe("capabilities-inheritable", |_| capabilities("CapInh")),
    probe("capabilities-ambient", |_| capabilities("CapAmb")),
    probe("capabilities-bounding", |_| capabilities("CapBnd")),
    probe("become-root", |_| {
        call!(libc::SYS_setresuid, 0, 0, 0)?;
        // Whoever was root before has got nothing by this; only what root may do counts.
        capabilities("CapEff")
    }),
    probe("become-group-root", |_| {
        call!(libc::SYS_setresgid, 0, 0, 0)?;
        match rustix::process::getuid().as_raw() {
            0 => capabilities("CapEff"),
            _ => got("the group of root"),
        }
    }),
    probe("drop-groups", |_| {
        call!(libc::SYS_setgroups, 0, 0)?;
        got("other groups")
    }),
    probe("become-other-user", |_| {
        call!(libc::SYS_setresuid, 12345, 12345, 12345)?;
        got("another user's id")
    }),
    probe("raise-capabilities", |_| {
        // Version 3 of the interface: all bits, for this thread.
        let (header, sets) = ([0x2008_0522_u32, 0], [u32::MAX; 6]);
        call!(libc::SYS_capset, header.as_ptr(), sets.as_ptr())?;
        capabilities("CapEff")
    }),
    probe("setuid-program", |t| {
        let output = Command::new(t.get("setuid")?).arg("privileges").output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match text.strip_suffix(" without capabilities") {
            Some(who) => Err(refused(format!("it runs {who}, without capabilities"))),
            None if text.is_empty() => Err(refused(format!("it ended with {}", output.status))),
            None => Ok(text),
        }
    }),
    probe("execute-memory", |t| {
        // What is executed from memory may write no more than we may.
        let file = rustix::fs::memfd_create("prober", rustix::fs::MemfdFlags::empty())?;
        let mut file = fs::File::from(file);
        file.write_all(&fs::read("/proc/self/exe")?)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        as_confined(t, Command::new(path).arg("create-file").args(t.arguments()).output())
    }),
    probe("execute-shell", |t| {
        let path = Path::new(t.get("outside")?).join("create-file.new");
        let script = format!("echo x > '{}' && echo create-file escaped: by a shell", path.display());
        as_confined(t, Command::new("/bin/sh").args(["-c", &script]).output())
    }),
    probe("execute-with-preload", |t| {
        // A library that is not there: the loader says so and goes on. It must not run before the confinement.
        let program = std::env::args_os().next().ok_or_else(|| absent("this program has no name"))?;
        let missing = t.own_missing()?;
        let mut command = Command::new(program);
        as_confined(t, command.arg("create-file").args(t.arguments()).env("LD_PRELOAD", missing).output())
    }),
    probe("execute-in-new-session", |t| {
        let program = std::env::args_os().next().ok_or_else(|| absent("this program has no name"))?;
        if !Path::new("/usr/bin/setsid").exists() {
            return Err(absent("there is no setsid"));
        }
        let mut command = Command::new("/usr/bin/setsid");
        as_confined(t, command.args(["-f", "-w"]).arg(program).arg("create-file").args(t.arguments()).output())
    }),
];

/// Who this program runs as, for the copy of it with the setuid bit.
pub(crate) fn privileges() -> String {
    let user = rustix::process::geteuid().as_raw();
    match capabilities("CapEff") {
        Ok(sets) => format!("as user {user} with {sets}"),
        Err(_) => format!("as user {user} without capabilities"),
    }
}

fn status(field: &str) -> Result<String, Failure> {
    let all = fs::read_to_string("/proc/self/status")?;
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map(|value| value.trim().to_owned()).ok_or_else(|| absent(format!("the kernel does not tell {field}")))
}

pub(crate) fn capabilities(set: &str) -> Attempt {
    let value = status(set)?;
    if value.bytes().all(|digit| digit == b'0') {
        Err(refused(format!("{set} is empty")))
    } else {
        Ok(format!("{set} {value}"))
    }
}

/// What the probe `create-file` says when it is run in another way.
fn as_confined(t: &Targets<'_>, result: std::io::Result<std::process::Output>) -> Attempt {
    let output = result?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !text.contains(" escaped:") {
        return Err(refused(format!("it is confined too: {text}")));
    }
    // The next probe makes the same file.
    fs::remove_file(Path::new(t.get("outside")?).join("create-file.new"))?;
    Ok(text)
}
