//! Arguments as models write them: read as what the schema asks for where nothing else can be meant, and those that a tool does
//! not have are told, because whoever sends one expects it to do something.

use std::sync::Arc;

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::Value;

/// Other names of arguments that are accepted and not told, and the names that models are told of.
const ALIASES: [(&str, &str); 2] = [("environment", "environment_id"), ("input", "patch")];

/// The arguments of a tool.
pub(crate) struct KnownArguments {
    /// Before arguments that are of no use here were hidden: whoever sends one of those is understood all the same.
    schema: Arc<JsonObject>,
    /// Those that models are told of.
    shown: Vec<String>,
}

impl KnownArguments {
    /// `schema`: before arguments that are of no use here were hidden in `tool`.
    pub(crate) fn of(schema: Arc<JsonObject>, tool: &Tool) -> Self {
        let shown = properties(&tool.input_schema).into_iter().flat_map(JsonObject::keys).cloned().collect();
        Self { schema, shown }
    }

    /// Arguments as the schema has them: `null` is an absent one, `10.0` and `"10"` are 10, `"true"` is true, and one text in
    /// place of a list is a list of it; so it is within lists and objects. Anything else stays as it is, to be refused.
    pub(crate) fn normalized(&self, arguments: JsonObject) -> JsonObject {
        SchemaNode { object: &self.schema, whole: &self.schema }.members(arguments)
    }

    /// What to tell about arguments that the tool does not have.
    pub(crate) fn about_unknown(&self, tool: &str, arguments: &JsonObject) -> Option<String> {
        let has = |name: &str| properties(&self.schema).is_some_and(|known| known.contains_key(name));
        let is_alias = |name: &str| ALIASES.iter().any(|(alias, real)| *alias == name && has(real));
        let unknown: Vec<String> =
            arguments.keys().filter(|name| !has(name) && !is_alias(name)).map(|name| format!("{name:?}")).collect();
        let (unknown, shown) = (unknown.join(", "), self.shown.join(", "));
        (!unknown.is_empty()).then(|| format!("{tool} does not know {unknown} and has ignored that: it takes {shown}"))
    }
}

fn properties(schema: &JsonObject) -> Option<&JsonObject> {
    schema.get("properties")?.as_object()
}

/// What a value is to be, as far as our own schemas say such things.
#[derive(Clone, Copy)]
struct SchemaNode<'a> {
    object: &'a JsonObject,
    /// What it is a part of, where the definitions are that it may refer to.
    whole: &'a JsonObject,
}

impl<'a> SchemaNode<'a> {
    /// A value as this asks for it, if nothing else can be meant.
    fn read(self, value: Value) -> Value {
        let value = match self.read_simple(&value).unwrap_or(value) {
            Value::Array(items) => match self.part("items") {
                Some(schema) => items.into_iter().map(|item| schema.read(item)).collect(),
                None => Value::Array(items),
            },
            Value::Object(members) => Value::Object(self.members(members)),
            value => value,
        };
        let value = self.all_of().fold(value, |value, schema| schema.read(value));
        self.read_alternatives(&value).unwrap_or(value)
    }

    fn members(self, members: JsonObject) -> JsonObject {
        let asked = properties(self.object);
        let read = |(name, value): (String, Value)| match asked.and_then(|asked| asked.get(&name)) {
            Some(_) if value.is_null() => None,
            Some(Value::Object(object)) => Some((name, SchemaNode { object, ..self }.read(value))),
            _ => Some((name, value)),
        };
        members.into_iter().filter_map(read).collect()
    }

    fn read_simple(self, value: &Value) -> Option<Value> {
        match value {
            Value::Number(number) if number.is_f64() && self.is_type("integer") => number.as_f64().and_then(integer),
            Value::String(text) if self.is_type("integer") => {
                text.trim().parse().ok().map(|number: u64| Value::from(number))
            }
            Value::String(text) if self.is_type("boolean") => text.trim().parse().ok().map(Value::Bool),
            Value::String(_) if self.is_type("array") => Some(Value::Array(vec![value.clone()])),
            _ => None,
        }
    }

