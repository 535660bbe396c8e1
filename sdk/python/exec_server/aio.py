"""The asyncio way: the same calls, to be awaited. Nothing here blocks the event loop.

Cancelling a wait ends the wait, and cancelling `run` ends the whole process tree before `CancelledError` goes on.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from collections import deque
from typing import Any, AsyncIterator, Awaitable, Callable, Generator

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
            ending = call.take()["process"].call("forget", {})
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
    """The items of pages, one by one, until a page is None."""

    def __init__(self, open: Callable[[], Any] | None, convert: Convert) -> None:
        self._open = open
        self._native: Any = None
        self._convert = convert
        self._items: deque[Any] = deque()

    def __aiter__(self) -> _Pages:
        return self

    async def __anext__(self) -> Any:
        if self._open is not None:
            native = await _finished(self._open())
            if self._open is None:
                # Another task has closed it meanwhile.
                native.call("close", {})
            else:
                self._open, self._native = None, native
        while not self._items:
            native = self._native
            page = None if native is None else await _finished(native.call("next", {}))
            if page is None:
                self._native = None
                raise StopAsyncIteration
            self._items.extend(self._convert(page))
        return self._items.popleft()

    async def close(self) -> None:
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

    async def lines(self) -> AsyncIterator[str]:
        splitter = LineSplitter()
        async for event in self:
            for line in splitter.feed(event):
                yield line
        for line in splitter.rest():
            yield line

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
        if progress:
            result = await self._run_shown(command, input, options)
        else:
            arguments = command_of(command, **options)
            arguments["input"] = None if input is None else bytes_of(input)
            result = await self._do("run", arguments, Result._of)
        if check and not result.ok:
            raise CalledProcessError(command, result)
        return result

    async def _run_shown(self, command: Any, input: Any, options: dict[str, Any]) -> Result:
        async with self.spawn(command, stdin=input is not None, **options) as process:
            # Begun and not waited for: a program that prints before it has read all is shown meanwhile.
            fed = None if input is None else process._native.call("feed", {"data": bytes_of(input)})
            display = Display()
            async for event in process:
                display.show(event)
            display.end()
            if fed is not None:
                await _finished(fed)
            return await process._result_of_run()

    def spawn(self, command: Any, *, stdin: bool = False, **options: Any) -> Any:
        arguments = {**command_of(command, **options), "stdin": stdin}
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
