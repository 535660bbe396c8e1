//! The tools over files, on this machine and at the far end of a connection: [`reading`], [`editing`], [`finding`],
//! [`hostile_files`]; then what has tests of its own: [`counters`] (no update is lost), [`random_edits`] (against a naive
//! model), [`patches`] (against the real Codex), [`killed_edits`] (all or none).

mod counters;
mod editing;
mod finding;
mod hostile_files;
mod killed_edits;
mod patches;
mod random_edits;
mod reading;

use std::path::{Path, PathBuf};

use exec_testkit::TestEnvironment;
use exec_tools::files::{FileToolError, FileTools};

use crate::{environments, remote};

/// The tools, and the directory that they work in.
pub(crate) struct ToolTest {
    pub(crate) tools: FileTools,
    pub(crate) scratch: PathBuf,
    _environment: TestEnvironment,
}

impl ToolTest {
    pub(crate) fn on(environment: TestEnvironment) -> Self {
        let scratch = environment.scratch();
        let tools = FileTools::of(&*environment.environment, &scratch).expect("the scratch directory is absolute");
        Self { tools, scratch, _environment: environment }
    }

    pub(crate) async fn local() -> Self {
        Self::on(environments::keeper_as_thread().await)
    }

    pub(crate) async fn remote() -> Self {
        Self::on(remote::over_unix_socket().await)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch.join(name)
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is below the scratch directory")).expect("it is ours");
        std::fs::write(&path, contents).expect("the scratch directory is ours");
        path
    }

    pub(crate) fn contents(&self, name: impl AsRef<Path>) -> Option<String> {
        let bytes = std::fs::read(self.path(name)).ok()?;
        Some(String::from_utf8(bytes).expect("the test writes text"))
    }
}

/// The words of an error.
pub(crate) fn message<T: std::fmt::Debug>(outcome: Result<T, FileToolError>) -> String {
    outcome.expect_err("the test expects a refusal").to_string()
}

/// Makes two tests of each behaviour: on this machine, and over a connection.
macro_rules! near_and_far {
    ($($behaviour:ident,)*) => {
        mod near { $(
            #[tokio::test]
            async fn $behaviour() {
                super::$behaviour(crate::file_tools::ToolTest::local().await).await;
            }
        )* }
        mod far { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(crate::file_tools::ToolTest::remote().await).await;
            }
        )* }
    };
}

pub(crate) use near_and_far;
