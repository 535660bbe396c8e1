//! Programs and directories that hang whoever uses them.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// libc does not have it. The number is the same on all Linux.
const F_SETSIG: libc::c_int = 10;

/// A program on which we have a lease. Who executes it waits until the lease is dropped, which the kernel asks us to do
/// and takes for done after 45 seconds. KILL ends the wait. It takes no privilege.
pub(crate) struct LeasedProgram {
    pub(crate) path: PathBuf,
    lease: File,
}

impl LeasedProgram {
    /// A copy of `program`, with its name.
    pub(crate) fn copy(program: &str, folder: &Path) -> Self {
        let path = folder.join(Path::new(program).file_name().expect("a file"));
        std::fs::copy(program, &path).expect("a small file");
        let lease = File::open(&path).expect("it is there");
        // SAFETY: plain numbers, and a descriptor that lives. The signal by which the kernel asks is one that is ignored
        // by default; the usual one would end us.
        let taken = unsafe {
            libc::fcntl(lease.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(lease.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        assert!(taken, "no lease on {path:?}: {}", std::io::Error::last_os_error());
        Self { path, lease }
    }

    /// Somebody hangs: the kernel wants the lease back.
    pub(crate) fn wait_until_executed(&self) {
        let started = Instant::now();
        // SAFETY: plain numbers, and a descriptor that lives.
        while unsafe { libc::fcntl(self.lease.as_raw_fd(), libc::F_GETLEASE) } == libc::F_WRLCK {
            assert!(started.elapsed() < Duration::from_secs(60), "nobody executes it");
            std::thread::yield_now();
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().expect("a short path")
    }
}

/// A FUSE mount whose server never answers, seen by this thread and by those that it makes.
pub(crate) struct HungMount {
    pub(crate) path: PathBuf,
    _server: File,
}

impl HungMount {
    /// `None`, and why on stderr, where we may not mount.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        let skip = |what: &str| {
            eprintln!("skipped: {what}: {}; this test wants root and /dev/fuse", std::io::Error::last_os_error());
            None
        };
        let path = folder.join("hung");
        std::fs::create_dir(&path).expect("a new folder");
        let Ok(server) = File::options().read(true).write(true).open("/dev/fuse") else {
            return skip("cannot open /dev/fuse");
        };
        // SAFETY: it gives this thread mounts of its own, and changes no memory.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return skip("cannot have own mounts");
        }
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        if !mount("none", Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")
            || !mount("hung", &path, "fuse", 0, &options)
        {
            return skip("cannot mount");
        }
        Some(Self { path, _server: server })
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        let path = c_string(self.path.as_os_str().as_bytes());
        // SAFETY: a live string that ends with NUL.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

fn mount(source: &str, target: &Path, kind: &str, flags: libc::c_ulong, options: &str) -> bool {
    let [source, target, kind, options] =
        [source.as_bytes(), target.as_os_str().as_bytes(), kind.as_bytes(), options.as_bytes()].map(c_string);
    // SAFETY: live strings that end with NUL.
    unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) == 0 }
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("no NUL in it")
}
