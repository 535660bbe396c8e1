"""What a check of the SDKs needs: a name, a sandbox, and a line that says how it went.

Checks are written from E2B's documentation. In debug mode (E2B_DEBUG=true) all of them share the one sandbox there is, each
with a folder of its own; else each has a sandbox of its own, made by the API.
"""

import inspect
import os
import sys
import traceback
import uuid

DEBUG = os.environ.get("E2B_DEBUG", "").lower() == "true"


def folder():
    return f"check-{uuid.uuid4().hex[:8]}"


def raises(kind, call, *words):
    """The exception that the call raises; its text has these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error!s}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


async def araises(kind, awaitable, *words):
    try:
        await awaitable
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error!s}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def chosen(module):
    """The checks of a module in their order. One with `api` in its name needs the API."""
    members = inspect.getmembers(sys.modules[module], inspect.isfunction)
    checks = [(name, check) for name, check in members if name.startswith("check_")]
    checks.sort(key=lambda named: named[1].__code__.co_firstlineno)
    only = sys.argv[1:]
    for name, check in checks:
        if (not DEBUG or "_api_" not in name) and (not only or name in only):
            yield name, check


def leave(passed):
    """Without the end of the interpreter, at which the SDK's HTTP library (pyqwest) aborts once in ten times: one of its threads
    still waits for Python's lock then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if passed else 1)


def report(name, error):
    """Printed for the test that runs us, and for whoever reads its output."""
    if error is None:
        print(f"ok {name}", flush=True)
        return True
    print(f"FAILED {name}", flush=True)
    traceback.print_exception(error)
    return False
