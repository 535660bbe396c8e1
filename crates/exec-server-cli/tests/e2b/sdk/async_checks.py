"""The Python SDK, asynchronous: what it does in another way than the synchronous one; watches are streams here."""

import asyncio

from checks import DEBUG, araises, chosen, folder, leave, report
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxQuery,
    TimeoutException,
)


async def until(condition):
    """A guard against hanging, and no measurement."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def check_run_and_callbacks(sandbox, home):
    out, err = [], []
    result = await sandbox.commands.run("echo a; echo b >&2", on_stdout=out.append, on_stderr=err.append)
    assert (result.stdout, result.stderr, "".join(out), "".join(err)) == ("a\n", "b\n", "a\n", "b\n")
    error = await araises(CommandExitException, sandbox.commands.run("exit 5"))
    assert error.exit_code == 5


async def check_many_commands_at_once(sandbox, home):
    results = await asyncio.gather(*(sandbox.commands.run(f"echo {number}") for number in range(30)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(30)]


async def check_background_kill_and_list(sandbox, home):
    handle = await sandbox.commands.run("sleep 4321", background=True)
    assert handle.pid in [process.pid for process in await sandbox.commands.list()]
    assert await handle.kill() is True
    await araises(CommandExitException, handle.wait())
    assert await sandbox.commands.kill(handle.pid) is False


async def check_connect_replays(sandbox, home):
    handle = await sandbox.commands.run("echo first; read line; echo $line", background=True, stdin=True)
    await until(lambda: "first" in handle.stdout)
    await handle.disconnect()
    again = await sandbox.commands.connect(handle.pid)
    await sandbox.commands.send_stdin(handle.pid, "second\n")
    assert (await again.wait()).stdout == "first\nsecond\n"
    await araises(NotFoundException, sandbox.commands.connect(99999999))


async def check_stdin(sandbox, home):
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    await handle.send_stdin("one\n")
    await sandbox.commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout == "one\n"


async def check_input_is_streamed(sandbox, home):
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    async with sandbox.commands.stream_input(handle.pid) as stream:
        for number in range(200):
            await stream.send(f"{number}\n")
    await sandbox.commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout == "".join(f"{number}\n" for number in range(200))


async def check_time_outs(sandbox, home):
    await araises(TimeoutException, sandbox.commands.run("sleep 3600", timeout=1))


async def check_terminal(sandbox, home):
    output = bytearray()
    terminal = await sandbox.pty.create(PtySize(cols=80, rows=24), on_data=output.extend)
    # At its prompt bash reads the size and writes it back: a resize in between would be undone. `read` leaves it alone.
    await sandbox.pty.send_stdin(terminal.pid, b"echo $((40+2))x; read; stty size; exit\n")
    while b"42x" not in output:
        await asyncio.sleep(0.01)
    await sandbox.pty.resize(terminal.pid, PtySize(cols=100, rows=30))
    await sandbox.pty.send_stdin(terminal.pid, b"\n")
    await terminal.wait()
    assert b"30 100" in output, bytes(output)


async def check_a_terminal_is_killed(sandbox, home):
    terminal = await sandbox.pty.create(PtySize(cols=80, rows=24), on_data=lambda data: None, timeout=0)
    assert await sandbox.pty.kill(terminal.pid) is True
    assert await sandbox.pty.kill(terminal.pid) is False


async def check_files(sandbox, home):
    info = await sandbox.files.write(f"{home}/a/b", "text")
    assert await sandbox.files.read(info.path) == "text"
    assert (await sandbox.files.get_info(info.path)).size == 4
    assert [entry.name for entry in await sandbox.files.list(f"{home}/a")] == ["b"]
    await sandbox.files.rename(info.path, f"{home}/c")
    assert await sandbox.files.exists(info.path) is False
    assert await sandbox.files.make_dir(f"{home}/a") is False
    await sandbox.files.remove(f"{home}/c")
    await araises(FileNotFoundException, sandbox.files.read(f"{home}/c"))


async def check_streams_of_files(sandbox, home):
    block = bytes(range(256)) * 256

    async def pieces():
        for _ in range(64):
            yield block

    await sandbox.files.write(f"{home}/large", pieces())
    total = 0
    async for piece in await sandbox.files.read(f"{home}/large", format="stream"):
        total += len(piece)
    assert total == 64 * len(block)
    await sandbox.files.write(f"{home}/zip", "x" * 100000, gzip=True)
    assert await sandbox.files.read(f"{home}/zip", gzip=True) == "x" * 100000


async def check_a_watch_is_a_stream(sandbox, home):
    await sandbox.files.make_dir(f"{home}/deep")
    seen, entries = [], {}

    def note(event):
        seen.append((event.name, event.type))
        if event.entry:
            entries[event.name] = event.entry

    handle = await sandbox.files.watch_dir(home, on_event=note, recursive=True, include_entry=True)
    await sandbox.files.write(f"{home}/deep/f", "12")
    await until(lambda: ("deep/f", FilesystemEventType.WRITE) in seen)
    assert ("deep/f", FilesystemEventType.CREATE) in seen and entries["deep/f"].size == 2
    await sandbox.files.rename(f"{home}/deep/f", f"{home}/g")
    await until(lambda: ("g", FilesystemEventType.CREATE) in seen)
    assert ("deep/f", FilesystemEventType.RENAME) in seen
    await sandbox.files.remove(f"{home}/g")
    await until(lambda: ("g", FilesystemEventType.REMOVE) in seen)
    await handle.stop()


async def check_a_watch_of_nothing_fails(sandbox, home):
    await araises(FileNotFoundException, sandbox.files.watch_dir(f"{home}/none", on_event=lambda event: None))


async def check_api_sandboxes(sandbox, home):
    other = await AsyncSandbox.create(metadata={"who": home}, envs={"A": "1"})
    assert (await other.commands.run("echo $A")).stdout == "1\n"
    listed = await AsyncSandbox.list(query=SandboxQuery(metadata={"who": home})).next_items()
    assert [item.sandbox_id for item in listed] == [other.sandbox_id]
    assert (await other.get_info()).metadata == {"who": home}
    assert await other.kill() is True
    assert await other.is_running() is False
    await araises(SandboxException, other.commands.run("true"), "was not found")


async def check_api_many_sandboxes_at_once(sandbox, home):
    made = await asyncio.gather(*(AsyncSandbox.create() for _ in range(5)))
    results = await asyncio.gather(*(each.commands.run("echo $E2B_SANDBOX_ID") for each in made))
    assert [result.stdout.strip() for result in results] == [each.sandbox_id for each in made]
    await asyncio.gather(*(each.kill() for each in made))


async def main():
    passed = True
    for name, check in chosen(__name__):
        sandbox = None
        try:
            sandbox = await AsyncSandbox.create(timeout=600)
            await check(sandbox, folder())
            passed &= report(name, None)
        except BaseException as error:
            passed &= report(name, error)
        finally:
            if sandbox is not None and not DEBUG:
                await sandbox.kill()
    leave(passed)


if __name__ == "__main__":
    asyncio.run(main())
