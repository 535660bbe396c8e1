"""Exceptions: what failed, as the classes that people already catch.

Every exception is an `Error`. One that comes from a kernel is also the `OSError` it would be here (`FileNotFoundError`,
`PermissionError`, `FileExistsError` ...), with its `errno` and `filename`, whichever machine it comes from.
"""

from __future__ import annotations

import subprocess
from typing import Any

__all__ = [
    "CalledProcessError",
    "ClosedError",
    "ConnectError",
    "ConnectionLost",
    "Error",
    "TimeoutExpired",
]


class Error(Exception):
    """Something that exec_server was asked for failed."""

    #: One word for programs to compare, where there is one: ``"processExists"``, ``"tooLarge"`` ...
    reason: str | None = None


class ConnectError(Error, ConnectionError):
    """There is no connection: nobody answers, or the server says no. `reason` is unreachable, refused or unknownSession."""


class ConnectionLost(Error, ConnectionError):
    """The connection broke, and was given up after `reconnect_timeout`."""


class ClosedError(Error, ValueError):
    """The environment was closed before."""


class TimeoutExpired(Error, TimeoutError):
    """It took longer than it was given. Of `run`, `result` has what was printed until then."""

    result: Any = None


class CalledProcessError(Error, subprocess.CalledProcessError):
    """A process that was to be checked ended with another code than 0."""

    result: Any = None

    def __init__(self, cmd: Any, result: Any) -> None:
        subprocess.CalledProcessError.__init__(self, result.exit_code, cmd, result.stdout, result.stderr)
        self.result = result

    def __str__(self) -> str:
        said = self.result.stderr.strip()[-2000:]
        first = f"{self.cmd!r} ended with {self.result.exit.describe()}"
        return f"{first}:\n{said}" if said else first


class _BadArgument(Error, ValueError):
    pass


class _Forbidden(Error, PermissionError):
    pass


class _Unsupported(Error, NotImplementedError):
    pass


class _Forked(Error, RuntimeError):
    pass


_PLAIN = {
    "badArgument": _BadArgument,
    "connect": ConnectError,
    "connectionLost": ConnectionLost,
    "timedOut": TimeoutExpired,
    "closed": ClosedError,
    "forbidden": _Forbidden,
    "unsupported": _Unsupported,
    "forked": _Forked,
}

for _class in (_BadArgument, _Forbidden, _Unsupported, _Forked):
    _class.__name__ = _class.__qualname__ = _class.__name__.lstrip("_")

_of_the_kernel: dict[type[OSError], type[Error]] = {}


def _os_class(errno: int) -> type[Error]:
    """The class that Python has for this number, made an `Error` too."""
    builtin = type(OSError(errno, ""))
    if builtin not in _of_the_kernel:
        _of_the_kernel[builtin] = type(builtin.__name__, (Error, builtin), {"__module__": "exec_server"})
    return _of_the_kernel[builtin]


def make(
    kind: str, message: str, errno: int | None, path: str | None, reason: str | None, partial: Any
) -> BaseException:
    """Called by the Rust part."""
    if kind == "os" and errno is not None:
        error: Error = _os_class(errno)(errno, message, path) if path else _os_class(errno)(errno, message)
    else:
        error = _PLAIN.get(kind, Error)(message)
    error.reason = reason
    if isinstance(error, TimeoutExpired) and partial is not None:
        from ._types import Result

        error.result = Result._of(partial)
    return error
