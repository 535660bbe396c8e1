from os import PathLike
from typing import Any, AsyncIterator, Generator, Generic, List, Literal, Mapping, Sequence, TypeVar

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

from ._sync import Command, Data, Path, Tty

T = TypeVar("T")

class _Opening(Generic[T]):
    """Something to await, or to use in `async with`."""

    def __await__(self) -> Generator[Any, None, T]: ...
    async def __aenter__(self) -> T: ...
    async def __aexit__(self, *exception: object) -> None: ...

class Stdin:
    async def write(self, data: Data) -> None:
        """Returns when that machine's kernel has all of it. BrokenPipeError if nobody reads it any more."""
    async def close(self) -> None: ...

class Process:
    """A process of an environment. Dropping it leaves it running; `with` ends it, and all that it has started."""

    id: str
    pid: int
    stdin: Stdin
    def __aiter__(self) -> AsyncIterator[Event]:
        """Its output from the beginning, as it comes, until nobody is left who could print more."""
    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """The same, after the event with this number."""
    def lines(self) -> AsyncIterator[str]:
        """Its output as lines of text, of both streams."""
    async def wait(self, timeout: float | None = None) -> Exit:
        """Waits for its exit; TimeoutExpired leaves it as it is."""
    async def result(self, timeout: float | None = None) -> Result:
        """Waits until nothing can be printed any more, and returns all that was."""
    async def wait_for_output(self, regex: str, timeout: float | None = None, after: int = 0) -> Match: ...
    async def wait_for_port(self, port: int | None = None, timeout: float | None = None) -> int:
        """Waits until it, or what it has started, listens on a TCP port."""
    async def wait_for_silence(self, seconds: float, timeout: float | None = None) -> None: ...
    async def kill(self) -> bool:
        """Ends the whole process tree at once. Returns whether it was running."""
    async def terminate(self, grace: float = 5.0) -> bool:
        """Ends the whole process tree: SIGTERM, and SIGKILL after the grace."""
    async def signal(self, sig: int | str) -> bool:
        """Sends a signal to the process group. Returns whether somebody was there to get it."""
    async def resize(self, rows: int, cols: int) -> None: ...
    async def screen(self) -> Screen: ...
    async def forget(self) -> None:
        """Lets go of its output and its id; ends it if it is running."""
    async def __aenter__(self) -> Process: ...
    async def __aexit__(self, *exception: object) -> None: ...

class Watch(AsyncIterator[Change]):
    async def __anext__(self) -> Change: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> Watch: ...
    async def __aexit__(self, *exception: object) -> None: ...

class Files:
    """The machine's files. Relative paths begin at the environment's working directory."""

    async def read(self, path: Path) -> bytes: ...
    async def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str: ...
    async def write(
        self, path: Path, data: Data, append: bool = False, mode: int | None = None, parents: bool = False
    ) -> None:
        """Replaces the file, whole or not at all; or appends."""
    async def list(self, path: Path = ".") -> list[Entry]: ...
    async def stat(self, path: Path) -> Stat: ...
    async def exists(self, path: Path) -> bool: ...
    async def mkdir(self, path: Path, parents: bool = True, mode: int | None = None) -> None: ...
    async def remove(self, path: Path, recursive: bool = False, missing_ok: bool = False) -> None: ...
    async def move(self, path: Path, to: Path, overwrite: bool = True) -> None: ...
    async def copy(self, path: Path, to: Path, recursive: bool = False, keep_times: bool = False) -> Copied: ...
    async def chmod(self, path: Path, mode: int) -> None: ...
    async def symlink(self, path: Path, target: Path) -> None: ...
    async def readlink(self, path: Path) -> str: ...
    async def realpath(self, path: Path) -> str: ...
    async def hash(self, path: Path, algorithm: Literal["sha256", "blake3"] = "sha256") -> str: ...
    async def glob(self, pattern: str, path: Path = ".", hidden: bool = True, ignore_files: bool = False) -> List[str]: ...
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
    ) -> AsyncIterator[Line]: ...
    def watch(self, path: Path, recursive: bool = True, ignore_files: bool = False) -> _Opening[Watch]: ...

class StreamedResponse(AsyncIterator[bytes]):
    """A response whose body is read piece by piece."""

    status: int
    headers: List[tuple[str, str]]
    @property
    def ok(self) -> bool: ...
    def header(self, name: str) -> str | None:
        """The first of that name."""
    async def read(self) -> bytes:
        """What is left of the body."""
    async def __anext__(self) -> bytes: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> StreamedResponse: ...
    async def __aexit__(self, *exception: object) -> None: ...

class Http:
    """Requests that the machine makes, from its own network."""

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: Data | None = None,
        json: Any = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Response: ...
    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Response: ...
    async def post(
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
    ) -> _Opening[StreamedResponse]:
        """The same for a body that is long or comes bit by bit: returns when status and headers are there.

        Iterating gives the body as pieces of bytes, once; `read` gives what is left of it. Closing it ends the request,
        wherever the machine is, and a body that nobody reads waits.
        """

class Environment:
    """A machine. Closing this machine ends what runs on it; closing another leaves its session, to be taken over."""

    files: Files
    http: Http
    async def run(
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
    ) -> _Opening[Process]:
        """Starts a command, and returns while it runs. `stdin` makes its stdin a pipe."""
    async def attach(self, id: str) -> Process:
        """A process that was started before, also by another program of the same session."""
    async def processes(self) -> list[ProcessInfo]: ...
    async def info(self) -> Info: ...
    async def close(self) -> None: ...
    async def end(self) -> None:
        """Ends everything that was started, on a far machine too."""
    async def __aenter__(self) -> Environment: ...
    async def __aexit__(self, *exception: object) -> None: ...

def local() -> _Opening[Environment]:
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
) -> _Opening[Environment]:
    """The machine behind `ws://`, `wss://` or `unix://`, or behind a program that speaks on its stdio, given as a list.

    `ssh://[USER@]HOST[:PORT]`, `docker://NAME`, `podman://NAME` and `kubectl://POD` need nothing there: the `exec-server` that
    came with this package is brought, or `server_binary`, and the server of the account is started.
    """
