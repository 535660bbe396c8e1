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

import pytest

import exec_server

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
    # time of ours, does so now and then.
    while not turns or (min(turns) >= 0.005 and len(turns) < 5):
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
