//! The layers of Codex's configuration on this machine, as `environmentConfig/read` returns them: which files there are,
//! in which order they count, and the part of each that was asked for.
//!
//! Lowest precedence first: the system's file, the user's, and those of the project, if the user's file trusts it. What
//! the keys mean is the client's business. Files that are missing are no layers; one that is not TOML is left out, and
//! the log says so.

use std::path::{Path, PathBuf};

use exec_env::Files;
use exec_env::files::LinkPolicy;
use exec_wire::environment::{ConfigLayer, ConfigStack};
use exec_wire::error::RpcError;
use toml::{Table, Value};

use crate::convert;
use crate::limits::{CONFIG_BYTES, CONFIG_FILE_BYTES};
use crate::reply;

const SYSTEM_FOLDER: &str = "/etc/codex";
const CONFIG: &str = "config.toml";

/// Where the layers are looked for.
pub(super) struct ConfigFolders<'a> {
    pub(super) codex_home: &'a Path,
    /// The project's directory; it need not exist.
    pub(super) cwd: &'a Path,
}

/// One file that exists and is TOML.
struct Layer {
    kind: &'static str,
    path: PathBuf,
    bytes: u64,
    content: Table,
}

/// The layers of the configuration that have any of these keys.
pub(super) async fn config(
    files: &dyn Files,
    folders: &ConfigFolders<'_>,
    keys: &[Vec<String>],
) -> Result<ConfigStack, RpcError> {
    let system = read(files, "system", Path::new(SYSTEM_FOLDER).join(CONFIG)).await;
    let user = read(files, "user", folders.codex_home.join(CONFIG)).await;
    let (mut projects, mut projects_bytes) = (Vec::new(), 0);
    let project = project_folders(files, folders.cwd).await;
    if user.as_ref().is_some_and(|user| project.iter().any(|folder| is_trusted(&user.content, folder))) {
        for folder in project.iter().filter(|folder| folder.join(".codex") != folders.codex_home) {
            let layer = read(files, "project", folder.join(".codex").join(CONFIG)).await;
            projects_bytes += layer.as_ref().map_or(0, |layer| layer.bytes);
            // The system's and the user's file have room beside them.
            if projects_bytes > CONFIG_BYTES - 2 * CONFIG_FILE_BYTES {
                return Err(reply::config_too_large(CONFIG_BYTES));
            }
            projects.extend(layer);
        }
    }
    let system = project_layers(system, keys);
    // What an organisation prescribes stands above the machine's own file and below the user's.
    let cloud_insertion_index = system.len() as u64;
    let others = project_layers(user.into_iter().chain(projects), keys);
    Ok(ConfigStack { layers: system.into_iter().chain(others).collect(), cloud_insertion_index })
}

/// The layers of the requirements that have any of these keys.
pub(super) async fn requirements(files: &dyn Files, keys: &[Vec<String>]) -> ConfigStack {
    let system = read(files, "system", Path::new(SYSTEM_FOLDER).join("requirements.toml")).await;
    let layers = project_layers(system, keys);
    ConfigStack { cloud_insertion_index: layers.len() as u64, layers }
}

async fn read(files: &dyn Files, kind: &'static str, path: PathBuf) -> Option<Layer> {
    let found = files.metadata(&path, LinkPolicy::Follow).await.ok()?;
    if found.size_bytes > CONFIG_FILE_BYTES {
        tracing::warn!(file = %path.display(), "left out: a configuration is not larger than {CONFIG_FILE_BYTES} bytes");
        return None;
    }
    let text = files.read(&path, LinkPolicy::Follow).await.ok()?;
    let bytes = text.len() as u64;
    match std::str::from_utf8(&text).ok().map(str::parse::<Table>) {
        Some(Ok(content)) => Some(Layer { kind, path, bytes, content }),
        Some(Err(error)) => {
            tracing::warn!(file = %path.display(), "left out, because it is not TOML: {}", error.message());
            None
        }
        None => {
            tracing::warn!(file = %path.display(), "left out, because it is not UTF-8");
            None
        }
    }
}

