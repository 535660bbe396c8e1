//! Pseudo-random bytes, numbers and a checksum: what an actor prints when it floods, and what a test expects of it.
//!
//! The byte at an offset depends on the seed and the offset alone, so a reader that lost the beginning can still
//! check the tail, and two streams with different seeds cannot be mistaken for each other.
//!
//! Deliberately absent: cryptography. The checksum finds accidents, not forgers.

/// An endless, seekable stream of pseudo-random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeededBytes {
    seed: u64,
}

impl SeededBytes {
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Fills `into` with the bytes that begin at `offset`.
    pub fn fill(&self, offset: u64, into: &mut [u8]) {
        let skipped = (offset % 8) as usize;
        let head = into.len().min((8 - skipped) % 8);
        let (first, rest) = into.split_at_mut(head);
        first.copy_from_slice(&self.word(offset / 8)[skipped..][..head]);
        for (index, chunk) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            chunk.copy_from_slice(&self.word(index)[..chunk.len()]);
        }
    }

    /// The first `length` bytes of the stream.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(0, &mut bytes);
        bytes
    }

    /// Where `found`, which claims to begin at `offset`, first differs.
    pub fn first_difference(&self, offset: u64, found: &[u8]) -> Option<u64> {
        let mut expected = vec![0; found.len().min(64 << 10)];
        let mut at = offset;
        for block in found.chunks(64 << 10) {
            let expected = &mut expected[..block.len()];
            self.fill(at, expected);
            if expected != block {
                let same = expected.iter().zip(block).take_while(|(a, b)| a == b);
                return Some(at + same.count() as u64);
            }
            at += block.len() as u64;
        }
        None
    }

    fn word(&self, index: u64) -> [u8; 8] {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
    }
}

/// A sequence of pseudo-random numbers, the same on every run: for block sizes and choices.
#[derive(Debug, Clone, Copy)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.state) % limit as u64) as usize
    }
}

/// A running checksum (FNV-1a, 64 bits) of everything it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    pub fn of(bytes: &[u8]) -> Self {
        let mut checksum = Self::default();
        checksum.update(bytes);
        checksum
    }

    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The finaliser of splitmix64: every bit of the input moves every bit of the output.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_seeded_bytes_is_the_same_as_the_whole() {
        let whole = SeededBytes::new(7).bytes(100);
        for from in 0..40 {
            for length in 0..40 {
                let mut part = vec![0; length];
                SeededBytes::new(7).fill(from as u64, &mut part);
                assert_eq!(part, whole[from..from + length], "{from}+{length}");
            }
        }
    }

    #[test]
    fn a_difference_is_found_where_it_is() {
        let mut bytes = SeededBytes::new(3).bytes(200_000);
        assert_eq!(SeededBytes::new(3).first_difference(0, &bytes), None);
        assert_eq!(SeededBytes::new(3).first_difference(5, &bytes[5..]), None);
        bytes[150_001] ^= 1;
        assert_eq!(SeededBytes::new(3).first_difference(9, &bytes[9..]), Some(150_001));
    }
}
