//! What the environment is and how it is configured.

use exec_wire::environment::{
    ConfigReadParams, ConfigReadResult, ConfigStack, EnvironmentInfo, InfoParams, StatusParams, StatusResult,
};

use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext};
use crate::reply;

pub(crate) async fn info(context: RequestContext, _params: InfoParams) -> HandlerResult<EnvironmentInfo> {
    Ok(convert::environment_info(context.connection.server.environment.info()).into())
}

pub(crate) async fn status(_context: RequestContext, _params: StatusParams) -> HandlerResult<StatusResult> {
    Ok(StatusResult { status: "ready".to_owned() }.into())
}

/// There is no Codex configuration here, so every stack is empty. The request must be valid all the same.
pub(crate) async fn config(context: RequestContext, params: ConfigReadParams) -> HandlerResult<ConfigReadResult> {
    if params.config_paths.is_empty() && params.requirements_paths.is_empty() {
        return Err(reply::bad_params("at least one config or requirements path is required"));
    }
    if params.config_paths.iter().chain(&params.requirements_paths).any(Vec::is_empty) {
        return Err(reply::bad_params("TOML paths must contain at least one key segment"));
    }
    let info = context.connection.server.environment.info();
    let home = info.home.as_deref();
    let codex_home = std::env::var_os("CODEX_HOME").map(std::path::PathBuf::from).filter(|path| path.is_absolute());
    let codex_home = codex_home.or_else(|| home.map(|home| home.join(".codex")));
    Ok(ConfigReadResult {
        user_home_dir: home.and_then(convert::uri),
        codex_home_dir: codex_home.as_deref().and_then(convert::uri).unwrap_or_else(convert::root),
        hostname: info.hostname.clone(),
        config: ConfigStack::default(),
        requirements: ConfigStack::default(),
    }
    .into())
}
