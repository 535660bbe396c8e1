"""What calls return: plain values."""

from __future__ import annotations

import html
import json
import signal as _signal
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exit:
    """How a process ended."""

    #: What a shell would show: the program's own, 128 + n for a signal, -1 if nobody knows.
    code: int
    #: The signal that ended it.
    signal: int | None
    #: Who ended it: own, terminated, timed_out, out_of_memory, cpu_limit, file_size_limit.
    cause: str
    user_seconds: float
    system_seconds: float
    max_rss_bytes: int

    def describe(self) -> str:
        """For a person."""
        if self.signal is not None:
            try:
                text = _signal.Signals(self.signal).name
            except ValueError:
                text = f"signal {self.signal}"
        else:
            text = f"exit code {self.code}"
        return text if self.cause == "own" else f"{text} ({self.cause.replace('_', ' ')})"


@dataclass(frozen=True)
class Result:
    """A process that has ended, and everything that it printed."""

    id: str
    exit: Exit
    stdout_bytes: bytes
    stderr_bytes: bytes
    #: How much a full log had dropped before it was read; that is missing above.
    lost_bytes: int

    @classmethod
    def _of(cls, value: dict[str, Any]) -> Result:
        return cls(
            value["id"], Exit(**value["exit"]), value["stdout"], value["stderr"], value["lost_bytes"]
        )

    @property
    def exit_code(self) -> int:
        return self.exit.code

    @property
    def ok(self) -> bool:
        return self.exit.code == 0

    @property
    def stdout(self) -> str:
        """As text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<Result {self.exit.describe()}, stdout={_short(self.stdout)}, stderr={_short(self.stderr)}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        out = f"<pre>{html.escape(self.stdout)}</pre>" if self.stdout_bytes else ""
        err = f'<pre style="color:#b00">{html.escape(self.stderr)}</pre>' if self.stderr_bytes else ""
        return f"{out}{err}<small>{html.escape(self.exit.describe())}</small>"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


class Event:
    """A piece of output: which stream, which bytes, and its number in the log.

    Where a full log has dropped output before it was read, `stream` is ``"gap"`` and `lost_bytes` says how much.
    """

    __slots__ = ("data", "lost_bytes", "seq", "stream")

    def __init__(self, stream: str, data: bytes, seq: int, lost_bytes: int = 0) -> None:
        self.stream = stream
        self.data = data
        self.seq = seq
        self.lost_bytes = lost_bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def __repr__(self) -> str:
        if self.stream == "gap":
            return f"<Event gap of {self.lost_bytes} bytes>"
        return f"<Event {self.stream} {_short(self.text)}>"


def events_of(page: list[list[Any]]) -> list[Event]:
    """The events of a page that are output; the exit is asked for otherwise."""
    events = []
    for stream, value, seq in page:
        if stream == "gap":
            events.append(Event("gap", b"", seq, value))
        elif stream != "exit":
            events.append(Event(stream, value, seq))
    return events


@dataclass(frozen=True)
class Screen:
    """What a person would see on a terminal."""

    lines: list[str]
    rows: int
    cols: int
    cursor_row: int
    cursor_col: int
    cursor_visible: bool
    title: str | None
    alternate: bool

    def __str__(self) -> str:
        return "\n".join(self.lines).rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Match:
    """Output that matched."""

    seq: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class ProcessInfo:
    id: str
    pid: int
    argv: list[str]
    cwd: str
    tty: bool
    #: Seconds since 1970, by that machine's clock.
    started: float
    exit: Exit | None
    #: Whether nothing can be printed any more.
    closed: bool


@dataclass(frozen=True)
class Info:
    """What a machine is."""

    os: str
    hostname: str | None
    version: str
    cwd: str | None
    home: str | None
    temp_dir: str
    shell: str
    #: With it, `connect(url, session=...)` takes over what this connection leaves behind.
    session_id: str | None


@dataclass(frozen=True)
class Entry:
    """A name in a directory. `kind` is file, directory, symlink (one that leads nowhere) or special."""

    name: str
    path: str
    kind: str
    is_symlink: bool

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        return self.kind == "file"


@dataclass(frozen=True)
class Stat:
    kind: str
    is_symlink: bool
    size: int
    #: Permission bits.
    mode: int
    #: Seconds since 1970.
    modified: float
    accessed: float
    uid: int
    gid: int
    nlink: int

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        return self.kind == "file"


@dataclass(frozen=True)
class Copied:
    files: int
    directories: int
    symlinks: int
    bytes: int
    skipped: int


@dataclass(frozen=True)
class Change:
    """`kind` is created, modified, removed, renamed (then `to` is its new name), or overflow: look at all of `path` again."""

    kind: str
    path: str
    to: str | None


@dataclass(frozen=True)
class Line:
    """A line that was searched for. `spans` are the matches, as bytes within the line."""

    path: str
    line: int
    data: bytes
    spans: list[tuple[int, int]]

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class ResponseHead:
    """What comes before the body of a response."""

    status: int
    headers: list[tuple[str, str]]

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        """The first of that name."""
        return next((value for found, value in self.headers if found == name.lower()), None)


@dataclass(frozen=True)
class Response(ResponseHead):
    """The response to an HTTP request that the machine made."""

    status: int
    #: In the order of the response, names in lower case.
    headers: list[tuple[str, str]]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.content)
