//! Patterns of paths as a model writes them. The environment compares them with paths below a directory, so what names that
//! directory, too, is taken away, and what is elsewhere is refused: it would match nothing, and look as if nothing was there.

use std::path::Path;

use super::FileToolError;
use super::paths::resolve;

/// A pattern for [`exec_env::files::GlobQuery`]: without the root and without `.`.
pub(super) fn pattern_below(root: &Path, given: &str) -> Result<String, FileToolError> {
    let pattern = strip_root(root, given).unwrap_or(given);
    let names = names_in(pattern);
    if pattern.starts_with('/') || leads_elsewhere(pattern) {
        return Err(elsewhere(root, given, &names));
    }
    match names.is_empty() {
        true => {
            let what = format!("the pattern {given:?} names nothing below `path`: `**` matches all that is there");
            Err(FileToolError::BadRequest { what })
        }
        false => Ok(names.join("/")),
    }
}

/// A glob for [`exec_env::files::SearchQuery`]. It is one of Git's: `!` before it excludes, and a slash at its beginning stands
/// for the root.
pub(super) fn glob_below(root: &Path, given: &str) -> Result<String, FileToolError> {
    let (mark, glob) = given.split_at(usize::from(given.starts_with('!')));
    let below = match strip_root(root, glob) {
        Some(below) => Some(strip_dots(below).unwrap_or(below)),
        None => strip_dots(glob),
    };
    if leads_elsewhere(below.unwrap_or(glob)) {
        return Err(elsewhere(root, given, &names_in(glob)));
    }
    Ok(match below {
        None => given.to_owned(),
        Some("") => format!("{mark}/**"),
        Some(below) => format!("{mark}/{below}"),
    })
}

/// What is behind the root, without a slash before it.
fn strip_root<'a>(root: &Path, pattern: &'a str) -> Option<&'a str> {
    let below = pattern.strip_prefix(root.to_str()?.trim_end_matches('/'))?;
    (below.is_empty() || below.starts_with('/')).then(|| below.trim_start_matches('/'))
}

/// What is behind `./`, if it begins so.
fn strip_dots(pattern: &str) -> Option<&str> {
    let below = match pattern {
        "." => "",
        _ => pattern.strip_prefix("./")?.trim_start_matches('/'),
    };
    Some(strip_dots(below).unwrap_or(below))
}

fn names_in(pattern: &str) -> Vec<&str> {
    pattern.split('/').filter(|name| !matches!(*name, "" | ".")).collect()
}

/// Whether it names a directory above, or somebody's home, also in an alternative; or its first alternative is absolute. No
/// name below a directory is called so, but for a `~` that nobody means.
fn leads_elsewhere(pattern: &str) -> bool {
    let between_alternatives: &[char] = if pattern.contains('{') { &['/', '{', ',', '}'] } else { &['/'] };
    let first = pattern.trim_start_matches('{');
    let is_absolute = first.len() < pattern.len() && first.starts_with('/');
    is_absolute
        || first == "~"
        || first.starts_with("~/")
        || pattern.split(between_alternatives).any(|name| name == "..")
}

fn elsewhere(root: &Path, given: &str, names: &[&str]) -> FileToolError {
    let is_literal = |name: &&&str| !name.contains(['*', '?', '[', '{', '\\', '!']) && **name != "~";
    let literal = names.iter().take_while(is_literal).count().min(names.len().saturating_sub(1));
    let (directory, rest) = names.split_at(literal);
    let begin = if given.starts_with('/') { Path::new("/") } else { root };
    let place = resolve(begin, Path::new(&format!("./{}", directory.join("/"))));
    let what = match place {
        Ok(place) if !rest.is_empty() && !leads_elsewhere(&rest.join("/")) => {
            format!("give {place:?} as path, and {:?} as pattern", rest.join("/"))
        }
        _ => "give the directory that is meant as path, without `..` and `~`".to_owned(),
    };
    let what = format!("{given:?} can match nothing, because patterns are relative to `path`: {what}");
    FileToolError::BadRequest { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_root_itself_is_taken_away() {
        for (given, expected) in [
            ("a/*.rs", "a/*.rs"),
            ("./a/*.rs", "a/*.rs"),
            ("/w[1]/a/*.rs", "a/*.rs"),
            ("a/.//b/", "a/b"),
            ("**", "**"),
            ("{a,..b}/~", "{a,..b}/~"),
        ] {
            assert_eq!(pattern_below(Path::new("/w[1]"), given), Ok(expected.to_owned()), "{given}");
        }
        for (given, expected) in [
            ("*.rs", "*.rs"),
            ("!*.rs", "!*.rs"),
            ("/a", "/a"),
            ("a/", "a/"),
            ("./a/", "/a/"),
            ("!././a", "!/a"),
            ("/w/a", "/a"),
            ("/w/./a", "/a"),
            ("!/w/a", "!/a"),
            ("/w", "/**"),
            ("./", "/**"),
            ("/word/a", "/word/a"),
        ] {
            assert_eq!(glob_below(Path::new("/w"), given), Ok(expected.to_owned()), "{given}");
        }
        assert_eq!(glob_below(Path::new("/"), "/a/*"), Ok("/a/*".to_owned()));
    }

    #[test]
    fn what_is_elsewhere_is_refused_with_the_call_that_finds_it() {
        for (given, expected) in [
            ("/etc/a*", "give \"/etc\" as path, and \"a*\" as pattern"),
            ("/word/a", "give \"/word\" as path, and \"a\" as pattern"),
            ("../b/*/c", "give \"/v/b\" as path, and \"*/c\" as pattern"),
            ("../..", "give the directory"),
            ("~/a", "give the directory"),
            ("*/../a", "give the directory"),
            ("{a,../b}", "give the directory"),
        ] {
            let refused = pattern_below(Path::new("/v/w"), given).expect_err("it is elsewhere").to_string();
            assert!(refused.contains("relative to `path`") && refused.contains(expected), "{given}: {refused}");
        }
    }
}
