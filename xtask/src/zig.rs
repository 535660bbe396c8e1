//! Libraries that are loaded into Python and Node: for the C library of ten years ago, which zig brings and this machine has not.
//!
//! The binary is static and asks nothing of a machine. A library shares the C library of the program that loads it, and
//! linked as usual it would need one as new as that of the machine that built it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::wheel;

/// The oldest that Rust's own library is for, of 2012. Wheels that need no newer one are called manylinux_2_17.
pub(crate) const GLIBC: (u32, u32) = (2, 17);

/// Known to link these libraries; both from PyPI.
const PACKAGES: &[&str] = &["ziglang==0.17.0", "cargo-zigbuild==0.24.0"];

/// zig, and cargo with zig as its linker, in the target directory.
pub(crate) struct Zig {
    programs: PathBuf,
}

impl Zig {
    pub(crate) fn install(target: &Path) -> Result<Self> {
        let environment = target.join("sdk/zig");
        wheel::install_python_packages(&environment, PACKAGES)?;
        Ok(Self { programs: environment.join("bin") })
    }

    /// `cargo build` for `target` and the old C library; arguments follow.
    pub(crate) fn cargo_build(&self, target: &str) -> Result<Command> {
        let mut command = Command::new(self.programs.join("cargo-zigbuild"));
        command.args(["zigbuild", "--target", &format!("{target}.{}.{}", GLIBC.0, GLIBC.1)]);
        self.let_it_be_found(&mut command)?;
        Ok(command)
    }

    /// What `command` starts finds zig before any other.
    pub(crate) fn let_it_be_found(&self, command: &mut Command) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.programs.clone()).chain(std::env::split_paths(&path));
        let path: OsString = std::env::join_paths(folders).context("the target directory cannot be put on the PATH")?;
        command.env("PATH", path);
        Ok(())
    }
}

/// Fails if the library needs a newer C library.
pub(crate) fn check_library(library: &Path) -> Result<()> {
    let output = Command::new("readelf").args(["-VW"]).arg(library).output().context("cannot run readelf")?;
    let needed = newest_glibc(&String::from_utf8_lossy(&output.stdout));
    let (major, minor) = needed.with_context(|| format!("readelf finds no versions in {}", library.display()))?;
    ensure!((major, minor) <= GLIBC, "{} needs glibc {major}.{minor}", library.display());
    Ok(())
}

/// The newest `GLIBC_2.17` or `GLIBC_2.2.5` of a text.
fn newest_glibc(text: &str) -> Option<(u32, u32)> {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let version: String = rest.chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
        let mut numbers = version.split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    versions.max()
}

/// The tag that pip compares with the C library of a machine.
pub(crate) fn wheel_tag() -> String {
    format!("manylinux_{}_{}", GLIBC.0, GLIBC.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_greatest_number_and_not_the_last_word() {
        let text =
            "Name: GLIBC_2.2.5  Flags: none\nName: GLIBC_2.17\n Name: GLIBC_2.9 Name: GLIBC_PRIVATE Name: GCC_4.2.0";
        assert_eq!(newest_glibc(text), Some((2, 17)));
        assert_eq!(newest_glibc("GLIBC_2.34 GLIBC_2.4"), Some((2, 34)));
        assert_eq!(newest_glibc("No version information found in this file."), None);
    }
}
