//! What this wire adds to that of Codex's server, as `environmentInfo.extensions` names it.
//!
//! A method of ours is advertised by its own name, which the table of methods has. What is listed here are members of
//! messages: an extension is named after its method and the member. A server that leaves something out leaves its name out.

use crate::method::{Method, Origin};

/// The name of something that not every server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extension {
    name: &'static str,
    remark: &'static str,
}

macro_rules! members {
    ($($constant:ident $name:literal $remark:literal;)*) => {
        impl Extension {
            $(#[doc = concat!("`", $name, "`")] pub const $constant: Self = Self { name: $name, remark: $remark };)*

            const MEMBERS: &'static [Self] = &[$(Self::$constant,)*];
        }
    };
}

members! {
    INITIALIZE_DETACHED_TTL "initialize.detachedTtlMs" "";
    INITIALIZE_RESUME_FROM "initialize.resumeFrom" "";
    INITIALIZE_BINARY_FRAMES "initialize.binaryFrames" "";
    INITIALIZE_REQUEST_SCOPE "initialize.requestScope" "";
    INITIALIZE_ONLY_IF_HELD "initialize.onlyIfHeld" "";
    INITIALIZE_ROLE "initialize.role" "with `session/attached`";
    INITIALIZE_OUTPUT_WINDOW "initialize.outputWindowBytes" "with `process/acknowledge`";
    START_SIZE "process/start.size" "";
    START_TIMEOUT "process/start.timeoutMs" "";
    START_GRACE "process/start.graceMs" "";
    START_OVERFLOW "process/start.overflow" "";
    START_SPOOL_BYTES "process/start.spoolBytes" "";
    START_KEEP "process/start.keepMs" "";
    START_LIMITS "process/start.limits" "with `limits` in the result and in `process/list`, and `limitsReached` in `exit`";
    START_RUN_AS "process/start.runAs" "";
    START_LABEL "process/start.label" "";
    READ_FIRST_SEQ "process/read.firstSeq" "with `droppedBytes`";
    READ_EXIT "process/read.exit" "";
    READ_HEAD "process/read.head" "";
    LIST_CURSOR "process/list.cursor" "with `nextCursor`";
    LIST_STALLED_BY "process/list.stalledBy" "also in `head` of `process/read`";
    EXITED_EXIT "process/exited.exit" "";
    TERMINATE_GRACE "process/terminate.graceMs" "";
    TERMINATE_KNOWN "process/terminate.known" "";
    SIGNAL_ALL "process/signal.all" "every signal, not only `interrupt`";
    SIGNAL_ID "process/signal.signalId" "";
    SIGNAL_ID_KEPT "process/signal.signalIdKept" "a key outlives the server that was asked with it";
    SIGNAL_STATUS "process/signal.status" "";
    REQUEST_BODY_WINDOW "http/request.bodyWindowBytes" "with `http/acknowledge`";
    OPEN_APPEND "fs/open.append" "with `sizeBytes` in the result and `followSymlinks`";
    WRITE_BLOCK_BINARY "fs/writeBlock.binary" "see [binary frames](#binary-frames)";
    COPY_REPORT "fs/copy.report" "";
    COPY_PROGRESS "fs/copy.progressId" "with `fs/copyProgress`";
    COPY_KEEP_TIMES "fs/copy.keepTimes" "";
    CREATE_DIRECTORY_MODE "fs/createDirectory.mode" "";
    WRITE_FILE_IF_MATCH "fs/writeFile.ifMatch" "";
    WRITE_FILE_APPEND "fs/writeFile.append" "";
    WRITE_FILE_MODE "fs/writeFile.mode" "";
    WRITE_FILE_SYNC "fs/writeFile.sync" "";
    METADATA_MODE "fs/getMetadata.mode" "and everything after it";
    READ_DIRECTORY_PATH "fs/readDirectory.path" "and `isSymlink`";
    READ_DIRECTORY_CURSOR "fs/readDirectory.cursor" "with `maxEntries` and `nextCursor`";
    WALK_IS_SYMLINK "fs/walk.isSymlink" "";
    WALK_CURSOR "fs/walk.cursor" "with `nextCursor`";
    SANDBOX_RUN_AS "sandbox.runAs" "of file calls; see [another user](#another-user)";
    SESSION_LIST_DRIVER "session/list.driver" "with `observers` and `lastActivityMs`";
    SESSION_TAKEN_OVER "session/takenOver" "";
    ENVIRONMENT_ID "environmentId" "every request may name one of the server's environments; see [several environments](#several-environments)";
    ERROR_DATA "error.data" "`error.data` is written";
    OS_TEXT "osText" "words that are not UTF-8 may be `{\"base64\": …}`";
}

impl Extension {
    /// All of them: the methods, then the members.
    pub fn all() -> impl Iterator<Item = Self> {
        let methods = Method::ALL.iter().map(|method| method.spec());
        let own = methods.filter(|spec| spec.behaviour.origin == Origin::Ours).filter_map(|spec| spec.extension());
        own.chain(Self::MEMBERS.iter().copied())
    }

    pub(crate) const fn of_method(name: &'static str) -> Self {
        Self { name, remark: "" }
    }

    pub const fn name(self) -> &'static str {
        self.name
    }

    /// What a client author should know of it beyond its name.
    pub const fn remark(self) -> &'static str {
        self.remark
    }
}

/// The extension that advertises a method. Of a method that every server has, no server advertises it.
impl From<Method> for Extension {
    fn from(method: Method) -> Self {
        method.spec().extension().unwrap_or(Self::of_method(method.name()))
    }
}
