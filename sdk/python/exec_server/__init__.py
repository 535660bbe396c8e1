"""Processes, files and HTTP of a machine: this one, or one behind a connection that may break.

    import exec_server

    with exec_server.local() as env:
        print(env.run("make -j", cwd="project").stdout)

    with exec_server.connect("ws://build.example:7000") as env:
        for line in env.spawn(["cargo", "test"]).lines():
            print(line)

`exec_server.aio` has the same to await.
"""

from __future__ import annotations

from . import aio
from ._errors import CalledProcessError, ClosedError, ConnectError, ConnectionLost, Error, TimeoutExpired
from ._sync import Environment, Files, Http, Process, Stdin, StreamedResponse, Watch, connect, local
from ._types import (
    Change,
    Copied,
    Entry,
    Event,
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

__version__ = "0.1.0"

__all__ = [
    "CalledProcessError",
    "Change",
    "ClosedError",
    "ConnectError",
    "ConnectionLost",
    "Copied",
    "Entry",
    "Environment",
    "Error",
    "Event",
    "Exit",
    "Files",
    "Http",
    "Info",
    "Line",
    "Match",
    "Process",
    "ProcessInfo",
    "Response",
    "Result",
    "Screen",
    "Stat",
    "Stdin",
    "StreamedResponse",
    "TimeoutExpired",
    "Watch",
    "aio",
    "connect",
    "local",
]
