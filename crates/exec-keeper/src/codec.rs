//! Encodes and decodes the numbers and strings of a message: little endian, with a length of 32 bits before each string.
//!
//! Decoding checks every length, because the other side may be of another build.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keeper's socket brought a message that does not read: are both sides of one version?")]
pub struct MalformedMessage;

#[derive(Debug, Default)]
pub(crate) struct ByteWriter(Vec<u8>);

impl ByteWriter {
    pub(crate) fn tagged(tag: u8) -> Self {
        Self(vec![tag])
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self = self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn strings<'a>(mut self, values: impl ExactSizeIterator<Item = &'a OsString>) -> Self {
        self = self.u32(values.len() as u32);
        for value in values {
            self = self.bytes(value.as_bytes());
        }
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[derive(Debug)]
pub(crate) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedMessage> {
        self.array().map(u64::from_le_bytes)
    }

    /// One of `all`, by its [`tag_of`].
    pub(crate) fn tag<T: Copy>(&mut self, all: &[T]) -> Result<T, MalformedMessage> {
        from_tag(all, self.u8()?).ok_or(MalformedMessage)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MalformedMessage> {
        let count = self.u32()? as usize;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, MalformedMessage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| MalformedMessage)
    }

    pub(crate) fn os(&mut self) -> Result<OsString, MalformedMessage> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    pub(crate) fn strings(&mut self) -> Result<Vec<OsString>, MalformedMessage> {
        let count = self.u32()? as usize;
        // Each string takes at least its length field, so a wrong count cannot make us reserve much memory.
        let mut strings = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            strings.push(self.os()?);
        }
        Ok(strings)
    }

    pub(crate) fn end(self) -> Result<(), MalformedMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(MalformedMessage) }
    }
}

/// The byte that stands for `value`: its position in `all`, counted from 1.
pub(crate) fn tag_of<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|one| *one == value).map_or(0, |at| at as u8 + 1)
}

pub(crate) fn from_tag<T: Copy>(all: &[T], tag: u8) -> Option<T> {
    all.get(usize::from(tag).checked_sub(1)?).copied()
}
