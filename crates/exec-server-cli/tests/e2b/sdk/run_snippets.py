"""Runs snippets as they are, and looks for the lines that each says it prints."""

import contextlib
import io
import pathlib
import runpy
import sys

from checks import leave, report


def main():
    passed = True
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(str(path), run_name="__main__")
            for line in path.read_text().splitlines():
                if line.startswith("# prints: "):
                    assert line.removeprefix("# prints: ") in printed.getvalue(), printed.getvalue()
            passed &= report(path.name, None)
        except BaseException as error:
            passed &= report(path.name, error)
    leave(passed)


main()
