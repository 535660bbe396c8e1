//! The server as rmcp sees it: who we are, and where each request goes.

use std::borrow::Cow;
use std::sync::Arc;

use exec_tools::environments::Environments;
use exec_tools::shell::Shell;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult, DiscoverResult, ErrorCode,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::approval::{Approvals, Ask};
use crate::call::Call;
use crate::tools::{OfferedTool, ShownArguments};
use crate::{arguments, resources, stdio, tasks, tools};

/// What a client tells its model about us.
const INSTRUCTIONS: &str = "\
Commands on a machine, which go on when you look away. exec_command runs one; if it is not done in time you get a session_id. \
Then: write_stdin types or, with empty chars, looks at what is new; wait_for waits for exit, a pattern, silence or a port; \
read_output shows any part of the output again; kill_session ends it. Nothing printed is lost: what an answer leaves out it \
says, with the call that shows it. search_output greps it where it is, show_screen shows a terminal as a person sees it. \
list_sessions also finds what earlier clients have started. Files: read_file, then edit_file or apply_patch; edit_files changes \
several, all or none; search_files, find_files and list_directory leave out what .gitignore excludes.";

/// An MCP server over some environments. Cheap to clone.
#[derive(Clone)]
pub struct McpServer {
    tools: Arc<Tools>,
}

/// What a server may do, beside what its environments say.
#[derive(Debug, Clone, Default)]
pub struct McpOptions {
    /// When a person is asked first.
    pub ask: Ask,
    /// The sandbox of its environments in words, for models and people; `None` if there is none.
    pub sandbox: Option<String>,
}

/// What tools work with.
pub(crate) struct Tools {
    pub(crate) shell: Shell,
    pub(crate) approvals: Approvals,
    sandbox: Option<String>,
    entries: Vec<OfferedTool>,
}

/// Serves one client on stdin and stdout, until it closes them.
pub async fn serve_stdio(server: McpServer) -> Result<(), std::io::Error> {
    let running = match rmcp::serve_server(server, stdio::transport()).await {
        Ok(running) => running,
        // A client that leaves before it has said anything has not failed.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        // rmcp's own words show the message as Rust has it.
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            let what = "the client's first message was no request; it begins with `initialize`, or with any request of 2026-07-28";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        }
        Err(error) => return Err(std::io::Error::other(error)),
    };
    running.waiting().await.map(drop).map_err(std::io::Error::other)
}

impl McpServer {
    /// A server with all tools over `environments`.
    pub fn new(environments: Arc<dyn Environments>, options: McpOptions) -> Self {
        let McpOptions { ask, sandbox } = options;
        let shown = ShownArguments {
            environment: environments.ids().len() > 1,
            outside_sandbox: sandbox.is_some() && ask != Ask::Never,
        };
        let (shell, approvals) = (Shell::new(environments), Approvals::new(ask));
        Self { tools: Arc::new(Tools { shell, approvals, sandbox, entries: tools::all(shown) }) }
    }
}

/// Our lists have one page, so no cursor is one of ours.
fn only_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor).filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => {
            let what = format!("there is no cursor {cursor:?}: the list has one page, ask without a cursor");
            Err(ErrorData::invalid_params(what, None))
        }
        None => Ok(()),
    }
}

/// What is wrong with the parameters of a method that there is.
fn misshaped(method: &str, params: Value) -> Option<String> {
    fn why<T: DeserializeOwned>(params: Value) -> Option<String> {
        let params = if params.is_null() { Value::Object(Default::default()) } else { params };
        serde_json::from_value::<T>(params).err().map(|error| error.to_string())
    }
    match method {
        "tools/call" => why::<CallToolRequestParams>(params),
        "tools/list" | "resources/list" | "resources/templates/list" => why::<PaginatedRequestParams>(params),
        "resources/read" => why::<ReadResourceRequestParams>(params),
        "tasks/get" => why::<GetTaskParams>(params),
        "tasks/update" => why::<UpdateTaskParams>(params),
        "tasks/cancel" => why::<CancelTaskParams>(params),
        "initialize" => why::<InitializeRequestParams>(params),
        _ => None,
    }
}

