//! `examples`: runs every example of the workspace to its end. They assert what they show, so a run is a test.
//!
//! They are built as the step `build` of `ci` builds them, and not by `cargo run -p`, which would choose other features
//! for the dependencies and compile all of them again.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::ci::{BUILD, run_logged};
use crate::workspace::Workspace;

/// Each of them takes a second or two; one that takes this long hangs.
const TIME_LIMIT: &str = "120s";

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    run_logged(workspace, "examples-build", &mut workspace.cargo(BUILD))?;
    let names = names(workspace);
    ensure!(!names.is_empty(), "the workspace has no examples; were they moved?");
    for name in names {
        let program = workspace.target.join("debug/examples").join(name);
        let mut command = Command::new("timeout");
        run_logged(workspace, &format!("example-{name}"), command.arg(TIME_LIMIT).arg(program))?;
        println!("    {name}");
    }
    Ok(())
}

fn names(workspace: &Workspace) -> Vec<&str> {
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    targets.filter(|target| target.kind == ["example"]).map(|target| target.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_the_examples_directory_is_run() {
        let workspace = Workspace::find().expect("this test runs inside the workspace");
        let files = std::fs::read_dir(workspace.root.join("examples")).expect("the examples are readable");
        let mut files: Vec<String> = files
            .map(|file| file.expect("the directory can be listed").path())
            .filter_map(|path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned))
            .collect();
        let mut names = names(&workspace);
        files.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, files);
    }
}
