//! The table of all methods: name, params, result, and whether a client must have asked for experimental ones.
//!
//! A request is decoded here into a [`Call`], and nobody looks at its shape again. The order of the checks is Codex's:
//! an unknown method, then params that do not decode, then (in `connection`) the handshake, then experimental methods.

use exec_wire::RpcError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::shapes::*;
use crate::{params, reply};

/// A row of the table.
pub(crate) trait Method {
    type Result: Serialize;
}

macro_rules! methods {
    ($($variant:ident $name:literal ($params:ty) -> $result:ty, $stability:ident;)*) => {
        /// A request with its params.
        #[derive(Debug)]
        pub(crate) enum Call {
            $($variant($params),)*
        }

        $(
            #[derive(Debug)]
            pub(crate) struct $variant;

            impl Method for $variant {
                type Result = $result;
            }
        )*

        /// All names, in the order in which an unknown one is answered.
        const NAMES: &[&str] = &[$($name),*];

        impl Call {
            pub(crate) fn decode(method: &str, params: Option<&str>) -> Result<Self, RpcError> {
                match method {
                    $($name => Ok(Self::$variant(decode_params(params)?)),)*
                    unknown => Err(reply::unknown_method(unknown, NAMES)),
                }
            }

            /// What an experimental client alone may call or say: the method, or one of its members.
            pub(crate) fn experimental_part(&self) -> Option<&'static str> {
                match self {
                    Self::CommandExec(params) if params.permission_profile.is_some() => {
                        Some("command/exec.permissionProfile")
                    }
                    $(Self::$variant(_) => methods!(@$stability $name),)*
                }
            }
        }
    };
    (@stable $name:literal) => { None };
    (@experimental $name:literal) => { Some($name) };
}

methods! {
    Initialize "initialize" (InitializeParams) -> InitializeResponse, stable;
    CommandExec "command/exec" (CommandExecParams) -> CommandExecResponse, stable;
    CommandExecWrite "command/exec/write" (CommandExecWriteParams) -> Empty, stable;
    CommandExecTerminate "command/exec/terminate" (CommandExecTerminateParams) -> Empty, stable;
    CommandExecResize "command/exec/resize" (CommandExecResizeParams) -> Empty, stable;
    ProcessSpawn "process/spawn" (ProcessSpawnParams) -> Empty, experimental;
    ProcessWriteStdin "process/writeStdin" (ProcessWriteStdinParams) -> Empty, experimental;
    ProcessKill "process/kill" (ProcessKillParams) -> Empty, experimental;
    ProcessResizePty "process/resizePty" (ProcessResizePtyParams) -> Empty, experimental;
    FsReadFile "fs/readFile" (FsReadFileParams) -> FsReadFileResponse, stable;
    FsWriteFile "fs/writeFile" (FsWriteFileParams) -> Empty, stable;
    FsCreateDirectory "fs/createDirectory" (FsCreateDirectoryParams) -> Empty, stable;
    FsGetMetadata "fs/getMetadata" (FsGetMetadataParams) -> FsGetMetadataResponse, stable;
    FsReadDirectory "fs/readDirectory" (FsReadDirectoryParams) -> FsReadDirectoryResponse, stable;
    FsRemove "fs/remove" (FsRemoveParams) -> Empty, stable;
    FsCopy "fs/copy" (FsCopyParams) -> Empty, stable;
    FsWatch "fs/watch" (FsWatchParams) -> FsWatchResponse, stable;
    FsUnwatch "fs/unwatch" (FsUnwatchParams) -> Empty, stable;
    EnvironmentAdd "environment/add" (EnvironmentAddParams) -> Empty, experimental;
    EnvironmentStatus "environment/status" (EnvironmentStatusParams) -> EnvironmentStatusResponse, experimental;
    EnvironmentInfo "environment/info" (EnvironmentInfoParams) -> EnvironmentInfoResponse, experimental;
}

fn decode_params<T: DeserializeOwned>(text: Option<&str>) -> Result<T, RpcError> {
    let text = text.ok_or_else(|| reply::invalid_request("missing field `params`"))?;
    params::decode(text).map_err(|why| reply::invalid_request(&why))
}
