//! Parsers of durations, sizes, modes and variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use exec_core::{Limit, Signal};

/// `NAME=VALUE`, or `NAME` for our own value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvArg {
    pub(crate) name: OsString,
    pub(crate) value: Option<OsString>,
}

/// Works on bytes, because values need not be UTF-8.
pub(super) fn env_arg() -> impl TypedValueParser<Value = EnvArg> {
    OsStringValueParser::new().try_map(|word| match split_env(&word) {
        EnvArg { name, .. } if name.is_empty() => Err("a variable needs a name before `=`"),
        split => Ok(split),
    })
}

fn split_env(word: &OsStr) -> EnvArg {
    let bytes = word.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => EnvArg {
            name: OsStr::from_bytes(&bytes[..at]).to_owned(),
            value: Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
        },
        None => EnvArg { name: word.to_owned(), value: None },
    }
}

/// `30s`, `1m30s`, `500ms`, `1.5h`; a plain number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: write it as 30s, 1m30s, 500ms or 2h");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            // A number without a unit is seconds, but only if it is all there is: `1m30` is more likely a mistake.
            "" if digits == text.len() => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = tail;
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

/// `HUP`, `SIGHUP`, `hup` or `1`.
pub(super) fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is_it = |signal: &Signal| match name.parse::<i32>() {
        Ok(number) => signal.number() == number,
        Err(_) => exec_core::signal::name(signal.number()).strip_prefix("SIG") == Some(name),
    };
    Signal::ALL.into_iter().find(is_it).ok_or_else(|| {
        let known: Vec<String> = Signal::ALL.iter().map(|signal| exec_core::signal::name(signal.number())).collect();
        format!("{text:?} is no signal that can be sent: there are {}", known.join(", "))
    })
}

/// A name for a detached process, which is also that of a file.
pub(super) fn process_name(text: &str) -> Result<String, String> {
    const LONGEST_CHARS: usize = 64;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    match !text.is_empty() && text.len() <= LONGEST_CHARS && !text.starts_with('.') && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("use letters, digits, -, _ and . (not first), at most {LONGEST_CHARS}")),
    }
}

/// `4096`, `64K`, `256M`, `4G`: powers of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size: write it as 4096, 64K, 256M or 4G");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// A limit and its value, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitArg {
    pub(crate) limit: Limit,
    pub(crate) value: u64,
}

/// `memory=512M`, `pids=100`, `cpu=30s`, `files=64`, `file-size=1G`.
pub(super) fn limit_arg(text: &str) -> Result<LimitArg, String> {
    let known = "memory, pids, cpu, files or file-size";
    let (name, value) = text.split_once('=').ok_or_else(|| format!("write it as NAME=VALUE, NAME being {known}"))?;
    let count = || value.parse().map_err(|_| format!("{value:?} is not a number"));
    let (limit, value) = match name {
        "memory" => (Limit::MemoryBytes, bytes(value)?),
        "pids" => (Limit::Pids, count()?),
        // Whole seconds, and never less than was said.
        "cpu" => {
            (Limit::CpuSeconds, duration(value)?.as_nanos().div_ceil(1_000_000_000).try_into().unwrap_or(u64::MAX))
        }
        "files" => (Limit::OpenFiles, count()?),
        "file-size" => (Limit::FileBytes, bytes(value)?),
        _ => return Err(format!("there is no limit {name:?}: it is {known}")),
    };
    if value == 0 && limit != Limit::FileBytes {
        return Err("with 0 nothing could run: allow more".to_owned());
    }
    Ok(LimitArg { limit, value })
}

/// `750`, `0644`: permission bits, octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode: write it as chmod takes it, in octal, as 755 or 0640")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read: Vec<_> = ["30s", "1m30s", "500ms", "1.5h", "7", "0.25", "0s"].map(duration).into();
        let meant = [30_000, 90_000, 500, 5_400_000, 7_000, 250, 0].map(|ms| Ok(Duration::from_millis(ms)));
        assert_eq!(read, meant);
    }

    #[test]
    fn a_duration_that_is_none_is_refused_with_a_way_out() {
        for text in ["", "s", "5x", "1m30", "-1s", "1..5s", "99999999999999999999d", "1 s", "5 "] {
            let error = duration(text).expect_err("it is not a duration");
            assert_eq!(error, format!("{text:?} is not a duration: write it as 30s, 1m30s, 500ms or 2h"));
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let read: Vec<_> = ["4096", "64K", "256M", "4G", "1GiB", "2MB", "3k"].map(bytes).into();
        assert_eq!(read, [4096, 64 << 10, 256 << 20, 4 << 30, 1 << 30, 2 << 20, 3 << 10].map(Ok));
        for text in ["", "M", "1X", "-1", "99999999999999T"] {
            assert!(bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_limit_is_a_name_and_a_value_in_its_unit() {
        let read = |text| limit_arg(text).map(|LimitArg { limit, value }| (limit, value));
        assert_eq!(read("memory=512M"), Ok((Limit::MemoryBytes, 512 << 20)));
        assert_eq!(read("pids=100"), Ok((Limit::Pids, 100)));
        assert_eq!(read("cpu=1500ms"), Ok((Limit::CpuSeconds, 2)), "not less than was said");
        assert_eq!(read("files=64"), Ok((Limit::OpenFiles, 64)));
        assert_eq!(read("file-size=0"), Ok((Limit::FileBytes, 0)));
        for text in ["memory", "disk=1G", "pids=many", "pids=0", "cpu=0s", "memory=", "files=-1"] {
            assert!(limit_arg(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_variable_is_split_at_its_first_equals_sign() {
        let word = |name: &str, value: Option<&str>| EnvArg { name: name.into(), value: value.map(Into::into) };
        assert_eq!(split_env("A=b=c".as_ref()), word("A", Some("b=c")));
        assert_eq!(split_env("A=".as_ref()), word("A", Some("")));
        assert_eq!(split_env("A".as_ref()), word("A", None));
    }
}
