//! The program of an actor: tokens into steps.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

/// What remains to be performed. Steps are cut off one by one, so that what follows an `exit` may be anything.
pub(crate) struct Script {
    tokens: VecDeque<OsString>,
}

/// One verb and what it is about.
pub(crate) struct Step {
    pub(crate) verb: String,
    arguments: Vec<OsString>,
}

impl Script {
    pub(crate) fn new(tokens: impl IntoIterator<Item = OsString>) -> Self {
        Self { tokens: tokens.into_iter().collect() }
    }
}

impl Iterator for Script {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let verb = self.tokens.pop_front()?;
        let mut arguments = Vec::new();
        let mut depth = 0_u32;
        while let Some(token) = self.tokens.pop_front() {
            match token.to_str() {
                Some(";") if depth == 0 => break,
                Some("[") => depth += 1,
                Some("]") => {
                    depth = depth.checked_sub(1).unwrap_or_else(|| reject("a bracket closes that was never opened"));
                }
                _ => {}
            }
            arguments.push(token);
        }
        if depth > 0 {
            reject("a bracket is not closed");
        }
        let verb = verb.into_string().unwrap_or_else(|verb| reject(&format!("verb {verb:?} is not text")));
        Some(Step { verb, arguments })
    }
}

impl Step {
    pub(crate) fn argument(&self, index: usize) -> &OsStr {
        self.arguments.get(index).unwrap_or_else(|| reject(&format!("{} lacks argument {index}", self.verb)))
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
            .unwrap_or_else(|| reject(&format!("{}: {argument:?} is no number", self.verb)))
    }

    /// The program in brackets; waiting to be killed, if there is none.
    pub(crate) fn program(&self) -> Vec<OsString> {
        match self.arguments.as_slice() {
            [] => vec!["wait-forever".into()],
            [open, inner @ .., close] if open == "[" && close == "]" => inner.to_vec(),
            _ => reject(&format!("{} wants a program in brackets", self.verb)),
        }
    }
}

/// A mistake in the program is the test author's; it is told and ends the show.
pub(crate) fn reject(why: &str) -> ! {
    eprintln!("actor: {why}");
    std::process::exit(64)
}
