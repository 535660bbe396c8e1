from os import PathLike
from typing import Any, Iterator, List, Literal, Mapping, Sequence, Union

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

Path = Union[str, bytes, PathLike[str], PathLike[bytes]]
Data = Union[str, bytes, bytearray, memoryview]
Command = Union[str, Sequence[Path]]
Tty = Union[bool, tuple[int, int]]

class Stdin:
    def write(self, data: Data) -> None:
        """Returns when that machine's kernel has all of it. BrokenPipeError if nobody reads it any more."""
    def close(self) -> None: ...

class Process:
    """A process of an environment. Dropping it leaves it running; `with` ends it, and all that it has started."""

    id: str
    pid: int
    stdin: Stdin
    def __iter__(self) -> Iterator[Event]:
        """Its output from the beginning, as it comes, until nobody is left who could print more."""
    def events(self, after: int = 0) -> Iterator[Event]:
        """The same, after the event with this number."""
    def lines(self) -> Iterator[str]:
        """Its output as lines of text, of both streams."""
    def wait(self, timeout: float | None = None) -> Exit:
        """Waits for its exit; TimeoutExpired leaves it as it is."""
    def result(self, timeout: float | None = None) -> Result:
        """Waits until nothing can be printed any more, and returns all that was."""
    def wait_for_output(self, regex: str, timeout: float | None = None, after: int = 0) -> Match: ...
    def wait_for_port(self, port: int | None = None, timeout: float | None = None) -> int:
        """Waits until it, or what it has started, listens on a TCP port."""
    def wait_for_silence(self, seconds: float, timeout: float | None = None) -> None: ...
    def kill(self) -> bool:
        """Ends the whole process tree at once. Returns whether it was running."""
    def terminate(self, grace: float = 5.0) -> bool:
        """Ends the whole process tree: SIGTERM, and SIGKILL after the grace."""
    def signal(self, sig: int | str) -> bool:
        """Sends a signal to the process group. Returns whether somebody was there to get it."""
    def resize(self, rows: int, cols: int) -> None: ...
    def screen(self) -> Screen: ...
    def forget(self) -> None:
        """Lets go of its output and its id; ends it if it is running."""
    def __enter__(self) -> Process: ...
    def __exit__(self, *exception: object) -> None: ...

class Watch(Iterator[Change]):
    def __next__(self) -> Change: ...
    def close(self) -> None:
        """Ends it, also for another thread that waits for the next change."""
    def __enter__(self) -> Watch: ...
    def __exit__(self, *exception: object) -> None: ...

class Files:
    """The machine's files. Relative paths begin at the environment's working directory."""

    def read(self, path: Path) -> bytes: ...
    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str: ...
    def write(
        self, path: Path, data: Data, append: bool = False, mode: int | None = None, parents: bool = False
    ) -> None:
        """Replaces the file, whole or not at all; or appends."""
    def list(self, path: Path = ".") -> list[Entry]: ...
    def stat(self, path: Path) -> Stat: ...
    def exists(self, path: Path) -> bool: ...
    def mkdir(self, path: Path, parents: bool = True, mode: int | None = None) -> None: ...
    def remove(self, path: Path, recursive: bool = False, missing_ok: bool = False) -> None: ...
    def move(self, path: Path, to: Path, overwrite: bool = True) -> None: ...
    def copy(self, path: Path, to: Path, recursive: bool = False, keep_times: bool = False) -> Copied: ...
    def chmod(self, path: Path, mode: int) -> None: ...
    def symlink(self, path: Path, target: Path) -> None: ...
    def readlink(self, path: Path) -> str: ...
    def realpath(self, path: Path) -> str: ...
    def hash(self, path: Path, algorithm: Literal["sha256", "blake3"] = "sha256") -> str: ...
    def glob(self, pattern: str, path: Path = ".", hidden: bool = True, ignore_files: bool = False) -> List[str]: ...
    def search(
        self,
        pattern: str,
        path: Path = ".",
        *,
        literal: bool = False,
        case: Literal["sensitive", "insensitive", "smart"] = "sensitive",
        word: bool = False,
        globs: Sequence[str] = (),
        ignore_files: bool = True,
        hidden: bool = False,
        max_matches: int = ...,
    ) -> Iterator[Line]: ...
    def watch(self, path: Path, recursive: bool = True, ignore_files: bool = False) -> Watch: ...

class StreamedResponse(Iterator[bytes]):
    """A response whose body is read piece by piece."""

    status: int
    headers: List[tuple[str, str]]
    @property
    def ok(self) -> bool: ...
    def header(self, name: str) -> str | None:
        """The first of that name."""
    def read(self) -> bytes:
        """What is left of the body."""
    def __next__(self) -> bytes: ...
    def close(self) -> None: ...
    def __enter__(self) -> StreamedResponse: ...
    def __exit__(self, *exception: object) -> None: ...

class Http:
    """Requests that the machine makes, from its own network."""

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: Data | None = None,
        json: Any = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Response: ...
    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Response: ...
    def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Data | None = None,
        json: Any = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Response: ...
    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Data | None = None,
        json: Any = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> StreamedResponse:
        """The same for a body that is long or comes bit by bit: returns when status and headers are there.

        Iterating gives the body as pieces of bytes, once; `read` gives what is left of it. Closing it ends the request,
        wherever the machine is, and a body that nobody reads waits.
        """

class Environment:
    """A machine. Closing this machine ends what runs on it; closing another leaves its session, to be taken over."""

    files: Files
    http: Http
    def run(
        self,
        command: Command,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        clear_env: bool = False,
        input: Data | None = None,
        timeout: float | None = None,
        check: bool = False,
        progress: bool = False,
        tty: Tty = False,
        id: str | None = None,
        user: str | None = None,
    ) -> Result:
        """Runs a command to its end. Text is a line for the shell, a list is a program and its arguments.

        After `timeout` seconds the whole process tree is ended, and TimeoutExpired has what was printed. `check` raises
        CalledProcessError for another exit code than 0. `progress` prints the output as it comes. A variable in `env` that
        is None is taken away.
        """
    def spawn(
        self,
        command: Command,
        *,
        stdin: bool = False,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        clear_env: bool = False,
        timeout: float | None = None,
        tty: Tty = False,
        id: str | None = None,
        user: str | None = None,
    ) -> Process:
        """Starts a command, and returns while it runs. `stdin` makes its stdin a pipe."""
    def attach(self, id: str) -> Process:
        """A process that was started before, also by another program of the same session."""
    def processes(self) -> list[ProcessInfo]: ...
    def info(self) -> Info: ...
    def close(self) -> None: ...
    def end(self) -> None:
        """Ends everything that was started, on a far machine too."""
    def __enter__(self) -> Environment: ...
    def __exit__(self, *exception: object) -> None: ...

def local() -> Environment:
    """This machine, inside this program: no server. What runs ends with it."""

def connect(
    url: str | Sequence[Path],
    *,
    token: str | None = None,
    session: str | None = None,
    environment: str | None = None,
    reconnect_timeout: float | None = None,
    detached_ttl: float | None = None,
    server_binary: Path | None = None,
) -> Environment:
    """The machine behind `ws://`, `wss://` or `unix://`, or behind a program that speaks on its stdio, given as a list.

    `ssh://[USER@]HOST[:PORT]`, `docker://NAME`, `podman://NAME` and `kubectl://POD` need nothing there: the `exec-server` that
    came with this package is brought, or `server_binary`, and the server of the account is started.
    """
