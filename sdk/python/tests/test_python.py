"""What only Python can get wrong: interrupts, threads, event loops, forks, notebooks, exceptions."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from typing import Any, AsyncIterator, Callable, Iterable

import pytest

import exec_server
from exec_server._decode import Display

URL = os.environ["EXEC_SERVER_TEST_URL"]


def child(program: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, **options)  # type: ignore


def test_an_interrupt_ends_a_run_and_its_process_tree() -> None:
    program = """
import exec_server
with exec_server.local() as env:
    try:
        env.run("echo $$ > pid; sleep 1000 & sleep 1000", cwd=".")
    except KeyboardInterrupt:
        print(len(env.processes()), flush=True)
"""
    import tempfile

    with tempfile.TemporaryDirectory() as tmp:
        process = child(program, cwd=tmp)
        while not os.path.exists(f"{tmp}/pid"):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert out == "0\n"


def test_other_threads_run_while_one_waits() -> None:
    with exec_server.local() as env:
        process = env.spawn("read x", stdin=True)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(process.wait().code))
        thread.start()
        process.stdin.write("\n")
        thread.join(60)
        assert seen == [0]


def test_several_threads_use_one_environment() -> None:
    with exec_server.connect(URL) as env:
        results = [""] * 8

        def work(n: int) -> None:
            results[n] = env.run(["echo", str(n)]).stdout

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [f"{n}\n" for n in range(8)]
        env.end()


def test_what_runs_at_the_end_of_the_program_ends_with_it() -> None:
    program = """
import exec_server
env = exec_server.local()
print(env.spawn(["sleep", "1000"]).pid, flush=True)
"""
    process = child(program)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(out), 0)


def test_after_a_fork_the_child_is_told_and_can_open_its_own() -> None:
    program = """
