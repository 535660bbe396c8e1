//! A supervisor writes for a sandboxed program where no mounts can be had: ordinary programs notice nothing, whoever changes
//! paths while they are used gains nothing, and the server may be killed.

use exec_core::sandbox::SandboxMeans;
use exec_core::{Command, Environ};
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::os_process::eventually;
use rustix::process::Signal;

use super::expectations::Policy;
use super::targets::{Account, Daemon, ProbeTargets, changes};
use crate::durability::support;

/// Uses of a path that changes meanwhile.
const RACES: usize = 50_000;

/// A program that must be there for it, and what a shell does with it.
const WORK: &[(&str, &str)] = &[
    ("sh", "echo a > a && echo b >> a && test $(wc -l < a) = 2 && echo null > /dev/null && echo c > /dev/stdout"),
    ("sh", "echo a > a; ln -s a l; ln a h; echo via > l; grep -q via h; : > a; test ! -s h"),
    ("sh", "cp /bin/true program && ./program && cp /bin/true other && ./other"),
    ("mkfifo", "mkfifo p; (echo hi > p) & test \"$(cat p)\" = hi; wait"),
    ("mkfifo", "mkfifo p; cat p > got & echo there > p; wait; grep -q there got"),
    ("cp", "mkdir -p d/e/f && touch d/e/f/g && cp -a d c && mv c m && rm -rf m && test ! -e m && test -e d/e/f/g"),
    ("sed", "echo a > f && sed -i s/a/b/ f && grep -q b f"),
    ("tar", "mkdir -p d/e x && echo 1 > d/e/f && tar cf t.tar d && tar xf t.tar -C x && cmp d/e/f x/d/e/f"),
    ("install", "install -m 711 /bin/true i && ./i && test $(stat -c %a i) = 711"),
    (
        "sh",
        "umask 0; mkdir w; : > w/f; umask 077; : > w/g; test $(stat -c %a%a%a w w/f w/g | tr -d '\\n') = 777777777666666666600600600",
    ),
    (
        "touch",
        "touch -d 2001-01-01 f && test $(stat -c %Y f) -lt 1000000000 && chmod 640 f && test $(stat -c %a f) = 640",
    ),
    ("find", "mkdir -p d/e; touch d/1 d/e/2 && find d -type f -delete && rmdir d/e d"),
    ("dd", "dd if=/dev/zero of=f bs=1M count=8 status=none && test $(stat -c %s f) = 8388608"),
    (
        "git",
        "git init -q r && cd r && git config user.email a@b && git config user.name n && echo 1 > f && git add f && \
         git commit -qm one && git checkout -q -b x && echo 2 >> f && git commit -qam two && git checkout -q - && \
         git merge -q x && git gc -q && git stash list && cd .. && git clone -q r c && test $(git -C c rev-list --count HEAD) = 2",
    ),
    (
        "python3",
        "python3 -c 'import os, shutil, tempfile\n\
         open(\"f\", \"w\").write(\"x\" * 100000); os.truncate(\"f\", 5); os.makedirs(\"m/k/j\", exist_ok=True)\n\
         with tempfile.TemporaryFile(dir=\".\") as t: t.write(b\"1\")\n\
         os.replace(\"f\", \"g\"); os.utime(\"g\"); shutil.copytree(\"m\", \"n\"); shutil.rmtree(\"n\")\n\
         here = os.open(\".\", os.O_RDONLY)\n\
         new = os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o600); os.write(new, b\"x\")\n\
         os.link(\"/proc/self/fd/%d\" % new, \"linked\", src_dir_fd=here, follow_symlinks=True)\n\
         assert open(\"linked\").read() == \"x\"'",
    ),
    (
        "python3",
        "python3 -c 'import concurrent.futures as c\n\
         list(c.ThreadPoolExecutor(16).map(lambda i: open(\"f%d\" % i, \"w\").write(\"x\"), range(1000)))' && \
         test $(ls | wc -l) = 1000",
    ),
    (
        "python3",
        "python3 -c 'import os, signal\n\
         signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)\n\
         for i in range(2000): os.mkdir(\"d\"); os.rmdir(\"d\")\n\
         signal.setitimer(signal.ITIMER_REAL, 0)'",
    ),
    (
        "python3",
        "python3 -c 'import sqlite3\n\
         c = sqlite3.connect(\"db\"); c.execute(\"create table t (a)\")\n\
         c.executemany(\"insert into t values (?)\", [(i,) for i in range(1000)]); c.commit()\n\
         assert c.execute(\"select count(*) from t\").fetchone() == (1000,)'",
    ),
];

#[test]
fn ordinary_programs_work_where_a_supervisor_writes_for_them() {
    support::run(ordinary_programs_work(&["docker-like"], Account::Own));
}

#[test]
fn ordinary_programs_of_an_ordinary_user_work_where_a_supervisor_writes_for_them() {
    support::run(ordinary_programs_work(&["docker-like"], Account::Ordinary));
}

