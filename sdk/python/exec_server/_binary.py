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
    import importlib.metadata  # Here, because it costs as much as all other imports of this package, and `local` needs it never.

    beside_the_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # What pip wrote down when it installed this package, wherever that was: a virtual environment, the system, a home. Only in
    # our own folder: another one may have another version.
    for installed in importlib.metadata.distributions(name=_NAME, path=[beside_the_package]):
        for file in installed.files or []:
            if file.name == _NAME:
                yield os.path.normpath(os.fspath(file.locate()))
    # `pip install --target` moves what it has installed afterwards, and writes down the old places.
    yield os.path.join(beside_the_package, "bin", _NAME)
    # Packagers of distributions keep no such list.
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
