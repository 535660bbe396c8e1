//! Contents of files by plain HTTP: `GET /files` and `POST /files`.
//!
//! Both ways a file is moved block by block, and neither side holds it. A file is written where it is, as envd does: watchers are
//! told of a write, and mode, owner and links stay. Whoever reads it meanwhile may see a part of it.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use exec_env::files::{FileKind, LinkPolicy, OpenFile, OpenMode};
use flate2::write::GzDecoder;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};

use super::entry::{METADATA_PREFIX, name_of};
use super::filesystem::make_parents;
use super::multipart::{Multipart, Part};
use super::signature::{Operation, Signed};
use super::{Call, carries_token, named_sandbox, sandbox_name, unauthorized};
use crate::error::{Code, ServiceError};
use crate::limits::{BLOCK_BYTES, GZIP_PIECE_BYTES};
use crate::request_body::{BodyPieces, RequestBody};
use crate::response::{self, HttpResponse};
use crate::sandbox::{Sandbox, UserFiles};
use crate::sandboxes::E2bServer;

pub(super) async fn answer(
    request: Request<RequestBody>,
    server: &Arc<E2bServer>,
) -> Result<HttpResponse, ServiceError> {
    let (head, body) = request.into_parts();
    let query = parse_query(head.uri.query().unwrap_or_default());
    let operation = if head.method == Method::GET { Operation::Read } else { Operation::Write };
    let sandbox = signed_or_authorized_sandbox(&head.headers, &query, operation, server).await?;
    let user = query.get("username").filter(|name| !name.is_empty()).cloned();
    let call = Call { server: Arc::clone(server), sandbox, user, headers: head.headers };
    match operation {
        Operation::Read => read(&call, query.get("path").map(String::as_str)).await,
        Operation::Write => write(&call, query.get("path").map(String::as_str), body).await,
    }
}

/// A signature names its sandbox, too: whoever opens a signed URL sends none of our headers.
async fn signed_or_authorized_sandbox(
    headers: &HeaderMap,
    query: &HashMap<String, String>,
    operation: Operation,
    server: &E2bServer,
) -> Result<Arc<Sandbox>, ServiceError> {
    let part = |name: &str| query.get(name).map(String::as_str);
    let Some(signature) = part("signature") else {
        let sandbox = named_sandbox(headers, server).await?;
        return if carries_token(headers, &sandbox) { Ok(sandbox) } else { Err(unauthorized()) };
    };
    let signed = Signed {
        path: part("path").unwrap_or_default(),
        operation,
        user: part("username").unwrap_or_default(),
        signature,
        expiration: part("signature_expiration"),
    };
    let made_with = |sandbox: &Sandbox| sandbox.access_token().is_some_and(|token| signed.is_made_with(&token));
    let sandbox = match sandbox_name(headers) {
        Some(_) => Some(named_sandbox(headers, server).await?),
        None => server.list().into_iter().find(|sandbox| made_with(sandbox)),
    };
    let (sandbox, token) =
        sandbox.and_then(|sandbox| sandbox.access_token().map(|token| (sandbox, token))).ok_or_else(|| {
            ServiceError::new(Code::Unauthenticated, "the signature of the URL is of no sandbox that there is")
        })?;
    signed.check(&token, SystemTime::now())?;
    Ok(sandbox)
}

