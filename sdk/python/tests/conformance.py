"""Carries out the behaviours of `sdk/conformance` with the Python package, in both of its ways to wait.

A step names an operation and its arguments, and says what comes out: a value that must be there (of a map only the fields
that are named), or an error. What the operations are is in `sdk/conformance/README.md`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import inspect
import io
import json
import os
import pathlib
import re
import socket
import tempfile
from typing import Any, AsyncIterator

import exec_server

BEHAVIOURS = pathlib.Path(os.environ["EXEC_SERVER_CONFORMANCE"])


def behaviours() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in sorted(BEHAVIOURS.glob("*.json")):
        for behaviour in json.loads(file.read_text())["behaviours"]:
            found.append((f"{file.stem}: {behaviour['name']}", behaviour))
    return found


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def each(values: Any) -> AsyncIterator[Any]:
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


class Driver:
    """One behaviour. `way` is exec_server or exec_server.aio; `url` is None for this machine."""

    def __init__(self, way: Any, url: str | None, control: str | None) -> None:
        self.way = way
        self.url = url
        self.control = control
        self.names: dict[str, Any] = {}

    async def run(self, behaviour: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            self.names["tmp"] = os.path.realpath(tmp)
            self.cuts = behaviour.get("cuts", True)
            self.env = await self.open()
            try:
                await self.steps(behaviour["steps"])
            finally:
                await settled(self.env.end())
                self.tell_proxy("leave alone")

    async def open(self, **options: Any) -> Any:
        if self.url is None:
            return await settled(self.way.local())
        # Who connects for the first time is told of a failure at once, and not tried again for.
        self.tell_proxy("leave alone")
        opened = await settled(self.way.connect(self.url, **options))
        if self.cuts:
            self.tell_proxy("cut often")
        return opened

    async def steps(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            if "times" in step:
                for n in range(step["times"]):
                    self.names["n"] = str(n)
                    await self.steps(step["steps"])
            else:
                await self.step(step)

    async def step(self, step: dict[str, Any]) -> None:
        (operation,) = [name for name in step if name not in ("as", "expect", "error")]
        begun = step[operation] if operation == "begin" else self.filled(step[operation])
        try:
            value = await self.do(operation, dict(begun))
        except (Exception, asyncio.CancelledError) as error:
            if "error" not in step:
                raise
            check(self.filled(step["error"]), shown_error(error), f"the error of {operation}")
            return
        assert "error" not in step, f"{operation} did not fail, but returned {value!r}"
        if "as" in step:
            self.names[self.filled(step["as"])] = value
        if "expect" in step:
            check(self.filled(step["expect"]), value, operation)

    def filled(self, value: Any) -> Any:
        """With the names in it replaced, and what is written shortly written out."""
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if isinstance(value, dict):
            match value:
                case {"$repeat": [text, times]}:
                    return text * times
                case {"$base64": text}:
                    return base64.b64decode(text)
                case {"$join": parts}:
                    return "".join(self.filled(part) for part in parts)
                case {"$same_as": "cwd"}:
                    return os.getcwd()
            return {self.filled(name): self.filled(item) for name, item in value.items()}
        if not isinstance(value, str):
            return value
        value = re.sub(r"\$(\w+)\.id\b", lambda found: self.names[found[1]].id, value)
        return re.sub(r"\$(tmp|n|port)\b", lambda found: str(self.names.get(found[1], found[0])), value)

    async def do(self, operation: str, arguments: dict[str, Any]) -> Any:
        if operation.startswith("files."):
            return await self.files(operation.removeprefix("files."), arguments)
        subject = self.names.get(arguments.pop("of", ""))
        return await getattr(self, f"do_{operation}")(subject, **arguments)

    async def do_run(self, _: Any, command: Any, **options: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return shown_result(await settled(self.env.run(command, **options)))

    async def do_spawn(self, _: Any, command: Any, **options: Any) -> Any:
        return await settled(self.env.spawn(command, **options))

    async def do_spawn_in_scope(self, _: Any, command: Any) -> None:
        process = await settled(self.env.spawn(command))
        if hasattr(process, "__aenter__"):
            async with process:
                pass
        else:
            with process:
                pass

    async def do_attach(self, _: Any, id: str) -> Any:
        return await settled(self.env.attach(id))

    async def do_id(self, process: Any) -> str:
        return process.id

    async def do_write(self, process: Any, data: Any) -> None:
        await settled(process.stdin.write(data))

    async def do_close_stdin(self, process: Any) -> None:
        await settled(process.stdin.close())

    async def do_read_all(self, process: Any, after: int = 0) -> Any:
        read = {"stdout": b"", "stderr": b"", "pty": b""}
        lost = 0
        async for event in each(process.events(after)):
            if event.stream == "gap":
                lost = event.lost_bytes
            else:
                read[event.stream] += event.data
        return {"lost_bytes": lost, **{name: data.decode() for name, data in read.items()}}

    async def do_read_lines(self, process: Any) -> Any:
        return [line async for line in each(process.lines())]

    async def do_read_until(self, process: Any, text: str) -> None:
        seen = ""
        async for event in each(process.events()):
            seen += event.text
            if text in seen:
                return
        raise AssertionError(f"{text} did not come, only {seen!r}")

    async def do_wait(self, process: Any, **options: Any) -> Any:
        return vars(await settled(process.wait(**options)))

    async def do_result(self, process: Any, **options: Any) -> Any:
        return shown_result(await settled(process.result(**options)))

    async def do_wait_for_output(self, process: Any, **options: Any) -> Any:
        found = await settled(process.wait_for_output(**options))
        return {"text": found.text, "seq": found.seq}

    async def do_wait_for_silence(self, process: Any, **options: Any) -> None:
        await settled(process.wait_for_silence(**options))

    async def do_wait_for_port(self, process: Any, **options: Any) -> Any:
        return await settled(process.wait_for_port(**options))

    async def do_kill(self, process: Any) -> Any:
        return await settled(process.kill())

    async def do_terminate(self, process: Any, **options: Any) -> Any:
        return await settled(process.terminate(**options))

    async def do_signal(self, process: Any, sig: Any) -> Any:
        return await settled(process.signal(sig))

    async def do_resize(self, process: Any, rows: int, cols: int) -> None:
        await settled(process.resize(rows, cols))

    async def do_screen(self, process: Any) -> Any:
        return vars(await settled(process.screen()))

    async def do_forget(self, process: Any) -> None:
        await settled(process.forget())

    async def do_processes(self, _: Any) -> Any:
        found = await settled(self.env.processes())
        return {
            "count": len(found),
            "argv": [info.argv for info in found],
            "cwd": [info.cwd for info in found],
            "exited": [info.exit is not None for info in found],
        }

    async def do_until_processes(self, _: Any, count: int) -> None:
        while len(await settled(self.env.processes())) != count:
            await asyncio.sleep(0.01)

    async def do_until_file(self, _: Any, path: str) -> None:
        while not os.path.exists(path):
            await asyncio.sleep(0.01)

    async def do_begin(self, _: Any, **operation: Any) -> Any:
        ((name, arguments),) = operation.items()
        task = asyncio.ensure_future(self.do(name, dict(self.filled(arguments))))
        await asyncio.sleep(0)
        return task

    async def do_cancel(self, task: Any) -> None:
        task.cancel()

    async def do_finish(self, task: Any) -> Any:
        return await task

    async def files(self, verb: str, arguments: dict[str, Any]) -> Any:
        files = self.env.files
        if verb == "search":
            found = [line async for line in each(files.search(**arguments))]
            return [
                {"path": line.path, "line": line.line, "text": line.text, "spans": [list(span) for span in line.spans]}
                for line in found
            ]
        if verb == "read":
            return await settled(files.read_text(**arguments))
        if verb == "read_base64":
            return base64.b64encode(await settled(files.read(**arguments))).decode()
        value = await settled(getattr(files, verb)(**arguments))
        if isinstance(value, list):
            return [vars(item) if hasattr(item, "__dict__") else item for item in value]
        return vars(value) if verb in ("stat", "copy") else value

    async def do_until_change(self, watch: Any, path: str) -> Any:
        async for change in each(watch):
            # After a cut, a watch says to look at everything again.
            if change.path == path or change.kind == "overflow":
                return vars(change)
        raise AssertionError(f"nothing was told of {path}")

    async def do_close_watch(self, watch: Any) -> None:
        await settled(watch.close())

    async def do_http(self, _: Any, **options: Any) -> Any:
        response = await settled(self.env.http.request(**options))
        try:
            decoded = response.json()
        except ValueError:
            decoded = None
        return {
            "status": response.status,
            "ok": response.ok,
            "text": response.text,
            "json": decoded,
            "header_x_type": response.header("X-Type"),
        }

    async def do_info(self, environment: Any) -> Any:
        return vars(await settled((environment or self.env).info()))

    async def do_cut(self, _: Any) -> None:
        self.tell_proxy("cut")

    async def do_block(self, _: Any) -> None:
        self.tell_proxy("block")

    async def do_unblock(self, _: Any) -> None:
        self.tell_proxy("unblock")

    def tell_proxy(self, word: str) -> None:
        """Without a proxy there is nothing to cut, and the behaviour must be the same."""
        if self.control is not None:
            host, port = self.control.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(word.encode() + b"\n")
                assert connection.recv(2) == b"ok"

    async def do_reconnect(self, _: Any) -> None:
        session = (await settled(self.env.info())).session_id
        await settled(self.env.close())
        self.env = await self.open(session=session)

    async def do_open(self, _: Any) -> Any:
        return await self.open()

    async def do_close(self, environment: Any) -> None:
        await settled(environment.close())

    async def do_use_closed(self, environment: Any) -> None:
        await settled(environment.run("true"))

    async def do_connect(self, _: Any, **options: Any) -> None:
        await settled(self.way.connect(**options))

    async def do_unknown_option(self, _: Any) -> None:
        await settled(self.env.run("true", no_such_option=1))


def shown_result(result: exec_server.Result) -> dict[str, Any]:
    return {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "stdout_base64": base64.b64encode(result.stdout_bytes).decode(),
        "exit_code": result.exit_code,
        "ok": result.ok,
        "signal": result.exit.signal,
        "cause": result.exit.cause,
    }


def shown_error(error: BaseException) -> dict[str, Any]:
    shown: dict[str, Any] = {"message": str(error), "reason": getattr(error, "reason", None)}
    if isinstance(error, exec_server.CalledProcessError):
        return {"kind": "called_process", **shown_result(error.result)}
    if isinstance(error, exec_server.TimeoutExpired):
        return {"kind": "timeout", **(shown_result(error.result) if error.result else {})}
    for kind, found in (
        ("closed", exec_server.ClosedError),
        ("connect", exec_server.ConnectError),
        ("connection_lost", exec_server.ConnectionLost),
        ("cancelled", asyncio.CancelledError),
        ("bad_argument", ValueError),
        ("unsupported", NotImplementedError),
    ):
        if isinstance(error, found):
            return {"kind": kind, **shown}
    if isinstance(error, OSError) and error.errno is not None:
        assert isinstance(error, exec_server.Error)
        return {"kind": "os", "errno": errno.errorcode[error.errno], "path": error.filename, **shown}
    return {"kind": "other", **shown}


def check(expected: Any, found: Any, what: str) -> None:
    if isinstance(expected, dict):
        match expected:
            case {"$any": True}:
                return
            case {"$length": length}:
                assert len(found) == length, f"{what} has length {len(found)}, not {length}"
            case {"$matches": regex}:
                assert re.search(regex, found), f"{what} is {found!r}"
            case {"$contains": text}:
                assert text in found, f"{what} is {found!r}"
            case {"$one_of": values}:
                assert found in values, f"{what} is {found!r}"
            case {"$type": "number"}:
                assert isinstance(found, int), f"{what} is {found!r}"
            case _:
                assert isinstance(found, dict), f"{what} is {found!r}"
                for name, value in expected.items():
                    assert name in found, f"{what} has no {name}: {found!r}"
                    check(value, found[name], f"{what}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), f"{what} is {found!r}"
        for index, value in enumerate(expected):
            check(value, found[index], f"{what}[{index}]")
    else:
        short = repr(found)[:300]
        assert found == expected and type(found) is type(expected), f"{what} is {short}, not {str(expected)[:300]!r}"
