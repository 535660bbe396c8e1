"""Every snippet of docs/python.md is a program that runs."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(os.environ["EXEC_SERVER_PAGE"]).read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_snippets() -> None:
    assert len(SNIPPETS) >= 8


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: pathlib.Path) -> None:
    program = snippet.replace("ws://127.0.0.1:7000", os.environ["EXEC_SERVER_TEST_URL"])
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


#: Calls that are done, and calls that are not, when the interpreter ends.
LEAVES = """
import asyncio, exec_server.aio

async def main():
    async with exec_server.aio.local() as env:
        await asyncio.gather(*(env.run("true") for _ in range(8)))
        asyncio.ensure_future(env.run("sleep 1000"))
        await asyncio.sleep(0)

asyncio.run(main())
"""


def test_an_interpreter_ends_without_a_crash(tmp_path: pathlib.Path) -> None:
    for _ in range(12):
        done = subprocess.run([sys.executable, "-c", LEAVES], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, (done.returncode, done.stderr)
