//! Parses the program of an actor: arguments into calls of verbs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

/// What remains to be run. Calls are parsed one by one, so that what follows an `exit` may be anything.
pub(crate) struct Program {
    tokens: VecDeque<OsString>,
}

pub(crate) struct VerbCall {
    pub(crate) verb: String,
    arguments: Vec<OsString>,
}

impl Program {
    pub(crate) fn new(tokens: impl IntoIterator<Item = OsString>) -> Self {
        Self { tokens: tokens.into_iter().collect() }
    }
}

impl Iterator for Program {
    type Item = VerbCall;

    fn next(&mut self) -> Option<VerbCall> {
        let verb = self.tokens.pop_front()?;
        let mut arguments = Vec::new();
        let mut depth = 0_u32;
        while let Some(token) = self.tokens.pop_front() {
            match token.to_str() {
                Some(";") if depth == 0 => break,
                Some("[") => depth += 1,
                Some("]") => {
                    depth = depth.checked_sub(1).unwrap_or_else(|| fail("a bracket closes that was never opened"));
                }
                _ => {}
            }
            arguments.push(token);
        }
        if depth > 0 {
            fail("a bracket is not closed");
        }
        let verb = verb.into_string().unwrap_or_else(|verb| fail(&format!("verb {verb:?} is not text")));
        Some(VerbCall { verb, arguments })
    }
}

impl VerbCall {
    pub(crate) fn argument(&self, index: usize) -> &OsStr {
        self.arguments.get(index).unwrap_or_else(|| fail(&format!("{} lacks argument {index}", self.verb)))
    }

    pub(crate) fn word(&self, index: usize) -> String {
        self.argument(index).to_str().unwrap_or_else(|| fail("an argument is not text")).to_owned()
    }

    /// All arguments as one line, as `echo` would join them.
    pub(crate) fn text(&self) -> OsString {
        self.arguments.join(OsStr::new(" "))
    }

    pub(crate) fn number<N: FromStr>(&self, index: usize) -> N {
        let argument = self.argument(index);
        argument
            .to_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| fail(&format!("{}: {argument:?} is no number", self.verb)))
    }

    /// The program in brackets; waiting to be killed, if there is none.
    pub(crate) fn program(&self) -> Vec<OsString> {
        match self.arguments.as_slice() {
            [] => vec!["wait-forever".into()],
            [open, inner @ .., close] if open == "[" && close == "]" => inner.to_vec(),
            _ => fail(&format!("{} wants a program in brackets", self.verb)),
        }
    }
}

/// Ends the actor: the test's author wrote a wrong program, or the machine does not let it run.
pub(crate) fn fail(why: &str) -> ! {
    eprintln!("actor: {why}");
    std::process::exit(64)
}
