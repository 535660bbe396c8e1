//! Permissions as chmod takes them: octal, or changes such as `u+x,go-w`.

/// What becomes of the permission bits of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModeChange {
    Exactly(u32),
    Clauses(Vec<Clause>),
}

/// `go-w`: whose bits, what is done with them, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clause {
    /// All bits of those who are meant, special ones included.
    who: u32,
    operation: Operation,
    /// As if for everybody; `who` chooses.
    bits: u32,
    /// `X`: execution for directories, and where somebody may execute already.
    if_executable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    Remove,
    Set,
}

impl ModeChange {
    pub(crate) fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        match self {
            Self::Exactly(mode) => *mode,
            Self::Clauses(clauses) => clauses.iter().fold(mode, |mode, clause| clause.apply(mode, is_directory)),
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let execute = if self.if_executable && (is_directory || mode & 0o111 != 0) { 0o111 } else { 0 };
        let bits = (self.bits | execute) & self.who;
        match self.operation {
            Operation::Add => mode | bits,
            Operation::Remove => mode & !bits,
            // As chmod does it: the special bits of a directory stay unless they are named.
            Operation::Set if is_directory => (mode & !(self.who & 0o777)) | bits,
            Operation::Set => (mode & !self.who) | bits,
        }
    }
}

pub(super) fn mode_change(text: &str) -> Result<ModeChange, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return super::values::mode(text).map(ModeChange::Exactly);
    }
    let clauses: Option<Vec<Vec<Clause>>> = text.split(',').map(clause).collect();
    clauses
        .map(|clauses| ModeChange::Clauses(clauses.concat()))
        .ok_or_else(|| format!("{text:?} is no mode: write it as chmod takes it: 755, +x, u+rw,go-w or a=rX"))
}

/// `u+x-w` is two clauses for the same `who`.
fn clause(text: &str) -> Option<Vec<Clause>> {
    let whom = text.find(['+', '-', '='])?;
    let (whom, mut rest) = text.split_at(whom);
    let mut who = 0;
    for c in whom.chars() {
        who |= match c {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let who = if who == 0 { 0o7777 } else { who };
    let mut clauses = Vec::new();
    while let Some(sign) = rest.chars().next() {
        let operation = match sign {
            '+' => Operation::Add,
            '-' => Operation::Remove,
            '=' => Operation::Set,
            _ => return None,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let mut clause = Clause { who, operation, bits: 0, if_executable: false };
        for c in rest[1..end].chars() {
            match c {
                'r' => clause.bits |= 0o444,
                'w' => clause.bits |= 0o222,
                'x' => clause.bits |= 0o111,
                'X' => clause.if_executable = true,
                's' => clause.bits |= 0o6000,
                't' => clause.bits |= 0o1000,
                _ => return None,
            }
        }
        clauses.push(clause);
        rest = &rest[end..];
    }
    Some(clauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str, mode: u32, is_directory: bool) -> u32 {
        mode_change(text).expect(text).apply(mode, is_directory)
    }

    /// Each was tried with GNU chmod under umask 0.
    #[test]
    fn changes_are_those_of_chmod() {
        for (text, before, after) in [
            ("755", 0o600, 0o755),
            ("0640", 0o777, 0o640),
            ("+x", 0o644, 0o755),
            ("u+x", 0o644, 0o744),
            ("go-w", 0o666, 0o644),
            ("a=r", 0o777, 0o444),
            ("u=rwx,go=rx", 0o600, 0o755),
            ("u+x-w", 0o600, 0o500),
            ("g=", 0o777, 0o707),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u+s", 0o755, 0o4755),
            ("+t", 0o777, 0o1777),
            ("=", 0o777, 0),
        ] {
            assert_eq!(applied(text, before, false), after, "{text} on {before:o}");
        }
        assert_eq!(applied("a+X", 0o644, true), 0o755);
        assert_eq!(applied("g=rx", 0o2770, true), 0o2750);
    }

    #[test]
    fn what_is_no_mode_is_told() {
        for text in ["", "x", "u", "u+q", "z+x", "9", "77777", "u+x,", "+x "] {
            mode_change(text).expect_err(text);
        }
    }
}
