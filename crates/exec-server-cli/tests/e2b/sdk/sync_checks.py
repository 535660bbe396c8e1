"""The Python SDK, synchronous: commands, terminals, files, watches, and sandboxes by the API."""

import io
import random
import threading
import time
import urllib.request

from checks import DEBUG, chosen, folder, leave, raises, report
from e2b import (
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    TimeoutException,
)


# commands


def check_run_returns_both_streams(sandbox, home):
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


def check_run_with_special_characters_and_lines(sandbox, home):
    text = "!@#$%^&*()_+ äöü 😀 'quoted'"
    assert sandbox.commands.run(f"cat <<'END'\n{text}\nsecond\nEND").stdout == f"{text}\nsecond\n"


def check_run_of_a_failing_command_raises(sandbox, home):
    error = raises(CommandExitException, lambda: sandbox.commands.run("echo a; echo b >&2; exit 7"))
    assert (error.exit_code, error.stdout, error.stderr, error.error) == (7, "a\n", "b\n", "exit status 7")


def check_run_of_an_unknown_program_raises(sandbox, home):
    error = raises(CommandExitException, lambda: sandbox.commands.run("no-such-program-here"))
    assert error.exit_code == 127 and "no-such-program-here" in error.stderr


def check_run_in_a_directory(sandbox, home):
    sandbox.files.make_dir(home)
    assert sandbox.commands.run("pwd", cwd=home).stdout.strip().endswith(home)
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    raises(InvalidArgumentException, lambda: sandbox.commands.run("pwd", cwd="/no/such"), "does not exist")


def check_run_with_variables(sandbox, home):
    assert sandbox.commands.run("echo $FOO", envs={"FOO": "bar"}).stdout == "bar\n"
    assert sandbox.commands.run("echo $FOO").stdout == "\n"


def check_variables_are_those_of_the_sandbox_and_no_others(sandbox, home):
    names = {line.split("=")[0] for line in sandbox.commands.run("env").stdout.splitlines()}
    assert {"HOME", "PATH", "USER", "LOGNAME", "E2B_SANDBOX", "E2B_SANDBOX_ID"} <= names, names
    assert "EXEC_SERVER_HOME" not in names, names
    assert sandbox.commands.run("echo $HOME; pwd").stdout.splitlines()[0] == sandbox.commands.run("pwd").stdout.strip()


