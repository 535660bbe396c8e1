//! `exec-server audit`: checks an audit log, and shows it to people. [`log`] is where `serve` writes it, [`chain`] what its
//! lines are.

mod chain;
pub(crate) mod log;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Map, Value};

use crate::args::{AuditCommand, AuditTailArgs, AuditVerifyArgs};
use crate::exit_code;
use crate::fs::file_info::format_date;
use crate::messages;
use crate::output::StdoutBuffer;
use chain::{Verifier, read_line};

/// How often `tail -f` looks for more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn run(command: &AuditCommand) -> anyhow::Result<u8> {
    match command {
        AuditCommand::Verify(args) => verify(args),
        AuditCommand::Tail(args) => tail(args).await,
    }
}

/// Says the first thing that is wrong, or that nothing is.
fn verify(args: &AuditVerifyArgs) -> anyhow::Result<u8> {
    let mut files = Vec::new();
    for path in &args.files {
        files.push((first_seq(path)?, path));
    }
    // Whatever the order on the command line: rotated files are listed by the shell after the newest.
    files.sort();
    let mut verifier = Verifier::default();
    let mut has_kept = args.contains.is_none();
    for (at, (_, path)) in files.iter().enumerate() {
        let mut reader = BufReader::new(open(path)?);
        let mut line = Vec::new();
        let mut number = 0u64;
        while reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", path.display()))? > 0 {
            number += 1;
            let Some(whole) = line.strip_suffix(b"\n") else {
                let cut = line.len();
                let why = match at + 1 == files.len() {
                    true => format!("it is cut after {cut} bytes: its writer was killed, or is just writing it"),
                    false => format!("it is cut after {cut} bytes, though another file follows"),
                };
                return broken(path, number, &why);
            };
            match verifier.take(whole) {
                Ok(read) => has_kept |= args.contains.as_ref() == Some(&read.hash),
                Err(why) => return broken(path, number, &why),
            }
            line.clear();
        }
    }
    let Some(last) = verifier.last() else { anyhow::bail!("there is no line in it") };
    if !has_kept {
        messages::print_note(
            "no line has the hash that --contains names: the log was cut off before it, or is another one",
        );
        return Ok(exit_code::FAILED);
    }
    let mut told =
        format!("{} lines, {} to {}, in order and unchanged\n", verifier.lines, verifier.first_seq, last.seq);
    if verifier.first_seq > 1 {
        told.push_str("the lines before the first are in files that were not given, or were removed\n");
    }
    told.push_str(&format!("last hash: {}\n", last.hash));
    messages::print_stdout(told.as_bytes())?;
    Ok(0)
}

fn broken(path: &Path, number: u64, why: &str) -> anyhow::Result<u8> {
    messages::print_note(format_args!("{}:{number}: {why}", path.display()));
    Ok(exit_code::FAILED)
}

/// By what the file's first line says of itself, true or not; what is wrong with it is told when it is read.
fn first_seq(path: &Path) -> anyhow::Result<u64> {
    let mut line = Vec::new();
    BufReader::new(open(path)?)
        .read_until(b'\n', &mut line)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(read_line(line.trim_ascii_end()).map_or(u64::MAX, |line| line.seq))
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Prints the last lines for people, and with `-f` those that come.
async fn tail(args: &AuditTailArgs) -> anyhow::Result<u8> {
    let mut stdout = StdoutBuffer::new();
    let mut followed = FollowedFile::open(&args.file)?;
    let text = followed.read_more()?;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let first = lines.len().saturating_sub(args.lines);
    for line in &lines[first..] {
        print_line(&mut stdout, line);
    }
    stdout.flush().await?;
    if !args.follow {
        return Ok(0);
    }
    let mut unfinished = Vec::new();
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        unfinished.extend(followed.read_more()?);
        while let Some(end) = unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unfinished.drain(..=end).collect();
            print_line(&mut stdout, &line);
        }
        stdout.flush().await?;
    }
}

/// A log that is read as it grows, and in the file that takes its place when it is rotated.
struct FollowedFile {
    path: PathBuf,
    file: File,
    inode: u64,
    read: u64,
}

impl FollowedFile {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { path: path.to_owned(), file, inode, read: 0 })
    }

    fn read_more(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(self.read))?;
        self.read +=
            self.file.read_to_end(&mut text).with_context(|| format!("cannot read {}", self.path.display()))? as u64;
        if text.is_empty()
            && let Ok(found) = std::fs::metadata(&self.path)
            && found.ino() != self.inode
        {
            *self = Self::open(&self.path)?;
        }
        Ok(text)
    }
}

/// `2026-11-16 00:05:24 UTC  #7 processStarted  session=… process=… argv=["make","test"]`, or why it is no such line.
fn print_line(stdout: &mut StdoutBuffer, line: &[u8]) {
    let line = line.trim_ascii_end();
    if line.is_empty() {
        return;
    }
    let text = match (read_line(line), serde_json::from_slice::<Map<String, Value>>(line)) {
        (Ok(read), Ok(members)) => {
            let at = format_date(UNIX_EPOCH + Duration::from_millis(read.at_ms));
            let mut text = format!("{at}  #{} {}", read.seq, read.event);
            for (name, value) in members.iter().filter(|(name, _)| !CHAIN_MEMBERS.contains(&name.as_str())) {
                match value {
                    Value::String(word) if !word.is_empty() && !word.contains(char::is_whitespace) => {
                        text.push_str(&format!(" {name}={word}"));
                    }
                    value => text.push_str(&format!(" {name}={value}")),
                }
            }
            text
        }
        (Err(why), _) => format!("BROKEN ({why}): {}", String::from_utf8_lossy(line)),
        (Ok(_), Err(_)) => "BROKEN".to_owned(),
    };
    stdout.push_text(&text);
    stdout.push("\n");
}

/// What is shown before the others, or not at all.
const CHAIN_MEMBERS: [&str; 5] = ["seq", "prev", "atMs", "event", "hash"];
