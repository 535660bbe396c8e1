//! What a policy costs a small file: the medians of calls with and without one, which take turns.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exec_core::sandbox::{FileAccess, FilePolicy, FileRule, NetworkPolicy, RuleTarget, SandboxPolicy};
use exec_env::Environment;
use exec_env::files::{Files, LinkPolicy, WriteOptions};

const CALLS: usize = 2000;
const FILE_BYTES: usize = 4 << 10;

pub(super) async fn measure(url: &str, folder: &Path) {
    let env = super::library::connect(url).await;
    let path = folder.join("small");
    let bytes = Bytes::from(vec![b'x'; FILE_BYTES]);
    env.files().write(&path, bytes.clone(), WriteOptions::default()).await.expect("the folder is ours");
    let bound = env.files().under_policy(Arc::new(workspace_write(folder)));
    let files: [&dyn Files; 2] = [env.files(), &*bound];
    let (mut reads, mut writes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..CALLS {
        for (at, files) in files.iter().enumerate() {
            let begun = Instant::now();
            files.read(&path, LinkPolicy::Follow).await.expect("it is there");
            reads[at].push(begun.elapsed());
            let begun = Instant::now();
            files.write(&path, bytes.clone(), WriteOptions::default()).await.expect("it may be written");
            writes[at].push(begun.elapsed());
        }
    }
    println!("a file of {} KiB over a WebSocket, without and with Codex's policy workspace-write", FILE_BYTES >> 10);
    for (name, samples) in [("read", reads), ("write", writes)] {
        let [plain, bound] = samples.map(median);
        let ratio = bound.as_secs_f64() / plain.as_secs_f64();
        println!("{name:<14}{:>10.1} µs{:>10.1} µs{ratio:>10.2} ×", micros(plain), micros(bound));
    }
}

/// Everything is read; the folder and the temporary directories are written but for what is protected in them.
fn workspace_write(folder: &Path) -> SandboxPolicy {
    let rule = |path: &Path, access| FileRule { target: RuleTarget::Path(path.to_owned()), access };
    let mut rules = vec![
        rule(Path::new("/"), FileAccess::Read),
        rule(folder, FileAccess::Write),
        rule(Path::new("/tmp"), FileAccess::Write),
        FileRule { target: RuleTarget::TemporaryDirectory, access: FileAccess::Write },
    ];
    rules.extend([".git", ".agents", ".codex", ".aws"].map(|name| rule(&folder.join(name), FileAccess::Read)));
    SandboxPolicy { files: FilePolicy::Restricted { rules, glob_scan_depth: None }, network: NetworkPolicy::Restricted }
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
