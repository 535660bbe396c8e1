//! What a sandboxed child does to itself between `clone` and `exec`: mounts of its own, no capabilities, Landlock, and
//! a filter of system calls. Afterwards it cannot undo any of it, and neither can what it starts.
//!
//! [`PreparedConfinement::enter`], `restrict` and `seal` run in the child, which shares our memory while we are
//! suspended (see `clone`): system calls only, no allocation, no lock, no panic. So everything that they need is made
//! before, in [`PreparedConfinement::new`].
//!
//! Paths are opened once without following any link, and mounted by handle: if somebody has put a link into a path since
//! the policy was resolved, the start fails. What fails here fails the start; nothing runs with less than was planned.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_core::sandbox::{Confinement, MountStep};
use rustix::io::Errno;

use super::own_network::PreparedNetwork;
use super::supervise::{PreparedSupervision, install_filter};

/// Devices that give away nothing and change nothing. What is missing on this machine is missing in the sandbox.
const DEVICES: [(&CStr, &CStr); 6] = [
    (c"null", c"dev/null"),
    (c"zero", c"dev/zero"),
    (c"full", c"dev/full"),
    (c"random", c"dev/random"),
    (c"urandom", c"dev/urandom"),
    (c"tty", c"dev/tty"),
];

/// Links that programs expect in `/dev`.
const DEVICE_LINKS: [(&CStr, &CStr); 5] = [
    (c"pts/ptmx", c"ptmx"),
    (c"/proc/self/fd", c"fd"),
    (c"/proc/self/fd/0", c"stdin"),
    (c"/proc/self/fd/1", c"stdout"),
    (c"/proc/self/fd/2", c"stderr"),
];

/// Bits of the kernel's interfaces that libc does not have for every target.
const OPEN_TREE_CLONE: i32 = 1;
const AT_RECURSIVE: i32 = 0x8000;
const MOVE_FROM_HANDLE_TO_HANDLE: u32 = 0x4 | 0x40;
const MOUNT_ATTR_RDONLY: u64 = 1;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;
const LANDLOCK_RULE_PATH_BENEATH: i32 = 1;
const LANDLOCK_READ_DIRECTORY: u64 = 1 << 3;
/// Reading of files and directories.
const LANDLOCK_READ: u64 = 1 << 2 | 1 << 3;
/// Reading and writing of files, and requests to devices.
const LANDLOCK_USE_DEVICE: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 15;
/// Version 3: the kernel's own name of a set of capabilities of 64 bits.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// No descriptor.
const NONE: RawFd = -1;

/// A [`Confinement`] in memory that the child can use as it is.
#[derive(Debug)]
pub(crate) struct PreparedConfinement<'a> {
    user_namespace: Option<&'a OwnedFd>,
    pid_namespace: bool,
    network: Option<PreparedNetwork>,
    ruleset: Option<&'a OwnedFd>,
    handled_rights: u64,
    steps: Vec<PreparedStep>,
    devices: [RawFd; DEVICES.len()],
    console: RawFd,
    filters: Vec<Vec<u64>>,
    supervision: Option<PreparedSupervision>,
}

#[derive(Debug)]
struct PreparedStep {
    kind: StepKind,
    /// Relative to the root; `.` for the root itself.
    path: CString,
    target: CString,
    /// A detached copy of the mount to be bound, opened by the child before anything is changed.
    source: RawFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepKind {
    EmptyRoot,
    ReadOnlyRoot,
    Bind { writable: bool },
    Link,
    EmptyDirectory,
    HideDirectory { passable: bool },
    HideFile,
    Devices,
    Processes,
}

/// What could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfineStep {
    UserNamespace,
    PidNamespace,
    Network,
    Namespaces,
    /// By its place among the mount steps.
    Mount(usize),
    NewRoot,
    Capabilities,
    Landlock,
    Supervision,
    Filter,
}

/// The step, and the kernel's reason.
pub(super) type Failure = (ConfineStep, i32);