def check_output_is_told_while_it_runs(sandbox, home):
    out, err = [], []
    sandbox.commands.run("echo a; echo b >&2; echo c", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("a\nc\n", "b\n")


def check_much_output_is_whole(sandbox, home):
    result = sandbox.commands.run("seq 1 200000")
    assert result.stdout == "".join(f"{number}\n" for number in range(1, 200001))


def check_binary_output_does_not_break_the_stream(sandbox, home):
    assert len(sandbox.commands.run("head -c 100000 /dev/urandom | tee x | wc -c; cat x; rm x").stdout) > 6


def check_a_time_out_ends_the_process(sandbox, home):
    started = time.monotonic()
    raises(TimeoutException, lambda: sandbox.commands.run("sleep 3600 & sleep 3600", timeout=1))
    assert time.monotonic() - started < 60
    deadline = time.monotonic() + 60
    while any("3600" in " ".join(process.args) for process in sandbox.commands.list()):
        assert time.monotonic() < deadline, "the process goes on"
        time.sleep(0.05)


def check_a_background_command_is_waited_for(sandbox, home):
    handle = sandbox.commands.run("echo started; sleep 0.1; echo done; exit 3", background=True)
    error = raises(CommandExitException, handle.wait)
    assert (error.stdout, error.exit_code) == ("started\ndone\n", 3)


def check_a_handle_is_iterated(sandbox, home):
    handle = sandbox.commands.run("echo a; echo b >&2", background=True)
    seen = list(handle)
    assert "".join(out for out, _, _ in seen if out) == "a\n"
    assert "".join(err for _, err, _ in seen if err) == "b\n"


def check_kill_ends_the_whole_tree(sandbox, home):
    seconds = random.randint(10**6, 10**7)
    handle = sandbox.commands.run(f"sh -c 'sleep {seconds} & sleep {seconds}'", background=True)
    assert handle.kill() is True
    error = raises(CommandExitException, handle.wait)
    assert (error.exit_code, error.error) == (-1, "signal: killed")
    left = sandbox.commands.run(f"ps -eo args | grep -c '^sleep {seconds}' || true").stdout.strip()
    assert left == "0", left
    assert handle.kill() is False
    assert sandbox.commands.kill(99999999) is False


def check_list_shows_what_runs(sandbox, home):
    handle = sandbox.commands.run("sleep 1234", background=True, envs={"A": "1"}, cwd="/tmp")
    (listed,) = [process for process in sandbox.commands.list() if process.pid == handle.pid]
    assert (listed.cmd, listed.args, listed.envs, listed.cwd) == ("/bin/bash", ["-l", "-c", "sleep 1234"], {"A": "1"}, "/tmp")
    handle.kill()
    assert handle.pid not in [process.pid for process in sandbox.commands.list()]


def check_connect_replays_everything_and_goes_on(sandbox, home):
    handle = sandbox.commands.run("echo first; read line; echo second $line", background=True, stdin=True)
    assert next(iter(handle))[0] == "first\n"
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    assert again.pid == handle.pid
    sandbox.commands.send_stdin(handle.pid, "x\n")
    assert again.wait().stdout == "first\nsecond x\n"
    assert sandbox.commands.connect(handle.pid).wait().stdout == "first\nsecond x\n", "also after its end"
    raises(NotFoundException, lambda: sandbox.commands.connect(99999999), "not found")


def check_stdin_is_written_and_closed(sandbox, home):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one ")
    handle.send_stdin(b"two \xff")
    handle.close_stdin()
    assert handle.wait().stdout == "one two \ufffd"
    without = sandbox.commands.run("sleep 60", background=True)
    raises(SandboxException, lambda: sandbox.commands.send_stdin(without.pid, "x"), "stdin")
    without.kill()
    raises(NotFoundException, lambda: sandbox.commands.send_stdin(without.pid, "x"))


def check_input_is_streamed(sandbox, home):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, (f"{number}\n" for number in range(1000)))
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "".join(f"{number}\n" for number in range(1000))


def check_a_disconnected_command_goes_on(sandbox, home):
    sandbox.files.make_dir(home)
    handle = sandbox.commands.run(f"sleep 0.3; echo done > {home}/flag", background=True)
    handle.disconnect()
    assert sandbox.commands.connect(handle.pid).wait().exit_code == 0
    assert sandbox.files.read(f"{home}/flag") == "done\n"


def check_the_servers_own_user_may_be_named(sandbox, home):
    name = sandbox.commands.run("id -un").stdout.strip()
    assert sandbox.commands.run("whoami", user=name).stdout.strip() == name
    sandbox.files.write(f"{home}/x", "1", user=name)
    assert sandbox.files.read(f"{home}/x", user=name) == "1"
    raises(InvalidArgumentException, lambda: sandbox.commands.run("id", user="no-such-user-here"), "no-such-user-here")


def check_another_user_runs_commands_if_the_server_is_root(sandbox, home):
    if sandbox.commands.run("id -u").stdout.strip() == "0":
        result = sandbox.commands.run("id -un", user="nobody", cwd="/")
        assert result.stdout == "nobody\n", result
    else:
        raises(InvalidArgumentException, lambda: sandbox.commands.run("id", user="nobody", cwd="/"), "nobody")


def check_the_home_and_the_user_of_e2bs_machines_are_the_sandboxs(sandbox, home):
    if sandbox.commands.run("if test -e /home/user || id user >/dev/null 2>&1; then echo there; fi").stdout:
        return  # This machine has its own.
    here = sandbox.commands.run("pwd").stdout.strip()
    written = sandbox.files.write(f"/home/user/{home}/x", "1", user="user")
    assert written.path == f"{here}/{home}/x", written
    assert sandbox.files.read(f"{home}/x") == "1"
    assert sandbox.commands.run("pwd", cwd=f"/home/user/{home}", user="user").stdout == f"{here}/{home}\n"
    assert [entry.path for entry in sandbox.files.list(f"/home/user/{home}")] == [written.path]
    assert not sandbox.files.exists("/home/user2")
    assert sandbox.files.get_info("/home/user/../..").path == "/"


