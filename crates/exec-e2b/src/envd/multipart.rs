//! `multipart/form-data`, read piece by piece: no part is ever held whole.
//!
//! ```text
//!   preamble ──► "--boundary" ──┬─ CRLF ──► headers ──► content ──► CRLF "--boundary" ──┐
//!                    ▲          └─ "--" ──► end                                        │
//!                    └─────────────────────────────────────────────────────────────────┘
//! ```

use bytes::{Bytes, BytesMut};
use memchr::memmem;

use crate::error::ServiceError;
use crate::limits::{BOUNDARY_BYTES, PART_HEADER_BYTES, PARTS};

/// The parser: it is given pieces, and gives back what they contain.
pub(super) struct Multipart {
    /// With the line end and the dashes before it.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
    parts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Preamble,
    /// Behind a boundary: a line end, or the dashes of the last.
    Boundary,
    Headers,
    Content,
    Ended,
}

/// What a body contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A part begins.
    Begin { name: Option<String>, file_name: Option<String> },
    /// Some of its content.
    Content(Bytes),
    /// It is complete.
    End,
}

impl Multipart {
    /// `None` if that is no multipart form, or has no usable boundary.
    pub(super) fn of_content_type(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameter(parameters, "boundary")?;
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES {
            return None;
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first boundary may stand at the very beginning; with this it always has a line end before it.
        Some(Self { delimiter, buffer: BytesMut::from("\r\n"), state: State::Preamble, parts: 0 })
    }

    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next thing in what was fed; `None` if more must be fed first.
    pub(super) fn next(&mut self) -> Result<Option<Part>, ServiceError> {
        loop {
            match self.state {
                State::Ended => {
                    self.buffer.clear();
                    return Ok(None);
                }
                State::Preamble => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(at) => self.after_delimiter(at),
                    None => {
                        let keep = self.buffer.len().min(self.delimiter.len() - 1);
                        let _ = self.buffer.split_to(self.buffer.len() - keep);
                        return Ok(None);
                    }
                },
                State::Boundary => {
                    // Blanks may follow a boundary on its line.
                    let blanks = self.buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                    if blanks > BOUNDARY_BYTES {
                        return Err(ServiceError::invalid("a multipart boundary is followed by too many blanks"));
                    }
                    match self.buffer.get(blanks..blanks + 2) {
                        None => return Ok(None),
                        Some(b"--") => self.state = State::Ended,
                        Some(b"\r\n") => {
                            let _ = self.buffer.split_to(blanks);
                            self.state = State::Headers;
                        }
                        Some(_) => {
                            return Err(ServiceError::invalid("a multipart boundary is not at the end of its line"));
                        }
                    }
                }
                State::Headers => {
                    // The buffer begins with the line end of the boundary, so that a part without headers ends at once.
                    let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") else {
                        if self.buffer.len() > PART_HEADER_BYTES {
                            let message = format!("the headers of a part have more than {PART_HEADER_BYTES} bytes");
                            return Err(ServiceError::invalid(message));
                        }
                        return Ok(None);
                    };
                    self.parts += 1;
                    if self.parts > PARTS {
                        return Err(ServiceError::invalid(format!("a body may have {PARTS} parts, and this has more")));
                    }
                    let headers = self.buffer.split_to(end + 4);
                    self.state = State::Content;
                    return Ok(Some(begin(&headers[..end])));
                }
                State::Content => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(0) => {
                        self.after_delimiter(0);
                        return Ok(Some(Part::End));
                    }
                    Some(at) => return Ok(Some(Part::Content(self.buffer.split_to(at).freeze()))),
                    None => {
                        // The last bytes may be the beginning of a boundary.
                        let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
                        return Ok((sure > 0).then(|| Part::Content(self.buffer.split_to(sure).freeze())));
                    }
                },
            }
        }
    }

    /// Whether the last boundary was there. Without it the body was cut.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Ended
    }

    fn after_delimiter(&mut self, at: usize) {
        let _ = self.buffer.split_to(at + self.delimiter.len());
        self.state = State::Boundary;
    }
}

