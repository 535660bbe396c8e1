//! The released Codex CLI, installed from npm: the oracle of every comparison, and the client that ours must satisfy.
//!
//! It is kept in the user's cache directory, so a machine downloads it once. Deliberately absent: any version but one;
//! what is compared is what that version does.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The version everything is compared with.
pub const VERSION: &str = "0.166.0";

/// Why there is no Codex here.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error("npm is not installed, so Codex {VERSION} cannot be fetched: install nodejs and npm")]
    NoNpm,
    #[error("cannot use the cache folder {path:?}: {error}")]
    Cache { path: PathBuf, error: std::io::Error },
    #[error("npm cannot install @openai/codex@{VERSION}: {message}")]
    Install { message: String },
    #[error("@openai/codex@{VERSION} was installed in {path:?}, but has no native binary for this machine")]
    NoBinary { path: PathBuf },
}

/// The native binary of Codex. Without npm there is none: the reason is printed, and the caller skips its test. Any
/// other failure fails the test.
pub fn codex_binary() -> Option<PathBuf> {
    match install() {
        Ok(binary) => Some(binary),
        Err(missing @ Missing::NoNpm) => {
            eprintln!("SKIPPED: {missing}");
            None
        }
        Err(missing) => panic!("{missing}"),
    }
}

/// Finds Codex in the cache folder, or puts it there.
pub fn install() -> Result<PathBuf, Missing> {
    let home = cache_directory();
    if let Some(binary) = native_binary(&home) {
        return Ok(binary);
    }
    let cache = |error| Missing::Cache { path: home.clone(), error };
    let parent = home.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(cache)?;
    // Tests run in many processes at once. Each installs into a folder of its own, and the first to finish gives its
    // folder the name that all look for; nobody ever sees half an installation.
    let staging = tempfile::Builder::new().prefix("codex-").tempdir_in(parent).map_err(cache)?;
    npm_install(staging.path())?;
    if native_binary(staging.path()).is_none() {
        return Err(Missing::NoBinary { path: staging.path().to_owned() });
    }
    let staged = staging.keep();
    if std::fs::rename(&staged, &home).is_err() {
        let _ = std::fs::remove_dir_all(&staged);
    }
    native_binary(&home).ok_or(Missing::NoBinary { path: home })
}

fn npm_install(folder: &Path) -> Result<(), Missing> {
    let package = format!("@openai/codex@{VERSION}");
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix"]).arg(folder).arg(package);
    let done = npm.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Missing::NoNpm,
        _ => Missing::Install { message: error.to_string() },
    })?;
    if !done.status.success() {
        let message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(Missing::Install { message });
    }
    Ok(())
}

fn cache_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("exec-server-tests").join(format!("codex-{VERSION}"))
}

/// npm keeps the binary of each platform in a package of its own: `@openai/codex-PLATFORM/vendor/TRIPLE/bin/codex`,
/// beside the launcher or below it.
fn native_binary(folder: &Path) -> Option<PathBuf> {
    let scope = folder.join("node_modules/@openai");
    [scope.clone(), scope.join("codex/node_modules/@openai")].iter().find_map(|scope| {
        let platforms = directories_in(scope).into_iter().filter(|path| name_of(path).starts_with("codex-"));
        let triples = platforms.flat_map(|platform| directories_in(&platform.join("vendor")));
        triples.map(|triple| triple.join("bin/codex")).find(|binary| binary.is_file())
    })
}

fn directories_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