def check_files_of_another_user_are_its_own_if_the_server_is_root(sandbox, home):
    if sandbox.commands.run("id -u").stdout.strip() != "0":
        raises(InvalidArgumentException, lambda: sandbox.files.read("/etc/hostname", user="nobody"), "only root")
        return
    open_to_all = sandbox.commands.run("d=$(mktemp -d) && chmod 777 $d && echo $d").stdout.strip()
    try:
        for name, write in [("a", "1"), ("deep/b", b"2")]:
            sandbox.files.write(f"{open_to_all}/{name}", write, user="nobody")
        sandbox.files.make_dir(f"{open_to_all}/made", user="nobody")
        sandbox.files.rename(f"{open_to_all}/a", f"{open_to_all}/moved/a", user="nobody")
        owners = sandbox.commands.run(f"find {open_to_all} -mindepth 1 -printf '%U:%G %P\\n' | sort").stdout
        nobody = sandbox.commands.run("echo $(id -u nobody):$(id -g nobody)").stdout.strip()
        names = ["deep", "deep/b", "made", "moved", "moved/a"]
        assert owners == "".join(f"{nobody} {name}\n" for name in names), owners
        entry = sandbox.files.get_info(f"{open_to_all}/moved/a", user="nobody")
        assert entry.owner == "nobody", entry
        assert sandbox.files.read(f"{open_to_all}/moved/a", user="nobody") == "1"

        # What the account may not read is refused, and not read for it.
        sandbox.files.write(f"{open_to_all}/secret", "s")
        sandbox.commands.run(f"chmod 600 {open_to_all}/secret && mkdir -m 700 {open_to_all}/closed")
        for refused in [
            lambda: sandbox.files.read(f"{open_to_all}/secret", user="nobody"),
            lambda: sandbox.files.write(f"{open_to_all}/secret", "x", user="nobody"),
            lambda: sandbox.files.list(f"{open_to_all}/closed", user="nobody"),
            lambda: sandbox.files.get_info(f"{open_to_all}/closed/x", user="nobody"),
            lambda: sandbox.files.watch_dir(f"{open_to_all}/closed", user="nobody"),
            lambda: sandbox.files.write("/etc/e2b-as-nobody", "x", user="nobody"),
        ]:
            raises(SandboxException, refused, "Permission denied")
        assert sandbox.files.read(f"{open_to_all}/secret") == "s"

        # The home of another user is its own, and not the sandbox's.
        home_of_nobody = sandbox.commands.run("echo ~nobody").stdout.strip()
        missing = f"{home_of_nobody}/no-such-file"
        raises(NotFoundException, lambda: sandbox.files.read("no-such-file", user="nobody"), missing)

        watch = sandbox.files.watch_dir(open_to_all, user="nobody")
        sandbox.files.write(f"{open_to_all}/seen", "x", user="nobody")
        assert any(event.name == "seen" for event in watch.get_new_events())
        watch.stop()
        sandbox.files.remove(f"{open_to_all}/moved", user="nobody")
        assert not sandbox.files.exists(f"{open_to_all}/moved", user="nobody")
    finally:
        sandbox.commands.run(f"rm -r {open_to_all}")


# terminals


def check_a_terminal_is_used(sandbox, home):
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(cols=80, rows=24), envs={"FOO": "bar"}, cwd="/tmp")
    sandbox.pty.send_stdin(terminal.pid, b"echo $FOO-$TERM; pwd; stty size; exit\n")
    result = terminal.wait(on_pty=output.extend)
    assert result.exit_code == 0
    for word in [b"bar-xterm-256color", b"/tmp", b"24 80"]:
        assert word in output, bytes(output)


def check_a_terminal_is_resized(sandbox, home):
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(cols=80, rows=24))
    # At its prompt bash reads the size and writes it back: a resize in between would be undone. `read` leaves it alone.
    sandbox.pty.send_stdin(terminal.pid, b"echo $((40+2))x; read; stty size; exit\n")
    for _, _, piece in terminal:
        output.extend(piece)
        if b"42x" in output:
            break
    sandbox.pty.resize(terminal.pid, PtySize(cols=132, rows=43))
    sandbox.pty.send_stdin(terminal.pid, b"\n")
    terminal.wait(on_pty=output.extend)
    assert b"43 132" in output, bytes(output)


