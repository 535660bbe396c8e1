//! WIRE 2.15: skills and plugins below roots.

use serde_json::{Value, json};

use super::case::Case;
use super::case_directory::{in_directory, uri};
use super::declared_differences::DeclaredDifference;

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
        in_directory("no roots").call("capabilityRoots/discoverV1", json!({"roots": []})),
        in_directory("128 roots").call("capabilityRoots/discoverV1", json!({"roots": many(128)})),
        in_directory("129 roots").call("capabilityRoots/discoverV1", json!({"roots": many(129)})),
        found(in_directory("a root that is missing"), "no"),
        found(in_directory("a root that is a file").file("f", ""), "f"),
        found(in_directory("a root below a file").file("f", ""), "f/x"),
        found(in_directory("a root that is a link").directory("d").file("d/SKILL.md", "s").link("l", "d"), "l"),
        found(in_directory("a root that is a link to nowhere").link("l", "no"), "l"),
        found(in_directory("a root that is a circle").link("l", "l"), "l"),
        found(in_directory("a root that is a fifo").fifo("f"), "f"),
        found(in_directory("an empty root").directory("d"), "d"),
        found(in_directory("a root with a slash").directory("d").file("d/SKILL.md", "s"), "d/"),
        in_directory("the same root twice").directory("d").call(
            "capabilityRoots/discoverV1",
            json!({"roots": [{"id": "r", "path": uri("d")}, {"id": "r", "path": uri("d")}, {"id": "", "path": uri("d/../d")}]}),
        ),
    ]
}

fn skills() -> Vec<Case> {
    vec![
        found(in_directory("a skill at the root").file("SKILL.md", "at the root"), ""),
        found(
            in_directory("skills below")
                .directory("b/agents")
                .file("b/SKILL.md", "b")
                .file("b/agents/openai.yaml", "b: 1")
                .directory("a")
                .file("a/SKILL.md", "a")
                .directory("c/agents")
                .file("c/agents/openai.yaml", "no skill"),
            "",
        ),
        found(in_directory("a skill in another case").file("skill.md", "x").directory("d").file("d/Skill.md", "x"), ""),
        found(in_directory("a skill that is a folder").directory("d/SKILL.md"), ""),
        found(in_directory("a skill that is a link").file("x", "linked").directory("d").link("d/SKILL.md", "../x"), ""),
        found(in_directory("a skill that leads nowhere").directory("d").link("d/SKILL.md", "../no"), ""),
        found(
            in_directory("a skill in a linked folder")
                .directory("o/d")
                .file("o/d/SKILL.md", "x")
                .directory("r")
                .link("r/l", "../o/d"),
            "r",
        ),
        found(in_directory("a linked circle").directory("r").file("r/SKILL.md", "x").link("r/l", "."), "r"),
        found(in_directory("a hidden skill").directory(".h").file(".h/SKILL.md", "hidden"), ""),
        found(in_directory("a skill below a skill").file("SKILL.md", "o").directory("d").file("d/SKILL.md", "i"), ""),
        found(in_directory("an empty skill").file("SKILL.md", ""), ""),
        found(in_directory("a skill that is no text").file("SKILL.md", b"a\xffb"), ""),
        found(
            in_directory("metadata that is no text")
                .file("SKILL.md", "s")
                .directory("agents")
                .file("agents/openai.yaml", b"\xff"),
            "",
        ),
        found(in_directory("metadata that is a folder").file("SKILL.md", "s").directory("agents/openai.yaml"), ""),
        found(
            in_directory("metadata that is a link")
                .file("SKILL.md", "s")
                .file("y", "y: 1")
                .directory("agents")
                .link("agents/openai.yaml", "../y"),
            "",
        ),
        found(
            in_directory("agents that are a link")
                .file("SKILL.md", "s")
                .directory("x")
                .file("x/openai.yaml", "y")
                .link("agents", "x"),
            "",
        ),
        found(in_directory("a skill of exactly 1 MiB").file("SKILL.md", vec![b'x'; 1 << 20]), ""),
        found(in_directory("a skill of more than 1 MiB").file("SKILL.md", vec![b'x'; (1 << 20) + 1]), ""),
        found(in_directory("a skill with a byte order mark").file("SKILL.md", "\u{feff}x\r\n"), ""),
        found(in_directory("a skill six deep").directory("1/2/3/4/5/6").file("1/2/3/4/5/6/SKILL.md", "six"), ""),
        found(
            in_directory("a skill seven deep").directory("1/2/3/4/5/6/7").file("1/2/3/4/5/6/7/SKILL.md", "seven"),
            "",
        ),
        found(
            in_directory("a skill eight deep").directory("1/2/3/4/5/6/7/8").file("1/2/3/4/5/6/7/8/SKILL.md", "eight"),
            "",
        ),
        found(in_directory("odd names of skills").directory("a b%").file("a b%/SKILL.md", "x"), ""),
        found(in_directory("a skill whose name is no text").directory(b"n\xff").file(b"n\xff/SKILL.md", "y"), "")
            .differs(DeclaredDifference::ByteExactNames, only_skill("n%FF/SKILL.md", "y")),
        found(
            in_directory("skills are sorted")
                .directory("b")
                .directory("a/z")
                .directory("B")
                .file("b/SKILL.md", "")
                .file("a/z/SKILL.md", "")
                .file("B/SKILL.md", ""),
            "",
        ),
    ]
}

