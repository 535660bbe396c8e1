//! Users of this machine, as `runAs` names them: `/etc/passwd` and `/etc/group`, read anew for every start and every file call.
//!
//! Deliberately absent: accounts that only a name service knows (LDAP, sssd), because those cannot be asked without code
//! of libc that loads libraries. Such a user can be named by number if it needs no other groups.

use std::ffi::OsString;
use std::path::PathBuf;

use exec_keeper::protocol::Identity;

/// More groups than the kernel takes (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// A user that a process or a file call shall have the rights of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    identity: Identity,
    name: String,
    home: PathBuf,
    shell: PathBuf,
    /// Whether it is not the user that we are anyway.
    changes_user: bool,
}

/// Finds the user of that name or number, if we may become it. The error is for a person.
pub(crate) fn find(user: &str) -> Result<Account, String> {
    let read = |path: &str| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let passwd = read("/etc/passwd").map_err(|error| format!("/etc/passwd cannot be read: {error}"))?;
    let mut account = parse(user, &passwd, &read("/etc/group").unwrap_or_default())?;
    let own = rustix::process::geteuid();
    if !own.is_root() {
        if account.identity.uid != own.as_raw() {
            let own = own.as_raw();
            return Err(format!("this server runs as user {own}, and only root may act as another ({user})"));
        }
        account.changes_user = false;
    }
    Ok(account)
}

impl Account {
    pub(crate) fn changes_user(&self) -> bool {
        self.changes_user
    }

    /// What the child must become; `None` if it is that already, with the groups that we have.
    pub(crate) fn into_identity(self) -> Option<Identity> {
        self.changes_user.then_some(self.identity)
    }

    /// What `su` sets.
    pub(crate) fn variables(&self) -> [(OsString, OsString); 4] {
        [
            ("HOME".into(), self.home.clone().into()),
            ("USER".into(), self.name.clone().into()),
            ("LOGNAME".into(), self.name.clone().into()),
            ("SHELL".into(), self.shell.clone().into()),
        ]
    }
}

fn parse(user: &str, passwd: &str, group: &str) -> Result<Account, String> {
    let lines = || passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let number: Option<u32> = user.parse().ok().filter(|number| *number != u32::MAX);
    let by_name = lines().find(|fields| fields.first() == Some(&user));
    let found = by_name.or_else(|| lines().find(|fields| number.is_some() && uid_of(fields) == number));
    let Some(fields) = found else {
        return match number {
            // As `su` cannot, but containers do: a number needs no account.
            Some(uid) => Ok(Account {
                identity: Identity { uid, gid: uid, groups: Vec::new() },
                name: user.to_owned(),
                home: "/".into(),
                shell: "/bin/sh".into(),
                changes_user: true,
            }),
            None => Err(format!("there is no user {user:?} in /etc/passwd")),
        };
    };
    let broken = || format!("the line of user {user:?} in /etc/passwd does not read");
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    let uid = uid_of(&fields).ok_or_else(broken)?;
    let gid: u32 = field(3).parse().map_err(|_| broken())?;
    let or = |text: &str, default: &str| PathBuf::from(if text.is_empty() { default } else { text });
    Ok(Account {
        identity: Identity { uid, gid, groups: groups_of(field(0), gid, group) },
        name: field(0).to_owned(),
        home: or(field(5), "/"),
        shell: or(field(6), "/bin/sh"),
        changes_user: true,
    })
}

fn uid_of(fields: &[&str]) -> Option<u32> {
    fields.get(2)?.parse().ok()
}

/// The primary group, and those that list the user as a member, as `initgroups` has them.
fn groups_of(name: &str, primary: u32, group: &str) -> Vec<u32> {
    let member_of = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let id: u32 = fields.get(2)?.parse().ok()?;
        fields.get(3)?.split(',').any(|member| member == name).then_some(id)
    };
    let mut groups = vec![primary];
    for id in group.lines().filter_map(member_of) {
        if !groups.contains(&id) && groups.len() < MOST_GROUPS {
            groups.push(id);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nann:x:1000:100:Ann,,,:/home/ann:\n7:x:70:7::/:/bin/sh\nbad:x:y\n";
    const GROUP: &str = "users:x:100:\nwheel:x:10:bob,ann\nann:x:1000:ann\nusers2:x:100:ann\nodd\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number_with_all_groups() {
        let ann = parse("ann", PASSWD, GROUP).expect("she is there");
        assert_eq!(ann.identity, Identity { uid: 1000, gid: 100, groups: vec![100, 10, 1000] });
        assert_eq!((ann.home.as_path(), ann.shell.as_path()), ("/home/ann".as_ref(), "/bin/sh".as_ref()));
        assert_eq!(parse("1000", PASSWD, GROUP), Ok(ann));
        assert_eq!(parse("7", PASSWD, GROUP).map(|account| account.identity.uid), Ok(70), "a name comes first");
    }

    #[test]
    fn a_number_needs_no_account_and_a_name_does() {
        let identity = parse("4711", PASSWD, GROUP).map(|account| account.identity);
        assert_eq!(identity, Ok(Identity { uid: 4711, gid: 4711, groups: Vec::new() }));
        assert_eq!(parse("eve", PASSWD, GROUP), Err(r#"there is no user "eve" in /etc/passwd"#.to_owned()));
        assert!(parse("bad", PASSWD, GROUP).is_err_and(|why| why.contains("does not read")));
        for strange in ["-1", "4294967295", "1000 ", ""] {
            assert!(parse(strange, PASSWD, GROUP).is_err(), "{strange:?}");
        }
    }
}