def check_a_terminal_is_connected_to_and_killed(sandbox, home):
    terminal = sandbox.pty.create(PtySize(cols=80, rows=24), timeout=0)
    terminal.disconnect()
    seen = bytearray()
    again = sandbox.pty.connect(terminal.pid, timeout=0)
    sandbox.pty.send_stdin(terminal.pid, b"echo $((6*7))00\n")
    for _, _, piece in again:
        seen.extend(piece)
        if b"4200" in seen:
            break
    assert sandbox.pty.kill(terminal.pid) is True
    assert sandbox.pty.kill(terminal.pid) is False


# files


def check_files_are_written_and_read(sandbox, home):
    info = sandbox.files.write(f"{home}/deep/er/file.txt", "text äöü")
    assert (info.name, info.type) == ("file.txt", FileType.FILE)
    assert info.path.endswith(f"/{home}/deep/er/file.txt")
    assert sandbox.files.read(info.path) == "text äöü"
    assert sandbox.files.read(info.path, format="bytes") == bytearray("text äöü".encode())
    sandbox.files.write(info.path, b"\x00\xff")
    assert sandbox.files.read(info.path, format="bytes") == bytearray(b"\x00\xff")
    sandbox.files.write(info.path, "")
    assert sandbox.files.read(info.path) == ""


def check_large_files_go_both_ways_in_pieces(sandbox, home):
    block = bytes(range(256)) * 4096
    def pieces():
        for _ in range(24):
            yield block
    sandbox.files.write(f"{home}/large", pieces())
    assert sandbox.files.get_info(f"{home}/large").size == 24 * len(block)
    total = 0
    for piece in sandbox.files.read(f"{home}/large", format="stream"):
        assert piece[:1] == bytes([total % 256])
        total += len(piece)
    assert total == 24 * len(block)
    sandbox.files.write(f"{home}/form", block * 24)
    assert sandbox.commands.run(f"cmp {home}/large {home}/form").exit_code == 0


def check_files_are_written_from_file_objects_and_compressed(sandbox, home):
    text = "line\n" * 100000
    sandbox.files.write(f"{home}/a", io.BytesIO(text.encode()))
    sandbox.files.write(f"{home}/b", io.StringIO(text))
    sandbox.files.write(f"{home}/c", text, gzip=True)
    sandbox.files.write(f"{home}/d", text, use_octet_stream=True)
    sandbox.files.write(f"{home}/e", io.BytesIO(text.encode()), gzip=True)
    for name in "abcde":
        assert sandbox.files.read(f"{home}/{name}") == text, name
    assert sandbox.files.read(f"{home}/a", gzip=True) == text


def check_several_files_are_written_at_once(sandbox, home):
    assert sandbox.files.write_files([]) == []
    names = [f"{home}/many/{number}.txt" for number in range(20)]
    infos = sandbox.files.write_files([{"path": name, "data": name} for name in names])
    assert [info.path.endswith(name) for info, name in zip(infos, names)] == [True] * 20
    for name in names:
        assert sandbox.files.read(name) == name


def check_odd_names_are_kept(sandbox, home):
    for name in ["with space", "äöü", "quo\"te", "per%20cent", "plus+sign", "semi;colon", "hash#tag", "back\\slash"]:
        info = sandbox.files.write(f"{home}/{name}", name)
        assert info.name == name, info
        assert sandbox.files.read(f"{home}/{name}") == name


