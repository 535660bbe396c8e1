//! What a sandboxed child does to itself between `clone` and `exec`: mounts of its own, no capabilities, Landlock, and
//! a filter of system calls. Afterwards it cannot undo any of it, and neither can what it starts.
//!
//! [`PreparedConfinement::enter`], `restrict` and `seal` run in the child, which shares our memory while we are
//! suspended (see `clone`): system calls only, no allocation, no lock, no panic. So everything that they need is made
//! before, in [`PreparedConfinement::new`].
//!
//! Paths are opened once without following any link, and mounted by handle: if somebody has put a link into a path since
//! the policy was resolved, the start fails. What fails here fails the start; nothing runs with less than was planned.

mod mount_calls;

use std::ffi::{CStr, CString, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use exec_core::sandbox::{Confinement, MountStep};
use rustix::io::Errno;

use self::mount_calls::{
    MOUNT_ATTR_NODEV, NONE, bind_file, copy_mount, copy_own_terminal, is_directory, make_file, make_parent,
    make_read_only, mount_in, mount_point, move_mount, new_file_system, open_below, result, set_attributes,
};
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
const LANDLOCK_RULE_PATH_BENEATH: i32 = 1;
const LANDLOCK_READ_DIRECTORY: u64 = 1 << 3;
/// Reading of files and directories.
const LANDLOCK_READ: u64 = 1 << 2 | 1 << 3;
/// Reading and writing of files, and requests to devices.
const LANDLOCK_USE_DEVICE: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 15;
/// Version 3: the kernel's own name of a set of capabilities of 64 bits.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

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
            if self.has_own_devices() {
                set_attributes(machine_root, MOUNT_ATTR_NODEV, true)
                    .map_err(|errno| (ConfineStep::Namespaces, errno))?;
            }
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

    /// Whether it has the devices of [`DEVICES`], and no others. The machine's may have names elsewhere than in `/dev`, in the
    /// root of a container for example, and whoever opens a disk by one reads all that is hidden.
    fn has_own_devices(&self) -> bool {
        self.steps.iter().any(|step| step.kind == StepKind::Devices)
    }

    /// Copies every mount that will be needed, before the first one is changed.
    ///
    /// # Safety
    /// As for [`Self::enter`].
    unsafe fn open_sources(&mut self, root: RawFd) -> Result<(), Failure> {
        let has_own_devices = self.has_own_devices();
        for (at, step) in self.steps.iter_mut().enumerate() {
            // SAFETY: as for `enter`.
            unsafe {
                match step.kind {
                    StepKind::Bind { .. } | StepKind::Processes => {
                        let handle = check(ConfineStep::Mount(at), open_below(root, &step.path))?;
                        step.source = check(ConfineStep::Mount(at), copy_mount(handle, true))?;
                        libc::close(handle);
                        if has_own_devices && !step.names_devices() {
                            set_attributes(step.source, MOUNT_ATTR_NODEV, true)
                                .map_err(|errno| (ConfineStep::Mount(at), errno))?;
                        }
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

    /// Whether a policy that names this path means devices.
    fn names_devices(&self) -> bool {
        let path = self.path.to_bytes();
        path == b"dev" || path.starts_with(b"dev/")
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

/// # Safety
/// As for [`PreparedConfinement::enter`].
pub(super) unsafe fn clear_capabilities() -> Result<(), i32> {
    let header = [CAPABILITY_VERSION, 0];
    let sets = [0u32; 6];
    // SAFETY: two live locals of the layout that the version names.
    result(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

fn check(step: ConfineStep, returned: libc::c_long) -> Result<RawFd, Failure> {
    result(returned).map_err(|errno| (step, errno))
}
