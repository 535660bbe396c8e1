//! The arguments of the commands on files: `fs` and `cp`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

use super::TargetArgs;
use super::mode::{ModeChange, mode_change};
use super::values::{bytes, mode};

const WHERE_FILES_ARE: &str = "\
A path is one of the environment that --environment or --connect names; without them, of the default of \
environments.toml, else of EXEC_SERVER_URL, else of this machine. ENV:PATH is a path of the environment with the id ENV, \
and `local:PATH` one of this machine. A relative path begins at the folder its server was started in; here, at the \
current one. A file with a colon in its name is written ./a:b.";

/// Look at and change files, here or in another environment
#[derive(Debug, Args)]
#[command(after_help = WHERE_FILES_ARE)]
pub(crate) struct FsArgs {
    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    Ls(LsArgs),
    Cat(CatArgs),
    Stat(StatArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Mv(MvArgs),
    Find(FindArgs),
    Grep(Box<GrepArgs>),
    Watch(WatchArgs),
    Head(HeadArgs),
    Write(WriteArgs),
    Chmod(ChmodArgs),
}

/// List directories
///
/// On a terminal: a table with permissions, size, age and name. In a pipe: one name per line, byte for byte.
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct LsArgs {
    /// Which directories or files
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<OsString>,
    /// Also names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// The table, in a pipe too
    #[arg(short, long, conflicts_with = "one")]
    pub(crate) long: bool,
    /// One name per line, on a terminal too
    #[arg(short = '1', long = "one")]
    pub(crate) one: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Print files to stdout; of any size, in little memory
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct CatArgs {
    /// Which files, one after the other
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Print the beginning of files
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct HeadArgs {
    /// Which files
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// How many lines; -20 means the same as -n 20
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub(crate) lines: u64,
    /// How many bytes instead, as 100 or 64K
    #[arg(short = 'c', long, value_name = "SIZE", value_parser = bytes, conflicts_with = "lines")]
    pub(crate) bytes: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Write our stdin to a file; of any size, in little memory, and whole or not at all
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct WriteArgs {
    /// Which file; what is there is replaced
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Add to the end of what is there
    #[arg(short, long)]
    pub(crate) append: bool,
    /// Permissions, in octal: 640 [default: those of the file that is there, else 666 less the umask]
    #[arg(short, long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Change the permissions of files
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct ChmodArgs {
    /// As chmod takes it: 755, +x, u+rw,go-w, a=rX
    #[arg(value_name = "MODE", value_parser = mode_change, allow_hyphen_values = true)]
    pub(crate) mode: ModeChange,
    /// Of which files; what a link leads to is changed, and not the link
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Tell what is known about files: kind, size, permissions, owner, times
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct StatArgs {
    /// Which
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Also the BLAKE3 of the contents; the other end reads the whole file for it
    #[arg(long)]
    pub(crate) hash: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Remove files, links (never what they lead to) and directories
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct RmArgs {
    /// Which
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Be content with those that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Make directories
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct MkdirArgs {
    /// Which
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Make what is missing on the way, and be content with those that exist
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as in chmod: 750 [default: 777 less the umask]
    #[arg(short, long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Give files another name, or move them into a directory; within one environment
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct MvArgs {
    /// What to move, and where to: the last is a new name, or a directory that exists
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Fail where there is something at the new name already
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

const FIND: &str = "\
Patterns: * matches within a name, ** across directories, ? one character, [a-z] one of these, {a,b} one of those. A \
pattern without a slash is matched with the name alone, at any depth; one with a slash, with the path below PATH.

Examples:
  exec-server fs find src -g '*.rs'             every Rust file below src
  exec-server fs find build:/srv -t d           every directory below /srv over there
  exec-server fs find -i -g 'docs/**/*.md'     without what .gitignore leaves out";

/// Find files by name and kind
#[derive(Debug, Args)]
#[command(after_help = FIND, after_long_help = format!("{FIND}\n\n{WHERE_FILES_ARE}"))]
pub(crate) struct FindArgs {
    /// Below which directory
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: OsString,
    /// Only what matches this pattern (may be repeated; one is enough)
    #[arg(short, long = "glob", value_name = "PATTERN")]
    pub(crate) globs: Vec<String>,
    /// Only files, directories or links
    #[arg(short = 't', long = "type", value_name = "KIND")]
    pub(crate) kind: Option<FindKind>,
    /// Leave out what .gitignore and .ignore files say
    #[arg(short, long)]
    pub(crate) ignore: bool,
    /// Leave out names that begin with a dot, and what is below them
    #[arg(long)]
    pub(crate) no_hidden: bool,
    /// Stop after this many paths
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindKind {
    /// Regular files
    #[value(alias = "file")]
    F,
    /// Directories
    #[value(aliases = ["dir", "directory"])]
    D,
    /// Symbolic links
    #[value(aliases = ["link", "symlink"])]
    L,
}

const GREP: &str = "\
Exit codes, as those of grep: 0 if something was found, 1 if nothing was, 2 if something failed.

Binary files, names that begin with a dot and what .gitignore and .ignore files say are left out; --hidden and \
--no-ignore change the last two.";

/// Search in the contents of files
#[derive(Debug, Args)]
#[command(after_help = GREP, after_long_help = format!("{GREP}\n\n{WHERE_FILES_ARE}"))]
pub(crate) struct GrepArgs {
    /// A regular expression over one line; with -F, the text itself
    pub(crate) pattern: String,
    /// Directories to search with all below them, or files
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<OsString>,
    /// Case does not matter
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Case matters only if the pattern has a capital letter
    #[arg(short = 'S', long, conflicts_with = "ignore_case")]
    pub(crate) smart_case: bool,
    /// The pattern is text, no regular expression
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// Only where it stands as a word of its own
    #[arg(short, long)]
    pub(crate) word: bool,
    /// Lines to show around each match
    #[arg(short = 'C', long, value_name = "N")]
    pub(crate) context: Option<u32>,
    /// Lines to show before each match
    #[arg(short = 'B', long, value_name = "N")]
    pub(crate) before: Option<u32>,
    /// Lines to show after each match
    #[arg(short = 'A', long, value_name = "N")]
    pub(crate) after: Option<u32>,
    /// Which files: '*.rs' takes, '!*.min.js' leaves out (may be repeated; the last that matches decides)
    #[arg(short, long = "glob", value_name = "PATTERN")]
    pub(crate) globs: Vec<String>,
    /// Only the names of the files with a match
    #[arg(short = 'l', long)]
    pub(crate) files_with_matches: bool,
    /// Matching lines of one file
    #[arg(short, long, value_name = "N")]
    pub(crate) max_count: Option<u64>,
    /// Stop after this many matching lines
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: u64,
    /// Also names that begin with a dot
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Also what .gitignore and .ignore files say
    #[arg(long)]
    pub(crate) no_ignore: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Print a line for each change at and below a path, until Ctrl-C
#[derive(Debug, Args)]
#[command(after_long_help = WHERE_FILES_ARE)]
pub(crate) struct WatchArgs {
    /// What to watch
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: OsString,
    /// Only the directory itself, not those below
    #[arg(long)]
    pub(crate) flat: bool,
    /// Leave out what .gitignore and .ignore files say, and .git
    #[arg(short, long)]
    pub(crate) ignore: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The arguments that all of them have.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

const CP: &str = "\
Copy files and directories: here, within an environment, to one, from one, or from one to another.

A plain path is one of this machine. ENV:PATH is one of the environment with the id ENV (see `exec-server env list`), \
and :PATH one of the environment that --environment or --connect names, else of the default. A relative path there \
begins at the folder its server was started in. A local file with a colon in its name is written ./a:b. One path may be \
`-`: our stdin as what to copy, our stdout as where to.

Contents stream in blocks, in little memory; a connection that breaks is looked for again, and the copy goes on where \
it was. Each file is compared at both ends by its BLAKE3, and appears under its name whole or not at all. Permissions \
and times are kept; owners are not, and set-user-id and set-group-id go where the owner or the machine is another. With \
-r, symbolic links are copied as links, and nothing is written through a link in the target; FIFOs, sockets and devices \
are left out, and counted; what cannot be copied is told, and the rest is copied.";

const CP_EXAMPLES: &str = "\
Examples:
  exec-server cp notes.txt build:/tmp/            into a directory there
  exec-server cp -r build:/srv/app/target ./out   a whole tree, from there
  exec-server cp -r src/. build:/srv/app          what is in src, into a directory there
  exec-server cp a.txt b.txt build:work/          several files, into a directory
  tar c src | exec-server cp - build:/srv/src.tar   our stdin, into a file there; `cp build:/a -` prints one
  exec-server cp --connect unix:///tmp/x.sock big.iso :/data/big.iso

Lines of --json:
  {\"event\":\"file\",\"from\":{...},\"to\":{...},\"bytes\":17,\"hash\":\"...\"}    one that went between machines
  {\"event\":\"progress\",\"bytes\":1048576,\"totalBytes\":4194304}           about once a second
  {\"event\":\"failed\",\"reason\":\"ENOENT\",\"message\":\"...\"}                the others go on
  {\"event\":\"done\",\"files\":1,\"directories\":0,\"symlinks\":0,\"bytes\":17,\"skipped\":0,\"elapsedMs\":12}";

/// Copy files and directories between here and other environments
#[derive(Debug, Args)]
#[command(long_about = CP, after_help = CP_EXAMPLES)]
pub(crate) struct CpArgs {
    /// What to copy, and where to: the last is a new name, or a directory that exists
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Directories with everything in them; links as links
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Say nothing but failures
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
