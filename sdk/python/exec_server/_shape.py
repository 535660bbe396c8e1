"""The methods, written once for both ways to wait.

A method begins a call of the Rust part and hands it to `_finish`, with what makes a plain value of the answer. `_sync`
waits there; `aio` returns something to await. Signatures for people and type checkers are in `_sync.pyi` and `aio.pyi`.
"""

from __future__ import annotations

import json as _json
import os
import signal as _signal
from typing import Any, Callable

from ._binary import packaged_binary
from ._types import (
    Change,
    Copied,
    Entry,
    Exit,
    Info,
    Line,
    Match,
    ProcessInfo,
    Response,
    Result,
    Screen,
    Stat,
)

Convert = Callable[[Any], Any]


def path_of(path: Any) -> str:
    return os.fsdecode(os.fspath(path))


def bytes_of(data: Any) -> bytes:
    # By a memoryview, which takes nothing but bytes: of a number, `bytes` would make as many zeros.
    return data.encode() if isinstance(data, str) else bytes(memoryview(data))


def signal_of(sig: Any) -> int:
    """A number, a member of `signal.Signals`, or a name with or without SIG."""
    if not isinstance(sig, str):
        return int(sig)
    name = sig.upper()
    try:
        return int(_signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise ValueError(f"there is no signal {sig!r}") from None


def variable_of(value: Any) -> str:
    """The value of a variable, as `os.environ` would have it: bytes that are no text become surrogates."""
    return path_of(value) if isinstance(value, (bytes, os.PathLike)) else str(value)


def command_of(
    command: Any,
    cwd: Any = None,
    env: Any = None,
    clear_env: bool = False,
    tty: Any = False,
    timeout: float | None = None,
    id: str | None = None,
    user: str | None = None,
) -> dict[str, Any]:
    """What `run` and `spawn` have in common. Text is a line for the shell, a list is a program and its arguments."""
    arguments: dict[str, Any] = {"clear_env": clear_env, "timeout": timeout, "id": id, "user": user}
    if isinstance(command, str):
        arguments["shell"] = command
    else:
        arguments["argv"] = [path_of(word) for word in command]
    if cwd is not None:
        arguments["cwd"] = path_of(cwd)
    if env is not None:
        arguments["env"] = {
            path_of(name): None if value is None else variable_of(value) for name, value in env.items()
        }
    if tty:
        arguments["tty"] = True
        if tty is not True:
            arguments["rows"], arguments["cols"] = tty
    return arguments


class Shape:
    """Something to call."""

    _native: Any

    def _finish(self, call: Any, convert: Convert | None = None) -> Any:
        raise NotImplementedError

    def _do(self, method: str, arguments: dict[str, Any], convert: Convert | None = None) -> Any:
        return self._finish(self._native.call(method, arguments), convert)


class StdinShape(Shape):
    def write(self, data: Any) -> Any:
        return self._do("write", {"data": bytes_of(data)})

    def close(self) -> Any:
        return self._do("close_stdin", {})


class ProcessShape(Shape):
    id: str
    pid: int

    def wait(self, timeout: float | None = None) -> Any:
        return self._do("wait", {"timeout": timeout}, lambda value: Exit(**value))

    def result(self, timeout: float | None = None) -> Any:
        return self._do("result", {"timeout": timeout}, Result._of)

    def wait_for_output(self, regex: str, timeout: float | None = None, after: int = 0) -> Any:
        arguments = {"until": "output", "regex": regex, "after": after, "timeout": timeout}
        return self._do("wait", arguments, lambda value: Match(value["seq"], value["text"]))

    def wait_for_port(self, port: int | None = None, timeout: float | None = None) -> Any:
        return self._do("wait", {"until": "port", "port": port, "timeout": timeout})

    def wait_for_silence(self, seconds: float, timeout: float | None = None) -> Any:
        return self._do("wait", {"until": "silence", "silence": seconds, "timeout": timeout})

    def kill(self) -> Any:
        return self._do("terminate", {}, lambda value: value["was_running"])

    def terminate(self, grace: float = 5.0) -> Any:
        return self._do("terminate", {"grace": grace}, lambda value: value["was_running"])

    def signal(self, sig: Any) -> Any:
        return self._do("signal", {"number": signal_of(sig)})

    def resize(self, rows: int, cols: int) -> Any:
        return self._do("resize", {"rows": rows, "cols": cols})

    def screen(self) -> Any:
        return self._do("screen", {}, lambda value: Screen(**value))

    def forget(self) -> Any:
        return self._do("forget", {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} pid {self.pid}>"


class FilesShape(Shape):
    def _on(self, verb: str, path: Any, convert: Convert | None = None, /, **arguments: Any) -> Any:
        arguments["path"] = path_of(path)
        return self._do(f"files.{verb}", arguments, convert)

    def read(self, path: Any) -> Any:
        return self._on("read", path)

    def read_text(self, path: Any, encoding: str = "utf-8", errors: str = "strict") -> Any:
        return self._on("read", path, lambda data: data.decode(encoding, errors))

    def write(self, path: Any, data: Any, append: bool = False, mode: int | None = None, parents: bool = False) -> Any:
        return self._on("write", path, None, data=bytes_of(data), append=append, mode=mode, parents=parents)

    def list(self, path: Any = ".") -> Any:
        return self._on("list", path, lambda found: [Entry(**entry) for entry in found])

    def stat(self, path: Any) -> Any:
        return self._on("stat", path, lambda value: Stat(**value))

    def exists(self, path: Any) -> Any:
        return self._on("exists", path)

    def mkdir(self, path: Any, parents: bool = True, mode: int | None = None) -> Any:
        return self._on("mkdir", path, None, parents=parents, mode=mode)

    def remove(self, path: Any, recursive: bool = False, missing_ok: bool = False) -> Any:
        return self._on("remove", path, None, recursive=recursive, missing_ok=missing_ok)

    def move(self, path: Any, to: Any, overwrite: bool = True) -> Any:
        return self._on("move", path, None, to=path_of(to), overwrite=overwrite)

    def copy(self, path: Any, to: Any, recursive: bool = False, keep_times: bool = False) -> Any:
        convert = lambda value: Copied(**value)  # noqa: E731
        return self._on("copy", path, convert, to=path_of(to), recursive=recursive, keep_times=keep_times)

    def chmod(self, path: Any, mode: int) -> Any:
        return self._on("chmod", path, None, mode=mode)

    def symlink(self, path: Any, target: Any) -> Any:
        return self._on("symlink", path, None, target=path_of(target))

    def readlink(self, path: Any) -> Any:
        return self._on("readlink", path)

    def realpath(self, path: Any) -> Any:
        return self._on("realpath", path)

    def hash(self, path: Any, algorithm: str = "sha256") -> Any:
        return self._on("hash", path, None, algorithm=algorithm)

    def glob(self, pattern: str, path: Any = ".", hidden: bool = True, ignore_files: bool = False) -> Any:
        convert = lambda value: value["paths"]  # noqa: E731
        return self._on("glob", path, convert, pattern=pattern, hidden=hidden, ignore_files=ignore_files)

    def _search(self, pattern: str, path: Any, options: dict[str, Any]) -> Any:
        if "globs" in options:
            options["globs"] = list(options["globs"])
        return self._native.call("files.search", {"pattern": pattern, "path": path_of(path), **options})

    def _watch(self, path: Any, recursive: bool, ignore_files: bool) -> Any:
        arguments = {"path": path_of(path), "recursive": recursive, "ignore_files": ignore_files}
        return self._native.call("files.watch", arguments)


def request_of(
    method: str,
    url: str,
    headers: Any = None,
    content: Any = None,
    json: Any = None,
    timeout: float | None = None,
    follow_redirects: bool = True,
) -> dict[str, Any]:
    """What `request` and `stream` have in common."""
    headers = dict(headers or {})
    if json is not None:
        content = _json.dumps(json)
        headers.setdefault("content-type", "application/json")
    return {
        "method": method,
        "url": url,
        "headers": headers,
        "body": None if content is None else bytes_of(content),
        "timeout": timeout,
        "follow_redirects": follow_redirects,
    }


class HttpShape(Shape):
    def request(self, method: str, url: str, *words: Any, **options: Any) -> Any:
        return self._do("http", request_of(method, url, *words, **options), response_of)

    def _stream(self, method: str, url: str, options: dict[str, Any]) -> Any:
        return self._native.call("http", {**request_of(method, url, **options), "stream": True})

    def get(self, url: str, **options: Any) -> Any:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> Any:
        return self.request("POST", url, **options)


class EnvironmentShape(Shape):
    def processes(self) -> Any:
        return self._do("processes", {}, lambda found: [info_of_process(info) for info in found])

    def info(self) -> Any:
        return self._do("info", {}, lambda value: Info(**value))


def info_of_process(info: dict[str, Any]) -> ProcessInfo:
    ended = info.pop("exit")
    return ProcessInfo(exit=Exit(**ended) if ended else None, **info)


def headers_of(value: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in value["headers"]]


def response_of(value: dict[str, Any]) -> Response:
    return Response(value["status"], headers_of(value), value["body"])


def changes_of(found: list[dict[str, Any]]) -> list[Change]:
    return [Change(**change) for change in found]


def lines_of(found: list[dict[str, Any]]) -> list[Line]:
    return [
        Line(line["path"], line["line"], line["text"], [(begin, end) for begin, end in line["spans"]]) for line in found
    ]


def open_arguments(
    url: Any,
    token: str | None,
    session: str | None,
    environment: str | None,
    reconnect_timeout: float | None,
    detached_ttl: float | None,
    server_binary: Any,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "token": token,
        "session": session,
        "environment": environment,
        "reconnect_timeout": reconnect_timeout,
        "detached_ttl": detached_ttl,
        "server_binary": None if server_binary is None else path_of(server_binary),
        "client_name": "exec_server (Python)",
    }
    if isinstance(url, str):
        arguments["url"] = url
        arguments["packaged_binary"] = packaged_binary()
    else:
        arguments["program"] = [path_of(word) for word in url]
    return arguments
