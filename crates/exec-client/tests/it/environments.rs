//! `environments.toml` and the variables: what they mean, and what is wrong with them, line by line.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use exec_client::environments::{
    ConfiguredEnvironment, Endpoint, EnvironmentKind, Environments, FILE_NAME, RemoteServer,
};
use exec_client::{ConnectFailure, Options};
use exec_transport::Program;

const FILE: &str = "/home/u/.codex/environments.toml";

fn parsed(text: &str) -> Environments {
    Environments::parse(text, Path::new(FILE)).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn remote(environment: &ConfiguredEnvironment) -> &RemoteServer {
    match &environment.kind {
        EnvironmentKind::Remote(remote) => remote,
        EnvironmentKind::Local => panic!("{} is far", environment.id),
    }
}

fn ids(environments: &Environments) -> Vec<&str> {
    environments.all().iter().map(|environment| environment.id.as_str()).collect()
}

fn from(variables: &[(&str, &str)]) -> Environments {
    let variables: HashMap<&str, OsString> = variables.iter().map(|(name, value)| (*name, (*value).into())).collect();
    Environments::from_variables(&|name| variables.get(name).cloned()).expect("nothing is wrong with them")
}

#[test]
fn a_whole_file_means_what_it_says() {
    let environments = parsed(
        r#"
default = "devbox"

[[environments]]
id = "build"
url = "wss://build.example.org/exec?x=1"
auth_bearer_token = "secret"
connect_timeout_sec = 2.5
initialize_timeout_sec = 3
skills = { required = ["rust"] }

[[environments]]
id = "devbox"
program = "ssh"
args = ["host", "exec-server", "serve", "--listen", "stdio"]
env = { LANG = "C" }
cwd = "work"
"#,
    );
    assert_eq!(ids(&environments), ["local", "build", "devbox"]);
    assert_eq!(environments.default_id(), Some("devbox"));
    let build = remote(environments.get("build").expect("configured"));
    let url = "wss://build.example.org/exec?x=1".to_owned();
    assert_eq!(build.endpoint, Endpoint::Url { url, bearer_token: Some("secret".into()) });
    assert_eq!(build.connect_timeout, Some(Duration::from_millis(2500)));
    assert_eq!(build.initialize_timeout, Some(Duration::from_secs(3)));
    assert_eq!(build.required_skills, ["rust"]);
    assert!(!format!("{build:?}").contains("secret"));
    let devbox = remote(environments.get("devbox").expect("configured"));
    let program = Program {
        program: "ssh".into(),
        args: ["host", "exec-server", "serve", "--listen", "stdio"].map(Into::into).into(),
        env: vec![("LANG".into(), "C".into())],
        cwd: Some("/home/u/.codex/work".into()),
    };
    assert_eq!(devbox.endpoint, Endpoint::Program(program));
}

#[test]
fn what_is_meant_without_a_name() {
    let far = "[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n";
    for (head, default) in [
        ("", Some("local")),
        ("include_local = false\n", None),
        ("default = \"NONE\"\n", None),
        ("default = \"a\"\n", Some("a")),
        ("default = \"local\"\n", Some("local")),
    ] {
        assert_eq!(parsed(&format!("{head}{far}")).default_id(), default, "{head}");
    }
    assert_eq!(ids(&parsed("include_local = false")), Vec::<&str>::new());
    let unknown = parsed(far).get("b").expect_err("there is no b").to_string();
    assert_eq!(unknown, "environment `b` is not configured; there is `local`, `a`");
}

/// Each case is the text after the header of one environment, the line of the problem, and the problem.
#[test]
fn everything_that_is_wrong_is_told_with_its_line_in_the_words_of_the_original() {
    let long = "x".repeat(65);
    let cases = [
        ("id = \"\"", 2, "environment id cannot be empty".to_owned()),
        ("id = \" a\"", 2, "environment id ` a` must not contain surrounding whitespace".into()),
        ("id = \"Local\"", 2, "environment id `Local` is reserved".into()),
        ("id = \"none\"", 2, "environment id `none` is reserved".into()),
        (&format!("id = \"{long}\""), 2, format!("environment id `{long}` cannot be longer than 64 characters")),
        ("id = \"a.b\"", 2, "environment id `a.b` must contain only ASCII letters, numbers, '-' or '_'".into()),
        ("id = \"a\"\nurl = \"ws://h\"\n[[environments]]\nid = \"a\"", 5, "environment id `a` is duplicated".into()),
        ("id = \"a\"", 2, "environment `a` must set exactly one of url or program".into()),
        (
            "id = \"a\"\nurl = \"ws://h\"\nprogram = \"p\"",
            2,
            "environment `a` must set exactly one of url or program".into(),
        ),
        ("id = \"a\"\nurl = \"ws://h\"\nargs = []", 4, "environment `a` args, env, and cwd require program".into()),
        (
            "id = \"a\"\nprogram = \"p\"\nconnect_timeout_sec = 1.0",
            4,
            "environment `a` connect_timeout_sec requires url".into(),
        ),
        (
            "id = \"a\"\nprogram = \"p\"\nauth_bearer_token = \"t\"",
            4,
            "environment `a` auth_bearer_token requires url".into(),
        ),
        (
            "id = \"a\"\nprogram = \"p\"\nauth_bearer_token_env = \"T\"",
            4,
            "environment `a` auth_bearer_token_env requires url".into(),
        ),
        (
            "id = \"a\"\nurl = \"unix:///s\"\nauth_bearer_token_env = \"T\"",
            4,
            "environment `a` auth_bearer_token_env requires url".into(),
        ),
        (
            "id = \"a\"\nurl = \"wss://h\"\nauth_bearer_token = \"t\"\nauth_bearer_token_env = \"T\"",
            5,
            "environment `a` must not set both auth_bearer_token and auth_bearer_token_env".into(),
        ),
        (
            "id = \"a\"\nurl = \"wss://h\"\nauth_bearer_token_env = \"A=B\"",
            4,
            "environment `a` auth_bearer_token_env must be the name of a variable".into(),
        ),
        (
            "id = \"a\"\nurl = \"ws://h\"\nauth_bearer_token_env = \"T\"",
            4,
            "exec-server WebSocket headers require wss:// or a loopback destination".into(),
        ),
        (
            "id = \"a\"\nurl = \"ws://h\"\nreconnect_timeout_sec = -1.0",
            4,
            "environment `a` reconnect_timeout_sec must be a number of seconds, 0 or more".into(),
        ),
        ("id = \"a\"\nprogram = \" \"", 3, "environment `a` program cannot be empty".into()),
        ("id = \"a\"\nurl = \"\"", 3, "environment url cannot be empty".into()),
        ("id = \"a\"\nurl = \"http://h\"", 3, "environment url `http://h` must use ws:// or wss://".into()),
        ("id = \"a\"\nurl = \"ws://\"", 3, "environment url `ws://` is invalid: empty host".into()),
        (
            "id = \"a\"\nurl = \"ws://h\"\nauth_bearer_token = \"t\"",
            4,
            "exec-server WebSocket headers require wss:// or a loopback destination".into(),
        ),
        (
            "id = \"a\"\nurl = \"wss://h\"\nauth_bearer_token = \"a\\nb\"",
            4,
            "invalid value for exec-server WebSocket header `authorization`".into(),
        ),
        (
            "id = \"a\"\nurl = \"ws://h\"\ninitialize_timeout_sec = -1.0",
            4,
            "environment `a` initialize_timeout_sec must be a number of seconds, 0 or more".into(),
        ),
    ];
    for (body, line, problem) in cases {
        let text = format!("[[environments]]\n{body}\n");
        let error = Environments::parse(&text, Path::new(FILE)).expect_err(body);
        assert_eq!(error.to_string(), format!("{FILE}:{line}: {problem}"), "{text}");
    }
    for (text, message) in [
        ("default = \" \"", "default environment id cannot be empty"),
        ("default = \"a\"", "default environment `a` is not configured"),
        ("include_local = false\ndefault = \"local\"", "default environment `local` is not configured"),
    ] {
        let error = Environments::parse(text, Path::new(FILE)).expect_err(text).to_string();
        assert!(error.ends_with(message), "{error}");
    }
}

#[test]
fn a_file_that_is_no_such_toml_is_told_with_its_line() {
    let cases = [
        ("default = ", 1),
        ("\nother = 1", 2),
        ("[[environments]]\nid = \"a\"\nurl = 7", 3),
        ("[[environments]]\nid = \"a\"\nurl = \"ws://h\"\ntoken = \"secret\"", 4),
    ];
    for (text, line) in cases {
        let error = Environments::parse(text, Path::new(FILE)).expect_err(text).to_string();
        let expected = format!("{FILE}:{line}: failed to parse environment config `{FILE}`: ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_told_with_its_key() {
    let cases = [
        ("[[environments]]\nid = \"a\"\nurl = 7", "invalid type: integer `7`, expected a string, for `url`"),
        (
            "[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n  reconnect_timeout_sec = \"5m\"",
            "invalid type: string \"5m\", expected f64, for `reconnect_timeout_sec`",
        ),
        ("[environments]\nid = \"a\"", "write `[[environments]]`, with two brackets"),
    ];
    for (text, words) in cases {
        let error = Environments::parse(text, Path::new(FILE)).expect_err(text).to_string();
        assert!(error.ends_with(words), "{error}");
    }
    // What stands before it in its line is no key here.
    for value in ["args = [\n\"c2VjcmV0=\", 5]", "env = {\nA = \"secret\", B = 5}", "args = [\"secret=\",\n5]"] {
        let text = format!("[[environments]]\nid = \"a\"\nprogram = \"p\"\n{value}");
        let error = Environments::parse(&text, Path::new(FILE)).expect_err(&text).to_string();
        assert!(error.contains("integer `5`") && !error.contains("for `") && !error.contains("ecr"), "{error}");
    }
}

#[test]
fn a_token_may_go_to_this_machine_in_the_clear() {
    for host in ["127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9"] {
        parsed(&format!("[[environments]]\nid = \"a\"\nurl = \"ws://{host}\"\nauth_bearer_token = \"t\""));
    }
    parsed("[[environments]]\nid = \"a\"\nurl = \"unix:///run/exec.sock\"");
}

#[test]
fn variables_give_one_environment_or_none() {
    let nowhere = ("EXEC_SERVER_HOME", "/nonexistent");
    let local = from(&[nowhere]);
    assert_eq!((ids(&local), local.default_id()), (vec!["local"], Some("local")));
    let blank = from(&[nowhere, ("CODEX_EXEC_SERVER_URL", "  ")]);
    assert_eq!(ids(&blank), ["local"]);
    let none = from(&[nowhere, ("CODEX_EXEC_SERVER_URL", " None ")]);
    assert_eq!((ids(&none), none.default_id()), (vec![], None));
    let both = from(&[nowhere, ("CODEX_EXEC_SERVER_URL", "ws://theirs"), ("EXEC_SERVER_URL", " ws://ours ")]);
    assert_eq!((ids(&both), both.default_id()), (vec!["remote"], Some("remote")));
    let endpoint = Endpoint::Url { url: "ws://ours".into(), bearer_token: None };
    assert_eq!(remote(&both.all()[0]).endpoint, endpoint);
}

#[test]
fn a_file_wins_over_the_variables_and_is_looked_for_in_order() {
    let ours = tempfile::tempdir().expect("a folder");
    let theirs = tempfile::tempdir().expect("a folder");
    let home = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(home.path().join(".codex")).expect("a folder of ours");
    let far = |id: &str| format!("include_local = false\n[[environments]]\nid = \"{id}\"\nurl = \"ws://h\"\n");
    std::fs::write(theirs.path().join(FILE_NAME), far("theirs")).expect("a file of ours");
    std::fs::write(home.path().join(".codex").join(FILE_NAME), far("home")).expect("a file of ours");
    let path = |folder: &tempfile::TempDir| folder.path().to_str().expect("a plain path").to_owned();
    let (ours_path, theirs_path, home_path) = (path(&ours), path(&theirs), path(&home));
    let url = ("EXEC_SERVER_URL", "ws://x");
    let listed = |variables: &[(&str, &str)]| ids(&from(variables)).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(listed(&[("HOME", &home_path), url]), ["home"]);
    assert_eq!(listed(&[("CODEX_HOME", &theirs_path), ("HOME", &home_path), url]), ["theirs"]);
    // Our own folder comes before Codex's, wherever its user keeps configurations.
    let config = home.path().join(".config/exec-server");
    std::fs::create_dir_all(&config).expect("a folder of ours");
    std::fs::write(config.join(FILE_NAME), far("config")).expect("a file of ours");
    assert_eq!(listed(&[("CODEX_HOME", &theirs_path), ("HOME", &home_path), url]), ["config", "theirs"]);
    // What both have is ours, and a default that only Codex's file names is the default.
    let more = "[[environments]]\nid = \"extra\"\nurl = \"ws://h\"\n";
    let codex = format!("default = \"extra\"\n{}{more}", far("config"));
    std::fs::write(theirs.path().join(FILE_NAME), codex).expect("a file of ours");
    let both = [("CODEX_HOME", theirs_path.as_str()), ("HOME", &home_path), url];
    assert_eq!(listed(&both), ["config", "extra"]);
    assert_eq!(from(&both).default_id(), Some("extra"));
    std::fs::write(config.join(FILE_NAME), format!("default = \"config\"\n{}", far("config"))).expect("a file of ours");
    assert_eq!(from(&both).default_id(), Some("config"));
    std::fs::write(theirs.path().join(FILE_NAME), far("theirs")).expect("a file of ours");
    let elsewhere = ("XDG_CONFIG_HOME", "/nonexistent");
    assert_eq!(listed(&[("CODEX_HOME", &theirs_path), ("HOME", &home_path), elsewhere, url]), ["theirs"]);
    // EXEC_SERVER_HOME without a file in it: then the variable counts, not another directory.
    assert_eq!(listed(&[("EXEC_SERVER_HOME", &ours_path), ("CODEX_HOME", &theirs_path), url]), ["remote"]);
    std::fs::write(ours.path().join(FILE_NAME), far("ours")).expect("a file of ours");
    assert_eq!(listed(&[("EXEC_SERVER_HOME", &ours_path), ("CODEX_HOME", &theirs_path), url]), ["ours"]);
}

#[tokio::test]
async fn an_environment_that_cannot_be_reached_says_so_when_it_is_used_and_not_before() {
    let environments = from(&[("EXEC_SERVER_HOME", "/nonexistent"), ("EXEC_SERVER_URL", "http://garbage")]);
    let environment = remote(&environments.all()[0]);
    let failure = environment.environment(&Options::default()).await.expect_err("it is garbage");
    let why = "unsupported server URL `http://garbage`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix://PATH`";
    assert_eq!(failure, ConnectFailure::Unreachable { why: why.into() });
    let text = "[[environments]]\nid = \"a\"\nprogram = \"/nonexistent/program\"";
    let environments = parsed(text);
    let failure = remote(&environments.all()[1]).environment(&Options::default()).await.expect_err("no program");
    assert!(failure.to_string().starts_with("cannot start /nonexistent/program: "), "{failure}");
}