    /// What all alternatives agree on that can be meant; nothing if there are none.
    fn read_alternatives(self, value: &Value) -> Option<Value> {
        let alternatives = self.parts("oneOf").chain(self.parts("anyOf"));
        let read = alternatives.map(|schema| (schema, schema.read(value.clone())));
        let mut meant = read.filter(|(schema, read)| schema.admits(read)).map(|(_, read)| read);
        let first = meant.next()?;
        meant.all(|other| other == first).then_some(first)
    }

    /// Whether a value may be meant as this. Of an object it is enough that the members are there that have to be, and that
    /// those have their value that can have only one, so that a mistake in another is told where it is.
    fn admits(self, value: &Value) -> bool {
        let of_type = match self.object.get("type") {
            Some(Value::String(name)) => is_of_type(value, name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(|name| is_of_type(value, name)),
            _ => true,
        };
        let constant = self.object.get("const").is_none_or(|only| only == value);
        let listed = self.object.get("enum").and_then(Value::as_array).is_none_or(|listed| listed.contains(value));
        of_type && constant && listed && self.admits_members(value) && self.all_of().all(|schema| schema.admits(value))
    }

    fn admits_members(self, value: &Value) -> bool {
        let Value::Object(members) = value else { return true };
        let required = self.object.get("required").and_then(Value::as_array).into_iter().flatten();
        let is_there = |name: &Value| name.as_str().is_none_or(|name| members.contains_key(name));
        let has_its_value = |(name, asked): (&String, &Value)| match (members.get(name), asked.get("const")) {
            (Some(value), Some(only)) => value == only,
            _ => true,
        };
        required.into_iter().all(is_there) && properties(self.object).into_iter().flatten().all(has_its_value)
    }

    /// The schemas that a value has to fit beside this one.
    fn all_of(self) -> impl Iterator<Item = Self> {
        self.referred().into_iter().chain(self.parts("allOf"))
    }

    fn referred(self) -> Option<Self> {
        let name = self.object.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        let object = self.whole.get("$defs")?.get(name)?.as_object()?;
        Some(SchemaNode { object, ..self })
    }

    fn part(self, name: &str) -> Option<Self> {
        Some(SchemaNode { object: self.object.get(name)?.as_object()?, ..self })
    }

    fn parts(self, name: &str) -> impl Iterator<Item = Self> + use<'a> {
        let parts = self.object.get(name).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(move |part| Some(SchemaNode { object: part.as_object()?, ..self }))
    }

