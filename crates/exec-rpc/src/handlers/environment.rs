//! What the environment is and how it is configured.

mod config_layers;

use std::path::PathBuf;

use exec_wire::environment::{
    ConfigReadParams, ConfigReadResult, EnvironmentInfo, InfoParams, StatusParams, StatusResult,
};

use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::LARGE_RESPONSE_BYTES;
use crate::reply;
use config_layers::ConfigFolders;

pub(crate) async fn info(context: RequestContext, _params: InfoParams) -> HandlerResult<EnvironmentInfo> {
    Ok(convert::environment_info(context.connection.server.environment.info()).into())
}

pub(crate) async fn status(_context: RequestContext, _params: StatusParams) -> HandlerResult<StatusResult> {
    Ok(StatusResult { status: "ready".to_owned() }.into())
}

/// The parts of Codex's configuration on this machine that the client asks for: its MCP servers, for one.
pub(crate) async fn config(context: RequestContext, params: ConfigReadParams) -> HandlerResult<ConfigReadResult> {
    if params.config_paths.is_empty() && params.requirements_paths.is_empty() {
        return Err(reply::bad_params("at least one config or requirements path is required"));
    }
    if params.config_paths.iter().chain(&params.requirements_paths).any(Vec::is_empty) {
        return Err(reply::bad_params("TOML paths must contain at least one key segment"));
    }
    let memory = context.connection.reserve_encoded(LARGE_RESPONSE_BYTES).await;
    let info = context.connection.server.environment.info();
    let home = info.home.as_deref();
    let codex_home = std::env::var_os("CODEX_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let codex_home = codex_home.or_else(|| home.map(|home| home.join(".codex"))).unwrap_or_else(|| PathBuf::from("/"));
    let cwd = params.cwd.to_path().unwrap_or_else(|_| PathBuf::from("/"));
    let folders = ConfigFolders { codex_home: &codex_home, cwd: &cwd };
    let config = config_layers::config(&**context.connection.files(), &folders, &params.config_paths).await?;
    let requirements = config_layers::requirements(&**context.connection.files(), &params.requirements_paths).await;
    let result = ConfigReadResult {
        user_home_dir: home.and_then(convert::uri),
        codex_home_dir: convert::uri(&codex_home).unwrap_or_else(convert::root),
        hostname: info.hostname.clone(),
        config,
        requirements,
    };
    Ok(Response { memory, ..result.into() })
}
