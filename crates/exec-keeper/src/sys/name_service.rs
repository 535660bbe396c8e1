//! Where names of hosts and users are looked up.
//!
//! The C library loads modules of the machine for that, as `/etc/nsswitch.conf` names them. One that is linked into the
//! program must not: the modules were made for another version of it, and using them ends in a crash.

/// In a static program, names are looked up in `/etc/hosts` and by DNS, users in `/etc/passwd`, whatever the machine's
/// configuration says. To be called before there are threads. Elsewhere it does nothing.
pub fn load_no_modules() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            /// Of the GNU C library, where `getaddrinfo` and `getpwuid_r` take it from.
            fn __nss_configure_lookup(
                database: *const std::ffi::c_char,
                sources: *const std::ffi::c_char,
            ) -> std::ffi::c_int;
        }
        for (database, sources) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
            // SAFETY: two texts that live as long as the program; the library copies what it keeps. It fails only without
            // memory, and then leaves things as they were.
            unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
        }
    }
}
