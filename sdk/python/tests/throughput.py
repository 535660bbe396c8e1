"""How fast output comes to Python, and how long it keeps an event loop busy: prints one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import exec_server

url, count = sys.argv[1], int(sys.argv[2])
flood = f"head -c {count} /dev/zero"


def blocking() -> float:
    with exec_server.connect(url) as env:
        begun = time.perf_counter()
        with env.spawn(flood) as process:
            assert sum(len(event.data) for event in process) == count
            taken = time.perf_counter() - begun
        env.end()
    return taken


async def awaiting(beside: bool) -> tuple[float, float]:
    worst, over = 0.0, False

    async def beat() -> None:
        nonlocal worst
        while not over:
            before = time.thread_time()
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - before)

    async with exec_server.aio.connect(url) as env:
        beating = asyncio.ensure_future(beat()) if beside else None
        begun = time.perf_counter()
        async with env.spawn(flood) as process:
            total = 0
            async for event in process:
                total += len(event.data)
            taken = time.perf_counter() - begun
        assert total == count
        over = True
        if beating:
            await beating
        await env.end()
    return taken, worst


sync_seconds = blocking()
async_seconds, _ = asyncio.run(awaiting(False))
_, worst = asyncio.run(awaiting(True))
print(json.dumps({"sync": sync_seconds, "async": async_seconds, "worst async": worst * 1000}))
