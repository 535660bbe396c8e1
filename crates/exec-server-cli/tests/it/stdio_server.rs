//! `serve --listen stdio`: with a state folder, whatever ends the connection does not end what runs; without, it does.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::{Running, code, exec_server, fifo, finish, is_running, stdout};

/// A server at the other end of two pipes, and the number of the last request.
struct StdioServer {
    program: Running,
    requests: u64,
}

impl StdioServer {
    /// Starts one and opens a session, or resumes one; the id of the session comes with it.
    fn start(args: &[&str], resume: Option<&str>) -> (Self, String) {
        Self::start_command(&mut exec_server(&[&["serve", "--listen", "stdio"], args].concat()), resume)
    }

    fn start_command(command: &mut Command, resume: Option<&str>) -> (Self, String) {
        let program = Running::start(command);
        let mut server = Self { program, requests: 0 };
        let session = server.call("initialize", json!({"clientName": "test", "resumeSessionId": resume}));
        server.program.type_in("{\"method\":\"initialized\"}\n");
        (server, session["sessionId"].as_str().expect("every session has an id").to_owned())
    }

    /// The result of a call. Notifications that come before it are passed over.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let request = json!({"id": self.requests, "method": method, "params": params});
        self.program.type_in(&format!("{request}\n"));
        loop {
            let line = self.program.line();
            let mut answer: Value = serde_json::from_str(&line).expect("a line is JSON");
            if answer["id"] == self.requests {
                assert!(answer.get("result").is_some(), "{answer}");
                return answer["result"].take();
            }
        }
    }

    /// Starts a shell; its pid, once it says so itself.
    fn start_shell(&mut self, script: &str) -> String {
        let script = format!("echo $$; {script}");
        let params =
            json!({"processId": "p", "argv": ["sh", "-c", script], "cwd": "file:///", "env": {}, "tty": false});
        self.call("process/start", params);
        first_line(&self.read(0))
    }

    fn read(&mut self, after: u64) -> Value {
        self.call("process/read", json!({"processId": "p", "afterSeq": after, "waitMs": 60_000}))
    }
}

/// The first line of the first piece of output of a page.
fn first_line(page: &Value) -> String {
    let chunk = page["chunks"][0]["chunk"].as_str().expect("something was printed");
    let bytes = finish(Command::new("sh").args(["-c", &format!("echo {chunk} | base64 -d")]));
    stdout(&bytes).lines().next().expect("a line was printed").to_owned()
}

#[test]
fn with_a_state_folder_no_way_of_losing_the_connection_ends_a_process() {
    for how in ["end of stream", "hangup", "terminate"] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let fifo = fifo(folder.path());
        let state = folder.path().join("state").display().to_string();
        let (mut server, session) = StdioServer::start(&["--state-dir", &state], None);
        let pid = server.start_shell(&format!("read x < {}; echo last; exit 3", fifo.display()));
        match how {
            "end of stream" => server.program.close_stdin(),
            "hangup" => server.program.signal(Signal::HUP),
            _ => server.program.signal(Signal::TERM),
        }
        assert_eq!(server.program.end().2, 0, "{how}");
        assert!(is_running(&pid), "{how}");

        let (mut server, resumed) = StdioServer::start(&["--state-dir", &state], Some(&session));
        assert_eq!(resumed, session, "{how}");
        std::fs::write(&fifo, "go\n").expect("it waits for us");
        let mut page = server.read(1);
        while page["closed"] != true {
            page = server.read(page["nextSeq"].as_u64().expect("a number") - 1);
        }
        assert_eq!(page["exitCode"], 3, "{how}");
        server.call("process/forget", json!({"processId": "p"}));
        server.program.close_stdin();
        server.program.end();
    }
}

#[test]
fn without_a_state_folder_the_end_of_the_connection_ends_everything() {
    for how in ["end of stream", "hangup", "terminate"] {
        let (mut server, _) = StdioServer::start(&[], None);
        let pid = server.start_shell("exec sleep 1000");
        match how {
            "end of stream" => server.program.close_stdin(),
            "hangup" => server.program.signal(Signal::HUP),
            _ => server.program.signal(Signal::TERM),
        }
        server.program.end();
        assert!(!is_running(&pid), "{how}");
    }
}