fn parse_query(query: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

async fn read(call: &Call, path: Option<&str>) -> Result<HttpResponse, ServiceError> {
    let files = call.files().await?;
    let path = files.resolve(path.ok_or_else(|| ServiceError::invalid("the query has no path"))?).await?;
    let metadata = files.metadata(&path, LinkPolicy::Follow).await?;
    if metadata.kind == FileKind::Directory {
        return Err(ServiceError::invalid(format!("path '{}' is a directory", path.display())));
    }
    let file = files.open(&path, OpenMode::Read, LinkPolicy::Follow).await?;
    let reader = FileReader { file, offset: 0, ended: false };
    let compressed = accepts_gzip(&call.headers);
    let mut answer = match compressed {
        true => {
            let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            let pieces =
                futures_util::stream::unfold((reader, Some(encoder)), |(mut reader, mut encoder)| async move {
                    let piece = reader.next_compressed(&mut encoder).await.transpose()?;
                    Some((piece, (reader, encoder)))
                });
            response::streamed("application/octet-stream", pieces)
        }
        false => {
            let pieces = futures_util::stream::unfold(reader, |mut reader| async move {
                let piece = reader.next().await.transpose()?;
                Some((piece, reader))
            });
            response::streamed("application/octet-stream", pieces)
        }
    };
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if compressed {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(answer)
}

/// Only who asks for nothing else gets it: on a loopback compression costs more than it saves, and clients name it by default.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT_ENCODING).is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"gzip"))
}

struct FileReader {
    file: Box<dyn OpenFile>,
    offset: u64,
    ended: bool,
}

type PieceError = Box<dyn std::error::Error + Send + Sync>;

impl FileReader {
    /// An error breaks the response, which had no length, so that nobody takes the part for the whole.
    async fn next(&mut self) -> Result<Option<Bytes>, PieceError> {
        if self.ended {
            return Ok(None);
        }
        let block = self.file.read_block(self.offset, BLOCK_BYTES).await?;
        self.offset += block.bytes.len() as u64;
        self.ended = block.eof;
        Ok((!block.bytes.is_empty()).then_some(block.bytes))
    }

    async fn next_compressed(
        &mut self,
        encoder: &mut Option<flate2::write::GzEncoder<Vec<u8>>>,
    ) -> Result<Option<Bytes>, PieceError> {
        loop {
            let Some(active) = encoder.as_mut() else { return Ok(None) };
            match self.next().await? {
                Some(block) => active.write_all(&block)?,
                None => {
                    let last = encoder.take().map(|encoder| encoder.finish()).transpose()?;
                    return Ok(last.map(Bytes::from));
                }
            }
            let done = std::mem::take(active.get_mut());
            if !done.is_empty() {
                return Ok(Some(done.into()));
            }
        }
    }
}

async fn write(call: &Call, path: Option<&str>, body: RequestBody) -> Result<HttpResponse, ServiceError> {
    let content_type = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let pieces = BodyPieces::new(body);
    let written = match Multipart::of_content_type(content_type) {
        Some(form) => write_form(call, path, form, pieces).await?,
        None if content_type.to_ascii_lowercase().starts_with("multipart/") => {
            return Err(ServiceError::invalid("the multipart body has no usable boundary"));
        }
        None => {
            let path = path.ok_or_else(|| ServiceError::invalid("the query has no path"))?;
            vec![write_raw(call, path, pieces).await?]
        }
    };
    Ok(response::json(StatusCode::OK, &Value::Array(written)))
}

/// The body is the content, gzipped if it says so.
async fn write_raw(call: &Call, path: &str, mut pieces: BodyPieces) -> Result<Value, ServiceError> {
    let encoding = call.headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
    let mut decoder = match encoding.as_deref() {
        None | Some(b"identity") => None,
        Some(b"gzip") => Some(GzDecoder::new(Vec::new())),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(ServiceError::unimplemented(format!(
                "the encoding {other:?} is not supported: use gzip or none"
            )));
        }
    };
    let mut writer = FileWriter::open(call, path).await?;
    let bad = |error: std::io::Error| ServiceError::invalid(format!("the body is not gzip: {error}"));
    while let Some(piece) = pieces.next().await? {
        match &mut decoder {
            None => writer.push(&piece).await?,
            Some(decoder) => {
                // A small piece of the input may become a thousand times as much; it is written out as it comes.
                for part in piece.chunks(GZIP_PIECE_BYTES) {
                    decoder.write_all(part).map_err(bad)?;
                    writer.push(&std::mem::take(decoder.get_mut())).await?;
                }
            }
        }
    }
    if let Some(decoder) = decoder {
        let rest = decoder.finish().map_err(bad)?;
        writer.push(&rest).await?;
    }
    writer.close().await
}

