"""The asyncio way: the same calls, to be awaited. Nothing here blocks the event loop.

Cancelling a wait ends the wait, and cancelling `run` ends the whole process tree before `CancelledError` goes on.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from collections import deque
from typing import Any, AsyncIterator, Awaitable, Callable, Generator, Iterable

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
    bytes_of,
    changes_of,
    command_of,
    headers_of,
    lines_of,
    open_arguments,
)
from ._types import ResponseHead, Result, events_of

# Before the interpreter ends, and not while: see `notify.rs`.
atexit.register(_native.stop_notifying)

#: How long a cancelled call may take to clean up before its caller goes on, in seconds.
_CLEAN_UP = 5.0


async def _finished(call: Any) -> Any:
    """What the call returns or raises."""
    loop = asyncio.get_running_loop()
    try:
        await _done(call, loop)
    except asyncio.CancelledError:
        call.cancel()
        # What it has started is gone before the caller goes on: a cancelled `run` leaves no process.
        await asyncio.wait({_done(call, loop)}, timeout=_CLEAN_UP)
        raise
    return call.take()


async def _started(call: Any) -> Process:
    """The process that the call starts. If this is cancelled, none is left."""
    try:
        return Process(await _finished(call))
    except asyncio.CancelledError:
        # The cancel may have come after the start, before it was this task's turn.
        with contextlib.suppress(Exception):  # It was in time, or the start has failed: nothing is to be ended.
            ending = call.take()["process"].call("end", {})
            await asyncio.wait({_done(ending, asyncio.get_running_loop())}, timeout=_CLEAN_UP)
        raise


def _done(call: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    call.on_done(loop, tell)
    return future


class _Awaits(Shape):
    def __init__(self, native: Any) -> None:
        self._native = native

    async def _finish(self, call: Any, convert: Convert | None = None) -> Any:
        value = await _finished(call)
        return value if convert is None else convert(value)


class _Opening:
    """Something to await, or to use in `async with`."""

    def __init__(self, open: Callable[[], Awaitable[Any]]) -> None:
        self._open = open
        self._opened: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._open().__await__()

    async def __aenter__(self) -> Any:
        self._opened = await self._open()
        return await self._opened.__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await self._opened.__aexit__(*exception)


class _Pages:
    """The items of pages, one by one, until a page is None; then those of `last`."""

    def __init__(
        self, open: Callable[[], Any] | None, convert: Convert, last: Callable[[], Iterable[Any]] = lambda: ()
    ) -> None:
        self._open = open
        #: None after the last page, too: nobody is held back any more.
        self._native: Any = None
        self._convert = convert
        self._last = last
        self._items: deque[Any] = deque()
        self._closed = False
        self._turn = asyncio.Lock()

    def __aiter__(self) -> _Pages:
        return self

    async def __anext__(self) -> Any:
        # What is there already needs no turn, unless somebody else is waiting.
        if not self._items or self._turn.locked():
            # One task at a time, so that pages are put together in their order.
            async with self._turn:
                while not self._items:
                    if not await self._read():
                        raise StopAsyncIteration
        return self._items.popleft()

    async def _read(self) -> bool:
        """Adds a page to the items, and returns whether there was one."""
        if self._open is not None:
            native = await _finished(self._open())
            if self._closed:
                native.call("close", {})
                return False
            self._open, self._native = None, native
        if self._native is None:
            return False
        call = self._native.call("next", {})
        try:
            page = await _finished(call)
        except asyncio.CancelledError:
            # The page may have come before it was this task's turn. It is kept for whoever goes on.
            with contextlib.suppress(Exception):  # The cancel was in time, or the call has failed.
                self._keep(call.take())
            raise
        return self._keep(page)

    def _keep(self, page: Any) -> bool:
        # Another task may have closed it after the page had come.
        if self._closed:
            return False
        if page is None:
            self._native = None
            self._items.extend(self._last())
            return bool(self._items)
        self._items.extend(self._convert(page))
        return True

    async def close(self) -> None:
        self._closed = True
        native, self._open, self._native = self._native, None, None
        if native is not None:
            # Whoever awaits the next page, in another task, is at the end then.
            native.call("close", {})
        self._items.clear()


class Stdin(_Awaits, StdinShape):
    pass


class Process(_Awaits, ProcessShape):
    def __init__(self, started: dict[str, Any]) -> None:
        super().__init__(started["process"])
        self.id = started["id"]
        self.pid = started["pid"]
        self.stdin = Stdin(self._native)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.events()

    def events(self, after: int = 0) -> AsyncIterator[Any]:
        return _Pages(lambda: self._native.call("output", {"after": after}), events_of)

    def lines(self) -> AsyncIterator[str]:
        # Not a generator: one whose wait for a line is cancelled is at its end, and says nothing of what it has not given.
        splitter = LineSplitter()
        split = lambda page: [line for event in events_of(page) for line in splitter.feed(event)]  # noqa: E731
        return _Pages(lambda: self._native.call("output", {}), split, splitter.rest)

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, *exception: object) -> None:
        # One call, which a cancel does not cut short: no process is left.
        await self._do("end", {})


class Watch(_Pages):
    def __init__(self, native: Any) -> None:
        super().__init__(None, changes_of)
        self._native = native

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class Files(_Awaits, FilesShape):
    def search(self, pattern: str, path: Any = ".", **options: Any) -> AsyncIterator[Any]:
        return _Pages(lambda: self._search(pattern, path, options), lines_of)

    def watch(self, path: Any, recursive: bool = True, ignore_files: bool = False) -> Any:
        return _Opening(lambda: self._finish(self._watch(path, recursive, ignore_files), Watch))


class StreamedResponse(_Pages, ResponseHead):
    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(None, lambda piece: (piece,))
        self._native = value["body"]
        self.status = value["status"]
        self.headers = headers_of(value)

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    def __repr__(self) -> str:
        return f"<StreamedResponse {self.status}>"

    async def __aenter__(self) -> StreamedResponse:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class Http(_Awaits, HttpShape):
    def stream(self, method: str, url: str, **options: Any) -> Any:
        return _Opening(lambda: self._finish(self._stream(method, url, options), StreamedResponse))


class Environment(_Awaits, EnvironmentShape):
    def __init__(self, native: Any) -> None:
        super().__init__(native)
        self.files = Files(native)
        self.http = Http(native)

    async def run(
        self, command: Any, *, input: Any = None, check: bool = False, progress: bool = False, **options: Any
    ) -> Result:
        arguments = command_of(command, **options)
        data = None if input is None else bytes_of(input)
        if progress:
            result = await self._run_shown(arguments, data)
        else:
            result = await self._do("run", {**arguments, "input": data}, Result._of)
        if check and not result.ok:
            raise CalledProcessError(command, result)
        return result

    async def _run_shown(self, arguments: dict[str, Any], data: bytes | None) -> Result:
        async with self._start({**arguments, "stdin": data is not None, "run": True}) as process:
            # Begun and not waited for: a program that prints before it has read all is shown meanwhile, and what a full log
            # drops after it was shown has been collected.
            fed = None if data is None else process._native.call("feed", {"data": data})
            ran = process._native.call("result", {"run": True})
            display = Display()
            async for event in process:
                display.show(event)
            display.end()
            if fed is not None:
                await _finished(fed)
            return Result._of(await _finished(ran))

    def spawn(self, command: Any, *, stdin: bool = False, **options: Any) -> Any:
        return self._start({**command_of(command, **options), "stdin": stdin})

    def _start(self, arguments: dict[str, Any]) -> Any:
        return _Opening(lambda: _started(self._native.call("spawn", arguments)))

    def attach(self, id: str) -> Any:
        return self._do("attach", {"id": id}, Process)

    async def close(self) -> None:
        await self._do("close", {})

    async def end(self) -> None:
        await self._do("close", {"end": True})

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def local() -> Any:
    return _Opening(lambda: _open("local", {}))


def connect(
    url: Any,
    *,
    token: str | None = None,
    session: str | None = None,
    environment: str | None = None,
    reconnect_timeout: float | None = None,
    detached_ttl: float | None = None,
    server_binary: Any = None,
) -> Any:
    arguments = open_arguments(url, token, session, environment, reconnect_timeout, detached_ttl, server_binary)
    return _Opening(lambda: _open("connect", arguments))


async def _open(way: str, arguments: dict[str, Any]) -> Environment:
    return Environment(await _finished(_native.open(way, arguments)))
