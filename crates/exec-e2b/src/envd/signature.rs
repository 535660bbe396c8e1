//! Signed URLs: whoever has one may read or write the one path that it names, until it expires.

use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Code, ServiceError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
}

/// What a request signs, in the words that it uses.
pub(super) struct Signed<'a> {
    pub(super) path: &'a str,
    pub(super) operation: Operation,
    pub(super) user: &'a str,
    pub(super) signature: &'a str,
    /// In seconds since 1970.
    pub(super) expiration: Option<&'a str>,
}

impl Signed<'_> {
    /// Whether it was made with this token, and is valid at `now`.
    pub(super) fn check(&self, token: &str, now: SystemTime) -> Result<(), ServiceError> {
        let refused = |message: &str| Err(ServiceError::new(Code::Unauthenticated, message));
        if !self.is_made_with(token) {
            return refused("the signature of the URL is not valid for this path, user and operation");
        }
        let Some(expiration) = self.expiration else { return Ok(()) };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match expiration.parse::<u64>() {
            Ok(expiration) if now <= expiration => Ok(()),
            _ => refused("the signature of the URL has expired"),
        }
    }

    /// Compared in a time that tells nothing about where they differ.
    pub(super) fn is_made_with(&self, token: &str) -> bool {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let mut text = format!("{}:{operation}:{}:{token}", self.path, self.user);
        if let Some(expiration) = self.expiration {
            text.push(':');
            text.push_str(expiration);
        }
        let expected = format!("v1_{}", base64_simd::STANDARD_NO_PAD.encode_to_string(Sha256::digest(text)));
        expected.as_bytes().ct_eq(self.signature.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As `get_signature` of e2b 2.63.0 makes it.
    const SIGNATURE: &str = "v1_7vbA5bMYN/6bb+H9TIlzYMFANlyFBnolXSKwFPrc3Nc";

    fn signed<'a>(path: &'a str, operation: Operation, expiration: Option<&'a str>) -> Signed<'a> {
        Signed { path, operation, user: "root", signature: SIGNATURE, expiration }
    }

    #[test]
    fn a_signature_holds_for_its_path_operation_and_time_only() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let good = signed("/a b", Operation::Read, Some("1000"));
        assert_eq!(good.check("secret", at(1000)), Ok(()));
        assert!(good.check("secret", at(1001)).is_err());
        assert!(good.check("other", at(0)).is_err());
        assert!(signed("/a", Operation::Read, Some("1000")).check("secret", at(0)).is_err());
        assert!(signed("/a b", Operation::Write, Some("1000")).check("secret", at(0)).is_err());
        assert!(signed("/a b", Operation::Read, Some("2000")).check("secret", at(0)).is_err());
        assert!(signed("/a b", Operation::Read, None).check("secret", at(0)).is_err());
    }
}