def check_what_is_missing_is_told(sandbox, home):
    raises(FileNotFoundException, lambda: sandbox.files.read(f"{home}/nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.get_info(f"{home}/nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.list(f"{home}/nothing"))
    raises(FileNotFoundException, lambda: sandbox.files.rename(f"{home}/nothing", f"{home}/else"))
    raises(FileNotFoundException, lambda: sandbox.files.watch_dir(f"{home}/nothing"))
    assert sandbox.files.exists(f"{home}/nothing") is False
    sandbox.files.remove(f"{home}/nothing")


def check_directories_and_files_are_told_apart(sandbox, home):
    sandbox.files.write(f"{home}/file", "x")
    raises(InvalidArgumentException, lambda: sandbox.files.read(home), "directory")
    raises(InvalidArgumentException, lambda: sandbox.files.write(home, "x"), "directory")
    raises(InvalidArgumentException, lambda: sandbox.files.list(f"{home}/file"), "directory")
    raises(InvalidArgumentException, lambda: sandbox.files.watch_dir(f"{home}/file"), "directory")


def check_directories_are_made_once(sandbox, home):
    assert sandbox.files.make_dir(f"{home}/a/b/c") is True
    assert sandbox.files.make_dir(f"{home}/a/b/c") is False
    assert sandbox.files.exists(f"{home}/a/b") is True


def check_lists_have_a_depth(sandbox, home):
    for path in ["a/1/x", "a/2", "b"]:
        sandbox.files.write(f"{home}/{path}", path)
    names = lambda depth: [entry.path.split(f"{home}/")[1] for entry in sandbox.files.list(home, depth=depth)]
    assert names(1) == ["a", "b"]
    assert names(2) == ["a", "a/1", "a/2", "b"]
    assert names(9) == ["a", "a/1", "a/1/x", "a/2", "b"]
    raises(InvalidArgumentException, lambda: sandbox.files.list(home, depth=0))
    kinds = {entry.name: entry.type for entry in sandbox.files.list(home)}
    assert kinds == {"a": FileType.DIR, "b": FileType.FILE}


def check_info_is_what_the_kernel_knows(sandbox, home):
    sandbox.files.write(f"{home}/file", "12345")
    sandbox.commands.run(f"chmod 640 {home}/file; ln -s file {home}/link; ln -s nowhere {home}/broken")
    info = sandbox.files.get_info(f"{home}/file")
    owner = sandbox.commands.run(f"stat -c '%U %G' {home}/file").stdout.split()
    assert (info.size, info.mode, info.permissions, info.type) == (5, 0o640, "-rw-r-----", FileType.FILE)
    assert [info.owner, info.group] == owner
    assert info.symlink_target is None
    link = sandbox.files.get_info(f"{home}/link")
    assert (link.type, link.symlink_target) == (FileType.SYMLINK, info.path), link
    broken = sandbox.files.get_info(f"{home}/broken")
    assert (broken.type, broken.symlink_target) == (FileType.SYMLINK, "nowhere"), broken
    modified = int(sandbox.commands.run(f"stat -c %Y {home}/file").stdout)
    assert int(info.modified_time.timestamp()) == modified
    assert sandbox.files.get_info(home).permissions[0] == "d"


def check_files_are_renamed_and_removed(sandbox, home):
    sandbox.files.write(f"{home}/a", "x")
    info = sandbox.files.rename(f"{home}/a", f"{home}/sub/b")
    assert info.name == "b" and sandbox.files.read(f"{home}/sub/b") == "x"
    assert sandbox.files.exists(f"{home}/a") is False
    # A link is what is renamed and removed, wherever it leads.
    for leads_to in ["nowhere", "link", "sub", "sub/b", "sub/b/below"]:
        sandbox.commands.run(f"ln -s {leads_to} {home}/link")
        info = sandbox.files.rename(f"{home}/link", f"{home}/links/renamed")
        assert (info.name, info.type) == ("renamed", FileType.SYMLINK), info
        assert sandbox.commands.run(f"readlink {home}/links/renamed").stdout == f"{leads_to}\n"
        assert [entry.name for entry in sandbox.files.list(f"{home}/links")] == ["renamed"], leads_to
        sandbox.files.remove(f"{home}/links/renamed")
        assert sandbox.files.list(f"{home}/links") == []
    sandbox.files.remove(home)
    assert sandbox.files.exists(home) is False


# watches


def events_of(handle, wanted):
    """The names and kinds of all events until this one has come."""
    seen = []
    deadline = time.monotonic() + 60
    while wanted not in seen:
        assert time.monotonic() < deadline, f"{wanted} is not in {seen}"
        seen.extend((event.name, event.type) for event in handle.get_new_events())
    return seen


def check_a_watch_tells_what_happens(sandbox, home):
    sandbox.files.make_dir(home)
    handle = sandbox.files.watch_dir(home)
    assert handle.get_new_events() == []
    sandbox.files.write(f"{home}/f", "x")
    seen = events_of(handle, ("f", FilesystemEventType.WRITE))
    assert ("f", FilesystemEventType.CREATE) in seen
    sandbox.commands.run(f"chmod 600 {home}/f")
    events_of(handle, ("f", FilesystemEventType.CHMOD))
    sandbox.files.rename(f"{home}/f", f"{home}/g")
    seen = events_of(handle, ("g", FilesystemEventType.CREATE))
    assert ("f", FilesystemEventType.RENAME) in seen
    sandbox.files.remove(f"{home}/g")
    events_of(handle, ("g", FilesystemEventType.REMOVE))
    handle.stop()
    raises(SandboxException, handle.get_new_events)


def check_an_immediate_poll_tells_the_write_before_it(sandbox, home):
    sandbox.files.write(f"{home}/f", "x")
    handle = sandbox.files.watch_dir(home)
    sandbox.files.write(f"{home}/f", "y")
    assert ("f", FilesystemEventType.WRITE) in events_of(handle, ("f", FilesystemEventType.WRITE))
    handle.stop()


def check_a_recursive_watch_names_paths_and_a_plain_one_does_not_look_below(sandbox, home):
    sandbox.files.make_dir(f"{home}/deep")
    deep = sandbox.files.watch_dir(home, recursive=True, include_entry=True)
    plain = sandbox.files.watch_dir(home)
    sandbox.files.write(f"{home}/deep/f", "12")
    sandbox.files.write(f"{home}/last", "")
    events_of(deep, ("deep/f", FilesystemEventType.WRITE))
    seen = events_of(plain, ("last", FilesystemEventType.CREATE))
    assert not any(name.startswith("deep/") for name, _ in seen), seen
    sandbox.files.write(f"{home}/deep/f", "123")
    deadline, entry = time.monotonic() + 60, None
    while entry is None and time.monotonic() < deadline:
        entry = next((event.entry for event in deep.get_new_events() if event.name == "deep/f"), None)
    assert entry.size == 3 and entry.name == "f"


# metadata


def check_metadata_of_files_is_kept_as_attributes(sandbox, home):
    wanted = {"owner": "me", "x.y": "a b"}
    info = sandbox.files.write(f"{home}/f", "x", metadata={"Owner": "me", "x.y": "a b"})
    assert info.metadata == wanted, info
    assert sandbox.files.get_info(f"{home}/f").metadata == wanted
    assert sandbox.files.rename(f"{home}/f", f"{home}/g").metadata == wanted
    assert [entry.metadata for entry in sandbox.files.list(home)] == [wanted]
    many = sandbox.files.write_files([{"path": f"{home}/{name}", "data": ""} for name in "pq"], metadata={"a": "b"})
    assert [info.metadata for info in many] == [{"a": "b"}] * 2
    sandbox.files.write(f"{home}/plain", "x")
    assert sandbox.files.get_info(f"{home}/plain").metadata is None
    script = f"import os; os.setxattr('{home}/plain', 'user.e2b.out', b'of band')"
    sandbox.commands.run(f'python3 -c "{script}"')
    assert sandbox.files.get_info(f"{home}/plain").metadata == {"out": "of band"}


def check_is_running(sandbox, home):
    assert sandbox.is_running() is True


# sandboxes, by the API


def check_api_sandboxes_are_told_apart(sandbox, home):
    other = Sandbox.create(envs={"WHO": "other"}, metadata={"k": "v w&x"}, timeout=600)
    try:
        assert other.sandbox_id != sandbox.sandbox_id
        other.files.write("mine", "x")
        assert sandbox.files.exists("mine") is False
        assert other.commands.run("echo $WHO $E2B_SANDBOX_ID").stdout == f"other {other.sandbox_id}\n"
        assert sandbox.commands.run("echo $WHO").stdout == "\n"
        info = other.get_info()
        assert (info.sandbox_id, info.metadata, info.template_id) == (other.sandbox_id, {"k": "v w&x"}, "base")
        assert 500 < (info.end_at - info.started_at).total_seconds() < 700
    finally:
        assert other.kill() is True
    assert other.kill() is False
    assert other.is_running() is False


def check_api_lists_have_pages_and_filters(sandbox, home):
    group = folder()
    made = [Sandbox.create(metadata={"group": group, "n": str(number)}) for number in range(3)]
    try:
        paginator = Sandbox.list(query=SandboxQuery(metadata={"group": group}), limit=2)
        first = paginator.next_items()
        assert [item.metadata["n"] for item in first] == ["0", "1"] and paginator.has_next
        second = paginator.next_items()
        assert [item.sandbox_id for item in second] == [made[2].sandbox_id] and not paginator.has_next
        one = Sandbox.list(query=SandboxQuery(metadata={"group": group, "n": "1"})).next_items()
        assert [item.sandbox_id for item in one] == [made[1].sandbox_id]
        assert Sandbox.list(query=SandboxQuery(metadata={"group": "none"})).next_items() == []
    finally:
        for each in made:
            each.kill()


def check_api_connect_finds_a_sandbox_again(sandbox, home):
    sandbox.files.write("kept", "x")
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("kept") == "x"
    raises(NotFoundException, lambda: Sandbox.connect("i0000000000000000000"))


def check_api_time_outs_end_a_sandbox_and_what_runs_in_it(sandbox, home):
    short = Sandbox.create(timeout=600)
    seconds = random.randint(10**6, 10**7)
    handle = short.commands.run(f"sleep {seconds}", background=True, timeout=0)
    short.set_timeout(1)
    error = raises(SandboxException, handle.wait)
    deadline = time.monotonic() + 60
    while short.is_running():
        assert time.monotonic() < deadline, error
        time.sleep(0.05)
    raises(NotFoundException, lambda: short.set_timeout(10))
    deadline = time.monotonic() + 60
    while sandbox.commands.run(f"ps -eo args | grep -c '^sleep {seconds}' || true").stdout.strip() != "0":
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)


