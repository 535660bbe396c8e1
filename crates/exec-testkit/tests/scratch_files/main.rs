//! Temporary: remote files alone, to iterate on.
#[allow(dead_code)]
mod environments;
#[allow(dead_code)]
mod remote;
mod remote_files;
mod durability {
    pub(crate) mod support {
        pub(crate) fn run(test: impl Future<Output = ()>) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("a test can make a runtime");
            let verdict =
                runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(120), test).await });
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
            assert!(verdict.is_ok(), "not over");
        }
    }
}