impl Tools {
    pub(crate) fn has_several_environments(&self) -> bool {
        self.shell.environments().ids().len() > 1
    }

    /// What the sandbox permits, in words, if there is one.
    pub(crate) fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    /// What a client tells its model: about the tools, what confines them, and the environments if there are several.
    fn instructions(&self) -> String {
        let confined = self.sandbox.as_ref().map(|sandbox| format!(" Commands and files are in a sandbox: {sandbox}."));
        let asks = match self.approvals.ask() {
            Ask::OutsideSandbox => " exec_command with outside_sandbox asks the user first.",
            Ask::Always => " The user is asked before anything is run or changed.",
            Ask::Never => "",
        };
        format!("{INSTRUCTIONS}{}{}{asks}", self.about_environments(), confined.unwrap_or_default())
    }

    fn about_environments(&self) -> String {
        let environments = self.shell.environments();
        let ids = environments.ids();
        if ids.len() < 2 {
            return String::new();
        }
        let default = match environments.default_id() {
            Some(default) => format!("without it, {default}"),
            None => "it must be given".to_owned(),
        };
        let ids = ids.join(", ");
        format!(
            " There are several environments, each with commands and files of its own: {ids}. environment_id says \
             which ({default}). A session_id is enough to find a session, wherever it is."
        )
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let implementation =
            Implementation::new("exec-server", env!("CARGO_PKG_VERSION")).with_title("exec-server: hands on a machine");
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(self.tools.instructions())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let supported =
            ProtocolVersion::KNOWN_VERSIONS.iter().filter(|version| **version >= ProtocolVersion::V_2025_06_18);
        supported.cloned().collect()
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        match stdio::why_refused(&context.meta) {
            Some(error) => Err(error),
            None => {
                let versions = self.supported_protocol_versions().into_owned();
                Ok(DiscoverResult::from_server_info(versions, self.get_info()))
            }
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        only_page(request)?;
        let tools = self.tools.entries.iter().map(|entry| entry.tool.clone());
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.entries.iter().find(|entry| entry.tool.name == name).map(|entry| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.tools.entries.iter().find(|entry| entry.tool.name == request.name) else {
            let known: Vec<&str> = self.tools.entries.iter().map(|entry| &*entry.tool.name).collect();
            let what = format!("there is no tool {:?}: use one of {}", request.name, known.join(", "));
            return Err(ErrorData::invalid_params(what, None));
        };
        let arguments = entry.known.normalized(request.arguments.unwrap_or_default());
        let ignored = entry.known.about_unknown(&request.name, &arguments);
        let input_responses = request.input_responses.unwrap_or_default();
        let name = request.name.into_owned();
        let call = Call { name, arguments, input_responses, request_state: request.request_state, context };
        (entry.run)(&self.tools, &call).await.map(|response| arguments::with_note(response, ignored))
    }

    /// What is no request of the protocol: no such method, or one whose parameters have another shape.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        Err(match misshaped(&method, params.unwrap_or_default()) {
            Some(why) => ErrorData::invalid_params(format!("bad params for {method}: {why}"), None),
            None => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method {method:?} here"), None),
        })
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        only_page(request)?;
        resources::list(&self.tools.shell).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        only_page(request)?;
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&self.tools.shell, &request.uri).await.map(Into::into)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.tools.shell, &request.task_id).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.tools.approvals.ask() == Ask::Always {
            let what = "the user is asked before anything is typed here: use the tool write_stdin";
            return Err(ErrorData::invalid_params(what, None));
        }
        tasks::update(&self.tools.shell, &request.task_id, request.input_responses).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.tools.approvals.ask() == Ask::Always {
            let what = "the user is asked before anything is ended here: use the tool kill_session";
            return Err(ErrorData::invalid_params(what, None));
        }
        tasks::cancel(&self.tools.shell, &request.task_id).await
    }
}
