//! `completions`, `man` and `schema`. They are generated from what `--help` is made of, and from the types of the wire, so
//! they cannot disagree with either.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::{exit_code, messages};

/// What the generated script cannot know, it asks us: see [`crate::complete`]. A word with a colon is several words to bash.
const BASH_NAMES: &[u8] = br#"
_exec-server_names() {
    local names
    names="$("${COMP_WORDS[0]}" complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)"
    if [[ -n "$names" ]]; then
        mapfile -t COMPREPLY <<< "$names"
        [[ "$names" == *: ]] && compopt -o nospace
        [[ "$names" == *: ]] && mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$2")
        return 0
    fi
    _exec__server "$@"
}
complete -F _exec-server_names -o bashdefault -o default exec-server
"#;

const ZSH_NAMES: &[u8] = br#"
_exec-server_names() {
    local -a names
    names=(${(f)"$(${words[1]} complete $((CURRENT - 1)) "${words[@]}" 2>/dev/null)"})
    if (( $#names )); then
        if [[ ${names[1]} == *: ]]; then
            compadd -S '' -a names
            _files
        else
            compadd -a names
        fi
        return 0
    fi
    _exec-server "$@"
}
compdef _exec-server_names exec-server
"#;

/// `-x` and `-f`: an environment or a process is no file. What follows an option is asked for by the option alone.
const FISH_NAMES: &[u8] = br#"
function __exec_server_names
    exec-server complete (count (commandline -opc)) (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c exec-server -a '(__exec_server_names)'
complete -c exec-server -l environment -x -a '(__exec_server_names)'
for command in attach logs screen wait kill env
    complete -c exec-server -n "__fish_exec_server_using_subcommand $command" -f
end
"#;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "exec-server", &mut script);
    if shell == Shell::Bash {
        script = with_matching_labels(&String::from_utf8_lossy(&script)).into_bytes();
    }
    script.extend_from_slice(match shell {
        Shell::Bash => BASH_NAMES,
        Shell::Zsh => ZSH_NAMES,
        Shell::Fish => FISH_NAMES,
        _ => b"",
    });
    exit_code_of(messages::print_stdout(&script))
}

/// clap_complete names the state of a command once with the hyphens of its name as `__` and once as `__subcmd__`, so that
/// nothing after `exec-server run` would ever be completed. The labels are given the names that are assigned.
fn with_matching_labels(script: &str) -> String {
    let assigned = script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"'));
    let label_of = |name: &str| format!("{})", name.replace("__subcmd__", "__").replace("__", "__subcmd__"));
    let labels: std::collections::HashMap<String, &str> = assigned.map(|name| (label_of(name), name)).collect();
    let line = |line: &str| match labels.get(line.trim()) {
        Some(name) => format!("        {name})\n"),
        None => format!("{line}\n"),
    };
    script.lines().map(line).collect()
}

/// Prints the man page of exec-server, or of one command.
pub(crate) fn page(command: &[String]) -> ExitCode {
    let mut whole = Args::command();
    // Fills in what subcommands inherit: their full names and usage lines.
    whole.build();
    let subcommand = command.iter().try_fold(&whole, |within, name| within.find_subcommand(name));
    let Some(described) = subcommand.cloned() else {
        messages::print_note(format_args!("there is no command {:?}: see `exec-server --help`", command.join(" ")));
        return exit_code::USAGE_ERROR.into();
    };
    let mut roff = Vec::new();
    let rendered = clap_mangen::Man::new(described).render(&mut roff);
    exit_code_of(rendered.and_then(|()| messages::print_stdout(&roff)))
}

pub(crate) fn schema() -> ExitCode {
    let mut text = format!("{:#}", exec_wire::schema::schema()).into_bytes();
    text.push(b'\n');
    exit_code_of(messages::print_stdout(&text))
}

fn exit_code_of(outcome: std::io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print_note(format_args!("cannot write to stdout: {error}"));
            exit_code::OWN_FAILURE.into()
        }
    }
}
