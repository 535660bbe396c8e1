//! The Debian package: the binary, manual pages, completions, and systemd units for users and for the system.
//!
//! It has no maintainer scripts: nothing is started, enabled or changed by installing it. Made by hand, so that it is the
//! same to the byte everywhere; `dist --check` lets dpkg and lintian judge it.

use std::process::Command;

use anyhow::{Context, Result};

use super::archive::{Content, FileTree, ar, gzip, tar};
use super::{Release, sbom};

const NAME: &str = "exec-server";
const MAINTAINER: &str = "exec-server <exec-server@users.noreply.github.com>";

/// Where the files of a folder of `packaging/systemd` go.
const UNITS: [(&str, &str); 2] = [("system", "lib/systemd/system"), ("user", "usr/lib/systemd/user")];

pub(crate) fn package(release: &Release) -> Result<(String, Vec<u8>)> {
    let files = files(release)?;
    let control = control_files(release, &files)?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(&control, "./", release.epoch)?)?),
        ("data.tar.gz", gzip(&tar(&files, "./", release.epoch)?)?),
    ];
    Ok((format!("{NAME}_{}_amd64.deb", debian_version(release)), ar(&members, release.epoch)))
}

fn files(release: &Release) -> Result<FileTree> {
    let mut files = FileTree::default();
    files.program("usr/bin/exec-server", release.binary.clone());
    for (name, page) in &release.documents.pages {
        files.file(format!("usr/share/man/man1/{name}.gz"), gzip(page)?);
    }
    for (shell, name, script) in &release.documents.completions {
        let folder = match *shell {
            "bash" => "bash-completion/completions",
            "zsh" => "zsh/vendor-completions",
            _ => "fish/vendor_completions.d",
        };
        files.file(format!("usr/share/{folder}/{name}"), script.clone());
    }
    for (source, folder) in UNITS {
        for unit in ["exec-server.service", "exec-server.socket"] {
            files.file(format!("{folder}/{unit}"), release.packaging(&format!("systemd/{source}/{unit}"))?);
        }
    }
    let documents = "usr/share/doc/exec-server";
    files.file(format!("{documents}/copyright"), release.packaging("debian/copyright")?);
    files.file(format!("{documents}/changelog.Debian.gz"), gzip(changelog(release).as_bytes())?);
    files.file(format!("{documents}/exec-server.cdx.json.gz"), gzip(release.sbom.as_bytes())?);
    files.file("usr/share/lintian/overrides/exec-server", release.packaging("debian/lintian-overrides")?);
    Ok(files)
}

fn control_files(release: &Release, files: &FileTree) -> Result<FileTree> {
    let mut control = FileTree::default();
    let text = format!(
        "Package: {NAME}\n\
         Version: {}\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Homepage: {}\n\
         Description: hands on a machine for coding agents\n \
         exec-server starts processes, keeps every byte they print, works on files and\n \
         makes HTTP requests, for coding agents on this and on other machines, over\n \
         connections that may break at any moment.\n \
         .\n \
         Nothing is started by installing it. The units exec-server.socket, for users\n \
         and for the system, serve on a unix socket once they are enabled.\n",
        debian_version(release),
        files.bytes().div_ceil(1024),
        release.homepage,
    );
    control.file("control", text);
    control.file("md5sums", md5sums(files)?);
    Ok(control)
}

/// The first version of this package of a version of ours.
fn debian_version(release: &Release) -> String {
    format!("{}-1", release.version)
}

fn changelog(release: &Release) -> String {
    let date = rfc_2822(release.epoch);
    let version = debian_version(release);
    format!(
        "{NAME} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- {MAINTAINER}  {date}\n"
    )
}

/// As `date -R -u` writes it.
fn rfc_2822(epoch: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let timestamp = sbom::timestamp(epoch);
    let weekday = DAYS[(epoch / 86_400 % 7) as usize];
    let month: usize = timestamp[5..7].parse().expect("a timestamp has two digits there");
    let (year, day, time) = (&timestamp[..4], &timestamp[8..10], &timestamp[11..19]);
    format!("{weekday}, {day} {} {year} {time} +0000", MONTHS[month - 1])
}

/// What `dpkg --verify` compares.
fn md5sums(files: &FileTree) -> Result<String> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let path = folder.path().join("file");
    let mut sums = String::new();
    for (name, entry) in files.iter() {
        if let Content::File(content) = &entry.content {
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            let line = crate::workspace::last_output_line(Command::new("md5sum").arg(&path))?;
            let sum = line.split_whitespace().next().context("md5sum printed no sum")?;
            sums.push_str(&format!("{sum}  {name}\n"));
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_a_changelog() {
        assert_eq!(rfc_2822(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(rfc_2822(1_795_132_799), "Thu, 19 Nov 2026 23:59:59 +0000");
    }
}
