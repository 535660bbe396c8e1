//! Names for the completion of shells: the ids of processes and environments, which no script can know.
//!
//! The script that `completions` prints knows subcommands and options, and asks `exec-server complete` first: it gets the
//! place of the word that is completed and all words, and prints candidates, a line each. Nothing is asked over a network:
//! a Tab must not wait.

use clap::{ArgAction, CommandFactory};
use exec_client::Environments;

use crate::args::{Args, CompleteArgs};
use crate::detached_store::DetachedStore;
use crate::messages;

/// What the word that is completed names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Processes,
    Environments,
    /// An environment and a path, with a colon in between.
    Locations,
    Nothing,
}

/// Never fails: a shell would show the reason in the middle of what is typed.
pub(crate) async fn run(args: &CompleteArgs) -> anyhow::Result<u8> {
    let words: Vec<String> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let current = words.get(args.index).map_or("", String::as_str);
    let before = &words[..args.index.min(words.len())];
    let candidates = match names(before, current) {
        Names::Processes => processes(),
        Names::Environments => environments(),
        // After the colon the shell knows nothing, and neither do we.
        Names::Locations if current.contains(['/', ':']) => Vec::new(),
        Names::Locations => environments().into_iter().map(|id| format!("{id}:")).collect(),
        Names::Nothing => Vec::new(),
    };
    let lines: String =
        candidates.iter().filter(|name| name.starts_with(current)).map(|name| format!("{name}\n")).collect();
    messages::print_stdout(lines.as_bytes())?;
    Ok(0)
}

fn processes() -> Vec<String> {
    let all = DetachedStore::open().and_then(|store| store.all()).unwrap_or_default();
    all.into_iter().map(|process| process.id).collect()
}

fn environments() -> Vec<String> {
    let known = Environments::discover().ok();
    known.iter().flat_map(Environments::all).map(|environment| environment.id.clone()).collect()
}

/// `before` begins with our own name.
fn names(before: &[String], current: &str) -> Names {
    let mut command = Args::command();
    command.build();
    let mut path = Vec::new();
    let mut value_of = None;
    for word in before.iter().skip(1) {
        if value_of.take().is_some() {
            continue;
        }
        if word == "--" {
            return Names::Nothing;
        }
        let found = command.find_subcommand(word).cloned();
        if let Some(subcommand) = found.filter(|_| !command.get_name().is_empty() && command.has_subcommands()) {
            command = subcommand;
            path.push(command.get_name().to_owned());
        } else if word.starts_with('-') && !word.contains('=') {
            let argument = command.get_arguments().find(|argument| {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                [long, short].iter().flatten().any(|name| name == word)
            });
            value_of = argument
                .filter(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
                .map(|argument| argument.get_id().to_string());
        }
    }
    if let Some(option) = value_of {
        return if option == "environment" { Names::Environments } else { Names::Nothing };
    }
    if current.starts_with('-') {
        return Names::Nothing;
    }
    match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["attach" | "logs" | "screen" | "wait" | "kill"] => Names::Processes,
        ["env", "check"] => Names::Environments,
        ["cp"] | ["fs", _] => Names::Locations,
        _ => Names::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Names {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (current, before) = words.split_last().expect("there is one");
        names(before, current)
    }

    #[test]
    fn the_place_of_a_word_tells_what_it_names() {
        for (line, expected) in [
            ("exec-server attach ", Names::Processes),
            ("exec-server kill --grace 2s ma", Names::Processes),
            ("exec-server kill --grace ", Names::Nothing),
            ("exec-server logs -f ", Names::Processes),
            ("exec-server logs --f", Names::Nothing),
            ("exec-server wait one t", Names::Processes),
            ("exec-server run --environment b", Names::Environments),
            ("exec-server run --environment build -- l", Names::Nothing),
            ("exec-server run --tty ", Names::Nothing),
            ("exec-server env check ", Names::Environments),
            ("exec-server env ", Names::Nothing),
            ("exec-server cp ", Names::Locations),
            ("exec-server fs ls bu", Names::Locations),
            ("exec-server fs ", Names::Nothing),
            ("exec-server ", Names::Nothing),
            ("exec-server", Names::Nothing),
        ] {
            assert_eq!(of(line), expected, "{line:?}");
        }
    }
}