/// Each part `file` is a file. A single one has the path of the query; several are named by their own.
async fn write_form(
    call: &Call,
    path: Option<&str>,
    mut form: Multipart,
    mut pieces: BodyPieces,
) -> Result<Vec<Value>, ServiceError> {
    let mut written = Vec::new();
    let mut current: Option<FileWriter> = None;
    while let Some(piece) = pieces.next().await? {
        form.feed(&piece);
        while let Some(part) = form.next()? {
            match part {
                Part::Begin { name, file_name } => {
                    if name.as_deref() != Some("file") {
                        continue;
                    }
                    let path = match (path, file_name) {
                        (Some(_), _) if !written.is_empty() => {
                            return Err(ServiceError::invalid("the query has a path, and the body several files"));
                        }
                        (Some(path), _) => path.to_owned(),
                        (None, Some(name)) if !name.is_empty() => name,
                        _ => {
                            return Err(ServiceError::invalid(
                                "a file has no path: neither in the query nor as its name",
                            ));
                        }
                    };
                    current = Some(FileWriter::open(call, &path).await?);
                }
                Part::Content(bytes) => {
                    if let Some(writer) = &mut current {
                        writer.push(&bytes).await?;
                    }
                }
                Part::End => {
                    if let Some(writer) = current.take() {
                        written.push(writer.close().await?);
                    }
                }
            }
        }
    }
    if !form.is_complete() {
        return Err(ServiceError::invalid("the multipart body ends before its last boundary: the file may be a part"));
    }
    match written.is_empty() {
        true => Err(ServiceError::invalid("the multipart body has no part `file`")),
        false => Ok(written),
    }
}

/// A file that is being written, in blocks.
struct FileWriter {
    files: UserFiles,
    path: PathBuf,
    metadata: BTreeMap<String, String>,
    file: Box<dyn OpenFile>,
    offset: u64,
    block: BytesMut,
}

impl FileWriter {
    async fn open(call: &Call, path: &str) -> Result<Self, ServiceError> {
        let files = call.files().await?;
        let path = files.resolve(path).await?;
        let metadata = metadata_of(&call.headers)?;
        match files.metadata(&path, LinkPolicy::Follow).await {
            Ok(metadata) if metadata.kind == FileKind::Directory => {
                return Err(ServiceError::invalid(format!("path '{}' is a directory", path.display())));
            }
            Err(error) if error.is_not_found() => make_parents(&files, &path).await?,
            _ => {}
        }
        let file = files.open(&path, OpenMode::Replace, LinkPolicy::Follow).await?;
        Ok(Self { files, path, metadata, file, offset: 0, block: BytesMut::new() })
    }

    async fn push(&mut self, mut bytes: &[u8]) -> Result<(), ServiceError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ServiceError> {
        let block = self.block.split().freeze();
        if block.is_empty() {
            return Ok(());
        }
        let bytes = block.len() as u64;
        self.file.write_block(self.offset, block).await?;
        self.offset += bytes;
        Ok(())
    }

    async fn close(mut self) -> Result<Value, ServiceError> {
        self.flush().await?;
        self.file.close().await?;
        let mut written = json!({ "path": self.path.to_string_lossy(), "name": name_of(&self.path), "type": "file" });
        if !self.metadata.is_empty() {
            let attribute = |(name, value): (&String, &String)| {
                (format!("{METADATA_PREFIX}{name}").into(), Some(Bytes::from(value.clone())))
            };
            let attributes = self.metadata.iter().map(attribute).collect();
            self.files.set_attributes(&self.path, attributes, LinkPolicy::Follow).await?;
            written["metadata"] = json!(self.metadata);
        }
        Ok(written)
    }
}

/// The headers `X-Metadata-NAME`, whose names are in lower case here whatever the client wrote.
fn metadata_of(headers: &HeaderMap) -> Result<BTreeMap<String, String>, ServiceError> {
    let mut metadata = BTreeMap::new();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix("x-metadata-") else { continue };
        match value.to_str() {
            Ok(value) if !name.is_empty() => drop(metadata.insert(name.to_owned(), value.to_owned())),
            _ => return Err(ServiceError::invalid(format!("the metadata {name:?} has no name, or no plain text"))),
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = parse_query("path=%2Fa%20b+c&username=&x&path2=%ff");
        assert_eq!(query.get("path").map(String::as_str), Some("/a b c"));
        assert_eq!(query.get("username").map(String::as_str), Some(""));
        assert_eq!(query.get("x"), None);
    }
}
