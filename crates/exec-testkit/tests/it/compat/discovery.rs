//! WIRE 2.15: skills and plugins below roots.

use serde_json::{Value, json};

use super::folder::{inside, uri};
use super::rows::Row;
use super::script::Case;

fn found(case: Case, root: &str) -> Case {
    case.call("capabilityRoots/discoverV1", json!({"roots": [{"id": "r", "path": uri(root)}]}))
}

pub(super) fn cases() -> Vec<Case> {
    [roots(), skills(), plugins(), oddities()].concat()
}

/// The answer when there is nothing but one skill.
fn only_skill(name: &str, contents: &str) -> Value {
    let skill = json!({"instructions": {"path": uri(name), "contents": contents}, "metadata": null});
    let root = json!({"id": "r", "path": uri(""), "plugin": null, "skills": [skill], "namespaceManifests": [], "warnings": [],
        "error": null});
    json!({"id": 2, "result": {"roots": [root]}})
}

fn roots() -> Vec<Case> {
    let many =
        |count: usize| -> Value { (0..count).map(|at| json!({"id": at.to_string(), "path": uri("no")})).collect() };
    vec![
        inside("no roots").call("capabilityRoots/discoverV1", json!({"roots": []})),
        inside("128 roots").call("capabilityRoots/discoverV1", json!({"roots": many(128)})),
        inside("129 roots").call("capabilityRoots/discoverV1", json!({"roots": many(129)})),
        found(inside("a root that is missing"), "no"),
        found(inside("a root that is a file").file("f", ""), "f"),
        found(inside("a root below a file").file("f", ""), "f/x"),
        found(inside("a root that is a link").folder("d").file("d/SKILL.md", "s").link("l", "d"), "l"),
        found(inside("a root that is a link to nowhere").link("l", "no"), "l"),
        found(inside("a root that is a circle").link("l", "l"), "l"),
        found(inside("a root that is a fifo").fifo("f"), "f"),
        found(inside("an empty root").folder("d"), "d"),
        found(inside("a root with a slash").folder("d").file("d/SKILL.md", "s"), "d/"),
        inside("the same root twice").folder("d").call(
            "capabilityRoots/discoverV1",
            json!({"roots": [{"id": "r", "path": uri("d")}, {"id": "r", "path": uri("d")}, {"id": "", "path": uri("d/../d")}]}),
        ),
    ]
}

fn skills() -> Vec<Case> {
    vec![
        found(inside("a skill at the root").file("SKILL.md", "at the root"), ""),
        found(
            inside("skills below")
                .folder("b/agents")
                .file("b/SKILL.md", "b")
                .file("b/agents/openai.yaml", "b: 1")
                .folder("a")
                .file("a/SKILL.md", "a")
                .folder("c/agents")
                .file("c/agents/openai.yaml", "no skill"),
            "",
        ),
        found(inside("a skill in another case").file("skill.md", "x").folder("d").file("d/Skill.md", "x"), ""),
        found(inside("a skill that is a folder").folder("d/SKILL.md"), ""),
        found(inside("a skill that is a link").file("x", "linked").folder("d").link("d/SKILL.md", "../x"), ""),
        found(inside("a skill that leads nowhere").folder("d").link("d/SKILL.md", "../no"), ""),
        found(
            inside("a skill in a linked folder")
                .folder("o/d")
                .file("o/d/SKILL.md", "x")
                .folder("r")
                .link("r/l", "../o/d"),
            "r",
        ),
        found(inside("a linked circle").folder("r").file("r/SKILL.md", "x").link("r/l", "."), "r"),
        found(inside("a hidden skill").folder(".h").file(".h/SKILL.md", "hidden"), ""),
        found(inside("a skill below a skill").file("SKILL.md", "o").folder("d").file("d/SKILL.md", "i"), ""),
        found(inside("an empty skill").file("SKILL.md", ""), ""),
        found(inside("a skill that is no text").file("SKILL.md", b"a\xffb"), ""),
        found(
            inside("metadata that is no text")
                .file("SKILL.md", "s")
                .folder("agents")
                .file("agents/openai.yaml", b"\xff"),
            "",
        ),
        found(inside("metadata that is a folder").file("SKILL.md", "s").folder("agents/openai.yaml"), ""),
        found(
            inside("metadata that is a link")
                .file("SKILL.md", "s")
                .file("y", "y: 1")
                .folder("agents")
                .link("agents/openai.yaml", "../y"),
            "",
        ),
        found(
            inside("agents that are a link")
                .file("SKILL.md", "s")
                .folder("x")
                .file("x/openai.yaml", "y")
                .link("agents", "x"),
            "",
        ),
        found(inside("a skill of exactly 1 MiB").file("SKILL.md", vec![b'x'; 1 << 20]), ""),
        found(inside("a skill of more than 1 MiB").file("SKILL.md", vec![b'x'; (1 << 20) + 1]), ""),
        found(inside("a skill with a byte order mark").file("SKILL.md", "\u{feff}x\r\n"), ""),
        found(inside("a skill six deep").folder("1/2/3/4/5/6").file("1/2/3/4/5/6/SKILL.md", "six"), ""),
        found(inside("a skill seven deep").folder("1/2/3/4/5/6/7").file("1/2/3/4/5/6/7/SKILL.md", "seven"), ""),
        found(inside("a skill eight deep").folder("1/2/3/4/5/6/7/8").file("1/2/3/4/5/6/7/8/SKILL.md", "eight"), ""),
        found(inside("odd names of skills").folder("a b%").file("a b%/SKILL.md", "x"), ""),
        found(inside("a skill whose name is no text").folder(b"n\xff").file(b"n\xff/SKILL.md", "y"), "")
            .better(Row::ByteExactNames, only_skill("n%FF/SKILL.md", "y")),
        found(
            inside("skills are sorted")
                .folder("b")
                .folder("a/z")
                .folder("B")
                .file("b/SKILL.md", "")
                .file("a/z/SKILL.md", "")
                .file("B/SKILL.md", ""),
            "",
        ),
    ]
}