    fn is_type(self, name: &str) -> bool {
        match self.object.get("type") {
            Some(Value::String(only)) => only == name,
            Some(Value::Array(types)) => types.iter().any(|one| one == name),
            _ => false,
        }
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

/// Whole numbers below the first floating one that may have been another: 2^53 + 1 is read as 2^53.
fn integer(number: f64) -> Option<Value> {
    const AMBIGUOUS: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && (0.0..AMBIGUOUS).contains(&number)).then(|| Value::from(number as u64))
}

/// The answer of a tool, with `note` where a client shows its model the text and where it shows the structure.
pub(crate) fn with_note(response: CallToolResponse, note: Option<String>) -> CallToolResponse {
    match (response, note) {
        (CallToolResponse::Complete(result), Some(note)) => CallToolResponse::Complete(noted(result, note)),
        (response, _) => response,
    }
}

fn noted(mut result: CallToolResult, note: String) -> CallToolResult {
    result.content.push(ContentBlock::text(format!("Note: {note}")));
    if let Some(Value::Object(structure)) = &mut result.structured_content {
        structure.insert("ignored_arguments".to_owned(), Value::String(note));
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().expect("the test's values are objects")
    }

    fn known(schema: Value) -> KnownArguments {
        let schema = Arc::new(object(schema));
        KnownArguments::of(schema.clone(), &Tool::new("tool", "", schema))
    }

    #[test]
    fn what_can_only_mean_one_thing_is_read_as_that_and_nothing_else_is() {
        let known = known(json!({"properties": {
            "ms": {"type": ["integer", "null"]}, "id": {"type": "integer"}, "tty": {"type": "boolean"},
            "list": {"type": "array"}, "text": {"type": "string"},
        }}));
        let given = json!({
            "ms": 10.0, "id": " 4321 ", "tty": "true", "list": "**/*.rs", "text": "10", "other": 1.0,
        });
        let read = json!({"ms": 10, "id": 4321, "tty": true, "list": ["**/*.rs"], "text": "10", "other": 1.0});
        assert_eq!(known.normalized(object(given)), object(read));
        let given = json!({"ms": null, "tty": null, "list": null});
        assert_eq!(known.normalized(object(given)), JsonObject::new());
        let stays = json!({"ms": -1, "id": "abc", "tty": "yes", "list": 7, "text": true});
        assert_eq!(known.normalized(object(stays.clone())), object(stays));
        let stays = json!({"ms": 1.5, "id": 1e300, "tty": 1});
        assert_eq!(known.normalized(object(stays.clone())), object(stays));
        let given = json!({"ms": 9_007_199_254_740_991.0});
        assert_eq!(known.normalized(object(given)), object(json!({"ms": 9_007_199_254_740_991_u64})));
        // The second may have been a number above it, before it was read.
        let stays = json!({"ms": 9_007_199_254_740_993_u64, "id": 9_007_199_254_740_992.0});
        assert_eq!(known.normalized(object(stays.clone())), object(stays));
    }

    #[test]
    fn within_lists_and_objects_it_is_the_same() {
        let known = known(json!({
            "properties": {
                "changes": {"type": "array", "items": {"$ref": "#/$defs/Change"}},
                "mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
                "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
                "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "$defs": {
                "Mode": {"oneOf": [{"type": "string", "const": "lines"}, {"type": "string", "enum": ["files"]}]},
                "Change": {"oneOf": [
                    {
                        "type": "object", "properties": {"change": {"type": "string", "const": "replace"}},
                        "required": ["change"], "$ref": "#/$defs/Replacement",
                    },
                    {
                        "type": "object", "required": ["change", "path"],
                        "properties": {"change": {"const": "remove"}, "path": {"type": "string"}, "times": {"type": "string"}},
                    },
                ]},
                "Replacement": {"type": "object", "required": ["path"], "properties": {
                    "path": {"type": "string"}, "all": {"type": "boolean"}, "times": {"type": ["integer", "null"]},
                }},
            },
        }));
        let given = json!({
            "changes": [
                {"change": "replace", "path": "a", "all": null, "times": "2"},
                {"change": "replace", "path": "a", "all": "true", "times": 2.0, "other": null},
                {"change": "remove", "path": "b", "times": "2"},
                {"change": "unknown", "path": "b", "all": null},
                {"path": "b", "all": null},
                null,
            ],
            "mode": "files", "either": "10", "count": "10",
        });
        let read = json!({
            "changes": [
                {"change": "replace", "path": "a", "times": 2},
                {"change": "replace", "path": "a", "all": true, "times": 2, "other": null},
                {"change": "remove", "path": "b", "times": "2"},
                {"change": "unknown", "path": "b", "all": null},
                {"path": "b", "all": null},
                null,
            ],
            "mode": "files", "either": "10", "count": 10,
        });
        assert_eq!(known.normalized(object(given)), object(read));
    }

    #[test]
    fn what_is_hidden_is_read_too_and_another_name_is_known_only_where_it_is_one() {
        let whole = Arc::new(object(json!({"properties": {"cmd": {"type": "string"}, "hidden": {"type": "boolean"}}})));
        let shown = Tool::new("tool", "", object(json!({"properties": {"cmd": {"type": "string"}}})));
        let run = KnownArguments::of(whole, &shown);
        let given = json!({"cmd": "x", "hidden": "false", "input": "y", "environment": "z"});
        let read = run.normalized(object(given));
        assert_eq!(read, object(json!({"cmd": "x", "hidden": false, "input": "y", "environment": "z"})));
        let told = run.about_unknown("tool", &read).expect("two are unknown");
        assert_eq!(told, "tool does not know \"environment\", \"input\" and has ignored that: it takes cmd");
        let patch = known(json!({"properties": {"patch": {"type": "string"}, "environment_id": {"type": "string"}}}));
        assert_eq!(patch.about_unknown("tool", &object(json!({"input": "y", "environment": "z"}))), None);
    }
}
