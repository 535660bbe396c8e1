//! Signals an owner may send to a process group, by name.

/// A signal with the number Linux gives it on every architecture we build for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    Hangup = 1,
    Interrupt = 2,
    Quit = 3,
    Kill = 9,
    User1 = 10,
    User2 = 12,
    Terminate = 15,
    Continue = 18,
    Stop = 19,
    WindowChange = 28,
}

impl Signal {
    /// In the order of their numbers.
    pub const ALL: [Signal; 10] = [
        Self::Hangup,
        Self::Interrupt,
        Self::Quit,
        Self::Kill,
        Self::User1,
        Self::User2,
        Self::Terminate,
        Self::Continue,
        Self::Stop,
        Self::WindowChange,
    ];

    pub const fn number(self) -> i32 {
        self as i32
    }

    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

/// The usual name of any signal number (`SIGTERM`), or `signal 40` for one without a name.
pub fn name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(number - 1).ok().and_then(|index| NAMES.get(index)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}
