//! What the environments are, which there are, and how one is configured.

mod config_layers;

use std::path::PathBuf;
use std::time::Duration;

use exec_env::MachineInfo;
use exec_env::registry::{LOCAL, NewEnvironment, RemoveEnvironmentError};
use exec_wire::environment::{
    AddParams, AddResult, ConfigReadParams, ConfigReadResult, EnvironmentInfo, InfoParams, ListParams, ListResult,
    RemoveParams, RemoveResult, StatusParams, StatusResult,
};
use exec_wire::error::RpcError;

use crate::audit::AuditEvent;
use crate::convert;
use crate::dispatch::{HandlerResult, RequestContext, Response};
use crate::limits::LARGE_RESPONSE_BYTES;
use crate::reply;
use crate::routing;
use config_layers::ConfigFolders;

pub(crate) async fn info(context: RequestContext, _params: InfoParams) -> HandlerResult<EnvironmentInfo> {
    Ok(convert::environment_info(&machine_info(&context).await?).into())
}

/// What the machine of the environment is that the request names. Connects to it if it must.
async fn machine_info(context: &RequestContext) -> Result<MachineInfo, RpcError> {
    let server = &context.connection.server;
    let environment = server.environment(context.environment_id.as_deref())?;
    let _ = context.carried_out_in.set(environment.id.clone());
    match server.routing.registry().info(&environment.id).await {
        Some(info) => info.map_err(|error| reply::process_error(error.into(), "")),
        // It was taken away a moment ago.
        None => server.environment(Some(&environment.id)).map(|environment| environment.environment.info().clone()),
    }
}

/// Asks nobody, so that a client can look at places that do not answer.
pub(crate) async fn status(context: RequestContext, _params: StatusParams) -> HandlerResult<StatusResult> {
    let registry = context.connection.server.routing.registry();
    let id = context.environment_id.clone().or_else(|| registry.default_id());
    Ok(routing::status_result(id.and_then(|id| registry.status(&id))).into())
}

pub(crate) async fn list(context: RequestContext, _params: ListParams) -> HandlerResult<ListResult> {
    let memory = context.connection.reserve_encoded(LARGE_RESPONSE_BYTES).await;
    let listed = context.connection.server.routing.registry().list();
    Ok(Response { memory, ..ListResult { environments: listed.into_iter().map(routing::entry).collect() }.into() })
}

pub(crate) async fn add(context: RequestContext, params: AddParams) -> HandlerResult<AddResult> {
    let server = &context.connection.server;
    server.allow_environment_changes()?;
    let place = NewEnvironment {
        url: params.exec_server_url,
        bearer_token: params.auth_bearer_token,
        connect_timeout: params.connect_timeout_ms.map(Duration::from_millis),
    };
    let id = params.environment_id;
    server.routing.registry().add(&id, place).map_err(|error| reply::bad_params(error.to_string()))?;
    audit_change(&context, &id, true).await;
    server.recover_environment(&id);
    Ok(AddResult {}.into())
}

pub(crate) async fn remove(context: RequestContext, params: RemoveParams) -> HandlerResult<RemoveResult> {
    let server = &context.connection.server;
    server.allow_environment_changes()?;
    match server.routing.registry().remove(&params.environment_id) {
        Ok(()) => {
            server.routing.set_asked(&params.environment_id);
            audit_change(&context, &params.environment_id, false).await;
            Ok(RemoveResult { removed: true }.into())
        }
        Err(RemoveEnvironmentError::Unknown { .. }) => Ok(RemoveResult { removed: false }.into()),
        Err(needed @ RemoveEnvironmentError::Needed { .. }) => Err(reply::bad_params(needed.to_string())),
    }
}

async fn audit_change(context: &RequestContext, id: &str, added: bool) {
    let server = &context.connection.server;
    let Some(audit) = server.audit() else { return };
    let place = server.routing.registry().status(id).map(|status| status.place);
    let (session, environment) = (context.session.id.clone(), id.to_owned());
    audit
        .record(match added {
            true => AuditEvent::EnvironmentAdded { session, environment, place: place.unwrap_or_default() },
            false => AuditEvent::EnvironmentRemoved { session, environment },
        })
        .await;
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
    let environment = context.environment()?;
    let info = context.connection.server.routing.registry().info(&environment.id).await;
    let info = info.transpose().map_err(|error| reply::process_error(error.into(), ""))?;
    let info = info.unwrap_or_else(|| environment.environment.info().clone());
    let home = info.home.as_deref();
    // A variable of ours says nothing about another machine.
    let variable = std::env::var_os("CODEX_HOME").filter(|_| &*environment.id == LOCAL);
    let codex_home = variable.map(PathBuf::from).filter(|path| path.is_absolute());
    let codex_home = codex_home.or_else(|| home.map(|home| home.join(".codex"))).unwrap_or_else(|| PathBuf::from("/"));
    let cwd = params.cwd.to_path().unwrap_or_else(|_| PathBuf::from("/"));
    let folders = ConfigFolders { codex_home: &codex_home, cwd: &cwd };
    let files = context.connection.files(&environment);
    let config = config_layers::config(&*files, &folders, &params.config_paths).await?;
    let requirements = config_layers::requirements(&*files, &params.requirements_paths).await;
    let result = ConfigReadResult {
        user_home_dir: home.and_then(convert::uri),
        codex_home_dir: convert::uri(&codex_home).unwrap_or_else(convert::root),
        hostname: info.hostname.clone(),
        config,
        requirements,
    };
    Ok(Response { memory, ..result.into() })
}
