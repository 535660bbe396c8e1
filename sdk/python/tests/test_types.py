"""The stubs: they hold by a type checker's rules, and name what there is."""

from __future__ import annotations

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import exec_server
import exec_server._sync

PACKAGE = pathlib.Path(exec_server.__file__).parent


def test_the_package_holds_by_strict_rules(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", [exec_server._sync, exec_server.aio])
def test_the_stubs_name_every_method_that_there_is_and_no_other(module: object) -> None:
    stub = ast.parse(pathlib.Path(inspect.getfile(module)).with_suffix(".pyi").read_text())  # type: ignore[arg-type]
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    assert [node.name for node in classes] == ["Stdin", "Process", "Watch", "Files", "StreamedResponse", "Http", "Environment"]
    for node in classes:
        functions = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        # What has a decorator is a property, which nobody calls.
        named = {item.name for item in functions if not item.name.startswith("_") and not item.decorator_list}
        found = getattr(module, node.name)
        there = {name for name, _ in inspect.getmembers(found, callable) if not name.startswith("_")}
        assert there == named, node.name
