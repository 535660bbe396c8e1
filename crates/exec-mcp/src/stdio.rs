//! Messages on stdin and stdout, one a line; a request that is too long or cannot be read is answered.
//!
//! rmcp drops a line that is no JSON or beyond its bound without a word, and answers one of another shape without an id, so that
//! whoever sent it waits for ever. Here the id of such a line is looked for, in one that is too long as it goes by, without being
//! kept; what goes on to rmcp in its place is a request that the server refuses by that id ([`why_refused`]). A line without an
//! id is rmcp's affair.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, RequestId, RequestMetaObject};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::{StdioReader, StdioWriter, stdio_pipes};
use rmcp::{ErrorData, RoleServer};
use serde_json::error::Category;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

use crate::limits::STDIO_MESSAGE_BYTES;

/// What is said of a request that cannot be carried out, in the metadata of the one that stands for it.
const REFUSED: &str = "exec-server/refused";

/// Longest id that is answered.
const ID_BYTES: usize = 1024;

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

type StdioTransport = AsyncRwTransport<RoleServer, BoundedLines<StdioReader>, StdioWriter>;

pub(crate) fn transport() -> StdioTransport {
    let (reader, writer) = stdio_pipes();
    // Its own bound is never reached.
    AsyncRwTransport::new(BoundedLines::new(reader, STDIO_MESSAGE_BYTES), writer).with_max_line_length(usize::MAX)
}

/// Why a request is to be refused, from its metadata, if it stands for one that cannot be carried out.
pub(crate) fn why_refused(meta: &RequestMetaObject) -> Option<ErrorData> {
    let refused = meta.get(REFUSED)?;
    let code = refused["code"].as_i64().and_then(|code| i32::try_from(code).ok()).map(ErrorCode);
    let why = refused["why"].as_str().unwrap_or_default().to_owned();
    Some(ErrorData::new(code.unwrap_or(ErrorCode::INVALID_REQUEST), why, None))
}

fn too_long() -> ErrorData {
    let why = format!("this message has more than {STDIO_MESSAGE_BYTES} bytes, which is the most: send less at a time");
    ErrorData::invalid_request(why, None)
}

/// What is wrong with a line, if rmcp could make nothing of it.
fn unreadable(line: &[u8]) -> Option<ErrorData> {
    // rmcp passes over a mark of the byte order, too.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let error = serde_json::from_slice::<ClientJsonRpcMessage>(line).err()?;
    Some(match error.classify() {
        Category::Syntax | Category::Eof => ErrorData::parse_error(
            format!("this message is no JSON: {error}; it has to be UTF-8 without escapes for half a character"),
            None,
        ),
        Category::Data | Category::Io => ErrorData::invalid_request(
            format!(
                "this message is no request of JSON-RPC: {error}; `jsonrpc` has to be \"2.0\", `method` a string and `params`, \
                 if there are any, an object"
            ),
            None,
        ),
    })
}

/// The request that goes on in place of the one with this id. It asks what the server is, because that may be asked at any time
/// and decides nothing: any other first request would say that no handshake follows. It has to name a version and what the
/// client can do.
fn refused(id: &RequestId, error: &ErrorData) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "", "version": ""},
        "io.modelcontextprotocol/clientCapabilities": {},
        REFUSED: {"code": error.code, "why": error.message},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": "server/discover", "params": {"_meta": meta}})
}

/// Passes lines on, of which none is longer than `limit`.
pub(crate) struct BoundedLines<R> {
    reader: R,
    limit: usize,
    buffer: Box<[u8]>,
    /// The line under way, as far as it is read; not more than the limit.
    line: Vec<u8>,
    /// It is longer than the limit, and only looked through.
    is_too_long: bool,
    id: IdSearch,
    /// Whole lines, of which `passed` bytes were passed on.
    ready: Vec<u8>,
    passed: usize,
}

impl<R> BoundedLines<R> {
    fn new(reader: R, limit: usize) -> Self {
        Self {
            reader,
            limit,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            line: Vec::new(),
            is_too_long: false,
            id: IdSearch::default(),
            ready: Vec::new(),
            passed: 0,
        }
    }

    fn take(&mut self, read: usize) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let (piece, behind) = rest.split_at(end);
            rest = behind;
            if !self.is_too_long && self.line.len() + piece.len() > self.limit {
                self.is_too_long = true;
                std::mem::take(&mut self.line).into_iter().for_each(|byte| self.id.push(byte));
            }
            match self.is_too_long {
                true => piece.iter().for_each(|byte| self.id.push(*byte)),
                false => self.line.extend_from_slice(piece),
            }
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
        self.buffer = buffer;
    }

    fn end_line(&mut self) {
        let mut search = std::mem::take(&mut self.id);
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let error = match is_too_long {
            true => Some(too_long()),
            false => unreadable(&self.line),
        };
        if let Some(error) = error {
            // Of a line that was too long, nothing is left here.
            self.line.iter().for_each(|byte| search.push(*byte));
            match search.found() {
                Some(id) => {
                    self.line = format!("{}\n", refused(&id, &error)).into_bytes();
                }
                None if is_too_long => tracing::warn!("a message without an id was too long, and is dropped"),
                None => {}
            }
        }
        // A large line is not copied, and leaves no memory behind.
        let mut line = std::mem::take(&mut self.line);
        match self.ready.is_empty() {
            true => self.ready = line,
            false => self.ready.append(&mut line),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.passed == this.ready.len() {
            (this.ready, this.passed) = (Vec::new(), 0);
            let mut into = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.reader).poll_read(context, &mut into))?;
            let read = into.filled().len();
            if read == 0 {
                // What has no line end is no message.
                return Poll::Ready(Ok(()));
            }
            this.take(read);
        }
        let len = buf.remaining().min(this.ready.len() - this.passed);
        buf.put_slice(&this.ready[this.passed..this.passed + len]);
        this.passed += len;
        Poll::Ready(Ok(()))
    }
}