def check_api_signed_urls_work_without_headers(sandbox, home):
    sandbox.files.write("a b", "signed")
    url = sandbox.download_url("a b", use_signature_expiration=600)
    assert urllib.request.urlopen(url, timeout=60).read() == b"signed"
    for bad in [url.replace("a%20b", "c").replace("a+b", "c"), url.split("&signature")[0], url + "0"]:
        try:
            urllib.request.urlopen(bad, timeout=60)
        except urllib.error.HTTPError as error:
            assert error.code == 401, (bad, error.code)
        else:
            raise AssertionError(f"{bad} was served")
    upload = urllib.request.Request(sandbox.upload_url("up"), data=b"raw", headers={"Content-Type": "application/octet-stream"})
    assert urllib.request.urlopen(upload, timeout=60).status == 200
    assert sandbox.files.read("up") == "raw"


def check_api_another_key_or_token_is_refused(sandbox, home):
    from e2b import AuthenticationException

    raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_00"))
    raises(AuthenticationException, lambda: Sandbox.list(api_key="e2b_00").next_items())
    stranger = Sandbox.connect(sandbox.sandbox_id)
    request = urllib.request.Request(
        f"{stranger.envd_api_url}/files?path=x", headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "X-Access-Token": "wrong"}
    )
    try:
        urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        assert error.code == 401
    else:
        raise AssertionError("a wrong token was taken")


