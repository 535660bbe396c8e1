//! `environments.toml`, parsed and validated as a whole: the first problem is reported with its line.
//!
//! The texts are those of Codex, so that a search finds them; file and line are added. No text contains the bearer token.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_transport::Program;
use serde::Deserialize;
use toml::Spanned;
use url::{Host, Url};

use super::{ConfigurationSource, ConfiguredEnvironment, Endpoint, EnvironmentKind, Environments, LOCAL, RemoteServer};
use crate::bootstrap::{BootstrapTarget, BootstrapTargetError};
use crate::limits::ENVIRONMENT_ID_CHARS;

/// Why a configuration file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The fields are the blanks in the texts; lines count from 1.
pub enum ConfigFileError {
    /// It exists and cannot be read.
    #[error("failed to read environment config `{}`: {why}", path.display())]
    Read { path: PathBuf, why: String },
    /// It is not TOML, or has unknown keys or values of the wrong type.
    #[error("{}:{line}: failed to parse environment config `{}`: {why}", path.display(), path.display())]
    Parse { path: PathBuf, line: usize, why: String },
    /// A value is not valid.
    #[error("{}:{line}: {problem}", path.display())]
    Invalid { path: PathBuf, line: usize, problem: ConfigProblem },
}

/// Why a value of the file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The text of each variant says what it is; the fields are the blanks in it.
pub enum ConfigProblem {
    #[error("environment id cannot be empty")]
    EmptyId,
    #[error("environment id `{id}` must not contain surrounding whitespace")]
    SpaceAroundId { id: String },
    #[error("environment id `{id}` is reserved")]
    ReservedId { id: String },
    #[error("environment id `{id}` cannot be longer than {ENVIRONMENT_ID_CHARS} characters")]
    LongId { id: String },
    #[error("environment id `{id}` must contain only ASCII letters, numbers, '-' or '_'")]
    OddId { id: String },
    #[error("environment id `{id}` is duplicated")]
    DuplicateId { id: String },
    #[error("environment `{id}` must set exactly one of url or program")]
    NotOneEndpoint { id: String },
    #[error("environment `{id}` args, env, and cwd require program")]
    NeedsProgram { id: String },
    #[error("environment `{id}` connect_timeout_sec requires url")]
    TimeoutNeedsUrl { id: String },
    #[error("environment `{id}` auth_bearer_token requires url")]
    TokenNeedsUrl { id: String },
    #[error("environment `{id}` auth_bearer_token_env requires url")]
    TokenVariableNeedsUrl { id: String },
    #[error("environment `{id}` must not set both auth_bearer_token and auth_bearer_token_env")]
    TwoTokens { id: String },
    #[error("environment `{id}` auth_bearer_token_env must be the name of a variable")]
    BadTokenVariable { id: String },
    #[error("environment `{id}` program cannot be empty")]
    EmptyProgram { id: String },
    #[error("environment `{id}` {key} must be a number of seconds, 0 or more")]
    BadTimeout { id: String, key: &'static str },
    #[error("environment url cannot be empty")]
    EmptyUrl,
    #[error("environment url `{url}` must use ws:// or wss://")]
    UrlScheme { url: String },
    #[error("environment url `{url}` is invalid: {why}")]
    BadUrl { url: String, why: String },
    #[error("exec-server WebSocket headers require wss:// or a loopback destination")]
    TokenInTheClear,
    #[error("invalid value for exec-server WebSocket header `authorization`")]
    BadToken,
    #[error("default environment id cannot be empty")]
    EmptyDefault,
    #[error("default environment `{id}` is not configured")]
    UnknownDefault { id: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    default: Option<Spanned<String>>,
    include_local: Option<bool>,
    #[serde(default)]
    environments: Vec<EnvironmentTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvironmentTable {
    id: Spanned<String>,
    url: Option<Spanned<String>>,
    auth_bearer_token: Option<Spanned<String>>,
    auth_bearer_token_env: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    args: Option<Spanned<Vec<String>>>,
    env: Option<Spanned<BTreeMap<String, String>>>,
    cwd: Option<Spanned<PathBuf>>,
    connect_timeout_sec: Option<Spanned<f64>>,
    initialize_timeout_sec: Option<Spanned<f64>>,
    #[serde(alias = "reconnect_timeout")]
    reconnect_timeout_sec: Option<Spanned<f64>>,
    #[serde(default)]
    skills: Skills,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Skills {
    #[serde(default)]
    required: Vec<String>,
}

/// A problem and its range in the text.
struct LocatedProblem {
    range: Range<usize>,
    problem: ConfigProblem,
}

fn problem_at<T>(value: &Spanned<T>, problem: ConfigProblem) -> LocatedProblem {
    LocatedProblem { range: value.span(), problem }
}

impl Environments {
    /// The environments that `text` configures; `path` is its file, for errors and relative directories.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigFileError> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = line_of(text, at);
            let (before, value) = text.split_at_checked(at).unwrap_or((text, ""));
            let before = before.rsplit('\n').next().unwrap_or_default();
            let why = explained(error.message(), before, value.lines().next().unwrap_or_default());
            ConfigFileError::Parse { path: path.to_owned(), line, why }
        })?;
        validate(file, path).map_err(|LocatedProblem { range, problem }| ConfigFileError::Invalid {
            path: path.to_owned(),
            line: line_of(text, range.start),
            problem,
        })
    }
}

impl RemoteServer {
    /// A server that is added to those of a file, under the same rules as there.
    pub fn checked(id: &str, url: &str, bearer_token: Option<&str>) -> Result<Self, ConfigProblem> {
        // Whoever may add a server must not make us run ssh with the keys of the gateway's account, or docker.
        if BootstrapTarget::is_meant_by(url.trim()) {
            return Err(ConfigProblem::UrlScheme { url: url.to_owned() });
        }
        let spanned = |text: &str| Spanned::new(0..0, text.to_owned());
        let table = EnvironmentTable {
            id: spanned(id),
            url: Some(spanned(url)),
            auth_bearer_token: bearer_token.map(spanned),
            auth_bearer_token_env: None,
            program: None,
            args: None,
            env: None,
            cwd: None,
            connect_timeout_sec: None,
            initialize_timeout_sec: None,
            reconnect_timeout_sec: None,
            skills: Skills::default(),
        };
        let checked =
            validate_id(&table.id, &mut BTreeSet::new()).and_then(|()| validate_table(&table, Path::new("/")));
        checked.map_err(|LocatedProblem { problem, .. }| problem)
    }
}

/// The parser says that a value has the wrong type, and not of which key. What stands before the value in its line is that only
/// if it is a key and nothing else: in a list or table of several lines it may be another value, and a secret.
fn explained(message: &str, before: &str, value: &str) -> String {
    let is_in_key = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    let key = before.trim_end().strip_suffix('=').map(str::trim);
    match key.filter(|key| !key.is_empty() && key.chars().all(is_in_key)) {
        Some(key) if message.starts_with("invalid type") => format!("{message}, for `{key}`"),
        _ if (before.to_owned() + value).trim() == "[environments]" => {
            format!("{message}: write `[[environments]]`, with two brackets")
        }
        _ => message.to_owned(),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

fn validate(file: ConfigFile, path: &Path) -> Result<Environments, LocatedProblem> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut environments = Vec::new();
    let include_local = file.include_local.unwrap_or(true);
    if include_local {
        environments.push(ConfiguredEnvironment { id: LOCAL.to_owned(), kind: EnvironmentKind::Local });
    }
    let mut taken = BTreeSet::new();
    for table in file.environments {
        validate_id(&table.id, &mut taken)?;
        let kind = EnvironmentKind::Remote(Box::new(validate_table(&table, directory)?));
        environments.push(ConfiguredEnvironment { id: table.id.into_inner(), kind });
    }
    let default = match &file.default {
        None => include_local.then(|| LOCAL.to_owned()),
        Some(default) => validate_default(default, &environments)?,
    };
    let (names_default, source) = (file.default.is_some(), ConfigurationSource::File(path.to_owned()));
    Ok(Environments { environments, default, names_default, source })
}

fn validate_id(id: &Spanned<String>, taken: &mut BTreeSet<String>) -> Result<(), LocatedProblem> {
    let name = id.get_ref();
    let problem = |problem: fn(String) -> ConfigProblem| Err(problem_at(id, problem(name.clone())));
    if name.trim().is_empty() {
        return problem(|_| ConfigProblem::EmptyId);
    }
    if name.trim() != name {
        return problem(|id| ConfigProblem::SpaceAroundId { id });
    }
    if [LOCAL, "none"].iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return problem(|id| ConfigProblem::ReservedId { id });
    }
    if name.chars().count() > ENVIRONMENT_ID_CHARS {
        return problem(|id| ConfigProblem::LongId { id });
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
        return problem(|id| ConfigProblem::OddId { id });
    }
    if !taken.insert(name.clone()) {
        return problem(|id| ConfigProblem::DuplicateId { id });
    }
    Ok(())
}

fn validate_default(
    default: &Spanned<String>,
    environments: &[ConfiguredEnvironment],
) -> Result<Option<String>, LocatedProblem> {
    let name = default.get_ref().trim();
    if name.is_empty() {
        return Err(problem_at(default, ConfigProblem::EmptyDefault));
    }
    if name.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    if !environments.iter().any(|environment| environment.id == name) {
        return Err(problem_at(default, ConfigProblem::UnknownDefault { id: name.to_owned() }));
    }
    Ok(Some(name.to_owned()))
}

fn validate_table(table: &EnvironmentTable, directory: &Path) -> Result<RemoteServer, LocatedProblem> {
    let id = || table.id.get_ref().clone();
    let endpoint = match (&table.url, &table.program) {
        (Some(url), None) => validate_url(table, url)?,
        (None, Some(program)) => validate_program(table, program, directory)?,
        _ => return Err(problem_at(&table.id, ConfigProblem::NotOneEndpoint { id: id() })),
    };
    let seconds = |key, value: &Option<Spanned<f64>>| {
        let Some(value) = value else { return Ok(None) };
        let time = Duration::try_from_secs_f64(*value.get_ref());
        time.map(Some).map_err(|_| problem_at(value, ConfigProblem::BadTimeout { id: id(), key }))
    };
    Ok(RemoteServer {
        tls: None,
        connect_timeout: seconds("connect_timeout_sec", &table.connect_timeout_sec)?,
        initialize_timeout: seconds("initialize_timeout_sec", &table.initialize_timeout_sec)?,
        reconnect_timeout: seconds("reconnect_timeout_sec", &table.reconnect_timeout_sec)?,
        token_variable: table.auth_bearer_token_env.as_ref().map(|name| name.get_ref().clone()),
        required_skills: table.skills.required.clone(),
        ..RemoteServer::new(endpoint)
    })
}

fn validate_url(table: &EnvironmentTable, url: &Spanned<String>) -> Result<Endpoint, LocatedProblem> {
    let id = || table.id.get_ref().clone();
    let of_program = [
        table.args.as_ref().map(Spanned::span),
        table.env.as_ref().map(Spanned::span),
        table.cwd.as_ref().map(Spanned::span),
    ];
    if let Some(range) = of_program.into_iter().flatten().next() {
        return Err(LocatedProblem { range, problem: ConfigProblem::NeedsProgram { id: id() } });
    }
    let text = url.get_ref().trim();
    if text.is_empty() {
        return Err(problem_at(url, ConfigProblem::EmptyUrl));
    }
    let endpoint = |bearer_token| Endpoint::Url { url: text.to_owned(), bearer_token };
    // Our extensions: a unix socket, whose file has an owner, and places that ssh and its like lead to. They need no token.
    if BootstrapTarget::is_meant_by(text) {
        let bad =
            |error: BootstrapTargetError| ConfigProblem::BadUrl { url: text.to_owned(), why: error.problem.to_owned() };
        text.parse::<BootstrapTarget>().map_err(|error| problem_at(url, bad(error)))?;
    }
    if text.starts_with("unix://") || BootstrapTarget::is_meant_by(text) {
        refuse_tokens(table)?;
        return Ok(endpoint(None));
    }
    let lower = text.to_ascii_lowercase();
    if !lower.starts_with("ws://") && !lower.starts_with("wss://") {
        return Err(problem_at(url, ConfigProblem::UrlScheme { url: text.to_owned() }));
    }
    let bad = |why: String| problem_at(url, ConfigProblem::BadUrl { url: text.to_owned(), why });
    let parsed = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    text.parse::<exec_transport::ConnectUrl>().map_err(|error| bad(error.to_string()))?;
    let token = match (&table.auth_bearer_token, &table.auth_bearer_token_env) {
        (None, None) => return Ok(endpoint(None)),
        (Some(_), Some(variable)) => return Err(problem_at(variable, ConfigProblem::TwoTokens { id: id() })),
        (Some(token), None) | (None, Some(token)) => token,
    };
    if parsed.scheme() != "wss" && !is_loopback(&parsed) {
        return Err(problem_at(token, ConfigProblem::TokenInTheClear));
    }
    if let Some(variable) = &table.auth_bearer_token_env {
        let name = variable.get_ref();
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
        return match is_name {
            true => Ok(endpoint(None)),
            false => Err(problem_at(variable, ConfigProblem::BadTokenVariable { id: id() })),
        };
    }
    let is_header_byte = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    if token.get_ref().is_empty() || !token.get_ref().bytes().all(is_header_byte) {
        return Err(problem_at(token, ConfigProblem::BadToken));
    }
    Ok(endpoint(Some(token.get_ref().clone())))
}

/// A token is the header of a WebSocket.
fn refuse_tokens(table: &EnvironmentTable) -> Result<(), LocatedProblem> {
    let id = || table.id.get_ref().clone();
    match (&table.auth_bearer_token, &table.auth_bearer_token_env) {
        (Some(token), _) => Err(problem_at(token, ConfigProblem::TokenNeedsUrl { id: id() })),
        (None, Some(variable)) => Err(problem_at(variable, ConfigProblem::TokenVariableNeedsUrl { id: id() })),
        (None, None) => Ok(()),
    }
}

/// A host name other than `localhost` may be that of any machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn validate_program(
    table: &EnvironmentTable,
    program: &Spanned<String>,
    directory: &Path,
) -> Result<Endpoint, LocatedProblem> {
    let id = || table.id.get_ref().clone();
    if let Some(timeout) = &table.connect_timeout_sec {
        return Err(problem_at(timeout, ConfigProblem::TimeoutNeedsUrl { id: id() }));
    }
    refuse_tokens(table)?;
    if program.get_ref().trim().is_empty() {
        return Err(problem_at(program, ConfigProblem::EmptyProgram { id: id() }));
    }
    let args = table.args.iter().flat_map(|args| args.get_ref());
    let env = table.env.iter().flat_map(|env| env.get_ref());
    Ok(Endpoint::Program(Program {
        program: program.get_ref().into(),
        args: args.map(Into::into).collect(),
        env: env.map(|(name, value)| (name.into(), value.into())).collect(),
        cwd: table.cwd.as_ref().map(|cwd| directory.join(cwd.get_ref())),
    }))
}
