//! `install.sh`, as it is shipped; and its tests, against folders and registries that are made up, on this machine.

use anyhow::Result;

use super::Release;

pub(crate) fn script(release: &Release) -> Result<(String, Vec<u8>)> {
    Ok(("install.sh".to_owned(), release.packaging("install.sh")?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    use sha2::{Digest as _, Sha512};
    use tempfile::TempDir;

    use super::super::archive::{FileTree, gzip, tar};
    use super::super::hex_digest;

    const ARCHIVE: &str = "exec-server-1.2.3-x86_64-linux.tar.gz";

    /// An account with nothing in it.
    struct Account {
        home: TempDir,
        path: Option<PathBuf>,
    }

    impl Account {
        fn new() -> Self {
            Self { home: tempfile::tempdir().expect("a folder can be made"), path: None }
        }

        fn install(&self, arguments: &[&str], registry: &str) -> Output {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/install.sh");
            let mut command = Command::new("sh");
            command.arg(script).args(arguments).env("HOME", self.home.path()).env("TMPDIR", self.home.path());
            command.env("EXEC_SERVER_NPM", registry).env("EXEC_SERVER_PYPI", registry);
            if let Some(path) = &self.path {
                let inherited = std::env::var("PATH").expect("tests have a PATH");
                command.env("PATH", format!("{}:{inherited}", path.display()));
            }
            command.output().expect("there is a shell")
        }

        fn installed(&self) -> PathBuf {
            self.home.path().join(".local/bin/exec-server")
        }

        /// It must say why, and leave nothing behind.
        fn refuses(&self, arguments: &[&str], registry: &str, why: &str) {
            let output = self.install(arguments, registry);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(why), "{arguments:?}: {output:?}");
            let left: Vec<_> = std::fs::read_dir(self.home.path()).expect("it is ours").flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }

        fn accepts(&self, arguments: &[&str], registry: &str) {
            let output = self.install(arguments, registry);
            assert!(output.status.success(), "{output:?}");
            let version = Command::new(self.installed()).arg("--version").stdout(Stdio::null()).status();
            assert!(version.expect("it was installed").success());
        }
    }

    /// A real program of this machine in the place of ours, whose machine is said to be this.
    fn program(machine: [u8; 2]) -> Vec<u8> {
        let mut program = std::fs::read("/bin/true").expect("every Linux has it");
        program[18..20].copy_from_slice(&machine);
        program
    }

    const X86_64: [u8; 2] = [0x3e, 0];
    const AARCH64: [u8; 2] = [0xb7, 0];

    fn archive(program: Vec<u8>) -> Vec<u8> {
        let mut files = FileTree::default();
        files.program("exec-server", program);
        files.file("man/man1/exec-server.1", "the page");
        files.file("completions/bash/exec-server", "the script");
        gzip(&tar(&files.below("exec-server-1.2.3-x86_64-linux"), "", 7).expect("the names fit"))
            .expect("there is gzip")
    }

    /// A folder as `dist` leaves it.
    fn folder(archive: &[u8]) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let sums = format!("{}  {ARCHIVE}\n{}  other.deb\n", hex_digest(archive), hex_digest(b"x"));
        std::fs::write(folder.path().join("SHA256SUMS"), sums).expect("the folder is ours");
        std::fs::write(folder.path().join(ARCHIVE), archive).expect("the folder is ours");
        folder
    }

    /// Serves these paths as long as the test runs.
    fn serve(files: HashMap<String, Vec<u8>>) -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let accepting = listener.try_clone().expect("there are descriptors");
        // It ends with the process of the test: nextest runs each in its own.
        std::thread::spawn(move || {
            for stream in accepting.incoming().flatten() {
                let _ = answer(stream, &files);
            }
        });
        (listener, url)
    }

    fn answer(stream: TcpStream, files: &HashMap<String, Vec<u8>>) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
        while reader.read_line(&mut line)? > 2 {}
        let stream = reader.get_mut();
        match files.get(&path) {
            Some(content) => {
                write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", content.len())?;
                stream.write_all(content)
            }
            None => write!(stream, "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        }
    }

    #[test]
    fn from_a_folder_the_binary_its_pages_and_completions_are_installed() {
        let account = Account::new();
        let folder = folder(&archive(program(X86_64)));
        let folder = folder.path().display().to_string();
        account.accepts(&[&folder], "");
        let share = account.home.path().join(".local/share");
        for (path, content) in
            [("man/man1/exec-server.1", "the page"), ("bash-completion/completions/exec-server", "the script")]
        {
            assert_eq!(std::fs::read_to_string(share.join(path)).expect("it was installed"), content);
        }
        // Again, over a program that runs: it is replaced, not written to.
        let other = account.home.path().join("other");
        account.accepts(&["--prefix", &other.display().to_string(), &folder], "");
        assert!(other.join("bin/exec-server").exists());
        account.accepts(&[&folder], "");
    }

    #[test]
    fn what_was_changed_is_not_installed() {
        let account = Account::new();
        let good = archive(program(X86_64));
        let folder = folder(&good);
        let mut changed = good.clone();
        *changed.last_mut().expect("it is not empty") ^= 1;
        std::fs::write(folder.path().join(ARCHIVE), changed).expect("the folder is ours");
        let path = folder.path().display().to_string();
        account.refuses(&[&path], "", "is not what SHA256SUMS says");
        std::fs::remove_file(folder.path().join(ARCHIVE)).expect("it is there");
        account.refuses(&[&path], "", "which is not in");
        std::fs::write(folder.path().join(ARCHIVE), &good).expect("the folder is ours");
        account.refuses(&["--sha256", &hex_digest(b"another"), &path], "", "is not what --sha256 says");
        account.accepts(&["--sha256", &hex_digest(&good), &path], "");
    }

    #[test]
    fn without_sums_nothing_is_installed() {
        let account = Account::new();
        let folder = folder(&archive(program(X86_64)));
        let path = folder.path().display().to_string();
        let sums = folder.path().join("SHA256SUMS");
        std::fs::write(&sums, "").expect("the folder is ours");
        account.refuses(&[&path], "", "names no archive for x86_64");
        std::fs::write(&sums, format!("{}  ../{ARCHIVE}\n", hex_digest(b"x"))).expect("the folder is ours");
        account.refuses(&[&path], "", "names no archive for x86_64");
        std::fs::remove_file(&sums).expect("it is there");
        account.refuses(&[&path], "", "there is no SHA256SUMS");
    }

    #[test]
    fn a_binary_for_another_machine_is_refused() {
        let account = Account::new();
        let other = folder(&archive(program(AARCH64)));
        account.refuses(&[&other.path().display().to_string()], "", "for another machine than x86_64");
        let nonsense = folder(&archive(b"#!/bin/sh\n".to_vec()));
        account.refuses(&[&nonsense.path().display().to_string()], "", "there is no program exec-server");

        // A machine of another kind, as far as the script can tell.
        let programs = tempfile::tempdir().expect("a folder can be made");
        let uname = programs.path().join("uname");
        std::fs::write(&uname, "#!/bin/sh\ncase $1 in -m) echo aarch64 ;; *) echo Linux ;; esac\n").expect("ours");
        std::fs::set_permissions(&uname, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let account = Account { path: Some(programs.path().to_owned()), ..Account::new() };
        let good = folder(&archive(program(X86_64)));
        account.refuses(&[&good.path().display().to_string()], "", "no exec-server for aarch64");
    }

    #[test]
    fn a_url_is_a_folder_and_only_a_safe_one() {
        let account = Account::new();
        let good = archive(program(X86_64));
        let sums = format!("{}  {ARCHIVE}\n", hex_digest(&good));
        let files = [("/d/SHA256SUMS".to_owned(), sums.into_bytes()), (format!("/d/{ARCHIVE}"), good)];
        let (_listener, url) = serve(HashMap::from(files));
        account.refuses(&[&format!("{url}/elsewhere")], "", "cannot fetch");
        account.refuses(&["http://example.com/d"], "", "only https:// is safe");
        account.refuses(&["http://localhost.example.com/d"], "", "only https:// is safe");
        account.accepts(&[&format!("{url}/d/")], "");
    }

    #[test]
    fn a_package_of_npm_is_verified_by_the_digest_of_the_registry() {
        let mut files = FileTree::default();
        files.program("package/bin/exec-server", program(X86_64));
        let package = gzip(&tar(&files, "", 7).expect("the names fit")).expect("there is gzip");
        let (_listener, url) = serve(HashMap::from([("/good.tgz".to_owned(), package.clone())]));
        let described = |integrity: &str| {
            let text = format!("{{\"dist\": {{\"tarball\": \"{url}/good.tgz\", \"integrity\": \"{integrity}\"}}}}");
            text.into_bytes()
        };
        let digest = format!("sha512-{}", base64(&Sha512::digest(&package)));
        let (_registry, registry) = serve(HashMap::from([
            ("/@exec%2fserver/latest".to_owned(), described(&digest)),
            ("/@exec%2fserver/1.0.0".to_owned(), described(&format!("sha512-{}", base64(&Sha512::digest(b"x"))))),
            ("/@exec%2fserver/0.9.0".to_owned(), described("sha1-only")),
        ]));
        let account = Account::new();
        account.refuses(&["npm:@exec/server@1.0.0"], &registry, "is not what the npm registry says");
        account.refuses(&["npm:@exec/server@0.9.0"], &registry, "cannot be verified");
        account.refuses(&["npm:@exec/server@2.0.0"], &registry, "cannot fetch");
        account.accepts(&["npm:@exec/server"], &registry);
    }

    #[test]
    fn a_wheel_is_verified_by_the_digest_of_the_index() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::create_dir_all(folder.path().join("data/scripts")).expect("the folder is ours");
        std::fs::write(folder.path().join("data/scripts/exec-server"), program(X86_64)).expect("the folder is ours");
        let mut zip = Command::new("python3");
        zip.args(["-m", "zipfile", "-c", "w.whl", "data"]).current_dir(folder.path()).stdout(Stdio::null());
        assert!(zip.status().expect("there is Python").success());
        let wheel = std::fs::read(folder.path().join("w.whl")).expect("it was made");
        let name = |version: &str| format!("exec_server-{version}-cp39-abi3-manylinux_2_17_x86_64.whl");
        let link = |version: &str, digest: &str| format!("<a href=\"/w/{0}#sha256={digest}\">{0}</a>\n", name(version));
        let good = hex_digest(&wheel);
        let index = [link("1.0", &hex_digest(b"x")), link("1.1", &good)].concat();
        let index = index.replace("/w/", "../../w/");
        let (_listener, registry) = serve(HashMap::from([
            ("/simple/exec-server/".to_owned(), index.into_bytes()),
            (format!("/w/{}", name("1.0")), wheel.clone()),
            (format!("/w/{}", name("1.1")), wheel),
        ]));
        let account = Account::new();
        account.refuses(&["pypi:exec-server==1.0"], &registry, "is not what the Python index says");
        account.refuses(&["pypi:exec-server==3.0"], &registry, "no wheel of exec-server 3.0");
        account.accepts(&["pypi:exec-server"], &registry);
    }

    #[test]
    fn mistakes_on_the_command_line_are_told() {
        let account = Account::new();
        account.refuses(&[], "", "name a folder, a URL or a package");
        account.refuses(&["--frobnicate"], "", "is not an option");
        account.refuses(&["a", "b"], "", "one source at a time");
        account.refuses(&["--prefix"], "", "needs a folder");
        // A target that cannot be written: what was there stays.
        let good = folder(&archive(program(X86_64)));
        symlink("/dev/null", account.home.path().join(".local")).expect("the folder is ours");
        let output = account.install(&[&good.path().display().to_string()], "");
        assert!(!output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"), "{output:?}");
    }

    fn base64(bytes: &[u8]) -> String {
        let mut child = Command::new("base64").args(["-w", "0"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.as_mut().expect("there is base64");
        child.stdin.take().expect("piped").write_all(bytes).expect("it reads");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it prints");
        child.wait().expect("it is our child");
        line
    }
}