impl<'a> PreparedConfinement<'a> {
    /// `descriptors` are those that came with it. `EBADF` if there are fewer than it says. The sockets of its own network
    /// are sent through `transfer`, if there is one; `supervisor` is where the listener is sent of a child that is supervised.
    pub(crate) fn new(
        confinement: &Confinement,
        descriptors: &'a [OwnedFd],
        transfer: Option<BorrowedFd<'_>>,
        supervisor: Option<BorrowedFd<'a>>,
    ) -> Result<Self, Errno> {
        let mut descriptors = descriptors.iter();
        let user_namespace = confinement.user_namespace.then(|| descriptors.next().ok_or(Errno::BADF)).transpose()?;
        let ruleset = confinement.landlock.map(|_| descriptors.next().ok_or(Errno::BADF)).transpose()?;
        let supervision = confinement.supervision.as_ref().map(|asked| {
            let socket = supervisor.ok_or(Errno::BADF)?.as_raw_fd();
            Ok::<_, Errno>(PreparedSupervision { filter: asked.filter.clone(), socket })
        });
        Ok(Self {
            user_namespace,
            pid_namespace: confinement.pid_namespace,
            network: confinement.network.as_ref().map(|ports| PreparedNetwork::new(ports, transfer)),
            ruleset,
            handled_rights: confinement.landlock.unwrap_or(0),
            steps: confinement.mounts.iter().map(PreparedStep::new).collect::<Result<_, _>>()?,
            devices: [NONE; DEVICES.len()],
            console: NONE,
            filters: confinement.filters.clone(),
            supervision: supervision.transpose()?,
        })
    }

    /// For a person: what was being done.
    pub(crate) fn describe(&self, step: ConfineStep) -> String {
        match step {
            ConfineStep::UserNamespace => "entering its user namespace".to_owned(),
            ConfineStep::PidNamespace => "making its pid namespace".to_owned(),
            ConfineStep::Network => "making its network".to_owned(),
            ConfineStep::Namespaces => "making its namespaces".to_owned(),
            ConfineStep::Mount(at) => match self.steps.get(at) {
                Some(step) => step.describe(),
                None => "mounting".to_owned(),
            },
            ConfineStep::NewRoot => "changing its root".to_owned(),
            ConfineStep::Capabilities => "dropping its capabilities".to_owned(),
            ConfineStep::Landlock => "restricting its files with Landlock".to_owned(),
            ConfineStep::Supervision => "asking for a supervisor of its files".to_owned(),
            ConfineStep::Filter => "filtering its system calls".to_owned(),
        }
    }

    /// Whether its program must be made in a pid namespace; see [`Self::enter_pid_namespace`].
    pub(crate) fn has_pid_namespace(&self) -> bool {
        self.pid_namespace
    }