#[test]
fn whoever_changes_paths_while_a_supervisor_uses_them_gains_nothing() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Ordinary);
        let daemon = targets.serve(&["docker-like"]).await;
        let before = targets.facts();
        let log = race(&targets, &daemon, true).await;
        assert_eq!(log.exit().shell_code(), 0, "{}", log.stderr());
        let told = log.stdout();
        let numbers =
            told.lines().map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u32>>());
        // Both happened in every race, or nothing has raced.
        assert!(numbers.clone().all(|numbers| numbers.len() == 2 && numbers.iter().all(|count| *count > 0)), "{told}");
        assert!(numbers.flatten().sum::<u32>() as usize > RACES / 10 * 9, "{told}");
        assert_eq!(changes(&before, &targets.facts()), [] as [&std::path::PathBuf; 0], "{told}");
    });
}

/// Otherwise the races would prove nothing.
#[test]
fn whoever_changes_paths_without_a_sandbox_changes_what_they_lead_to() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Ordinary);
        let daemon = targets.serve(&[]).await;
        let before = targets.facts();
        race(&targets, &daemon, false).await;
        let after = targets.facts();
        let changed = changes(&before, &after);
        for part in ["outside", "workspace/.git", "workspace/project/.git"] {
            assert!(changed.iter().any(|path| path.starts_with(targets.path(part))), "{part}: {changed:?}");
        }
    });
}

#[test]
fn a_supervised_process_writes_on_when_its_server_is_killed() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Own);
        let daemon = targets.serve(&["docker-like"]).await;
        let workspace = targets.path("workspace");
        let script = "until test -e go; do sleep 0.02; done; echo x > .git/x; echo written > done";
        let process = daemon.environment.start_command("p", shell(&targets, script)).await;
        let means = process.info().await.sandbox.expect("it is sandboxed").means;
        assert_eq!(means.last(), Some(&SandboxMeans::Supervisor), "{means:?}");
        let keeper = support::keeper_of(&daemon.state);
        let server = exec_testkit::os_process::OsProcess::of(daemon.pid()).expect("it serves");
        server.signal(Signal::KILL);
        eventually("the server is gone", || !server.is_alive()).await;
        std::fs::write(workspace.join("go"), "").expect("the workspace is ours");
        let os_process = process.os_process();
        eventually("the process has ended", || !os_process.is_alive()).await;
        let written = std::fs::read_to_string(workspace.join("done"));
        let protected = workspace.join(".git/x").exists();
        keeper.signal(Signal::TERM);
        keeper.wait_until_gone().await;
        assert_eq!((written.ok().as_deref(), protected), (Some("written\n"), false));
    });
}

/// Without a supervisor nobody writes: neither what is protected, nor what is not.
#[test]
fn a_supervised_process_writes_nothing_once_its_keeper_is_killed() {
    support::run(async {
        let targets = ProbeTargets::new(Account::Own);
        let daemon = targets.serve(&["docker-like"]).await;
        let workspace = targets.path("workspace");
        let script =
            "echo before > before; until test -e go; do sleep 0.02; done; echo after > after; echo x > .git/x; :";
        let process = daemon.environment.start_command("p", shell(&targets, script)).await;
        eventually("it has begun", || workspace.join("before").exists()).await;
        let os_process = process.os_process();
        support::keeper_of(&daemon.state).signal(Signal::KILL);
        std::fs::write(workspace.join("go"), "").expect("the workspace is ours");
        eventually("the process has ended", || !os_process.is_alive()).await;
        assert!(!workspace.join("after").exists() && !workspace.join(".git/x").exists());
    });
}

pub(super) async fn ordinary_programs_work(conditions: &[&str], account: Account) {
    let targets = ProbeTargets::new(account);
    let daemon = targets.serve(conditions).await;
    let before = targets.facts();
    for (at, (program, work)) in WORK.iter().enumerate() {
        let script = format!(
            "command -v {program} > /dev/null || {{ echo absent; exit 0; }}; set -e; mkdir work-{at}; cd work-{at}; {work}"
        );
        let process = daemon.environment.start_command(&format!("work-{at}"), shell(&targets, &script)).await;
        let log = process.read_to_end().await;
        if log.stdout() == "absent\n" {
            eprintln!("SKIPPED: {program} is not installed");
        }
        assert_eq!(log.exit().shell_code(), 0, "{work}\n{}{}", log.stdout(), log.stderr());
    }
    assert_eq!(changes(&before, &targets.facts()), [] as [&std::path::PathBuf; 0]);
}

async fn race(targets: &ProbeTargets, daemon: &Daemon, sandboxed: bool) -> CheckedLog {
    let words = [targets.prober().display().to_string(), "race".to_owned(), RACES.to_string()];
    let command = Command::new(words.into_iter().chain(targets.keys(&[])), targets.path("workspace"));
    let sandbox = sandboxed.then(|| Policy::WorkspaceWrite.sandbox(targets));
    daemon.environment.start_command("race", Command { sandbox, ..command }).await.read_to_end().await
}

pub(super) fn shell(targets: &ProbeTargets, script: &str) -> Command {
    let environ =
        Environ::exactly([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C"), ("HOME", "/nonexistent")]);
    let sandbox = Some(Policy::WorkspaceWrite.sandbox(targets));
    Command { environ, sandbox, ..Command::new(["/bin/sh", "-c", script], targets.path("workspace")) }
}