import exec_server, os
env = exec_server.local()
assert env.run("echo parent").stdout == "parent\\n"
pid = os.fork()
if pid == 0:
    try:
        env.run("true")
    except RuntimeError as error:
        print("refused:", "fork" in str(error), flush=True)
    del env
    with exec_server.local() as own:
        print(own.run("echo child").stdout, end="", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(env.run("echo still").stdout, end="", flush=True)
env.close()
"""
    process = child(program)
    out, _ = process.communicate(timeout=60)
    assert out == "refused: True\nchild\nstill\n"


def test_a_flood_does_not_block_the_event_loop() -> None:
    async def main() -> tuple[int, float]:
        async with exec_server.aio.connect(URL) as env:
            worst = 0.0
            over = False

            async def beat() -> None:
                nonlocal worst
                while not over:
                    # Processor time, not the clock's: the machine may be busy with something else.
                    before = time.thread_time()
                    await asyncio.sleep(0)
                    worst = max(worst, time.thread_time() - before)

            beating = asyncio.ensure_future(beat())
            total = 0
            async with env.spawn("head -c 50000000 /dev/zero") as process:
                async for event in process:
                    total += len(event.data)
            over = True
            await beating
            await env.end()
            return total, worst

    turns = []
    # What blocks the loop blocks it every time; a machine that is taken away for some milliseconds, which is counted as
    # time of ours, does so now and then, and often while other tests run.
    while not turns or (min(turns) >= 0.005 and len(turns) < 12):
        total, worst = asyncio.run(main())
        assert total == 50_000_000
        turns.append(worst)
    assert min(turns) < 0.005


def test_exceptions_are_those_that_people_catch() -> None:
    with exec_server.local() as env:
        with pytest.raises(FileNotFoundError) as missing:
            env.files.read("/no/such/file")
        assert isinstance(missing.value, exec_server.Error)
        assert (missing.value.errno, missing.value.filename, missing.value.reason) == (2, "/no/such/file", "ENOENT")
        with pytest.raises(subprocess.CalledProcessError) as failed:
            env.run("echo no >&2; exit 3", check=True)
        assert failed.value.returncode == 3 and "no" in str(failed.value)
        with pytest.raises(TimeoutError):
            env.run("sleep 1000", timeout=0.1)
        with pytest.raises(ValueError, match="argv"):
            env.run([])


def test_values_show_themselves_and_can_be_pickled() -> None:
    with exec_server.local() as env:
        result = env.run("echo '<b>'; echo warn >&2; exit 3")
        assert repr(result) == "<Result exit code 3, stdout='<b>\\n', stderr='warn\\n'>"
        assert "&lt;b&gt;" in result._repr_html_() and "exit code 3" in result._repr_html_()
        assert pickle.loads(pickle.dumps(result)) == result
        with env.spawn("sleep 1000") as process:
            assert repr(process).startswith("<Process sh-")


def test_progress_prints_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with exec_server.local() as env:
        env.run("echo out; echo err >&2", progress=True)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("out\n", "err\n")


def test_progress_joins_the_pieces_of_a_character(capsys: pytest.CaptureFixture[str]) -> None:
    with exec_server.local() as env:
        # Each half is printed once the other has been read.
        with env.spawn("printf '\\342\\202'; read x; printf '\\254'; read x; printf '\\342'; read x", stdin=True) as process:
            display = Display()
            for event in process:
                display.show(event)
                process.stdin.write("\n")
            display.end()
    assert capsys.readouterr().out == "\u20ac\ufffd"


def test_progress_changes_nothing_but_what_is_shown() -> None:
    async def asynchronously() -> None:
        async with exec_server.aio.local() as env:
            with pytest.raises(exec_server.TimeoutExpired) as late:
                await env.run("echo some; sleep 1000", timeout=0.3, progress=True)
            assert late.value.result.stdout == "some\n"
            assert (await env.run("head -n 1", input="a\n" * 100_000, progress=True)).stdout == "a\n"

    asyncio.run(asynchronously())
    with exec_server.local() as env:
        with pytest.raises(exec_server.TimeoutExpired) as late:
            env.run("echo some; sleep 1000", timeout=0.3, progress=True)
        assert late.value.result.stdout == "some\n"
        # It does not read all of it.
        assert env.run("head -n 1", input="a\n" * 100_000, progress=True).stdout == "a\n"
        assert env.processes() == []


def test_what_is_no_text_and_no_bytes_is_refused(tmp_path: os.PathLike[str]) -> None:
    with exec_server.local() as env:
        with pytest.raises(TypeError):
            env.files.write(f"{tmp_path}/f", 5)  # type: ignore[arg-type]
        assert not env.files.exists(f"{tmp_path}/f")
        for progress in (False, True):
            with pytest.raises(TypeError):
                env.run("touch started; cat", cwd=tmp_path, input=3, progress=progress)  # type: ignore[arg-type]
        assert os.listdir(tmp_path) == []


def test_a_variable_may_be_bytes() -> None:
    with exec_server.local() as env:
        result = env.run('printf %s "$A$B"', env={"A": b"a\xff", "B": 5})  # type: ignore[dict-item]
        assert result.stdout_bytes == b"a\xff5"


def test_a_signal_that_there_is_not_is_named() -> None:
    with exec_server.local() as env, env.spawn("sleep 1000") as process:
        with pytest.raises(ValueError, match="FOO"):
            process.signal("FOO")


def reading(items: Iterable[object]) -> tuple[threading.Thread, list[object]]:
    """A thread that reads them, and what it came to: an exception, or nothing."""
    ended: list[object] = []

    def read() -> None:
        try:
            ended.append(list(items))
        except exec_server.Error as error:
            ended.append(type(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, ended


def test_what_is_closed_ends_for_the_thread_that_reads_it(tmp_path: os.PathLike[str]) -> None:
    with exec_server.local() as env:
        watch = env.files.watch(tmp_path)
        thread, ended = reading(watch)
        watch.close()
        thread.join(60)
        assert ended == [[]]


def test_what_is_closed_ends_for_the_task_that_awaits_it(tmp_path: os.PathLike[str]) -> None:
    async def main() -> list[object]:
        async with exec_server.aio.local() as env:
            watch = await env.files.watch(tmp_path)

            async def read() -> list[object]:
                return [change async for change in watch]

            task = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            await watch.close()
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(main()) == []


class Native:
    """The Rust part of something. Whoever waits for its first call of that name does this instead."""

    def __init__(self, native: Any, method: str, instead: Callable[[Any], Any]) -> None:
        self.native, self.method, self.instead = native, method, instead
        self.was_called = False

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        call = self.native.call(method, arguments)
        if method != self.method or self.was_called:
            return call
        self.was_called = True
        return types.SimpleNamespace(wait=lambda: self.instead(call), take=call.take)


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_last_page_is_lost_to_nobody_but_to_whoever_closes(is_closed: bool) -> None:
    has_come, go_on = threading.Event(), threading.Event()

    def heard_of_late(call: Any) -> Any:
        page = call.wait()
        has_come.set()
        assert go_on.wait(60)
        return page

    with exec_server.local() as env, env.spawn("echo some") as process:
        events: Any = process.events()
        events._native = Native(events._native, "next", heard_of_late)
        thread, ended = reading(event.text for event in events)
        assert has_come.wait(60)
        if is_closed:
            events.close()
        # After the last page there is nothing but the end, which this thread hears of first.
        assert list(events) == []
        go_on.set()
        thread.join(60)
        assert ended == [[] if is_closed else ["some\n"]]
        assert list(events) == []


def interrupted_late(call: Any) -> None:
    """The interrupt comes when the call is done."""
    done = threading.Event()
    call.on_done(types.SimpleNamespace(call_soon_threadsafe=lambda tell: tell()), done.set)
    assert done.wait(60)
    raise KeyboardInterrupt


def test_what_has_come_when_a_wait_for_it_is_interrupted_comes_next() -> None:
    with exec_server.local() as env, env.spawn("echo some") as process:
        events: Any = process.events()
        events._native = Native(events._native, "next", interrupted_late)
        with pytest.raises(KeyboardInterrupt):
            next(events)
        assert [event.text for event in events] == ["some\n"]


def test_a_start_that_is_interrupted_when_it_was_made_leaves_no_process() -> None:
    with exec_server.local() as env:
        env._native = Native(env._native, "spawn", interrupted_late)  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            env.spawn("sleep 1000")
        assert env.processes() == []


def while_the_loop_stands_still() -> None:
    """What it has begun is done when it hears of anything again."""
    with exec_server.local() as other:
        other.run("sleep 0.5")


@pytest.mark.parametrize("read", ["events", "lines"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_what_has_come_when_a_wait_for_it_is_cancelled_comes_next_unless_it_is_closed(
    read: str, is_closed: bool, tmp_path: os.PathLike[str]
) -> None:
    async def main() -> list[str]:
        async with exec_server.aio.local() as env:
            prints = "echo one; until [ -e go_on ]; do sleep 0.01; done; echo two"
            async with env.spawn(prints, cwd=tmp_path) as process:
                items = getattr(process, read)()
                seen: list[str] = []

                async def add_one() -> None:
                    item = await items.__anext__()
                    seen.append(getattr(item, "text", item).strip())

                await add_one()
                waiting = asyncio.ensure_future(add_one())
                await asyncio.sleep(0)
                open(f"{tmp_path}/go_on", "w").close()
                while_the_loop_stands_still()
                if is_closed:
                    await items.close()
                    with pytest.raises(StopAsyncIteration):
                        await waiting
                    with pytest.raises(StopAsyncIteration):
                        await add_one()
                else:
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                    await add_one()
                return seen

    assert asyncio.run(main()) == (["one"] if is_closed else ["one", "two"])


def test_items_that_are_asked_for_at_once_come_one_after_the_other() -> None:
    async def main() -> list[Any]:
        async with exec_server.aio.local() as env, env.spawn("seq 3") as process:
            lines: Any = process.lines()
            return await asyncio.gather(*(lines.__anext__() for _ in range(4)), return_exceptions=True)

    *items, end = asyncio.run(main())
    assert items == ["1", "2", "3"] and isinstance(end, StopAsyncIteration)


def test_what_is_closed_while_it_is_opened_ends_too() -> None:
    async def main() -> list[object]:
        async with exec_server.aio.local() as env, env.spawn("sleep 1000") as process:
            events = process.events()

            async def read() -> list[object]:
                return [event async for event in events]

            task = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            await events.close()  # type: ignore[attr-defined]
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("progress", [False, True])
def test_a_run_whose_input_cannot_be_written_ends_with_the_reason(progress: bool) -> None:
    """A server keeps so much input waiting for one client; a program that waits for the rest would never end."""

    async def main() -> None:
        async with exec_server.aio.connect(URL) as env:
            # Nobody reads, so that all but what fits into a pipe waits.
            run = lambda: env.run("sleep 1000", input=b"x" * 200_000, progress=progress)
            runs = [asyncio.ensure_future(run()) for _ in range(250)]
            done, _ = await asyncio.wait(runs, timeout=100, return_when=asyncio.FIRST_EXCEPTION)
            assert any(isinstance(run.exception(), exec_server.Error) for run in done)
            for each in runs:
                each.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
            assert await env.processes() == []

    asyncio.run(main())


def test_a_process_that_was_forgotten_is_left_without_a_word() -> None:
    with exec_server.local() as env:
        with env.spawn("sleep 1000") as process:
            process.forget()
        assert env.processes() == []


def test_what_is_read_of_a_closed_environment_says_that_it_is_closed(tmp_path: os.PathLike[str]) -> None:
    with exec_server.local() as env, env.spawn("sleep 1000") as process:
        for items in (env.files.watch(tmp_path), process.events()):
            env.close()
            with pytest.raises(exec_server.ClosedError, match="open it again"):
                next(items)
            with pytest.raises(exec_server.ClosedError, match="open it again"):
                process.events()


@pytest.mark.parametrize("where", ["local", "remote"])
def test_the_block_of_a_process_can_be_left_after_its_environment_was_closed(where: str) -> None:
    env = exec_server.local() if where == "local" else exec_server.connect(URL)
    with env.spawn("sleep 1000"):
        env.end()


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("where", ["local", "remote"])
def test_closing_an_environment_ends_what_is_under_way_there(
    where: str, progress: bool, tmp_path: os.PathLike[str]
) -> None:
    env = exec_server.local() if where == "local" else exec_server.connect(URL)
    process = env.spawn("echo begun; sleep 1000")
    process.wait_for_output("begun")
    session = env.info().session_id
    threads = [
        reading(env.files.watch(tmp_path)),
        reading(process),
        reading(process.wait() for _ in range(1)),
        reading(env.run("echo > started; sleep 1000", cwd=tmp_path, progress=progress) for _ in range(1)),
    ]
    while not os.path.exists(f"{tmp_path}/started"):
        time.sleep(0.01)
    env.close()
    for thread, ended in threads:
        thread.join(60)
        assert ended == [exec_server.ClosedError]
    if session is not None:
        with exec_server.connect(URL, session=session) as again:
            # Closing leaves what was spawned, and ends what was run.
            assert [info.id for info in again.processes()] == [process.id]
            again.end()


def test_a_path_that_is_no_text_comes_back_as_it_was(tmp_path: os.PathLike[str]) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    with exec_server.local() as env:
        env.files.write(name, "x")
        assert [entry.path for entry in env.files.list(tmp_path)] == [name]
        assert env.files.read(os.fsencode(name)) == b"x"


def test_a_bytes_like_object_is_bytes() -> None:
    with exec_server.local() as env:
        assert env.run("cat", input=bytearray(b"a")).stdout == "a"
        assert env.run("cat", input=memoryview(b"b")).stdout == "b"


def test_a_start_that_is_cancelled_when_it_was_made_leaves_no_process() -> None:
    async def main() -> list[object]:
        async with exec_server.aio.local() as env:

            async def start() -> object:
                return await env.spawn("sleep 1000")

            task = asyncio.ensure_future(start())
            await asyncio.sleep(0)
            # The start is made before the loop hears of it.
            while_the_loop_stands_still()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await env.processes()

    assert asyncio.run(main()) == []


def test_what_is_read_of_an_environment_keeps_it() -> None:
    """Nobody holds it or its process but the one who reads."""
    prints = "for i in 1 2 3; do echo $i; sleep 0.1; done"
    assert "".join(event.text for event in exec_server.local().spawn(prints)) == "1\n2\n3\n"

    async def main() -> str:
        async def open() -> AsyncIterator[exec_server.Event]:
            return (await (await exec_server.aio.local()).spawn(prints)).events()

        return "".join([event.text async for event in await open()])

    assert asyncio.run(main()) == "1\n2\n3\n"


def test_a_watch_that_is_not_read_stops_when_it_is_dropped(tmp_path: os.PathLike[str]) -> None:
    with exec_server.local() as env:
        for _ in range(200):
            env.files.watch(tmp_path)
        with env.files.watch(tmp_path) as watch:
            env.run("touch a", cwd=tmp_path)
            assert next(iter(watch)).path == f"{tmp_path}/a"


def test_an_environment_that_is_not_closed_does_not_keep_the_program() -> None:
    process = child(f"import exec_server; e = exec_server.connect({URL!r}); print(e.run('echo x').stdout, end='')")
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("x\n", 0)