    /// What whoever makes the child does before, if it has a pid namespace: those that it makes from now on are in there, and
    /// in the user namespace.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    pub(crate) unsafe fn enter_pid_namespace(&self) -> Result<(), Failure> {
        // SAFETY: as promised by the caller; plain values.
        unsafe {
            if let Some(namespace) = &self.user_namespace {
                check(ConfineStep::UserNamespace, libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER).into())?;
            }
            check(ConfineStep::PidNamespace, libc::unshare(libc::CLONE_NEWPID).into())?;
        }
        Ok(())
    }

    /// What takes the rights that a child has: its mounts.
    ///
    /// # Safety
    /// In a child that shares nothing but memory with us, or not even that; see the module.
    pub(crate) unsafe fn enter(&mut self) -> Result<(), Failure> {
        // SAFETY: as promised by the caller; every call below is a bare system call on plain values, on strings that live
        // as long as `self`, or on locals.
        unsafe {
            // With a pid namespace it was made in both.
            if let Some(namespace) = self.user_namespace.filter(|_| !self.pid_namespace) {
                check(ConfineStep::UserNamespace, libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER).into())?;
            }
            if let Some(network) = &self.network {
                network.enter()?;
            }
            if !self.steps.is_empty() {
                self.mount()?;
            }
            // Fails where there are none to drop; then what counts is that the sets of `restrict` are empty, and stay so
            // because no program can gain any (no_new_privs).
            for capability in 0..64 {
                if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Gives up all rights beyond those of its user, for good. Everything but the filter, which would forbid what a child
    /// still has to do.
    ///
    /// # Safety
    /// As for [`Self::enter`], which was called before.
    pub(crate) unsafe fn restrict(&self) -> Result<(), Failure> {
        // SAFETY: as for `enter`.
        unsafe {
            check(ConfineStep::Capabilities, libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            clear_capabilities().map_err(|errno| (ConfineStep::Capabilities, errno))?;
            if let Some(ruleset) = &self.ruleset {
                let result = libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0);
                check(ConfineStep::Landlock, result)?;
            }
            if let Some(supervision) = &self.supervision {
                supervision.begin().map_err(|errno| (ConfineStep::Supervision, errno))?;
            }
        }
        Ok(())
    }

    /// From here on only what the filters allow can be called.
    ///
    /// # Safety
    /// As for [`Self::restrict`], which was called before.
    pub(crate) unsafe fn seal(&self) -> Result<(), Failure> {
        for filter in &self.filters {
            // SAFETY: as promised by the caller.
            let installed = unsafe { install_filter(filter, 0) };
            check(ConfineStep::Filter, installed)?;
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn mount(&mut self) -> Result<(), Failure> {
        // SAFETY: as for `enter`.
        unsafe {
            check(ConfineStep::Namespaces, libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC).into())?;
            // What we mount must not appear on the machine.
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            let result =
                libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null::<c_void>());
            check(ConfineStep::Namespaces, result.into())?;
            let result = libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
            let machine_root = check(ConfineStep::Namespaces, result.into())?;
            self.open_sources(machine_root)?;
            let mut root = machine_root;
            for at in 0..self.steps.len() {
                root = self.carry_out(at, root)?;
            }
            // Directories that one can pass were writable as long as there were mount points to be made in them.
            for (at, step) in self.steps.iter().enumerate() {
                if step.kind == (StepKind::HideDirectory { passable: true }) {
                    let handle = check(ConfineStep::Mount(at), open_below(root, &step.path))?;
                    make_read_only(handle, false).map_err(|errno| (ConfineStep::Mount(at), errno))?;
                }
            }
            if root != machine_root {
                self.change_root(root)?;
            }
        }
        Ok(())
    }

    /// Copies every mount that will be needed, before the first one is changed.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn open_sources(&mut self, root: RawFd) -> Result<(), Failure> {
        for (at, step) in self.steps.iter_mut().enumerate() {
            // SAFETY: as for `enter`.
            unsafe {
                match step.kind {
                    StepKind::Bind { .. } | StepKind::Processes => {
                        let handle = check(ConfineStep::Mount(at), open_below(root, &step.path))?;
                        step.source = check(ConfineStep::Mount(at), copy_mount(handle, true))?;
                        libc::close(handle);
                    }
                    StepKind::Devices => {
                        for (slot, (_, path)) in self.devices.iter_mut().zip(DEVICES) {
                            let handle = open_below(root, path) as RawFd;
                            if handle >= 0 {
                                *slot = copy_mount(handle, false) as RawFd;
                                libc::close(handle);
                            }
                        }
                        self.console = copy_own_terminal(root);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Carries out a step, and returns the root for the next.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn carry_out(&self, at: usize, root: RawFd) -> Result<RawFd, Failure> {
        let Some(step) = self.steps.get(at) else { return Ok(root) };
        let failed = |errno: i32| (ConfineStep::Mount(at), errno);
        // SAFETY: as for `enter`.
        unsafe {
            match step.kind {
                StepKind::EmptyRoot => {
                    let empty = new_file_system(c"tmpfs", &[(c"mode", c"0755")]).map_err(failed)?;
                    move_mount(empty, root).map_err(failed)?;
                    self.allow(empty, LANDLOCK_READ_DIRECTORY).map_err(failed)?;
                    return Ok(empty);
                }
                StepKind::ReadOnlyRoot => make_read_only(root, true).map_err(failed)?,
                StepKind::Bind { writable } => {
                    if !writable {
                        make_read_only(step.source, true).map_err(failed)?;
                    }
                    let target = mount_point(root, &step.path, is_directory(step.source)).map_err(failed)?;
                    move_mount(step.source, target).map_err(failed)?;
                    libc::close(target);
                    libc::close(step.source);
                }
                StepKind::Link => {
                    let (parent, name) = make_parent(root, &step.path).map_err(failed)?;
                    let result = libc::symlinkat(step.target.as_ptr(), parent, name);
                    check(ConfineStep::Mount(at), result.into())?;
                }
                StepKind::EmptyDirectory | StepKind::HideDirectory { .. } => {
                    let (mode, passable) = match step.kind {
                        StepKind::EmptyDirectory => (c"0555", false),
                        StepKind::HideDirectory { passable: true } => (c"0111", true),
                        _ => (c"0000", false),
                    };
                    let mask = new_file_system(c"tmpfs", &[(c"mode", mode)]).map_err(failed)?;
                    if !passable {
                        make_read_only(mask, false).map_err(failed)?;
                    }
                    let target = mount_point(root, &step.path, true).map_err(failed)?;
                    move_mount(mask, target).map_err(failed)?;
                    libc::close(target);
                    libc::close(mask);
                }
                StepKind::HideFile => {
                    let holder = new_file_system(c"tmpfs", &[]).map_err(failed)?;
                    make_file(holder, c"hidden", 0).map_err(failed)?;
                    let handle = check(ConfineStep::Mount(at), open_below(holder, c"hidden"))?;
                    let mask = check(ConfineStep::Mount(at), copy_mount(handle, false))?;
                    make_read_only(mask, false).map_err(failed)?;
                    let target = mount_point(root, &step.path, false).map_err(failed)?;
                    move_mount(mask, target).map_err(failed)?;
                    for used in [holder, handle, mask, target] {
                        libc::close(used);
                    }
                }
                StepKind::Devices => self.make_devices(root).map_err(failed)?,
                StepKind::Processes => self.show_processes(step.source, root).map_err(failed)?,
            }
        }
        Ok(root)
    }

    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn make_devices(&self, root: RawFd) -> Result<(), i32> {
        // SAFETY: as for `enter`.
        unsafe {
            let devices = new_file_system(c"tmpfs", &[(c"mode", c"0755")])?;
            let target = mount_point(root, c"dev", true)?;
            move_mount(devices, target)?;
            libc::close(target);
            for (source, (name, _)) in self.devices.iter().zip(DEVICES) {
                if *source != NONE {
                    bind_file(*source, devices, name)?;
                }
            }
            if self.console != NONE {
                // So that programs which ask for the name of their terminal find one.
                bind_file(self.console, devices, c"console")?;
            }
            // The machine's own terminals belong to others.
            let terminals = new_file_system(c"devpts", &[(c"ptmxmode", c"0666"), (c"mode", c"0620")])?;
            mount_in(terminals, devices, c"pts", 0o755)?;
            self.allow(terminals, LANDLOCK_USE_DEVICE)?;
            let memory = new_file_system(c"tmpfs", &[(c"mode", c"1777")])?;
            mount_in(memory, devices, c"shm", 0o755)?;
            self.allow(memory, !0)?;
            for (target, name) in DEVICE_LINKS {
                result(libc::symlinkat(target.as_ptr(), devices, name.as_ptr()).into())?;
            }
            make_read_only(devices, false)?;
            libc::close(devices);
        }
        Ok(())
    }

    /// The `/proc` of its pid namespace, or one that hides whom one may not trace, which Landlock makes everybody outside. Only
    /// who has the rights of root over all processes may mount the latter; others see the machine's own.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn show_processes(&self, machine: RawFd, root: RawFd) -> Result<(), i32> {
        // SAFETY: as for `enter`.
        unsafe {
            let processes = if self.pid_namespace {
                new_file_system(c"proc", &[])?
            } else {
                new_file_system(c"proc", &[(c"hidepid", c"ptraceable")]).unwrap_or(machine)
            };
            make_read_only(processes, true)?;
            self.allow(processes, LANDLOCK_READ)?;
            let target = mount_point(root, c"proc", true)?;
            move_mount(processes, target)?;
            libc::close(target);
            libc::close(machine);
        }
        Ok(())
    }

    /// Landlock shall allow this below what we have mounted ourselves: no rule that was made outside can name it.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn allow(&self, mount: RawFd, rights: u64) -> Result<(), i32> {
        #[repr(C, packed)]
        struct PathBeneath {
            allowed: u64,
            parent: i32,
        }
        let Some(ruleset) = &self.ruleset else { return Ok(()) };
        let rule = PathBeneath { allowed: rights & self.handled_rights, parent: mount };
        // SAFETY: as for `enter`; the rule is the kernel's landlock_path_beneath_attr.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                LANDLOCK_RULE_PATH_BENEATH,
                &raw const rule,
                0,
            )
        };
        result(added).map(drop)
    }

    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn change_root(&self, root: RawFd) -> Result<(), Failure> {
        let failed = |errno: i32| (ConfineStep::NewRoot, errno);
        // SAFETY: as for `enter`.
        unsafe {
            make_read_only(root, false).map_err(failed)?;
            check(ConfineStep::NewRoot, libc::fchdir(root).into())?;
            // The old root comes to lie over the new one, and is taken away.
            let result = libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr());
            check(ConfineStep::NewRoot, result)?;
            check(ConfineStep::NewRoot, libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
            check(ConfineStep::NewRoot, libc::chdir(c"/".as_ptr()).into())?;
        }
        Ok(())
    }
}

impl PreparedStep {
    fn new(step: &MountStep) -> Result<Self, Errno> {
        let none = Path::new("/");
        let (kind, path, target) = match step {
            MountStep::EmptyRoot => (StepKind::EmptyRoot, none, none),
            MountStep::ReadOnlyRoot => (StepKind::ReadOnlyRoot, none, none),
            MountStep::Bind { path, writable } => (StepKind::Bind { writable: *writable }, path.as_path(), none),
            MountStep::Link { path, target } => (StepKind::Link, path.as_path(), target.as_path()),
            MountStep::EmptyDirectory { path } => (StepKind::EmptyDirectory, path.as_path(), none),
            MountStep::HideDirectory { path, passable } => {
                (StepKind::HideDirectory { passable: *passable }, path.as_path(), none)
            }
            MountStep::HideFile { path } => (StepKind::HideFile, path.as_path(), none),
            MountStep::Devices => (StepKind::Devices, none, none),
            MountStep::Processes => (StepKind::Processes, Path::new("/proc"), none),
        };
        let relative = path.as_os_str().as_bytes().strip_prefix(b"/").ok_or(Errno::INVAL)?;
        let relative = if relative.is_empty() { b"." } else { relative };
        if relative.len() >= libc::PATH_MAX as usize {
            return Err(Errno::NAMETOOLONG);
        }
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
        Ok(Self { kind, path: c_string(relative)?, target: c_string(target.as_os_str().as_bytes())?, source: NONE })
    }

    fn describe(&self) -> String {
        let path = self.path.to_string_lossy();
        match self.kind {
            StepKind::EmptyRoot => "making an empty root".to_owned(),
            StepKind::ReadOnlyRoot => "making all files read-only".to_owned(),
            StepKind::Bind { writable: true } => format!("making /{path} writable"),
            StepKind::Bind { writable: false } => format!("making /{path} read-only"),
            StepKind::Link => format!("making the link /{path}"),
            StepKind::EmptyDirectory => format!("keeping /{path} empty"),
            StepKind::HideDirectory { .. } | StepKind::HideFile => format!("hiding /{path}"),
            StepKind::Devices => "making /dev".to_owned(),
            StepKind::Processes => "showing /proc".to_owned(),
        }
    }
}

// The functions below are called by the child only, under the same conditions as `enter`. Those that return a number
// return what the system call returned.

/// # Safety
/// As for [`PreparedConfinement::enter`].
pub(super) unsafe fn clear_capabilities() -> Result<(), i32> {
    let header = [CAPABILITY_VERSION, 0];
    let sets = [0u32; 6];
    // SAFETY: two live locals of the layout that the version names.
    result(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Opens what is at `path` below `root`, without any effect on it. A link anywhere in it is an error.
unsafe fn open_below(root: RawFd, path: &CStr) -> libc::c_long {
    let how =
        [(libc::O_PATH | libc::O_CLOEXEC) as u64, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH];
    // SAFETY: the path and the kernel's open_how (three numbers) are live.
    unsafe { libc::syscall(libc::SYS_openat2, root, path.as_ptr(), how.as_ptr(), size_of_val(&how)) }
}

/// A copy of the mount at `handle`, attached nowhere.
unsafe fn copy_mount(handle: RawFd, with_all_below: bool) -> libc::c_long {
    let below = if with_all_below { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | below;
    // SAFETY: plain values.
    unsafe { libc::syscall(libc::SYS_open_tree, handle, c"".as_ptr(), flags) }
}

/// The terminal that is our standard input, by its name; [`NONE`] if it has none.
unsafe fn copy_own_terminal(root: RawFd) -> RawFd {
    let mut name = [0u8; 64];
    // SAFETY: the kernel writes at most 63 bytes into the live local, so that it ends with NUL.
    unsafe {
        if libc::isatty(0) == 0 {
            return NONE;
        }
        let length = libc::readlink(c"/proc/self/fd/0".as_ptr(), name.as_mut_ptr().cast(), name.len() - 1);
        if length < 2 || name[0] != b'/' {
            return NONE;
        }
        let path = CStr::from_ptr(name.as_ptr().add(1).cast());
        let handle = open_below(root, path) as RawFd;
        if handle < 0 {
            return NONE;
        }
        let copy = copy_mount(handle, false) as RawFd;
        libc::close(handle);
        copy
    }
}

unsafe fn move_mount(mount: RawFd, target: RawFd) -> Result<(), i32> {
    let empty = c"".as_ptr();
    // SAFETY: plain values.
    let moved = unsafe { libc::syscall(libc::SYS_move_mount, mount, empty, target, empty, MOVE_FROM_HANDLE_TO_HANDLE) };
    result(moved).map(drop)
}

unsafe fn make_read_only(mount: RawFd, with_all_below: bool) -> Result<(), i32> {
    let attributes = [MOUNT_ATTR_RDONLY, 0, 0, 0];
    let flags = libc::AT_EMPTY_PATH | if with_all_below { AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel's mount_attr is four numbers.
    let made = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    result(made).map(drop)
}

/// A new file system, attached nowhere.
unsafe fn new_file_system(kind: &CStr, options: &[(&CStr, &CStr)]) -> Result<RawFd, i32> {
    // SAFETY: strings that live, and plain values.
    unsafe {
        let context = result(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC))?;
        for (name, value) in options {
            let set = libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr(), 0);
            result(set)?;
        }
        let nothing = std::ptr::null::<c_char>();
        result(libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nothing, nothing, 0))?;
        let mount = result(libc::syscall(libc::SYS_fsmount, context, FSMOUNT_CLOEXEC, 0))?;
        libc::close(context);
        Ok(mount)
    }
}

/// Something at `path` below `root` on which can be mounted; made if it is not there.
unsafe fn mount_point(root: RawFd, path: &CStr, directory: bool) -> Result<RawFd, i32> {
    // SAFETY: as for `enter`.
    unsafe {
        match result(open_below(root, path)) {
            Err(libc::ENOENT) => {}
            other => return other,
        }
        let (parent, name) = make_parent(root, path)?;
        if directory {
            result(libc::mkdirat(parent, name, 0o755).into())?;
        } else {
            make_file(parent, CStr::from_ptr(name), 0o444)?;
        }
        result(open_below(root, path))
    }
}

/// The directory in which `path` is, made if it is not there, and the last name of `path`.
unsafe fn make_parent(root: RawFd, path: &CStr) -> Result<(RawFd, *const c_char), i32> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let bytes = path.to_bytes_with_nul();
    let mut here = root;
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'/' {
            continue;
        }
        let (Some(name), Some(space)) = (bytes.get(start..at), buffer.get_mut(..at - start + 1)) else {
            return Err(libc::ENAMETOOLONG);
        };
        if let [space @ .., end] = space {
            space.copy_from_slice(name);
            *end = 0;
        }
        // SAFETY: the buffer holds the name and the NUL behind it.
        unsafe {
            let name = CStr::from_ptr(buffer.as_ptr().cast());
            if libc::mkdirat(here, name.as_ptr(), 0o755) < 0 && errno() != libc::EEXIST {
                return Err(errno());
            }
            here = result(open_below(here, name))?;
        }
        start = at + 1;
    }
    // SAFETY: `start` is behind a slash of the string or at its beginning, so within it.
    Ok((here, unsafe { path.as_ptr().add(start) }))
}

