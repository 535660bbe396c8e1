//! What no kernel could run is refused, at the bound and not before it.

use exec_core::command::{BadCommand, CommandField, SpawnStep};
use exec_core::limits::{ARGUMENT_BYTES, SPOOL_MIN_BYTES, USER_NAME_BYTES};
use exec_core::{Command, EnvPolicy, Environ, Io, Limit, RunAs, TerminalSize};

fn command() -> Command {
    Command::new(["make", "all"], "/srv")
}

fn nul(field: CommandField) -> Result<(), BadCommand> {
    Err(BadCommand::Nul { field })
}

#[test]
fn a_plain_command_has_pipes_no_stdin_and_the_defaults() {
    let command = command();
    assert_eq!(command.check(), Ok(()));
    assert_eq!(command.argv, ["make", "all"]);
    assert_eq!(command.cwd, std::path::Path::new("/srv"));
    assert_eq!(command.io, Io::Pipes { stdin: false });
    assert_eq!((command.arg0, command.time_limit, command.spool_bytes), (None, None, None));
    assert_eq!(TerminalSize::default(), TerminalSize { rows: 24, cols: 80 });
}

#[test]
fn a_program_must_be_named() {
    assert_eq!(Command::new(Vec::<String>::new(), "/").check(), Err(BadCommand::EmptyArgv));
    assert_eq!(Command::new(["", "x"], "/").check(), Err(BadCommand::EmptyProgram));
    assert_eq!(Command::new(["x", ""], "/").check(), Ok(()), "an empty argument is one like others");
}

#[test]
fn a_nul_byte_is_found_wherever_it_stands() {
    assert_eq!(Command::new(["a\0"], "/").check(), nul(CommandField::Argument(0)));
    assert_eq!(Command::new(["a", "b", "\0"], "/").check(), nul(CommandField::Argument(2)));
    assert_eq!(Command { arg0: Some("-\0".into()), ..command() }.check(), nul(CommandField::Arg0));
    assert_eq!(Command { arg0: Some("-sh".into()), ..command() }.check(), Ok(()));
    assert_eq!(Command::new(["a"], "/\0").check(), nul(CommandField::Cwd));
    let with = |environ| Command { environ, ..command() }.check();
    assert_eq!(with(Environ::exactly([("A\0", "1")])), nul(CommandField::Environment));
    assert_eq!(with(Environ::exactly([("A", "1"), ("B", "\0")])), nul(CommandField::Environment));
    assert_eq!(with(Environ::exactly([("=::", "1"), ("", "")])), Ok(()), "odd names exist, and are passed on");
    let mut policy = EnvPolicy::everything();
    policy.set.insert("A".into(), "\0".into());
    assert_eq!(with(Environ { policy: Some(policy), ..Environ::default() }), nul(CommandField::Environment));
}

#[test]
fn a_relative_folder_means_nothing() {
    let relative = Command::new(["a"], "srv/app");
    assert_eq!(relative.check(), Err(BadCommand::RelativeCwd { cwd: "srv/app".into() }));
    assert!(Command::new(["a"], "").check().is_err());
}

#[test]
fn a_terminal_has_at_least_one_cell() {
    let sized = |rows, cols| Command { io: Io::Pty(TerminalSize { rows, cols }), ..command() }.check();
    assert_eq!(sized(1, 1), Ok(()));
    assert_eq!(sized(0, 1), Err(BadCommand::NoCells { rows: 0, cols: 1 }));
    assert_eq!(sized(1, 0), Err(BadCommand::NoCells { rows: 1, cols: 0 }));
}

#[test]
fn the_smallest_spool_is_accepted_and_a_smaller_one_is_not() {
    let spooled = |bytes| Command { spool_bytes: Some(bytes), ..command() }.check();
    assert_eq!(spooled(SPOOL_MIN_BYTES), Ok(()));
    let found_bytes = SPOOL_MIN_BYTES - 1;
    assert_eq!(spooled(found_bytes), Err(BadCommand::SmallSpool { found_bytes, limit_bytes: SPOOL_MIN_BYTES }));
}

#[test]
fn only_files_may_be_limited_to_nothing() {
    for limit in Limit::ALL {
        let mut limited = command();
        limited.limits.set(limit, 1);
        assert_eq!(limited.check(), Ok(()), "{limit:?}");
        limited.limits.set(limit, 0);
        let expected = if limit == Limit::FileBytes { Ok(()) } else { Err(BadCommand::ZeroLimit { limit }) };
        assert_eq!(limited.check(), expected);
    }
}

#[test]
fn a_user_has_a_name_and_not_an_endless_one() {
    let run_as = |user: &str| Command { run_as: Some(RunAs { user: user.to_owned() }), ..command() }.check();
    assert_eq!(run_as("ann"), Ok(()));
    assert_eq!(run_as(&"a".repeat(USER_NAME_BYTES)), Ok(()));
    let (found_bytes, limit_bytes) = (USER_NAME_BYTES + 1, USER_NAME_BYTES);
    assert_eq!(run_as(&"a".repeat(found_bytes)), Err(BadCommand::LongUserName { found_bytes, limit_bytes }));
    assert_eq!(run_as(""), Err(BadCommand::NoUser));
    assert_eq!(run_as("a\0"), Err(BadCommand::Nul { field: CommandField::User }));
}

/// Each argument costs its NUL, each variable its `=` and its NUL; the working directory and the label count too.
#[test]
fn arguments_and_variables_together_are_bounded() {
    let variables = Environ::exactly([("NAME", "value"), ("B", "")]);
    let others = "x".len() + 1 + ("NAME=value".len() + 1) + ("B=".len() + 1) + "/w".len() + "label".len();
    let longest = ARGUMENT_BYTES - others - 1;
    let with = |length: usize| {
        let argv = ["x".to_owned(), "y".repeat(length)];
        Command { environ: variables.clone(), label: b"label".to_vec(), ..Command::new(argv, "/w") }.check()
    };
    assert_eq!(with(longest), Ok(()));
    let refused = BadCommand::TooLarge { found_bytes: ARGUMENT_BYTES + 1, limit_bytes: ARGUMENT_BYTES };
    assert_eq!(with(longest + 1), Err(refused));
}

#[test]
fn a_refusal_says_what_to_do() {
    let texts = [
        CommandField::Argument(3).to_string(),
        CommandField::Arg0.to_string(),
        CommandField::Cwd.to_string(),
        CommandField::Environment.to_string(),
        BadCommand::Nul { field: CommandField::Arg0 }.to_string(),
    ];
    let expected = [
        "argument 3",
        "arg0",
        "the working directory",
        "the environment",
        "arg0 contains a NUL byte, which no program can receive",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn every_step_of_a_start_is_found_by_its_name() {
    let names = SpawnStep::ALL.map(SpawnStep::name);
    let expected = ["spool", "pipe", "pty", "clone", "session", "limits", "sandbox", "user", "cwd", "exec"];
    assert_eq!(names, expected);
    assert_eq!(names.map(SpawnStep::from_name), SpawnStep::ALL.map(Some));
    assert_eq!(SpawnStep::from_name("fork"), None);
}
