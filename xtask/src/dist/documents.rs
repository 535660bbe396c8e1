//! Completions and manual pages, as the binary itself prints them: they cannot disagree with it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Shells whose completions are shipped, and where in the archive.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "exec-server"), ("zsh", "_exec-server"), ("fish", "exec-server.fish")];

/// Name and text of each.
pub(crate) struct Documents {
    /// By shell: `("bash", "exec-server", text)`.
    pub(crate) completions: Vec<(&'static str, &'static str, Vec<u8>)>,
    /// By file name: `("exec-server-run.1", text)`.
    pub(crate) pages: Vec<(String, Vec<u8>)>,
}

impl Documents {
    pub(crate) fn from_binary(binary: &Path) -> Result<Self> {
        let mut completions = Vec::new();
        for (shell, name) in COMPLETIONS {
            completions.push((shell, name, print(binary, &["completions", shell])?));
        }
        let mut pages = Vec::new();
        add_pages(binary, &[], "exec-server", &mut pages)?;
        ensure!(pages.len() > 1, "the manual page of exec-server names no commands");
        Ok(Self { completions, pages })
    }
}

/// The page of a command, and of all commands below it, which it names.
fn add_pages(binary: &Path, words: &[&str], name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let text = print(binary, &[&["man"], words].concat())?;
    let page = String::from_utf8_lossy(&text).into_owned();
    pages.push((format!("{name}.1"), text));
    for command in commands_below(&page, name) {
        add_pages(binary, &[words, &[&command]].concat(), &format!("{name}-{command}"), pages)?;
    }
    Ok(())
}

/// A page lists them as `exec\-server\-run(1)`, each on a line of its own.
fn commands_below(page: &str, name: &str) -> Vec<String> {
    let prefix = format!("{name}-");
    let mut found: Vec<String> = Vec::new();
    for line in page.lines() {
        let line = line.replace("\\-", "-");
        let command = line.trim().strip_suffix("(1)").and_then(|line| line.strip_prefix(&prefix));
        if let Some(command) = command.filter(|command| *command != "help") {
            found.push(command.to_owned());
        }
    }
    found
}

fn print(binary: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(binary).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && !output.stdout.is_empty(), "exec-server {}: {said}", arguments.join(" "));
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_pages_below_it() {
        let page = ".SH SUBCOMMANDS\n.TP\nexec\\-server\\-run(1)\nRun\n.TP\nexec\\-server\\-app\\-server(1)\nx\n\
                    .TP\nexec\\-server\\-help(1)\nsee exec\\-server\\-run(1) too\n";
        assert_eq!(commands_below(page, "exec-server"), ["run", "app-server"]);
        assert_eq!(commands_below(page, "exec-server-run"), Vec::<String>::new());
    }
}
