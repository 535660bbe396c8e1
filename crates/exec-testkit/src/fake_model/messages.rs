//! The Messages API, as Claude Code uses it: the same conversation in other words.
//!
//! Its request has the whole conversation in `messages`, each a list of content blocks. A call of a tool is a block
//! `tool_use` of the model's, and what came of it a block `tool_result` of the user's.
//!
//! Deliberately absent: `/v1/messages/count_tokens`. Claude Code asks it only about results that it may be about to hide from its
//! model; it is refused and recorded like any other request, and a test that meets it has found such a result.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{OutputItem, server_sent_events};

pub(super) const PATH: &str = "/v1/messages";

/// What came of this call: a text, or a list of content blocks.
pub(super) fn tool_output<'a>(body: &'a Value, call_id: &str) -> Option<&'a Value> {
    let blocks = body["messages"].as_array()?.iter().filter_map(|message| message["content"].as_array()).flatten();
    let mut results = blocks.filter(|block| block["type"] == "tool_result");
    Some(&results.find(|block| block["tool_use_id"] == call_id)?["content"])
}

/// A whole response as the events that a client of the Messages API expects.
pub(super) fn events(items: &[OutputItem]) -> Bytes {
    let message = json!({"id": "scripted", "type": "message", "role": "assistant", "model": "scripted", "content": [],
                         "stop_reason": null, "stop_sequence": null,
                         "usage": {"input_tokens": 1, "output_tokens": 1}});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    let mut stop_reason = "end_turn";
    for (index, item) in items.iter().enumerate() {
        // A block begins empty, and its contents follow: text as text, arguments as pieces of their JSON.
        let (block, delta) = match item {
            OutputItem::Message(text) => {
                (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}))
            }
            OutputItem::FunctionCall { id, tool, arguments } => {
                stop_reason = "tool_use";
                tool_use(id, tool, arguments)
            }
            OutputItem::NamespacedCall { id, namespace, tool, arguments } => {
                stop_reason = "tool_use";
                tool_use(id, &format!("{namespace}__{tool}"), arguments)
            }
            OutputItem::CustomToolCall { tool, .. } => panic!("the Messages API has no tool with a grammar: {tool}"),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}));
    events.push(json!({"type": "message_stop"}));
    server_sent_events(&events)
}

fn tool_use(id: &str, tool: &str, arguments: &Value) -> (Value, Value) {
    let block = json!({"type": "tool_use", "id": id, "name": tool, "input": {}});
    (block, json!({"type": "input_json_delta", "partial_json": arguments.to_string()}))
}
