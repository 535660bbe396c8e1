//! Lists the behaviours of both conformance suites, so that a behaviour is written down once: as a function.
//!
//! Every `pub async fn` of a file in `src/suite/` or `src/suite_files/` is a behaviour, and the file is its area. The
//! macros generated here name them all; `conformance!` and `files_conformance!` make tests of the names. A function
//! that should have been `pub` is dead code, so the compiler reports it.
//!
//! A procedural macro could do the same, but would need a crate of its own; a declarative macro around the functions
//! would keep rustfmt from formatting them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=build.rs");
    let mut source = String::new();
    for (suite, list) in [("suite", "process_behaviours"), ("suite_files", "file_behaviours")] {
        println!("cargo::rerun-if-changed=src/{suite}");
        source += &list_macro(&manifest.join("src").join(suite), suite, list);
    }
    std::fs::write(out.join("behaviours.rs"), source).expect("cargo made the directory for us");
}

/// A macro `list` that hands `suite: area: name, name, …; area: …;` to the macro `behaviour_tests`.
fn list_macro(directory: &Path, suite: &str, list: &str) -> String {
    let files =
        std::fs::read_dir(directory).expect("the suite is there").map(|file| file.expect("it can be listed").path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect();
    files.sort();
    let mut text = format!("#[doc(hidden)]\n#[macro_export]\nmacro_rules! {list} {{\n    () => {{\n");
    text += &format!("    $crate::behaviour_tests! {{\n{suite}:\n");
    for path in files {
        let area = path.file_stem().expect("a source file has a name").to_string_lossy();
        let source = std::fs::read_to_string(&path).expect("a source file is text");
        let names = source.split("\npub async fn ").skip(1).filter_map(|function| function.split_once('('));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        assert!(!names.is_empty(), "{} has no behaviour: no `pub async fn`", path.display());
        writeln!(text, "        {area}: {};", names.join(", ")).expect("a string takes everything");
    }
    text + "    } };\n}\n"
}
