//! What this machine is: shell, directories, operating system, name.

use std::path::{Path, PathBuf};

use exec_env::{MachineInfo, Shell};

/// Looked up once, when the environment is set up.
pub(crate) fn of_this_machine() -> MachineInfo {
    let account = account();
    let temporary = std::env::var_os("TMPDIR").filter(|directory| !directory.is_empty());
    let cwd = std::env::current_dir().ok();
    let absolute = |directory: PathBuf| cwd.as_ref().map_or(directory.clone(), |cwd| cwd.join(directory));
    MachineInfo {
        shell: shell(account.as_ref().map(|account| account.shell.as_path())),
        cwd: cwd.clone(),
        home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).or(account.map(|account| account.home)),
        temp_dir: absolute(std::env::temp_dir()),
        temporary_directories: temporary.into_iter().map(|directory| absolute(directory.into())).collect(),
        os: std::env::consts::OS.to_owned(),
        hostname: rustix::system::uname().nodename().to_str().ok().map(str::to_owned),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

struct Account {
    home: PathBuf,
    shell: PathBuf,
}

/// From the account database, not from `$SHELL`, which is the shell of the terminal that started us.
fn account() -> Option<Account> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .map(|fields| Account {
            home: fields.get(5).copied().unwrap_or("/").into(),
            shell: fields.get(6).copied().unwrap_or_default().into(),
        })
}

fn shell(of_account: Option<&Path>) -> Shell {
    let known = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        (["bash", "zsh", "sh"].contains(&name) && path.is_file())
            .then(|| Shell { name: name.to_owned(), path: path.to_owned() })
    };
    let fallbacks = ["/bin/bash", "/usr/bin/bash", "/bin/zsh", "/bin/sh"].map(Path::new);
    of_account
        .into_iter()
        .chain(fallbacks)
        .find_map(known)
        .unwrap_or(Shell { name: "sh".into(), path: "/bin/sh".into() })
}
