//! Runs one test inside a runtime of its own and under a deadline.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Runs `test`, which fails if it takes longer than `deadline`. The future is boxed so that this is compiled once and
/// not once per test.
pub fn run_test(name: &str, deadline: Duration, test: Pin<Box<dyn Future<Output = ()> + '_>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a test can make a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(deadline, test).await });
    // A blocking task that hangs must not hide the outcome.
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(outcome.is_ok(), "{name} was not over after {deadline:?}");
}
