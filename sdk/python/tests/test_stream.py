"""Bodies of HTTP responses that are read while they come."""

from __future__ import annotations

import asyncio
import http.server
import os
import threading
from typing import Iterator

import pytest

import exec_server

DIRECT_URL = os.environ["EXEC_SERVER_TEST_DIRECT_URL"]


class Server(http.server.ThreadingHTTPServer):
    """Sends the beginning of a body, the rest when it is told to, and notices when nobody reads."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.go_on = threading.Event()
        self.was_left = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.send_header("X-Type", self.headers["content-type"])
        self.end_headers()
        self.wfile.write(b"first " + body)
        if self.path == "/endless":
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                self.server.was_left.set()
            return
        assert self.server.go_on.wait(60)
        self.wfile.write(bytes(1_000_000) + b"last")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_body_is_read_while_it_comes(server: Server) -> None:
    with exec_server.local() as env:
        with env.http.stream("POST", server.url, json=[1]) as response:
            assert (response.status, response.ok, response.header("X-Type")) == (201, True, "application/json")
            seen = b""
            while len(seen) < len(b"first [1]"):
                seen += next(response)
            assert seen == b"first [1]"
            server.go_on.set()
            assert response.read() == bytes(1_000_000) + b"last"
            assert list(response) == [] and response.read() == b""


def test_a_body_from_another_machine_is_awaited(server: Server) -> None:
    async def main() -> None:
        async with exec_server.aio.connect(DIRECT_URL) as env:
            response = await env.http.stream("POST", server.url, content="x", headers={"content-type": "text/x"})
            assert (response.status, response.header("x-type")) == (201, "text/x")
            seen = b""
            async for piece in response:
                seen += piece
                if seen == b"first x":
                    server.go_on.set()
            assert seen == b"first x" + bytes(1_000_000) + b"last"
            await env.end()

    asyncio.run(main())


def test_whoever_has_read_enough_on_this_machine_ends_the_request(server: Server) -> None:
    with exec_server.local() as env:
        with env.http.stream("POST", f"{server.url}/endless", content="x") as response:
            assert next(response).startswith(b"first")
        assert list(response) == []
        assert server.was_left.wait(60)


def test_whoever_has_read_enough_of_another_machine_goes_on(server: Server) -> None:
    with exec_server.connect(DIRECT_URL) as env:
        with env.http.stream("POST", server.url, content="x") as response:
            assert next(response).startswith(b"first")
        server.go_on.set()
        assert response.read() == b""
        assert env.run("echo goes on").stdout == "goes on\n"
        env.end()


def test_a_request_that_fails_raises_before_there_is_a_body() -> None:
    with exec_server.local() as env:
        with pytest.raises(exec_server.ConnectError):
            env.http.stream("GET", "http://127.0.0.1:9/")
        with pytest.raises(ValueError, match="timeout"):
            env.http.stream("GET", "http://127.0.0.1:9/", timeout="soon")  # type: ignore[arg-type]
