"""Where the `exec-server` is that came with this package: the program that is sent to machines behind ssh and its like."""

from __future__ import annotations

import os
import sysconfig
from typing import Iterator

_NAME = "exec-server"


def packaged_binary() -> str | None:
    """Its path, or None where the package was not installed with it."""
    return next((path for path in _candidates() if os.path.isfile(path)), None)


def _candidates() -> Iterator[str]:
    # What pip wrote down when it installed the package, wherever that was: a virtual environment, the system, a home.
    import importlib.metadata  # Here, because it costs as much as all other imports of this package, and `local` needs it never.

    try:
        installed = importlib.metadata.files(_NAME) or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    for file in installed:
        if file.name == _NAME:
            yield os.path.normpath(os.fspath(file.locate()))
    # `pip install --target` moves what it has installed afterwards, and writes down the old places.
    beside_the_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.join(beside_the_package, "bin", _NAME)
    # Packagers of distributions keep no such list.
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
