"""The blocking way: every call returns when it is done, and Ctrl-C ends it. Other threads run meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections import deque
from typing import Any, Iterator

from . import _native
from ._decode import Display, LineSplitter
from ._errors import CalledProcessError
from ._shape import (
    Convert,
    EnvironmentShape,
    FilesShape,
    HttpShape,
    ProcessShape,
    Shape,
    StdinShape,
    changes_of,
    bytes_of,
    command_of,
    headers_of,
    lines_of,
    open_arguments,
)
from ._types import ResponseHead, Result, events_of


def _started(call: Any) -> Process:
    """The process that the call starts. If this is interrupted, none is left."""
    try:
        return Process(call.wait())
    except BaseException:
        # The interrupt may have come after the start.
        with contextlib.suppress(Exception):  # It was in time, or the start has failed: nothing is to be ended.
            call.take()["process"].call("end", {}).wait()
        raise


class _Waits(Shape):
    def __init__(self, native: Any) -> None:
        self._native = native

    def _finish(self, call: Any, convert: Convert | None = None) -> Any:
        value = call.wait()
        return value if convert is None else convert(value)


class _Pages:
    """The items of pages, one by one, until a page is None."""

    def __init__(self, native: Any, convert: Convert) -> None:
        #: None after the last page, too: nobody is held back any more.
        self._native = native
        self._convert = convert
        self._items: deque[Any] = deque()
        # Only by `close`: whoever hears of the end may not be the thread that has been given the last page.
        self._closed = False

    def __iter__(self) -> _Pages:
        return self

    def __next__(self) -> Any:
        while not self._closed:
            # Not asked for first, because another thread may take the last one between the two.
            try:
                return self._items.popleft()
            except IndexError:
                pass
            if not self._read():
                break
        raise StopIteration

    def _read(self) -> bool:
        """Adds a page to the items, and returns whether there was one."""
        native = self._native
        if native is None:
            return False
        call = native.call("next", {})
        try:
            page = call.wait()
        except BaseException:
            # An interrupt may come after the page, which is then kept for whoever goes on.
            with contextlib.suppress(Exception):  # It came before the page, or the call has failed.
                self._keep(call.take())
            raise
        return self._keep(page)

    def _keep(self, page: Any) -> bool:
        if page is None:
            self._native = None
            return False
        self._items.extend(self._convert(page))
        return True

    def close(self) -> None:
        self._closed = True
        native, self._native = self._native, None
        if native is not None:
            # Whoever waits for the next page, in another thread, is at the end then.
            native.call("close", {})
        self._items.clear()


class Stdin(_Waits, StdinShape):
    pass


class Process(_Waits, ProcessShape):
    def __init__(self, started: dict[str, Any]) -> None:
        super().__init__(started["process"])
        self.id = started["id"]
        self.pid = started["pid"]
        self.stdin = Stdin(self._native)

    def __iter__(self) -> Iterator[Any]:
        return self.events()

    def events(self, after: int = 0) -> Iterator[Any]:
        return _Pages(self._native.call("output", {"after": after}).wait(), events_of)

    def lines(self) -> Iterator[str]:
        splitter = LineSplitter()
        for event in self:
            yield from splitter.feed(event)
        yield from splitter.rest()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exception: object) -> None:
        # One call, which an interrupt does not cut short: no process is left.
        self._do("end", {})


class Watch(_Pages):
    def __init__(self, native: Any) -> None:
        super().__init__(native, changes_of)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Files(_Waits, FilesShape):
    def search(self, pattern: str, path: Any = ".", **options: Any) -> Iterator[Any]:
        return _Pages(self._search(pattern, path, options).wait(), lines_of)

    def watch(self, path: Any, recursive: bool = True, ignore_files: bool = False) -> Watch:
        return Watch(self._watch(path, recursive, ignore_files).wait())


class StreamedResponse(_Pages, ResponseHead):
    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value["body"], lambda piece: (piece,))
        self.status = value["status"]
        self.headers = headers_of(value)

    def read(self) -> bytes:
        return b"".join(self)

    def __repr__(self) -> str:
        return f"<StreamedResponse {self.status}>"

    def __enter__(self) -> StreamedResponse:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Http(_Waits, HttpShape):
    def stream(self, method: str, url: str, **options: Any) -> StreamedResponse:
        return StreamedResponse(self._stream(method, url, options).wait())


class Environment(_Waits, EnvironmentShape):
    def __init__(self, native: Any) -> None:
        super().__init__(native)
        self.files = Files(native)
        self.http = Http(native)
        _opened.add(self)

    def run(
        self, command: Any, *, input: Any = None, check: bool = False, progress: bool = False, **options: Any
    ) -> Result:
        arguments = command_of(command, **options)
        data = None if input is None else bytes_of(input)
        if progress:
            result = self._run_shown(arguments, data)
        else:
            result = self._do("run", {**arguments, "input": data}, Result._of)
        if check and not result.ok:
            raise CalledProcessError(command, result)
        return result

    def _run_shown(self, arguments: dict[str, Any], data: bytes | None) -> Result:
        with self._start({**arguments, "stdin": data is not None, "run": True}) as process:
            # Begun and not waited for: a program that prints before it has read all is shown meanwhile, and what a full log
            # drops after it was shown has been collected.
            fed = None if data is None else process._native.call("feed", {"data": data})
            ran = process._native.call("result", {"run": True})
            display = Display()
            for event in process:
                display.show(event)
            display.end()
            if fed is not None:
                fed.wait()
            return Result._of(ran.wait())

    def spawn(self, command: Any, *, stdin: bool = False, **options: Any) -> Process:
        return self._start({**command_of(command, **options), "stdin": stdin})

    def _start(self, arguments: dict[str, Any]) -> Process:
        return _started(self._native.call("spawn", arguments))

    def attach(self, id: str) -> Process:
        return self._do("attach", {"id": id}, Process)

    def close(self) -> None:
        _opened.discard(self)
        self._do("close", {})

    def end(self) -> None:
        _opened.discard(self)
        self._do("close", {"end": True})

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_opened: weakref.WeakSet[Environment] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for environment in list(_opened):
        try:
            environment.close()
        except Exception:  # The program ends; there is nobody left to tell.
            pass


def local() -> Environment:
    return Environment(_native.open("local", {}).wait())


def connect(
    url: Any,
    *,
    token: str | None = None,
    session: str | None = None,
    environment: str | None = None,
    reconnect_timeout: float | None = None,
    detached_ttl: float | None = None,
    server_binary: Any = None,
) -> Environment:
    arguments = open_arguments(url, token, session, environment, reconnect_timeout, detached_ttl, server_binary)
    return Environment(_native.open("connect", arguments).wait())
