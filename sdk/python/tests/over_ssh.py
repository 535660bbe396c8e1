"""A program that works on a machine behind ssh while somebody kills: run by `python.rs`, which is asked to kill over stdio."""

from __future__ import annotations

import asyncio
import sys

import exec_server
import exec_server.aio

COUNT = "i=0; while read go; do n=0; while [ $n -lt 1000 ]; do i=$((i+1)); n=$((n+1)); echo line $i; done; done; echo end; exit 9"


def ask(what: str) -> None:
    """Returns when it was killed."""
    print(what, flush=True)
    assert sys.stdin.readline() == "done\n"


def expected(lines: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, lines + 1)) + "end\n"


def blocking(url: str) -> None:
    with exec_server.connect(url) as env:
        assert env.run("echo hello; exit 3").stdout == "hello\n"
        with env.spawn(COUNT, stdin=True) as process:
            seen = b""
            events = iter(process)
            for victim in ("ssh", "server", "ssh"):
                process.stdin.write("go\n")
                # In the middle of what it prints: some of it was read, and some was not.
                before = len(seen)
                while len(seen) == before:
                    seen += next(events).data
                ask(victim)
            process.stdin.close()
            for event in events:
                seen += event.data
            assert seen.decode() == expected(3000), f"{len(seen)} bytes came"
            assert process.wait().code == 9
            assert process.result().stdout_bytes == seen
        env.end()


async def awaiting(url: str) -> None:
    async with exec_server.aio.connect(url) as env:
        async with env.spawn(COUNT, stdin=True) as process:
            for victim in ("ssh", "server"):
                await process.stdin.write("go\n")
                ask(victim)
            await process.stdin.close()
            result = await process.result()
            assert (result.stdout, result.exit_code) == (expected(2000), 9)
        await env.end()


blocking(sys.argv[1])
asyncio.run(awaiting(sys.argv[1]))
print("all", flush=True)