/// The recipe of the manual, with a program that carries the connection: here, a shell in place of ssh.
#[test]
fn a_detached_process_over_a_program_outlives_each_connection() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let fifo = fifo(home.path());
    let state = home.path().join("state").display().to_string();
    let script = format!("{} serve --listen stdio --state-dir {state}", env!("CARGO_BIN_EXE_exec-server"));
    let text = format!("[[environments]]\nid = \"box\"\nprogram = \"sh\"\nargs = [\"-c\", \"{script}; true\"]\n");
    std::fs::write(home.path().join("environments.toml"), text).expect("the folder is ours");
    let run = |args: &[&str]| finish(exec_server(args).env("EXEC_SERVER_HOME", home.path()));

    let wait = format!("echo first; read x < {}; echo last; exit 3", fifo.display());
    let detached = run(&["run", "--environment", "box", "--detach", "--quiet", "--no-stdin", "--", "sh", "-c", &wait]);
    assert!(detached.status.success(), "{detached:?}");
    let id = stdout(&detached).trim_end().to_owned();
    let listed = run(&["ps", "--json"]);
    assert!(stdout(&listed).contains("\"running\""), "{listed:?}");
    std::fs::write(&fifo, "go\n").expect("it waits for us");
    let logs = run(&["logs", "--follow", &id]);
    assert_eq!((stdout(&logs), code(&logs)), ("first\nlast\n", 0), "{logs:?}");
    // The keeper would hold the result for a week.
    let (server, _) = StdioServer::start(&["--state-dir", &state], None);
    server.program.signal(Signal::INT);
    assert_eq!(server.program.end().2, 0);
}

#[test]
fn mcp_servers_that_are_configured_on_the_machine_are_found() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (home, project) = (folder.path().join("codex"), folder.path().join("project"));
    std::fs::create_dir_all(project.join(".git")).expect("the folder is ours");
    std::fs::create_dir_all(project.join(".codex")).expect("the folder is ours");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let trust = |level: &str| {
        let text = format!(
            "model = \"m\"\n[mcp_servers.docs]\ncommand = \"docs\"\n[projects.\"{}\"]\ntrust_level = \"{level}\"\n",
            project.display()
        );
        std::fs::write(home.join("config.toml"), text).expect("the folder is ours");
    };
    std::fs::write(project.join(".codex/config.toml"), "[mcp_servers.mine]\ncommand = \"mine\"\n").expect("ours");
    let mut command = exec_server(&["serve", "--listen", "stdio"]);
    let (mut server, _) = StdioServer::start_command(command.env("CODEX_HOME", &home), None);
    let mut layers = || -> Vec<(String, String)> {
        let params = json!({
            "cwd": format!("file://{}", project.join("below").display()),
            "configPaths": [["mcp_servers"]], "requirementsPaths": [["mcp_servers"]],
        });
        let result = server.call("environmentConfig/read", params);
        let layers = result["config"]["layers"].as_array().expect("a list").iter();
        let text = |layer: &Value, member: &str| layer[member].as_str().expect("a text").to_owned();
        let layers = layers.map(|layer| (text(layer, "source"), text(layer, "toml")));
        // The machine that runs the tests may have a configuration of its own.
        layers.filter(|(source, _)| !source.starts_with("system")).collect()
    };
    trust("untrusted");
    let user = format!("user ({})", home.join("config.toml").display());
    let user = (user, "[mcp_servers.docs]\ncommand = \"docs\"\n".to_owned());
    assert_eq!(layers(), std::slice::from_ref(&user));
    trust("trusted");
    let mine = format!("project ({})", project.join(".codex/config.toml").display());
    assert_eq!(layers(), [user, (mine, "[mcp_servers.mine]\ncommand = \"mine\"\n".to_owned())]);
}
