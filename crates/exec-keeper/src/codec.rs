//! Numbers and strings in a message, little endian, every length checked.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A message that does not read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keeper's socket brought a message that does not read: are both sides of one version?")]
pub struct MalformedMessage;

/// Builds a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
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

/// Reads one.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedMessage> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().map_err(|_| MalformedMessage)?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| MalformedMessage)?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedMessage> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| MalformedMessage)?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MalformedMessage> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, MalformedMessage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| MalformedMessage)
    }

    pub(crate) fn os(&mut self) -> Result<OsString, MalformedMessage> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    pub(crate) fn strings(&mut self) -> Result<Vec<OsString>, MalformedMessage> {
        let count = self.u32()? as usize;
        // Each string costs at least its length field, so a lie about the count cannot reserve memory.
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
