//! The file of a ceiling: TOML, read as a whole before the server begins. A member that nobody knows or a value that means
//! nothing is an error with file and line: a restriction that was misspelt must not be one that is missing.

use std::path::{Path, PathBuf};

use exec_transport::token::{MethodPattern, Root, WeakestSandbox};
use exec_wire::method::Method;
use serde::Deserialize;
use toml::Spanned;

use super::{Ceiling, Roots};

/// Why the file of a ceiling cannot be used. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CeilingFileError {
    #[error("cannot read the policy {}: {why}", path.display())]
    Read { path: PathBuf, why: String },
    #[error("{}:{line}: {why}", path.display())]
    Invalid { path: PathBuf, line: usize, why: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CeilingFile {
    methods: Option<Vec<Spanned<String>>>,
    read: Option<Vec<Spanned<String>>>,
    write: Option<Vec<Spanned<String>>>,
    sandbox: Option<Spanned<String>>,
    network: Option<bool>,
    processes_per_session: Option<Spanned<u64>>,
    processes: Option<Spanned<u64>>,
    spool_bytes: Option<Spanned<u64>>,
    total_spool_bytes: Option<Spanned<u64>>,
}

/// A problem, and where in the text it begins.
struct Problem {
    offset: usize,
    why: String,
}

impl Problem {
    fn at<T>(value: &Spanned<T>, why: impl ToString) -> Self {
        Self { offset: value.span().start, why: why.to_string() }
    }
}

impl Ceiling {
    /// Reads the ceiling in a file.
    pub fn read_file(path: &Path) -> Result<Self, CeilingFileError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| CeilingFileError::Read { path: path.to_owned(), why: error.to_string() })?;
        Self::parse(&text, path)
    }

    /// The ceiling that `text` describes; `path` is its file, for errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, CeilingFileError> {
        let invalid = |offset: usize, why: String| {
            let line = text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1;
            CeilingFileError::Invalid { path: path.to_owned(), line, why }
        };
        let file: CeilingFile = toml::from_str(text)
            .map_err(|error| invalid(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        validate(file).map_err(|problem| invalid(problem.offset, problem.why))
    }
}

fn validate(file: CeilingFile) -> Result<Ceiling, Problem> {
    let methods = file.methods.map(|methods| methods.iter().map(method).collect::<Result<Vec<_>, _>>()).transpose()?;
    let has_roots = file.read.is_some() || file.write.is_some();
    let roots = Roots { read: roots("read", file.read)?, write: roots("write", file.write)? };
    let weakest_sandbox = file.sandbox.as_ref().map(sandbox).transpose()?.flatten();
    if let (Some(Some(WeakestSandbox::WorkspaceWrite)), Some(value)) = (Some(weakest_sandbox), &file.sandbox)
        && roots.write.is_empty()
    {
        let why = "sandbox: workspace-write needs `write`, which says where the workspace is";
        return Err(Problem::at(value, why));
    }
    let count = |name: &str, value: Option<Spanned<u64>>| match value {
        Some(value) if *value.get_ref() == 0 => Err(Problem::at(&value, format!("{name} must be at least 1"))),
        value => Ok(value.map(Spanned::into_inner)),
    };
    let number = |name, value| Ok(count(name, value)?.map(|count| usize::try_from(count).unwrap_or(usize::MAX)));
    Ok(Ceiling {
        methods,
        roots: has_roots.then_some(roots),
        weakest_sandbox,
        network: file.network.unwrap_or(true),
        processes_per_session: number("processes_per_session", file.processes_per_session)?,
        processes: number("processes", file.processes)?,
        spool_bytes: count("spool_bytes", file.spool_bytes)?,
        total_spool_bytes: count("total_spool_bytes", file.total_spool_bytes)?,
    })
}

fn method(text: &Spanned<String>) -> Result<MethodPattern, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::at(text, format!("methods: {why}"));
    let pattern: MethodPattern = text.get_ref().parse().map_err(|error| wrong(&error))?;
    match Method::ALL.iter().any(|method| pattern.matches(method.name())) {
        true => Ok(pattern),
        false => Err(wrong(&format_args!("there is no method {}", text.get_ref()))),
    }
}

fn roots(member: &str, texts: Option<Vec<Spanned<String>>>) -> Result<Vec<Root>, Problem> {
    let mut roots = Vec::new();
    for text in texts.into_iter().flatten() {
        let root = text.get_ref().parse().map_err(|error| Problem::at(&text, format!("{member}: {error}")))?;
        if root == Root::SystemFiles && member == "write" {
            return Err(Problem::at(&text, "write: the system's files are for reading: name them in `read`"));
        }
        roots.push(root);
    }
    Ok(roots)
}

fn sandbox(text: &Spanned<String>) -> Result<Option<WeakestSandbox>, Problem> {
    match text.get_ref().as_str() {
        "none" => Ok(None),
        name => name.parse().map(Some).map_err(|_| {
            Problem::at(text, format!("sandbox: `{name}` is none: write `none`, `workspace-write` or `read-only`"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Ceiling, String> {
        Ceiling::parse(text, Path::new("/p.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_all_that_a_ceiling_can() {
        let text = r#"
            methods = ["process/*", "fs/readFile"]
            read = ["/", "system-files"]
            write = ["/work", "/tmp"]
            sandbox = "workspace-write"
            network = false
            processes_per_session = 4
            processes = 40
            spool_bytes = 1048576
            total_spool_bytes = 4194304
        "#;
        let roots = |roots: &[&str]| roots.iter().map(|root| root.parse().expect("a root")).collect();
        let expected = Ceiling {
            methods: Some(["process/*", "fs/readFile"].map(|pattern| pattern.parse().expect("a pattern")).to_vec()),
            roots: Some(Roots { read: roots(&["/", "system-files"]), write: roots(&["/work", "/tmp"]) }),
            weakest_sandbox: Some(WeakestSandbox::WorkspaceWrite),
            network: false,
            processes_per_session: Some(4),
            processes: Some(40),
            spool_bytes: Some(1 << 20),
            total_spool_bytes: Some(4 << 20),
        };
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse("sandbox = 'none'"), Ok(Ceiling::default()));
        assert_eq!(parse(""), Ok(Ceiling::default()));
    }

    #[test]
    fn what_is_misspelt_is_an_error_with_its_line_and_member() {
        for (text, error) in [
            ("\nnetwrok = false", "/p.toml:2: unknown field `netwrok`"),
            ("network = 'no'", "/p.toml:1: invalid type"),
            ("read = ['/w']\nwrite = ['w']", "/p.toml:2: write: `w` is no root"),
            ("read = ['/w/../x']", "/p.toml:1: read: `/w/../x` is no root"),
            ("write = ['system-files']", "/p.toml:1: write: the system's files are for reading"),
            ("sandbox = 'strict'", "/p.toml:1: sandbox: `strict` is none"),
            ("\n\nsandbox = 'workspace-write'", "/p.toml:3: sandbox: workspace-write needs `write`"),
            ("methods = ['proces/*']", "/p.toml:1: methods: there is no method proces/*"),
            ("methods = ['fs/?']", "/p.toml:1: methods: `fs/?` names no methods"),
            ("processes = 0", "/p.toml:1: processes must be at least 1"),
            ("spool_bytes = -1", "/p.toml:1: invalid value"),
            ("read = [", "/p.toml:1: "),
        ] {
            let told = parse(text).expect_err(text);
            assert!(told.starts_with(error), "{text}: {told}");
        }
    }
}
