//! WIRE 2.15: skills and plugins below roots.

use serde_json::{Value, json};

use super::case::Case;
use super::case_directory::{in_directory, uri};
use super::declared_differences::DeclaredDifference;

impl Case {
    fn discover(self, root: &str) -> Self {
        self.call("capabilityRoots/discoverV1", json!({"roots": [{"id": "r", "path": uri(root)}]}))
    }
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
        in_directory("a root that is missing").discover("no"),
        in_directory("a root that is a file").file("f", "").discover("f"),
        in_directory("a root below a file").file("f", "").discover("f/x"),
        in_directory("a root that is a link").file("d/SKILL.md", "s").link("l", "d").discover("l"),
        in_directory("a root that is a link to nowhere").link("l", "no").discover("l"),
        in_directory("a root that is a circle").link("l", "l").discover("l"),
        in_directory("a root that is a fifo").fifo("f").discover("f"),
        in_directory("an empty root").directory("d").discover("d"),
        in_directory("a root with a slash").file("d/SKILL.md", "s").discover("d/"),
        in_directory("the same root twice").directory("d").call(
            "capabilityRoots/discoverV1",
            json!({"roots": [{"id": "r", "path": uri("d")}, {"id": "r", "path": uri("d")}, {"id": "", "path": uri("d/../d")}]}),
        ),
    ]
}

fn skills() -> Vec<Case> {
    vec![
        in_directory("a skill at the root").file("SKILL.md", "at the root").discover(""),
        in_directory("skills below")
            .directory("b/agents")
            .file("b/SKILL.md", "b")
            .file("b/agents/openai.yaml", "b: 1")
            .file("a/SKILL.md", "a")
            .file("c/agents/openai.yaml", "no skill")
            .discover(""),
        in_directory("a skill in another case").file("skill.md", "x").file("d/Skill.md", "x").discover(""),
        in_directory("a skill that is a folder").directory("d/SKILL.md").discover(""),
        in_directory("a skill that is a link").file("x", "linked").link("d/SKILL.md", "../x").discover(""),
        in_directory("a skill that leads nowhere").link("d/SKILL.md", "../no").discover(""),
        in_directory("a skill in a linked folder").file("o/d/SKILL.md", "x").link("r/l", "../o/d").discover("r"),
        in_directory("a linked circle").file("r/SKILL.md", "x").link("r/l", ".").discover("r"),
        in_directory("a hidden skill").file(".h/SKILL.md", "hidden").discover(""),
        in_directory("a skill below a skill").file("SKILL.md", "o").file("d/SKILL.md", "i").discover(""),
        in_directory("an empty skill").file("SKILL.md", "").discover(""),
        in_directory("a skill that is no text").file("SKILL.md", b"a\xffb").discover(""),
        in_directory("metadata that is no text").file("SKILL.md", "s").file("agents/openai.yaml", b"\xff").discover(""),
        in_directory("metadata that is a folder").file("SKILL.md", "s").directory("agents/openai.yaml").discover(""),
        in_directory("metadata that is a link")
            .file("SKILL.md", "s")
            .file("y", "y: 1")
            .link("agents/openai.yaml", "../y")
            .discover(""),
        in_directory("agents that are a link")
            .file("SKILL.md", "s")
            .file("x/openai.yaml", "y")
            .link("agents", "x")
            .discover(""),
        in_directory("a skill of exactly 1 MiB").file("SKILL.md", vec![b'x'; 1 << 20]).discover(""),
        in_directory("a skill of more than 1 MiB").file("SKILL.md", vec![b'x'; (1 << 20) + 1]).discover(""),
        in_directory("a skill with a byte order mark").file("SKILL.md", "\u{feff}x\r\n").discover(""),
        in_directory("a skill six deep").file("1/2/3/4/5/6/SKILL.md", "six").discover(""),
        in_directory("a skill seven deep").file("1/2/3/4/5/6/7/SKILL.md", "seven").discover(""),
        in_directory("a skill eight deep").file("1/2/3/4/5/6/7/8/SKILL.md", "eight").discover(""),
        in_directory("odd names of skills").file("a b%/SKILL.md", "x").discover(""),
        in_directory("a skill whose name is no text")
            .file(b"n\xff/SKILL.md", "y")
            .discover("")
            .differs(DeclaredDifference::ByteExactNames, only_skill("n%FF/SKILL.md", "y")),
        in_directory("skills are sorted")
            .directory("b")
            .directory("a/z")
            .directory("B")
            .file("b/SKILL.md", "")
            .file("a/z/SKILL.md", "")
            .file("B/SKILL.md", "")
            .discover(""),
    ]
}

fn plugin(name: &str, manifest: &str) -> Case {
    in_directory(name).file(".codex-plugin/plugin.json", manifest)
}