fn plugin(name: &str, manifest: &str) -> Case {
    inside(name).folder(".codex-plugin").file(".codex-plugin/plugin.json", manifest)
}

fn plugins() -> Vec<Case> {
    let configs = |case: Case| {
        case.file(".mcp.json", r#"{"mcp": 1}"#)
            .file(".app.json", r#"{"app": 1}"#)
            .folder("sub")
            .file("sub/m.json", "sub mcp")
            .file("sub/a.json", "sub apps")
            .file("plain", "plain")
    };
    let mut cases = vec![
        found(configs(plugin("a plugin", "{}")), ""),
        found(configs(plugin("a plugin that is no JSON", "no json")), ""),
        found(configs(plugin("a plugin that is a list", "[]")), ""),
        found(configs(plugin("an empty plugin", "")), ""),
        found(plugin("a plugin alone", r#"{"name": "p"}"#), ""),
        found(inside("a plugin of another kind").folder(".claude-plugin").file(".claude-plugin/plugin.json", "{}"), ""),
        found(inside("a plugin of a third kind").folder(".cursor-plugin").file(".cursor-plugin/plugin.json", "{}"), ""),
        found(
            plugin("two plugins", r#"{"a": 1}"#).folder(".claude-plugin").file(".claude-plugin/plugin.json", "{}"),
            "",
        ),
        found(
            inside("the other two plugins")
                .folder(".cursor-plugin")
                .file(".cursor-plugin/plugin.json", "cursor")
                .folder(".claude-plugin")
                .file(".claude-plugin/plugin.json", "claude"),
            "",
        ),
        found(
            plugin("a plugin with skills", "{}")
                .folder("skills/a")
                .file("skills/a/SKILL.md", "a")
                .file("SKILL.md", "top"),
            "",
        ),
        found(inside("a plugin that is a folder").folder(".codex-plugin/plugin.json"), ""),
        found(
            inside("a plugin that is no text").folder(".codex-plugin").file(".codex-plugin/plugin.json", b"{\xff}"),
            "",
        ),
        found(
            inside("a plugin that is a link")
                .file("p", "{}")
                .folder(".codex-plugin")
                .link(".codex-plugin/plugin.json", "../p"),
            "",
        ),
        found(
            inside("a plugin that is too large")
                .folder(".codex-plugin")
                .file(".codex-plugin/plugin.json", vec![b' '; (1 << 20) + 1]),
            "",
        ),
        found(plugin("a plugin whose .mcp.json is a folder", "{}").folder(".mcp.json"), ""),
        found(plugin("a plugin whose .mcp.json is no text", "{}").file(".mcp.json", b"\xff"), ""),
        found(plugin("a plugin above", "{}").folder("d").file("d/SKILL.md", "s"), "d"),
        found(plugin("a plugin far above", "{}").folder("d/e/f").file("d/e/f/SKILL.md", "s"), "d/e/f"),
        found(plugin("a plugin above and no skill", "{}").folder("d"), "d"),
        found(
            plugin("two plugins above", "far")
                .folder("d/.claude-plugin")
                .file("d/.claude-plugin/plugin.json", "near")
                .folder("d/e")
                .file("d/e/SKILL.md", "s"),
            "d/e",
        ),
        found(
            plugin("a plugin above a plugin", "far")
                .folder("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "near"),
            "d",
        ),
        found(
            inside("a plugin below")
                .folder("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "below")
                .file("d/SKILL.md", "s"),
            "",
        ),
        found(
            inside("a plugin between")
                .folder("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "b")
                .folder("d/e")
                .file("d/e/SKILL.md", "s"),
            "",
        ),
    ];
    let paths = [
        json!("./sub/m.json"),
        json!("sub/m.json"),
        json!("./no.json"),
        json!("./../x"),
        json!("./sub/../plain"),
        json!("/etc/passwd"),
        json!("./"),
        json!("."),
        json!("./sub"),
        json!(""),
        json!(5),
        json!(null),
        json!({"a": {"command": "x"}}),
        json!(["./plain"]),
        json!("././plain"),
        json!("./sub//m.json"),
        json!(".\\plain"),
        json!("./.mcp.json"),
        json!("file:///etc/passwd"),
        json!("./pl ain"),
        json!("./%70lain"),
        json!(" ./plain"),
        json!("./sub/./m.json"),
    ];
    for path in &paths {
        for member in ["mcpServers", "apps"] {
            let manifest = json!({member: path}).to_string();
            cases.push(found(configs(plugin(&format!("a plugin of {manifest}"), &manifest)), ""));
        }
    }
    cases
}

fn oddities() -> Vec<Case> {
    vec![
        found(plugin("a manifest that is a list of texts", r#"["./a", "./b"]"#).file("a", "a").file("b", "b"), ""),
        found(plugin("a manifest that is a text", r#""./a""#).file("a", "a"), ""),
        found(plugin("a manifest that is null", "null").file(".mcp.json", "m"), ""),
        found(plugin("a manifest with more behind it", r#"{"apps": "./a"} x"#).file("a", "a"), ""),
        found(plugin("an unknown member twice", r#"{"x": 1, "x": 2, "apps": "./a"}"#).file("a", "a"), ""),
        found(
            inside("a plugin below that is a link")
                .file("p", "{}")
                .folder("d/.codex-plugin")
                .link("d/.codex-plugin/plugin.json", "../../p")
                .file("d/SKILL.md", "s"),
            "",
        ),
        found(
            inside("a plugin above that is a link")
                .file("p", "{}")
                .folder(".codex-plugin")
                .link(".codex-plugin/plugin.json", "../p")
                .folder("d")
                .file("d/SKILL.md", "s"),
            "d",
        ),
        found(
            inside("a plugin in a linked folder")
                .folder("real/.codex-plugin")
                .file("real/.codex-plugin/plugin.json", "{}")
                .folder("r")
                .link("r/l", "../real"),
            "r",
        ),
        found(
            inside("a manifest's folder that is a link")
                .folder("x")
                .file("x/plugin.json", "{}")
                .link(".codex-plugin", "x"),
            "",
        ),
        found(
            plugin("a worse manifest that is no link", "{}")
                .folder("d/.claude-plugin")
                .file("d/.claude-plugin/plugin.json", "claude")
                .folder("d/.codex-plugin")
                .link("d/.codex-plugin/plugin.json", "../../.codex-plugin/plugin.json"),
            "",
        ),
        found(
            plugin("members of a plugin twice", r#"{"mcpServers": "./a", "mcpServers": "./b"}"#)
                .file("a", "a")
                .file("b", "b"),
            "",
        ),
        found(plugin("other spellings", r#"{"mcp_servers": "./a", "mcpservers": "./a"}"#).file("a", "a"), ""),
        found(plugin("a manifest with a byte order mark", "\u{feff}{\"apps\": \"./a\"}").file("a", "a"), ""),
        found(plugin("a manifest with comments", "{/* */\"apps\": \"./a\"}").file("a", "a"), ""),
        found(
            plugin("a plugin that names skills", r#"{"skills": "./s"}"#)
                .folder("s/x")
                .file("s/x/SKILL.md", "x")
                .folder("o")
                .file("o/SKILL.md", "o"),
            "",
        ),
        found(
            plugin("a plugin that names a list of skills", r#"{"skills": ["./s"]}"#)
                .folder("s/x")
                .file("s/x/SKILL.md", "x"),
            "",
        ),
        found(inside("a root in a hidden folder").folder(".h/r").file(".h/r/SKILL.md", "x"), ".h/r"),
        found(
            inside("node_modules")
                .folder("node_modules/x")
                .file("node_modules/x/SKILL.md", "x")
                .folder(".git")
                .file(".git/SKILL.md", "x"),
            "",
        ),
    ]
}