def check_api_metrics_are_numbers_of_the_machine(sandbox, home):
    (metrics,) = sandbox.get_metrics()
    assert metrics.cpu_count >= 1 and metrics.mem_total > metrics.mem_used > 0 and metrics.disk_total > 0


def check_api_what_is_not_served_is_refused_in_words(sandbox, home):
    raises(SandboxException, lambda: sandbox.pause(), "pause")
    raises(SandboxException, lambda: sandbox.create_snapshot(), "snapshots")
    raises(SandboxException, lambda: Sandbox.create("no-such-template"), "template")
    raises(SandboxException, lambda: Sandbox.create(network={"allow_out": ["1.1.1.1"]}), "network")
    raises(SandboxException, lambda: Sandbox.create(timeout=10**7), "timeout")


def check_api_a_killed_sandbox_is_gone_for_its_commands(sandbox, home):
    other = Sandbox.create()
    handle = other.commands.run("sleep 600", background=True)
    threading.Timer(0.2, other.kill).start()
    raises(SandboxException, handle.wait)
    raises(SandboxException, lambda: other.commands.run("true"), "was not found")
    raises(SandboxException, lambda: other.files.read("x"), "was not found")


def main():
    passed = True
    for name, check in chosen(__name__):
        sandbox = None
        try:
            sandbox = Sandbox.create(timeout=600)
            check(sandbox, folder())
            passed &= report(name, None)
        except BaseException as error:
            passed &= report(name, error)
        finally:
            if sandbox is not None and not DEBUG:
                sandbox.kill()
    leave(passed)


if __name__ == "__main__":
    main()