fn plugins() -> Vec<Case> {
    let configs = |case: Case| {
        case.file(".mcp.json", r#"{"mcp": 1}"#)
            .file(".app.json", r#"{"app": 1}"#)
            .file("sub/m.json", "sub mcp")
            .file("sub/a.json", "sub apps")
            .file("plain", "plain")
    };
    let mut cases = vec![
        configs(plugin("a plugin", "{}")).discover(""),
        configs(plugin("a plugin that is no JSON", "no json")).discover(""),
        configs(plugin("a plugin that is a list", "[]")).discover(""),
        configs(plugin("an empty plugin", "")).discover(""),
        plugin("a plugin alone", r#"{"name": "p"}"#).discover(""),
        in_directory("a plugin of another kind").file(".claude-plugin/plugin.json", "{}").discover(""),
        in_directory("a plugin of a third kind").file(".cursor-plugin/plugin.json", "{}").discover(""),
        plugin("two plugins", r#"{"a": 1}"#).file(".claude-plugin/plugin.json", "{}").discover(""),
        in_directory("the other two plugins")
            .file(".cursor-plugin/plugin.json", "cursor")
            .file(".claude-plugin/plugin.json", "claude")
            .discover(""),
        plugin("a plugin with skills", "{}").file("skills/a/SKILL.md", "a").file("SKILL.md", "top").discover(""),
        in_directory("a plugin that is a folder").directory(".codex-plugin/plugin.json").discover(""),
        in_directory("a plugin that is no text").file(".codex-plugin/plugin.json", b"{\xff}").discover(""),
        in_directory("a plugin that is a link").file("p", "{}").link(".codex-plugin/plugin.json", "../p").discover(""),
        in_directory("a plugin that is too large")
            .file(".codex-plugin/plugin.json", vec![b' '; (1 << 20) + 1])
            .discover(""),
        plugin("a plugin whose .mcp.json is a folder", "{}").directory(".mcp.json").discover(""),
        plugin("a plugin whose .mcp.json is no text", "{}").file(".mcp.json", b"\xff").discover(""),
        plugin("a plugin above", "{}").file("d/SKILL.md", "s").discover("d"),
        plugin("a plugin far above", "{}").file("d/e/f/SKILL.md", "s").discover("d/e/f"),
        plugin("a plugin above and no skill", "{}").directory("d").discover("d"),
        plugin("two plugins above", "far")
            .file("d/.claude-plugin/plugin.json", "near")
            .file("d/e/SKILL.md", "s")
            .discover("d/e"),
        plugin("a plugin above a plugin", "far").file("d/.codex-plugin/plugin.json", "near").discover("d"),
        in_directory("a plugin below")
            .file("d/.codex-plugin/plugin.json", "below")
            .file("d/SKILL.md", "s")
            .discover(""),
        in_directory("a plugin between")
            .file("d/.codex-plugin/plugin.json", "b")
            .file("d/e/SKILL.md", "s")
            .discover(""),
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
            cases.push(configs(plugin(&format!("a plugin of {manifest}"), &manifest)).discover(""));
        }
    }
    cases
}

fn oddities() -> Vec<Case> {
    vec![
        plugin("a manifest that is a list of texts", r#"["./a", "./b"]"#).file("a", "a").file("b", "b").discover(""),
        plugin("a manifest that is a text", r#""./a""#).file("a", "a").discover(""),
        plugin("a manifest that is null", "null").file(".mcp.json", "m").discover(""),
        plugin("a manifest with more behind it", r#"{"apps": "./a"} x"#).file("a", "a").discover(""),
        plugin("an unknown member twice", r#"{"x": 1, "x": 2, "apps": "./a"}"#).file("a", "a").discover(""),
        in_directory("a plugin below that is a link")
            .file("p", "{}")
            .link("d/.codex-plugin/plugin.json", "../../p")
            .file("d/SKILL.md", "s")
            .discover(""),
        in_directory("a plugin above that is a link")
            .file("p", "{}")
            .link(".codex-plugin/plugin.json", "../p")
            .file("d/SKILL.md", "s")
            .discover("d"),
        in_directory("a plugin in a linked folder")
            .file("real/.codex-plugin/plugin.json", "{}")
            .link("r/l", "../real")
            .discover("r"),
        in_directory("a manifest's folder that is a link")
            .file("x/plugin.json", "{}")
            .link(".codex-plugin", "x")
            .discover(""),
        plugin("a worse manifest that is no link", "{}")
            .file("d/.claude-plugin/plugin.json", "claude")
            .link("d/.codex-plugin/plugin.json", "../../.codex-plugin/plugin.json")
            .discover(""),
        plugin("members of a plugin twice", r#"{"mcpServers": "./a", "mcpServers": "./b"}"#)
            .file("a", "a")
            .file("b", "b")
            .discover(""),
        plugin("other spellings", r#"{"mcp_servers": "./a", "mcpservers": "./a"}"#).file("a", "a").discover(""),
        plugin("a manifest with a byte order mark", "\u{feff}{\"apps\": \"./a\"}").file("a", "a").discover(""),
        plugin("a manifest with comments", "{/* */\"apps\": \"./a\"}").file("a", "a").discover(""),
        plugin("a plugin that names skills", r#"{"skills": "./s"}"#)
            .file("s/x/SKILL.md", "x")
            .file("o/SKILL.md", "o")
            .discover(""),
        plugin("a plugin that names a list of skills", r#"{"skills": ["./s"]}"#).file("s/x/SKILL.md", "x").discover(""),
        in_directory("a root in a hidden folder").file(".h/r/SKILL.md", "x").discover(".h/r"),
        in_directory("node_modules").file("node_modules/x/SKILL.md", "x").file(".git/SKILL.md", "x").discover(""),
    ]
}
