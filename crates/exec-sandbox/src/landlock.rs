//! A Landlock ruleset for a policy: which files may be read and written, and that nobody outside can be signalled.
//!
//! Landlock adds up what its rules allow below a directory and can take nothing away, so denials and protected parts of a
//! writable directory are the concern of mounts. It is made here and enforced by the child (`exec-keeper`).

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The first version of the interface that keeps signals and abstract sockets inside. Without it a sandbox needs a pid
/// namespace.
pub const SCOPING_ABI: u32 = 6;

/// The first version under which files can be moved from one directory to another.
const USABLE_ABI: u32 = 2;

/// Devices that a sandboxed program may write to.
const WRITABLE_DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Which version of the interface the kernel has; 0 if it has none, or is not allowed to tell.
pub fn kernel_abi() -> u32 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory and makes no descriptor.
    #[allow(unsafe_code, reason = "no crate offers this question without making a ruleset")]
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    #[error("Landlock: {0}")]
    Ruleset(#[from] RulesetError),
    #[error("the sandbox policy names {path:?}, which cannot be opened: {errno}")]
    Open { path: std::path::PathBuf, errno: Errno },
    #[error("the kernel has no Landlock")]
    Absent,
}

/// What a rule of Landlock grants, at a path and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The names of files.
    List,
    /// Names and contents; programs can be run.
    Read,
    Write,
    /// A device: it can be read, written, and asked for what devices can do.
    Device,
}

/// A ruleset, and the rights that it restricts, as the kernel's bits.
pub struct LandlockRuleset {
    pub descriptor: OwnedFd,
    pub handled: u64,
}

/// Whether rulesets of this version of the interface are of use to a program that may write.
pub fn is_usable(abi: u32) -> bool {
    abi >= USABLE_ABI
}

/// A ruleset that keeps files to what is granted at paths without links, and signals and abstract sockets inside, as far as this
/// version of the interface does. `None`: files are not restricted. Paths that do not exist grant nothing.
pub fn ruleset(grants: Option<&[(&Path, Grant)]>, abi: u32) -> Result<LandlockRuleset, LandlockError> {
    let known = match abi {
        0..=2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        _ => ABI::V5,
    };
    let handled = if grants.is_some() { AccessFs::from_all(known) } else { BitFlags::empty() };
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = if grants.is_some() { ruleset.handle_access(handled)? } else { ruleset };
    let ruleset = if abi >= SCOPING_ABI { ruleset.scope(Scope::from_all(ABI::V6))? } else { ruleset };
    let mut created = ruleset.create()?;
    if let Some(grants) = grants {
        let devices = (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev) & handled;
        let writable = WRITABLE_DEVICES.iter().map(|path| (Path::new(path), devices));
        let rules = grants.iter().map(|(path, grant)| match grant {
            Grant::List => (*path, AccessFs::ReadDir.into()),
            Grant::Read => (*path, AccessFs::from_read(known)),
            Grant::Write => (*path, handled),
            Grant::Device => (*path, devices),
        });
        for (path, rights) in rules.chain(writable) {
            let Some((handle, is_directory)) = open(path)? else { continue };
            let rights = if is_directory { rights } else { rights & AccessFs::from_file(known) };
            created = created.add_rule(PathBeneath::new(handle, rights))?;
        }
    }
    let descriptor: Option<OwnedFd> = created.into();
    Ok(LandlockRuleset { descriptor: descriptor.ok_or(LandlockError::Absent)?, handled: handled.bits() })
}

/// A handle of what is there, and whether it is a directory; `None` if there is nothing, or a link.
fn open(path: &Path) -> Result<Option<(OwnedFd, bool)>, LandlockError> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(handle) => {
            let stat =
                rustix::fs::fstat(&handle).map_err(|errno| LandlockError::Open { path: path.to_owned(), errno })?;
            let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
            Ok(Some((handle, is_directory)))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(LandlockError::Open { path: path.to_owned(), errno }),
    }
}
