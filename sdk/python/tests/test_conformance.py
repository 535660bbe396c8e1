"""The behaviours that every SDK must show: blocking on this machine, asynchronous behind a proxy that cuts all the time."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import conformance
import exec_server

URL = os.environ["EXEC_SERVER_TEST_URL"]
CONTROL = os.environ["EXEC_SERVER_TEST_CONTROL"]

WAYS = {
    "sync-local": (exec_server, None, None),
    "async-remote": (exec_server.aio, URL, CONTROL),
    "sync-remote": (exec_server, URL, CONTROL),
    "async-local": (exec_server.aio, None, None),
}
# The others are tried before a release: EXEC_SERVER_WAYS=sync-remote,async-local.
CHOSEN = os.environ.get("EXEC_SERVER_WAYS", "sync-local,async-remote").split(",")


def cases() -> list[Any]:
    found = []
    for way in CHOSEN:
        for name, behaviour in conformance.behaviours():
            waits, place = way.split("-")
            if waits in behaviour.get("only", [waits]) and place in behaviour.get("where", [place]):
                found.append(pytest.param(way, behaviour, id=f"{way}: {name}"))
    return found * int(os.environ.get("EXEC_SERVER_REPEAT", "1"))


@pytest.mark.parametrize(("way", "behaviour"), cases())
def test_behaviour(way: str, behaviour: dict[str, Any]) -> None:
    module, url, control = WAYS[way]
    asyncio.run(asyncio.wait_for(conformance.Driver(module, url, control).run(behaviour), 100))


def test_there_are_enough_behaviours() -> None:
    assert len(conformance.behaviours()) >= 150