fn begin(headers: &[u8]) -> Part {
    let headers = String::from_utf8_lossy(headers);
    for line in headers.lines() {
        if let Some((name, value)) = line.split_once(':')
            && name.trim().eq_ignore_ascii_case("content-disposition")
            && let Some((_, parameters)) = value.split_once(';')
        {
            let name = parameter(parameters, "name");
            let file_name = extended_parameter(parameters, "filename*").or_else(|| parameter(parameters, "filename"));
            return Part::Begin { name, file_name };
        }
    }
    Part::Begin { name: None, file_name: None }
}

/// The value of `NAME=value` or `NAME="value"` in a list of parameters. In quotes, a backslash or the escapes of browsers (`%22`)
/// stand for what a name could not have otherwise.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after;
    }
}

/// A quoted text and what comes behind it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let value = value.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n");
                return Some((value, &quoted[at + 1..]));
            }
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => return None,
            },
            other => value.push(other),
        }
    }
    None
}

/// `filename*=UTF-8''escaped`
fn extended_parameter(parameters: &str, wanted: &str) -> Option<String> {
    let value = parameter(parameters, wanted)?;
    let (charset, rest) = value.split_once('\'')?;
    let (_, escaped) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    percent_encoding::percent_decode_str(escaped).decode_utf8().ok().map(|name| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"ignored\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/x y\"\r\n\
        Content-Type: text/plain\r\n\r\none\r\n--not\r\ntwo\r\n--b\r\nContent-Disposition: form-data; name=file; \
        filename*=UTF-8''%C3%A4; filename=\"a\"\r\n\r\n\r\n--b--\r\nepilogue";

    type NamedContent = (Option<String>, Vec<u8>);

    /// Names and contents of all parts, fed in pieces of this size, and whether they were all.
    fn parts(body: &[u8], size: usize) -> Result<(Vec<NamedContent>, bool), ServiceError> {
        let mut parser = Multipart::of_content_type("multipart/form-data; boundary=b").expect("it has a boundary");
        let (mut found, mut current) = (Vec::new(), None);
        for piece in body.chunks(size) {
            parser.feed(piece);
            while let Some(part) = parser.next()? {
                match part {
                    Part::Begin { file_name, .. } => current = Some((file_name, Vec::new())),
                    Part::Content(bytes) => current.as_mut().expect("it has begun").1.extend_from_slice(&bytes),
                    Part::End => found.extend(current.take()),
                }
            }
        }
        Ok((found, parser.is_complete()))
    }

    #[test]
    fn parts_are_the_same_however_the_body_is_cut() {
        let expected =
            vec![(Some("/a/x y".to_owned()), b"one\r\n--not\r\ntwo".to_vec()), (Some("ä".to_owned()), Vec::new())];
        for size in 1..=BODY.len() {
            assert_eq!(parts(BODY, size), Ok((expected.clone(), true)), "pieces of {size}");
        }
    }

    #[test]
    fn a_body_that_was_cut_is_not_complete() {
        for end in 0..BODY.len() - "\r\nepilogue".len() {
            let parsed = parts(&BODY[..end], 7);
            assert!(parsed.is_ok_and(|(_, complete)| !complete), "cut at {end}");
        }
    }

    #[test]
    fn headers_without_end_are_refused() {
        let mut body = b"--b\r\n".to_vec();
        body.resize(2 * PART_HEADER_BYTES, b'x');
        assert!(parts(&body, 1000).is_err());
        assert!(parts(b"--bx\r\n", 3).is_err());
    }

    #[test]
    fn names_are_unquoted() {
        assert_eq!(parameter("name=\"a\\\"b\"; filename=\"c;d%22\"", "filename"), Some("c;d\"".to_owned()));
        assert_eq!(parameter(" boundary=x ; charset=y", "boundary"), Some("x".to_owned()));
        assert_eq!(parameter("name=\"open", "name"), None);
        assert!(Multipart::of_content_type("text/plain; boundary=x").is_none());
    }
}
