//! What is known about a file, formatted for the user and for programs.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use exec_env::files::{FileKind, Metadata};
use exec_wire::text::OsText;
use serde::Serialize;

use crate::location::Location;
use crate::output::os_text;

/// One file in JSON. What is not known is left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileJson<'a> {
    pub(super) path: OsText,
    pub(super) environment: &'a str,
    /// Of a link, the kind of what it leads to.
    pub(super) kind: exec_wire::fs::FileKind,
    pub(super) is_symlink: bool,
    /// The text of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<OsText>,
    #[serde(flatten)]
    pub(super) metadata: Option<MetadataJson>,
    /// BLAKE3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
}

impl<'a> FileJson<'a> {
    pub(super) fn new(location: &'a Location, path: &Path, kind: FileKind, is_symlink: bool) -> Self {
        let kind = match kind {
            FileKind::File => exec_wire::fs::FileKind::File,
            FileKind::Directory => exec_wire::fs::FileKind::Directory,
            FileKind::Symlink => exec_wire::fs::FileKind::Symlink,
            FileKind::Special => exec_wire::fs::FileKind::Special,
        };
        let environment = location.environment_id();
        Self { path: os_text(path), environment, kind, is_symlink, target: None, metadata: None, hash: None }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetadataJson {
    size_bytes: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    inode: u64,
    device: u64,
    nlink: u32,
    modified_ns: i128,
    accessed_ns: i128,
    changed_ns: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_ns: Option<i128>,
}

impl MetadataJson {
    pub(super) fn new(metadata: &Metadata) -> Self {
        Self {
            size_bytes: metadata.size_bytes,
            mode: metadata.mode,
            uid: metadata.uid,
            gid: metadata.gid,
            inode: metadata.inode,
            device: metadata.device,
            nlink: metadata.nlink,
            modified_ns: nanoseconds(metadata.modified),
            accessed_ns: nanoseconds(metadata.accessed),
            changed_ns: nanoseconds(metadata.changed),
            created_ns: metadata.created.map(nanoseconds),
        }
    }
}

/// Since 1970; earlier times are negative.
pub(super) fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanoseconds| -nanoseconds),
    }
}

/// `drwxr-x---`, as `ls -l` has it; `l` for a link, with the permissions of what it leads to.
pub(super) fn mode_string(kind: FileKind, is_symlink: bool, mode: u32) -> String {
    let letter = match kind {
        _ if is_symlink => 'l',
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Special => 's',
    };
    let mut text = String::from(letter);
    // The bits of owner, group and others, each with the special bit that is shown in place of its `x`.
    for (shift, special, with_x, without_x) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => with_x,
            (false, true) => without_x,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-16 00:05:24 UTC`.
pub(crate) fn format_date(time: SystemTime) -> String {
    let seconds = i64::try_from(nanoseconds(time).div_euclid(1_000_000_000)).unwrap_or(0);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Days since 1970 as year, month and day. It counts in periods of 400 years that begin with March, so that the leap day is
/// the last day of its year.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn permissions_look_as_ls_shows_them() {
        assert_eq!(mode_string(FileKind::Directory, false, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_string(FileKind::File, false, 0o4750), "-rwsr-x---");
        assert_eq!(mode_string(FileKind::File, true, 0o2644), "lrw-r-Sr--");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| format_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(at(1_794_787_524), "2026-11-16 00:05:24 UTC");
        assert_eq!(format_date(UNIX_EPOCH - Duration::from_secs(1)), "1969-12-31 23:59:59 UTC");
    }
}