/// The directories of the project, from its root down to `cwd`. The root is the nearest that has a `.git`.
async fn project_folders(files: &dyn Files, cwd: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in cwd.ancestors() {
        folders.insert(0, folder.to_owned());
        if files.metadata(&folder.join(".git"), LinkPolicy::Follow).await.is_ok() {
            return folders;
        }
    }
    vec![cwd.to_owned()]
}

/// Whether the user's configuration trusts the project in this directory.
fn is_trusted(user: &Table, folder: &Path) -> bool {
    let project = folder.to_str().and_then(|folder| user.get("projects")?.get(folder));
    project.and_then(|project| project.get("trust_level")?.as_str()) == Some("trusted")
}

/// Of each layer what was asked for; nothing of those that have none of it.
fn project_layers(layers: impl IntoIterator<Item = Layer>, keys: &[Vec<String>]) -> Vec<ConfigLayer> {
    let project = |layer: Layer| {
        let mut selected = Table::new();
        keys.iter().for_each(|key| select(&layer.content, key, &mut selected));
        Some(ConfigLayer {
            source: format!("{} ({})", layer.kind, layer.path.display()),
            base_dir: layer.path.parent().and_then(convert::uri)?,
            toml: Some(selected)
                .filter(|selected| !selected.is_empty())
                .and_then(|selected| toml::to_string(&selected).ok())?,
        })
    };
    layers.into_iter().filter_map(project).collect()
}

/// Copies the value at `key` to the same place in `selected`.
fn select(content: &Table, key: &[String], selected: &mut Table) {
    let Some((first, rest)) = key.split_first() else { return };
    let Some(value) = content.get(first) else { return };
    if rest.is_empty() {
        selected.insert(first.clone(), value.clone());
        return;
    }
    let Some(within) = value.as_table() else { return };
    let mut below = match selected.remove(first) {
        Some(Value::Table(below)) => below,
        _ => Table::new(),
    };
    select(within, rest, &mut below);
    if !below.is_empty() {
        selected.insert(first.clone(), Value::Table(below));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(content: &str, keys: &[&[&str]]) -> String {
        let content: Table = content.parse().expect("TOML");
        let keys: Vec<Vec<String>> =
            keys.iter().map(|key| key.iter().map(|segment| (*segment).to_owned()).collect()).collect();
        let layer = Layer { kind: "user", path: "/h/.codex/config.toml".into(), bytes: 0, content };
        project_layers([layer], &keys).into_iter().map(|layer| layer.toml).collect()
    }

    #[test]
    fn only_what_was_asked_for_is_told() {
        let content =
            "model = 'm'\n[mcp_servers.a]\ncommand = 'x'\n[mcp_servers.b]\ncommand = 'y'\n[other]\nkey = 's'\n";
        let whole = selected(content, &[&["mcp_servers"]]);
        assert_eq!(whole, "[mcp_servers.a]\ncommand = \"x\"\n\n[mcp_servers.b]\ncommand = \"y\"\n");
        let parts = selected(content, &[&["mcp_servers", "b"], &["model"], &["other", "absent"], &["model", "deep"]]);
        assert_eq!(parts, "model = \"m\"\n\n[mcp_servers.b]\ncommand = \"y\"\n");
        assert_eq!(selected(content, &[&["absent"]]), "");
    }

    #[test]
    fn a_project_is_trusted_if_the_user_says_so() {
        let user: Table = "[projects.\"/w\"]\ntrust_level = 'trusted'\n[projects.\"/x\"]\ntrust_level = 'untrusted'\n"
            .parse()
            .expect("TOML");
        assert!(is_trusted(&user, Path::new("/w")));
        assert!(!is_trusted(&user, Path::new("/x")) && !is_trusted(&user, Path::new("/w/below")));
    }
}
