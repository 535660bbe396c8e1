//! The binary that is sent: which file it is, its digest, and the system that it is for.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// A binary that can be run at a place of its system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarBinary {
    path: PathBuf,
    /// SHA-256, in hex.
    pub digest: String,
    /// How long it is.
    pub bytes: u64,
    /// As `uname -sm` calls it.
    pub system: String,
}

/// Why there is no binary to send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The fields are the blanks in the texts.
pub enum BinaryError {
    /// This program is not exec-server, and no other is known.
    #[error(
        "there is no exec-server here to send there: name one (`server_binary` in a program, EXEC_SERVER_BINARY in the \
         environment), or put `exec-server` on the PATH"
    )]
    NotFound,
    /// It cannot be read.
    #[error("cannot read the binary {}: {why}", path.display())]
    Read { path: PathBuf, why: String },
    /// It is no program for a machine that we know.
    #[error("{} is no Linux program for a machine that is known here", path.display())]
    NotAProgram { path: PathBuf },
}

impl FarBinary {
    /// Looks at the file that was chosen; at the default if it is `None`.
    pub(super) async fn find(chosen: Option<PathBuf>, packaged: Option<PathBuf>) -> Result<Self, BinaryError> {
        let path = chosen.or_else(|| default_path(packaged)).ok_or(BinaryError::NotFound)?;
        let (unreadable, odd) = (path.clone(), path.clone());
        let failed = move |why: String| BinaryError::Read { path: unreadable.clone(), why };
        let looked = tokio::task::spawn_blocking(move || Self::look_at(path)).await;
        let looked = looked.map_err(|error| failed(error.to_string()))?;
        looked.map_err(|error| failed(error.to_string()))?.ok_or(BinaryError::NotAProgram { path: odd })
    }

    fn look_at(path: PathBuf) -> io::Result<Option<Self>> {
        let mut file = File::open(&path)?;
        let (mut digest, mut bytes, mut beginning) = (Sha256::new(), 0, Vec::new());
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => {
                    digest.update(&piece[..read]);
                    if bytes == 0 {
                        beginning = piece[..read.min(20)].to_vec();
                    }
                    bytes += read as u64;
                }
            }
        }
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(machine(&beginning).map(|machine| Self { path, digest, bytes, system: format!("Linux {machine}") }))
    }

    pub(super) async fn open(&self) -> io::Result<Pieces> {
        let path = self.path.clone();
        let file = tokio::task::spawn_blocking(move || File::open(path)).await.map_err(io::Error::other)??;
        Ok(Pieces { file: Some(file), left: self.bytes })
    }
}

/// A file, read piece by piece, to the length that it had.
pub(super) struct Pieces {
    file: Option<File>,
    left: u64,
}

impl Pieces {
    pub(super) async fn next(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let wanted = self.left.min(most as u64) as usize;
        let Some(mut file) = self.file.take().filter(|_| wanted > 0) else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; wanted];
            file.read_exact(&mut piece).map(|()| (file, piece))
        });
        let (file, piece) = read.await.map_err(io::Error::other)??;
        self.file = Some(file);
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }
}

/// A program that embeds us is not exec-server itself, and must not be sent. The variable comes before what a package
/// brought: it is how somebody who did not write the program brings one for another architecture.
fn default_path(packaged: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("EXEC_SERVER_BINARY").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    if let Some(path) = packaged.filter(|path| path.is_file()) {
        return Some(path);
    }
    let own = Path::new("/proc/self/exe");
    let name = std::fs::read_link(own).ok()?;
    // What was replaced while it runs is " (deleted)", and can still be read.
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.trim_end_matches(" (deleted)") == "exec-server" {
        return Some(own.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join("exec-server")).find(|path| path.is_file())
}

/// What `uname -m` calls the machine of an ELF file that begins so.
fn machine(beginning: &[u8]) -> Option<&'static str> {
    let [0x7f, b'E', b'L', b'F', class, order, ..] = beginning else { return None };
    let number: [u8; 2] = beginning.get(18..20)?.try_into().ok()?;
    let number = if *order == 2 { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) };
    Some(match (number, class) {
        (62, _) => "x86_64",
        (183, _) => "aarch64",
        (243, 2) => "riscv64",
        (22, 2) => "s390x",
        (21, 2) => "ppc64le",
        (40, _) => "armv7l",
        (3, _) => "i686",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn our_own_program_is_for_this_machine() {
        let binary = FarBinary::find(Some("/proc/self/exe".into()), None).await.expect("it can be read");
        assert_eq!(binary.system, format!("Linux {}", std::env::consts::ARCH));
        assert_eq!((binary.digest.len(), binary.bytes > 0), (64, true));
    }

    #[tokio::test]
    async fn what_is_no_program_is_not_sent() {
        let path = PathBuf::from("/etc/passwd");
        assert_eq!(FarBinary::find(Some(path.clone()), None).await, Err(BinaryError::NotAProgram { path }));
        let missing = FarBinary::find(Some("/nonexistent".into()), None).await.expect_err("it is not there");
        assert!(missing.to_string().starts_with("cannot read the binary /nonexistent: "), "{missing}");
    }
}