unsafe fn make_file(directory: RawFd, name: &CStr, mode: u32) -> Result<(), i32> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a live string and plain values.
    unsafe {
        let file = result(libc::openat(directory, name.as_ptr(), flags, mode).into())?;
        libc::close(file);
    }
    Ok(())
}

unsafe fn bind_file(source: RawFd, directory: RawFd, name: &CStr) -> Result<(), i32> {
    // SAFETY: as for `enter`.
    unsafe {
        make_file(directory, name, 0o444)?;
        let target = result(open_below(directory, name))?;
        move_mount(source, target)?;
        libc::close(target);
        libc::close(source);
    }
    Ok(())
}

unsafe fn mount_in(mount: RawFd, directory: RawFd, name: &CStr, mode: u32) -> Result<(), i32> {
    // SAFETY: as for `enter`.
    unsafe {
        result(libc::mkdirat(directory, name.as_ptr(), mode).into())?;
        let target = result(open_below(directory, name))?;
        move_mount(mount, target)?;
        libc::close(target);
    }
    Ok(())
}

unsafe fn is_directory(handle: RawFd) -> bool {
    // SAFETY: zeroed is a value of this plain C struct, and the kernel fills in the live local.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(handle, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

fn check(step: ConfineStep, returned: libc::c_long) -> Result<RawFd, Failure> {
    result(returned).map_err(|errno| (step, errno))
}

fn result(returned: libc::c_long) -> Result<RawFd, i32> {
    if returned < 0 { Err(errno()) } else { Ok(returned as RawFd) }
}

fn errno() -> i32 {
    // SAFETY: the slot of this thread; in a child that shares our memory it is the one of the suspended thread.
    unsafe { *libc::__errno_location() }
}
