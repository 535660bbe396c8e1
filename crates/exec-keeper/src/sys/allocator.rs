//! How much freed memory the C library keeps for itself.

/// Blocks from this size on are mapped for themselves, and given back to the system at once. Blocks of files and chunks of
/// streams, which come thousands of times a second, are smaller.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 1 << 20;

/// What may stay free at the end of a heap: the window of a stream, twice.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 4 << 20;

/// Lets the C library keep some of the memory that is freed. Left to itself it gives a buffer of 256 KiB back to the system, and
/// then gets it again, page by page, for the next chunk of a stream: that took half as long again as carrying the chunk. To be
/// called before there are threads. Elsewhere it does nothing.
pub fn keep_freed_buffers() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in [(libc::M_MMAP_THRESHOLD, MAPPED_BYTES), (libc::M_TRIM_THRESHOLD, KEPT_BYTES)] {
        // SAFETY: two numbers; there is no other way to say it. It fails only for numbers that are out of range, and then leaves
        // things as they were.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}
