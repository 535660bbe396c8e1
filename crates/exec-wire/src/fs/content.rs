//! Contents: whole files, and files in blocks.

use crate::base64::{Base64, Base64OrError};
use crate::empty::empty_results;
use crate::initialize::is_false;
use crate::path_uri::PathUri;
use crate::sandbox::SandboxContext;
use crate::shape::{Nullable, shapes};

shapes! {
    /// The whole of a regular file.
    #[serde(expecting = "struct WireFsReadFileParams")]
    pub struct ReadFileParams {
        pub path: PathUri,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    pub struct ReadFileResult {
        pub data_base64: Base64,
    }

    /// Replaces a file, whole or not at all.
    #[serde(expecting = "struct WireFsWriteFileParams")]
    pub struct WriteFileParams {
        pub path: PathUri,
        /// Its new bytes. Text that is no base64 is answered by -32600, after the handshake is checked.
        #[schemars(with = "Base64")]
        pub data_base64: Base64OrError,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: add to the end instead.
        #[serde(default, skip_serializing_if = "is_false")]
        pub append: bool,
        /// Ours: write only if the file's BLAKE3 is this (64 hex digits), or, for `absent`, if there is no file.
        pub if_match: Option<String>,
        /// Ours: permission bits of the result; as they were if absent.
        pub mode: Option<u32>,
        /// Ours: answer only when the bytes would survive a power cut.
        #[serde(default, skip_serializing_if = "is_false")]
        pub sync: bool,
    }

    /// Ours: the hash of a regular file of any size. The server reads the file, and sends none of it.
    #[serde(expecting = "struct FsHashParams")]
    pub struct HashParams {
        pub path: PathUri,
        pub algorithm: HashAlgorithm,
        /// Whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
    }

    /// How a file is hashed. Each has 256 bits.
    pub enum HashAlgorithm {
        Blake3,
        Sha256,
    }

    pub struct HashResult {
        /// The one that was asked for.
        pub algorithm: HashAlgorithm,
        /// 64 hexadecimal digits, in lower case.
        pub hash: String,
        /// How many bytes were hashed.
        pub size_bytes: u64,
    }

    /// A file to be read or written in blocks. It belongs to the connection.
    #[serde(expecting = "struct WireFsOpenParams")]
    pub struct OpenParams {
        /// The id that the client gives the handle; at most [`crate::limits::HANDLE_ID_BYTES`].
        pub handle_id: String,
        pub path: PathUri,
        #[serde(default)]
        pub mode: OpenMode,
        /// The sandbox of this call; no sandbox if absent.
        #[serde(default, deserialize_with = "crate::sandbox::of_file_call")]
        pub sandbox: Nullable<SandboxContext>,
        /// Ours: whether links may be followed; true if absent.
        pub follow_symlinks: Option<bool>,
    }

    /// What a file is opened for.
    #[derive(Default)]
    pub enum OpenMode {
        /// Reading; the file must exist.
        #[default]
        Read,
        /// Writing from nothing: created, or emptied at once.
        Replace,
        /// Ours: writing on: created, or kept as it is.
        Append,
    }

    pub struct OpenResult {
        /// The id that the client gave.
        pub handle_id: String,
        /// Ours: its size at that moment.
        pub size_bytes: Option<u64>,
    }

    /// A block to read. Where binary frames were granted, the answer is one of them.
    #[serde(expecting = "struct FsReadBlockParams")]
    pub struct ReadBlockParams {
        pub handle_id: String,
        pub offset: u64,
        /// 1 to [`crate::limits::BLOCK_BYTES`].
        pub len: usize,
    }

    pub struct ReadBlockResult {
        pub chunk: Base64,
        /// Whether fewer bytes were there than asked for.
        pub eof: bool,
    }

    /// A block to write.
    #[serde(expecting = "struct FsWriteBlockParams")]
    pub struct WriteBlockParams {
        pub handle_id: String,
        pub offset: u64,
        /// 1 to [`crate::limits::BLOCK_BYTES`].
        pub chunk: Base64,
    }

    /// Lets go of an open file.
    #[serde(expecting = "struct FsCloseParams")]
    pub struct CloseParams {
        pub handle_id: String,
    }
}

empty_results! {
    /// The file is written.
    WriteFileResult,
    /// The block is written.
    WriteBlockResult,
    /// The file is closed, or was never open.
    CloseResult,
}
