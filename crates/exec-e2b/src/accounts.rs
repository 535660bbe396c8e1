//! The names of users and groups of an environment: its `/etc/passwd` and `/etc/group`, read through the waist.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use exec_env::files::{Files, LinkPolicy};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    users: Vec<User>,
    groups: HashMap<u32, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) home: PathBuf,
}

impl Accounts {
    /// What cannot be read has no names: then numbers are told.
    pub(crate) async fn read(files: &dyn Files) -> Self {
        let text = async |path: &str| match files.read(Path::new(path), LinkPolicy::Follow).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                tracing::debug!(%error, "users and groups are told by number");
                String::new()
            }
        };
        Self::parse(&text("/etc/passwd").await, &text("/etc/group").await)
    }

    fn parse(passwd: &str, group: &str) -> Self {
        let users = passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, _, _, home, ..] = fields[..] else { return None };
            Some(User { name: name.to_owned(), uid: uid.parse().ok()?, home: home.into() })
        });
        let groups = group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, gid) = (fields.next()?, fields.nth(1)?);
            Some((gid.parse().ok()?, name.to_owned()))
        });
        Self { users: users.collect(), groups: groups.collect() }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// The name, or the number if there is none.
    pub(crate) fn user_name(&self, uid: u32) -> String {
        let user = self.users.iter().find(|user| user.uid == uid);
        user.map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    pub(crate) fn group_name(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_numbers_stay_where_there_are_none() {
        let accounts = Accounts::parse("root:x:0:0:root:/root:/bin/bash\nbroken\n", "wheel:x:0:\nx\n");
        assert_eq!((accounts.user_name(0), accounts.group_name(0)), ("root".to_owned(), "wheel".to_owned()));
        assert_eq!((accounts.user_name(7), accounts.group_name(7)), ("7".to_owned(), "7".to_owned()));
        assert_eq!(accounts.by_name("root").map(|user| user.home.clone()), Some("/root".into()));
        assert_eq!(accounts.by_name("broken"), None);
    }
}
