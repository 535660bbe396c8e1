//! The table of tools: what a client is told of each, and what is called. A family of tools is a file.

mod files;
pub(crate) mod process;
mod view;

use std::sync::Arc;

use exec_env::BoxFuture;
use rmcp::ErrorData;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::KnownArguments;
use crate::call::Call;
use crate::limits::CLAUDE_RESULT_CHARS;
use crate::server::Tools;

/// A tool, and what carries it out.
pub(crate) struct ToolEntry {
    pub(crate) tool: Tool,
    pub(crate) run: RunTool,
}

/// A tool as it is offered here.
pub(crate) struct OfferedTool {
    pub(crate) tool: Tool,
    pub(crate) known: KnownArguments,
    pub(crate) run: RunTool,
}

type RunTool = for<'a> fn(&'a Tools, &'a Call) -> BoxFuture<'a, ToolOutcome>;

/// What a tool answers. An error is for requests that nobody can carry out; what went wrong for the model is a result.
pub(crate) type ToolOutcome = Result<CallToolResponse, ErrorData>;

/// Which of the arguments that are of no use everywhere a model is told of: the fewer words, the better.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownArguments {
    /// There are several environments to choose from.
    pub(crate) environment: bool,
    /// There is a sandbox, and somebody who can be asked to let a command out of it.
    pub(crate) outside_sandbox: bool,
}

/// Every tool, in the order in which clients show them.
pub(crate) fn all(shown: ShownArguments) -> Vec<OfferedTool> {
    let tools = process::tools().into_iter().chain(view::tools()).chain(files::tools());
    let offered = |ToolEntry { tool: whole, run }: ToolEntry| {
        let mut tool = whole.clone();
        if !shown.environment {
            hide_argument(&mut tool, "environment_id");
        }
        if !shown.outside_sandbox {
            hide_argument(&mut tool, "outside_sandbox");
            hide_argument(&mut tool, "justification");
        }
        OfferedTool { known: KnownArguments::of(whole.input_schema, &tool), tool, run }
    };
    tools.map(offered).collect()
}

fn hide_argument(tool: &mut Tool, name: &str) {
    let schema = Arc::make_mut(&mut tool.input_schema);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.remove(name);
    }
}

/// What a tool does to the world, for clients that ask their user first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
    pub(crate) open_world: bool,
}

/// A tool whose arguments are an `I` and whose structured result is an `O`.
pub(crate) fn tool<I: JsonSchema + 'static, O: JsonSchema + 'static>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
) -> Tool {
    let output = without_formats(&schema_for_output::<O>());
    tool_without_structure::<I>(name, title, description, hints).with_raw_output_schema(output)
}

/// A tool whose arguments are an `I` and whose result is text or images only.
pub(crate) fn tool_without_structure<I: JsonSchema + 'static>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    hints: Hints,
) -> Tool {
    let annotations = ToolAnnotations::with_title(title)
        .read_only(hints.read_only)
        .destructive(hints.destructive)
        .idempotent(hints.idempotent)
        .open_world(hints.open_world);
    let input = schema_for_input::<I>().expect("arguments are a struct, whose schema is an object");
    // Without this, Claude Code puts results of more than 50,000 characters into a file and shows its model the first 2 KB.
    let shown_whole = ("anthropic/maxResultSizeChars".to_owned(), json!(CLAUDE_RESULT_CHARS));
    Tool::new(name, description, without_formats(&input))
        .with_title(title)
        .with_annotations(annotations)
        .with_meta(MetaObject(JsonObject::from_iter([shown_whole])))
}

/// Clients warn of every `format` that JSON Schema does not define, as `uint32`; type and minimum say the same.
fn without_formats(schema: &JsonObject) -> Arc<JsonObject> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.retain(|key, value| key != "format" || !value.is_string());
                object.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut schema = Value::Object(schema.clone());
    strip(&mut schema);
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => unreachable!("it was an object above"),
    }
}

/// A result as text and as a structure. Clients show models the one or the other, so both say all that a model needs.
pub(crate) fn structured(text: String, value: &impl Serialize) -> CallToolResult {
    let value = serde_json::to_value(value).expect("our own results have string keys");
    let mut result = CallToolResult::structured(value);
    result.content = vec![ContentBlock::text(text)];
    result
}

/// How a sandbox becomes wider. Nobody but the user can do that, so a model tells them.
pub(crate) const WIDENED_BY: &str =
    "the user widens it with --sandbox workspace-write, --writable DIR, --network or --policy of exec-server mcp";

/// What went wrong, for the model.
pub(crate) fn failed(why: impl ToString) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why.to_string())])
}
