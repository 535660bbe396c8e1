//! WIRE 4: contexts that permit everything, that cannot be decoded, and that read-type calls need not mind.

use serde_json::{Value, json};

use super::case::{Case, initialized, start, with};
use super::case_directory::{at, in_directory, uri};
use super::declared_differences::DeclaredDifference;

/// A context around a profile.
pub(super) fn context(profile: Value) -> Value {
    json!({"permissions": profile, "windowsSandboxLevel": "disabled"})
}

pub(super) fn restricted(entries: Value) -> Value {
    context(
        json!({"type": "managed", "file_system": {"type": "restricted", "entries": entries}, "network": "restricted"}),
    )
}

pub(super) fn special(kind: &str, access: &str) -> Value {
    json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access})
}

fn with_files(name: &str) -> Case {
    in_directory(name).file("a", "text").file("d/x", "x")
}

/// Every verb that reads, and every verb that writes where it is permitted.
fn reading(case: Case, sandbox: &Value) -> Case {
    let options = json!({"maxDepth": 1, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": false});
    case.fs("readFile", "a", json!({"sandbox": sandbox}))
        .fs("canonicalize", "d/../a", json!({"sandbox": sandbox}))
        .fs("readDirectory", "d", json!({"sandbox": sandbox}))
        .fs("readFile", "no", json!({"sandbox": sandbox}))
        .fs("walk", "", json!({"options": options, "sandbox": sandbox}))
        .call("fs/open", at("a", json!({"handleId": "h", "sandbox": sandbox})))
}

fn writing(case: Case, sandbox: &Value) -> Case {
    case.fs("writeFile", "new", json!({"dataBase64": "eA==", "sandbox": sandbox}))
        .fs("createDirectory", "made", json!({"sandbox": sandbox}))
        .fs("remove", "d", json!({"sandbox": sandbox}))
        .call(
            "fs/copy",
            json!({"sourcePath": uri("a"), "destinationPath": uri("b"), "recursive": false, "sandbox": sandbox}),
        )
        .call("fs/open", at("w", json!({"handleId": "w", "mode": "replace", "sandbox": sandbox})))
        .snapshot()
}

pub(super) fn cases() -> Vec<Case> {
    [open(), readable(), broken()].concat()
}

fn open() -> Vec<Case> {
    let mut cases: Vec<Case> = open_profiles().into_iter().map(reads_and_writes).collect();
    cases.push(
        initialized("a process under a profile that enforces nothing")
            .call(
                "process/start",
                with(start("p", &["true"]), json!({"sandbox": context(json!({"type": "disabled"}))})),
            )
            .differs(
                DeclaredDifference::SandboxType,
                json!({"id": 2, "result": {"processId": "p", "sandboxType": "none"}}),
            )
            .alive(),
    );
    cases
}

fn reads_and_writes(profile: Value) -> Case {
    let sandbox = context(profile.clone());
    writing(reading(with_files(&format!("a profile that permits everything: {profile}")), &sandbox), &sandbox)
}

fn open_profiles() -> [Value; 6] {
    [
        json!({"type": "disabled"}),
        json!({"type": "external", "network": "restricted"}),
        json!({"type": "external", "network": "enabled"}),
        json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"}),
        json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}),
        json!({"type": "managed", "file_system": {"type": "restricted", "entries": [special("root", "write")]}, "network": "enabled"}),
    ]
}

fn readable() -> Vec<Case> {
    let read_all = restricted(json!([special("root", "read")]));
    let workspace = with(
        restricted(json!([
            special("root", "read"),
            special("project_roots", "write"),
            special("slash_tmp", "write"),
            special("tmpdir", "write")
        ])),
        json!({"cwd": "file://$ROOT", "workspaceRoots": ["file://$ROOT"]}),
    );
    vec![
        reading(with_files("a profile that reads everything"), &read_all),
        reading(with_files("a profile that writes the workspace"), &workspace),
        reading(
            with_files("a profile without its cwd"),
            &restricted(json!([special("root", "read"), special("project_roots", "write")])),
        ),
        reading(
            with_files("a profile with a foreign path"),
            &restricted(json!([{"path": {"type": "path", "path": "file:///C:/x"}, "access": "read"}])),
        ),
        with_files("roots under a profile that reads everything")
            .call("capabilityRoots/discoverV1", json!({"roots": [{"id": "r", "path": uri("d"), "sandbox": read_all}]})),
    ]
}

/// Contexts that are none.
fn broken() -> Vec<Case> {
    let good = context(json!({"type": "disabled"}));
    let changes = [
        json!({"permissions": "$ABSENT"}),
        json!({"permissions": null}),
        json!({"permissions": {}}),
        json!({"permissions": {"type": "other"}}),
        json!({"permissions": {"type": 5}}),
        json!({"permissions": {"type": "external"}}),
        json!({"permissions": {"type": "external", "network": "some"}}),
        json!({"permissions": {"type": "managed"}}),
        json!({"permissions": {"type": "managed", "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "unrestricted"}}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "x"}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted"}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": [{}]}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": [special("nonsense", "read")]}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": [special("root", "execute")]}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": [{"path": {"type": "path", "path": "/tmp"}, "access": "read"}]}, "network": "enabled"}}),
        json!({"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": [], "glob_scan_max_depth": 0}, "network": "enabled"}}),
        json!({"windowsSandboxLevel": "$ABSENT"}),
        json!({"windowsSandboxLevel": "other"}),
        json!({"windowsSandboxLevel": "mxc"}),
        json!({"windowsSandboxLevel": "restricted-token"}),
        json!({"windowsSandboxLevel": "elevated"}),
        json!({"cwd": "tmp"}),
        json!({"cwd": null}),
        json!({"workspaceRoots": null}),
        json!({"workspaceRoots": "file:///"}),
        json!({"workspaceRoots": ["x"]}),
        json!({"policyContext": {}}),
        json!({"policyContext": null}),
        json!({"policyContext": {"cwd": "file:///", "workspaceRoots": []}}),
        json!({"policyContext": {"cwd": "file:///"}}),
        json!({"userHomeDir": "x"}),
        json!({"userHomeDir": null}),
        json!({"temporaryDirectories": ["x"]}),
        json!({"temporaryDirectories": null}),
        json!({"sandboxOverride": "noOverride"}),
        json!({"sandboxOverride": "bypassSandboxFirstAttempt"}),
        json!({"sandboxOverride": "other"}),
        json!({"sandboxOverride": null}),
        json!({"windowsSandboxPrivateDesktop": "x"}),
        json!({"windowsSandboxProxySettingsMode": "x"}),
        json!({"windowsSandboxProxySettingsMode": null}),
        json!({"useLegacyLandlock": "x"}),
        json!({"useLegacyLandlock": null}),
        json!({"unknown": 1}),
    ];
    changes
        .into_iter()
        .map(|change| {
            let name = format!("a context with {change}");
            let sandbox = with(good.clone(), change);
            with_files(&name)
                .fs("readFile", "a", json!({"sandbox": sandbox}))
                .call("process/start", with(start("p", &["/no/such"]), json!({"sandbox": sandbox, "argv": []})))
        })
        .collect()
}
