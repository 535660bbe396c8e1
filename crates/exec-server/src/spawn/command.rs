//! What to run, said as with `std::process::Command`; the rest is filled in when it is known where it runs.
//!
//! Variables are inherited from the machine that runs the process: those of this program if the environment is this
//! machine, those of the server if it is a far one. So is the working directory.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use exec_core::{EnvPolicy, Io, TerminalSize, TimeLimit};
use uuid::Uuid;

use crate::{MachineInfo, ProcessId};

/// How many bytes of a program's name an id repeats. It is for people who look at a list.
const NAME_BYTES: usize = 32;

/// A program, its arguments, and how to start it.
///
/// Without more said it has the variables and the working directory of its environment, `/dev/null` as stdin, and pipes
/// as stdout and stderr, from which everything is kept.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its working directory is only right once [`Self::into_request`] has set it.
    request: exec_core::Command,
    /// Relative to the environment's; that itself if absent.
    cwd: Option<PathBuf>,
    id: Option<ProcessId>,
}

impl Command {
    /// A program by its path, or by a name that the `PATH` of the environment leads to.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut request = exec_core::Command::new([program.as_ref()], PathBuf::new());
        request.environ.policy = Some(EnvPolicy::everything());
        Self { request, cwd: None, id: None }
    }

    /// One argument more.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.request.argv.push(argument.as_ref().to_owned());
        self
    }

    /// Several arguments more.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.request.argv.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.request.environ.vars.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Sets several variables.
    #[must_use]
    pub fn envs(mut self, variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>) -> Self {
        let owned = |(name, value): (_, _)| {
            (AsRef::<OsStr>::as_ref(&name).to_owned(), AsRef::<OsStr>::as_ref(&value).to_owned())
        };
        self.request.environ.vars.extend(variables.into_iter().map(owned));
        self
    }

    /// Takes a variable away, whether it was set here or would be inherited. As for all that is not inherited, upper and
    /// lower case are the same.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        self.request.environ.vars.remove(OsStr::new(name));
        if let Some(policy) = &mut self.request.environ.policy {
            policy.exclude.push(name.to_owned());
        }
        self
    }

    /// Takes all variables away; only those that are set later remain.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.request.environ = exec_core::Environ::default();
        self
    }

    /// The working directory; a relative one is relative to that of the environment.
    #[must_use]
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cwd = Some(directory.into());
        self
    }

    /// Makes stdin a pipe, to be written with [`super::Process::stdin`]. Without it, stdin is `/dev/null`.
    #[must_use]
    pub fn piped_stdin(mut self) -> Self {
        self.request.io = Io::Pipes { stdin: true };
        self
    }

    /// Makes all three streams a terminal of this size.
    #[must_use]
    pub fn terminal(mut self, size: TerminalSize) -> Self {
        self.request.io = Io::Pty(size);
        self
    }

    /// Ends the whole process tree this long after its start; SIGTERM comes first, SIGKILL after `grace`.
    #[must_use]
    pub fn time_limit(mut self, after: Duration, grace: Duration) -> Self {
        self.request.time_limit = Some(TimeLimit { after, grace });
        self
    }

    /// The id by which to find it again. Without one, an id is made of the program's name and random digits.
    #[must_use]
    pub fn id(mut self, id: ProcessId) -> Self {
        self.id = Some(id);
        self
    }

    /// Changes what no method here names: its limits, its sandbox, its user, how much of its output is kept.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut exec_core::Command)) -> Self {
        change(&mut self.request);
        self
    }

    /// The whole request, on the machine that will run it, and its id: for those who start it by [`crate::Processes::start`].
    pub fn into_request(self, machine: &MachineInfo) -> (ProcessId, exec_core::Command) {
        let Self { mut request, cwd, id } = self;
        // A path that `configure` has set is one more way to say it.
        let said = cwd.unwrap_or_else(|| std::mem::take(&mut request.cwd));
        let base = machine.cwd.as_deref().or(machine.home.as_deref()).unwrap_or(Path::new("/"));
        request.cwd = if said.as_os_str().is_empty() { base.to_owned() } else { base.join(said) };
        let id = id.unwrap_or_else(|| made_id(&request.argv));
        (id, request)
    }
}

/// `make-1f0c…`: who lists processes sees what it is, and nobody else has it.
fn made_id(argv: &[OsString]) -> ProcessId {
    let program = argv.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._+".contains(*letter);
    let name: String = program.chars().filter(is_plain).take(NAME_BYTES).collect();
    let random = Uuid::new_v4().simple();
    let id = if name.is_empty() { random.to_string() } else { format!("{name}-{random}") };
    ProcessId::new(id).expect("a short name and 32 digits are within the bound of an id")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cwd: Option<&str>, home: Option<&str>) -> MachineInfo {
        MachineInfo { cwd: cwd.map(PathBuf::from), home: home.map(PathBuf::from), ..MachineInfo::unknown() }
    }

    fn cwd(command: Command, machine: &MachineInfo) -> PathBuf {
        command.into_request(machine).1.cwd
    }

    #[test]
    fn the_working_directory_is_that_of_the_environment_then_its_home() {
        assert_eq!(cwd(Command::new("ls"), &machine(Some("/w"), Some("/h"))), Path::new("/w"));
        assert_eq!(cwd(Command::new("ls"), &machine(None, Some("/h"))), Path::new("/h"));
        assert_eq!(cwd(Command::new("ls"), &machine(None, None)), Path::new("/"));
    }

    #[test]
    fn a_relative_directory_begins_there_and_a_full_one_does_not() {
        let here = machine(Some("/w"), None);
        assert_eq!(cwd(Command::new("ls").current_dir("a/b"), &here), Path::new("/w/a/b"));
        assert_eq!(cwd(Command::new("ls").current_dir("/a"), &here), Path::new("/a"));
    }

    #[test]
    fn an_id_shows_the_program_and_is_never_made_twice() {
        let make = || Command::new("/usr/bin/ma ke").into_request(&machine(None, None)).0;
        let (first, second) = (make(), make());
        assert!(first.as_str().starts_with("make-"), "{first}");
        assert_ne!(first, second);
        let long = "x".repeat(5000);
        assert!(Command::new(long).into_request(&machine(None, None)).0.as_str().len() < 100);
    }

    #[test]
    fn what_is_cleared_is_not_inherited_and_what_is_set_later_remains() {
        let command = Command::new("env").env("A", "1").env_clear().env("B", "2");
        let (_, request) = command.into_request(&machine(None, None));
        assert_eq!(request.environ, exec_core::Environ::exactly([("B", "2")]));
    }
}
