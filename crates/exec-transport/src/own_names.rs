//! What this machine is called: names by which clients may know it, and for which it may show a certificate.

/// The names that this machine has by its own configuration: its host name, alone and with the domains that it searches,
/// and what `/etc/hosts` calls it. No name server is asked, because it might be the one that misleads the browser.
pub(crate) fn own_names() -> Vec<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    own_names_from(&name, &read("/etc/hosts"), &read("/etc/resolv.conf"))
}

fn own_names_from(name: &str, hosts: &str, resolver: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    let mut names = vec![name.to_owned()];
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let aliases: Vec<&str> = line.split_whitespace().skip(1).collect();
        if aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name)) {
            names.extend(aliases.into_iter().map(str::to_owned));
        }
    }
    for line in resolver.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("search" | "domain")) {
            names.extend(words.map(|domain| format!("{name}.{}", domain.trim_end_matches('.'))));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_knows_its_names_from_its_own_files() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 devbox.corp.example devbox # mine\n10.0.0.9 other.example other\n";
        let resolver = "nameserver 10.0.0.1\nsearch lab.example corp.example.\n";
        let names = own_names_from("devbox", hosts, resolver);
        assert_eq!(names, ["devbox", "devbox.corp.example", "devbox", "devbox.lab.example", "devbox.corp.example"]);
        assert_eq!(own_names_from("", hosts, resolver), Vec::<String>::new());
    }
}
