//! The arguments of `exec-server audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  exec-server serve --audit ~/.exec-audit/log --state-dir ~/.exec-server
  exec-server audit tail -f ~/.exec-audit/log
  exec-server audit verify ~/.exec-audit/log*       exit code 1 if anything was changed, with the first line that was
  exec-server audit verify --contains HASH ~/.exec-audit/log*
                                                    also if the log was cut off: HASH is what an earlier verify printed

docs/audit.md says what is recorded.";

/// Check and read the audit log of `serve --audit`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    Verify(AuditVerifyArgs),
    Tail(AuditTailArgs),
}

/// Check that no line was changed, removed or moved; the first that was is told
#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// The log and its rotated files, in any order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The log must have a line of this hash, which was printed before and kept elsewhere
    #[arg(long, value_name = "HASH")]
    pub(crate) contains: Option<String>,
}

/// Print the last lines of a log for people
#[derive(Debug, Args)]
pub(crate) struct AuditTailArgs {
    /// The log
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Wait for more lines, across rotations
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How many lines to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
}
