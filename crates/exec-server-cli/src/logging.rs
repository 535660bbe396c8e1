//! Logs go to stderr: warnings, and what `RUST_LOG` selects. What others wrote in them does nothing to a terminal.

use std::io::{IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::LogFormat;
use crate::output::visible;

pub(crate) fn init(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| VisibleStderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

/// Stderr, for records of whole lines. Colours pass; other people's text can do no more than change colours.
struct VisibleStderr;

impl Write for VisibleStderr {
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        let mut shown = Vec::with_capacity(record.len());
        for line in record.split_inclusive(|byte| *byte == b'\n') {
            let (line, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |line| (line, b"\n"));
            let mut rest = line;
            while !rest.is_empty() {
                let colour = colour_len(rest);
                shown.extend_from_slice(&rest[..colour]);
                rest = &rest[colour..];
                let until = (0..rest.len()).find(|at| colour_len(&rest[*at..]) > 0).unwrap_or(rest.len());
                shown.extend_from_slice(visible(&rest[..until]).as_bytes());
                rest = &rest[until..];
            }
            shown.extend_from_slice(end);
        }
        std::io::stderr().write_all(&shown)?;
        Ok(record.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// The length of the colour sequence (`ESC [ 1 ; 31 m`) that the bytes begin with; 0 if they do not.
fn colour_len(bytes: &[u8]) -> usize {
    let Some(parameters) = bytes.strip_prefix(b"\x1b[") else { return 0 };
    let digits = parameters.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    if parameters.get(digits) == Some(&b'm') { digits + 3 } else { 0 }
}