fn plugin(name: &str, manifest: &str) -> Case {
    in_directory(name).directory(".codex-plugin").file(".codex-plugin/plugin.json", manifest)
}

fn plugins() -> Vec<Case> {
    let configs = |case: Case| {
        case.file(".mcp.json", r#"{"mcp": 1}"#)
            .file(".app.json", r#"{"app": 1}"#)
            .directory("sub")
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
        found(
            in_directory("a plugin of another kind")
                .directory(".claude-plugin")
                .file(".claude-plugin/plugin.json", "{}"),
            "",
        ),
        found(
            in_directory("a plugin of a third kind")
                .directory(".cursor-plugin")
                .file(".cursor-plugin/plugin.json", "{}"),
            "",
        ),
        found(
            plugin("two plugins", r#"{"a": 1}"#).directory(".claude-plugin").file(".claude-plugin/plugin.json", "{}"),
            "",
        ),
        found(
            in_directory("the other two plugins")
                .directory(".cursor-plugin")
                .file(".cursor-plugin/plugin.json", "cursor")
                .directory(".claude-plugin")
                .file(".claude-plugin/plugin.json", "claude"),
            "",
        ),
        found(
            plugin("a plugin with skills", "{}")
                .directory("skills/a")
                .file("skills/a/SKILL.md", "a")
                .file("SKILL.md", "top"),
            "",
        ),
        found(in_directory("a plugin that is a folder").directory(".codex-plugin/plugin.json"), ""),
        found(
            in_directory("a plugin that is no text")
                .directory(".codex-plugin")
                .file(".codex-plugin/plugin.json", b"{\xff}"),
            "",
        ),
        found(
            in_directory("a plugin that is a link")
                .file("p", "{}")
                .directory(".codex-plugin")
                .link(".codex-plugin/plugin.json", "../p"),
            "",
        ),
        found(
            in_directory("a plugin that is too large")
                .directory(".codex-plugin")
                .file(".codex-plugin/plugin.json", vec![b' '; (1 << 20) + 1]),
            "",
        ),
        found(plugin("a plugin whose .mcp.json is a folder", "{}").directory(".mcp.json"), ""),
        found(plugin("a plugin whose .mcp.json is no text", "{}").file(".mcp.json", b"\xff"), ""),
        found(plugin("a plugin above", "{}").directory("d").file("d/SKILL.md", "s"), "d"),
        found(plugin("a plugin far above", "{}").directory("d/e/f").file("d/e/f/SKILL.md", "s"), "d/e/f"),
        found(plugin("a plugin above and no skill", "{}").directory("d"), "d"),
        found(
            plugin("two plugins above", "far")
                .directory("d/.claude-plugin")
                .file("d/.claude-plugin/plugin.json", "near")
                .directory("d/e")
                .file("d/e/SKILL.md", "s"),
            "d/e",
        ),
        found(
            plugin("a plugin above a plugin", "far")
                .directory("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "near"),
            "d",
        ),
        found(
            in_directory("a plugin below")
                .directory("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "below")
                .file("d/SKILL.md", "s"),
            "",
        ),
        found(
            in_directory("a plugin between")
                .directory("d/.codex-plugin")
                .file("d/.codex-plugin/plugin.json", "b")
                .directory("d/e")
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
            in_directory("a plugin below that is a link")
                .file("p", "{}")
                .directory("d/.codex-plugin")
                .link("d/.codex-plugin/plugin.json", "../../p")
                .file("d/SKILL.md", "s"),
            "",
        ),
        found(
            in_directory("a plugin above that is a link")
                .file("p", "{}")
                .directory(".codex-plugin")
                .link(".codex-plugin/plugin.json", "../p")
                .directory("d")
                .file("d/SKILL.md", "s"),
            "d",
        ),
        found(
            in_directory("a plugin in a linked folder")
                .directory("real/.codex-plugin")
                .file("real/.codex-plugin/plugin.json", "{}")
                .directory("r")
                .link("r/l", "../real"),
            "r",
        ),
        found(
            in_directory("a manifest's folder that is a link")
                .directory("x")
                .file("x/plugin.json", "{}")
                .link(".codex-plugin", "x"),
            "",
        ),
        found(
            plugin("a worse manifest that is no link", "{}")
                .directory("d/.claude-plugin")
                .file("d/.claude-plugin/plugin.json", "claude")
                .directory("d/.codex-plugin")
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
                .directory("s/x")
                .file("s/x/SKILL.md", "x")
                .directory("o")
                .file("o/SKILL.md", "o"),
            "",
        ),
        found(
            plugin("a plugin that names a list of skills", r#"{"skills": ["./s"]}"#)
                .directory("s/x")
                .file("s/x/SKILL.md", "x"),
            "",
        ),
        found(in_directory("a root in a hidden folder").directory(".h/r").file(".h/r/SKILL.md", "x"), ".h/r"),
        found(
            in_directory("node_modules")
                .directory("node_modules/x")
                .file("node_modules/x/SKILL.md", "x")
                .directory(".git")
                .file(".git/SKILL.md", "x"),
            "",
        ),
    ]
}