/// Looks for the member `id` of a request that goes by, of which it keeps nothing else.
#[derive(Default)]
struct IdSearch {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The member name that was read last, or what is read of one; no more than a `result` needs.
    name: Vec<u8>,
    reads_name: bool,
    /// What follows `"id":`.
    value: Option<Vec<u8>>,
    done: bool,
    /// It is an answer to a request of ours, with our id and not one of the client's.
    is_answer: bool,
}

impl IdSearch {
    fn push(&mut self, byte: u8) {
        if let Some(value) = self.value.as_mut().filter(|_| !self.done) {
            let ends = !self.in_string && matches!(byte, b',' | b'}' | b'\n');
            match ends {
                true => self.done = true,
                false if value.len() < ID_BYTES => value.push(byte),
                false => {}
            }
        }
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            match ends {
                true => self.in_string = false,
                false if self.reads_name && self.name.len() <= b"result".len() => self.name.push(byte),
                false => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.reads_name = self.depth == 1;
                self.name.clear();
            }
            b':' if self.reads_name => {
                self.reads_name = false;
                match &self.name[..] {
                    b"id" if self.value.is_none() => self.value = Some(Vec::new()),
                    b"result" | b"error" => self.is_answer = true,
                    _ => {}
                }
            }
            b',' => self.reads_name = false,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn found(self) -> Option<RequestId> {
        let value = self.value.filter(|_| !self.is_answer)?;
        serde_json::from_slice(&value).ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn passed(limit: usize, sent: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        BoundedLines::new(sent, limit).read_to_end(&mut read).await.expect("memory can be read");
        read
    }

    async fn passed_text(limit: usize, sent: &str) -> String {
        String::from_utf8(passed(limit, sent.as_bytes()).await).expect("what is sent is UTF-8")
    }

    #[tokio::test]
    async fn a_line_at_the_bound_passes_and_a_longer_one_is_refused_by_its_id() {
        let at_bound = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "x".repeat(100));
        let limit = at_bound.len();
        assert_eq!(passed_text(limit, &at_bound).await, at_bound);
        let behind = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n";
        let long = "y".repeat(1000);
        for (message, id) in [
            (format!("{{\"id\":7,\"params\":{{\"id\":8,\"t\":\"{long}\"}}}}"), "7"),
            (
                format!("{{\"method\":\"m\",\"params\":{{\"id\":[1],\"t\":\"\\\"id\\\":5{long}\"}},\"id\":\"a,b}}\"}}"),
                "\"a,b}\"",
            ),
            (format!("{{\"x\":\"id\", \"t\" : \"{long}\" , \"id\" : -3 }}"), "-3"),
        ] {
            let id = serde_json::from_str(id).expect("the test's ids are JSON");
            let refused = format!("{}\n", refused(&id, &too_long()));
            assert_eq!(passed_text(limit, &format!("{message}\n{behind}")).await, format!("{refused}{behind}"));
        }
        let nobody_to_tell = format!("{{\"method\":\"notifications/x\",\"params\":\"{long}\"}}\n{behind}");
        assert_eq!(passed_text(limit, &nobody_to_tell).await, behind);
        assert_eq!(passed_text(limit, &format!("{behind}{}", "z".repeat(5000))).await, behind);
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_read_is_refused_by_its_id() {
        for (message, id, code) in [
            (&br#"{"jsonrpc":"2.0","id":3,"method":"m","params":{"t":"\ud83d"}}"#[..], json!(3), -32700),
            (b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\",\"params\":{\"t\":\"\xff\"}}", json!("a"), -32700),
            (br#"{"jsonrpc":"2.0","id":4,"method":"m","params":{}"#, json!(4), -32700),
            (br#"{"id":5,"method":"ping"}"#, json!(5), -32600),
            (br#"{"jsonrpc":"2.0","id":6,"method":["m"]}"#, json!(6), -32600),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":"x"}"#, json!(7), -32600),
        ] {
            let read = passed(1 << 10, &[message, b"\n"].concat()).await;
            assert!(unreadable(&read).is_none(), "rmcp can read it");
            let refused: Value = serde_json::from_slice(&read).expect("it is JSON");
            assert_eq!(refused["id"], id, "{}", message.escape_ascii());
            let meta = serde_json::from_value(refused["params"]["_meta"].clone()).expect("it has some");
            assert_eq!(why_refused(&meta).map(|error| error.code), Some(ErrorCode(code)));
        }
        // An answer has our id. The others have none, or none that anybody could be told.
        for message in [
            &br#"{"jsonrpc":"2.0","id":1,"result":"\ud83d"}"#[..],
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}"#,
            br#"{"jsonrpc":"2.0","method":7}"#,
            br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
            b"\xff{",
            b"",
        ] {
            let line = [message, b"\n"].concat();
            assert_eq!(passed(1 << 10, &line).await, line, "{}", message.escape_ascii());
        }
    }
}
