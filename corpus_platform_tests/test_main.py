"""Tests of the program: a signal while the command line is loaded ends it with a code and no traceback."""

import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from corpus_platform.cli import main

# Has a signal come just when a module is looked for.
PROGRAM = """
import os, signal, sys
module, kind, handler = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), int(kind))

sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, getattr(signal, handler))
from corpus_platform.__main__ import main
sys.argv = ["corpus", "--version"]
main()
"""


def _run(module: str, kind: signal.Signals, handler: str) -> tuple[int, bytes, bytes]:
    arguments = [sys.executable, "-c", PROGRAM, module, str(int(kind)), handler]
    done = subprocess.run(arguments, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["click", "numpy", "corpus_platform.cli", "corpus_platform.commands.sources"])  # fmt: skip
def test_ctrl_c_while_modules_are_loaded_ends_with_130_and_without_a_word(module: str) -> None:
    assert _run(module, signal.SIGINT, "default_int_handler") == (130, b"", b"")


def test_a_termination_while_modules_are_loaded_says_nothing_either() -> None:
    assert _run("numpy", signal.SIGTERM, "default_int_handler") == (-15, b"", b"")


def test_an_interrupt_that_is_to_be_ignored_is_ignored() -> None:
    code, said, told = _run("numpy", signal.SIGINT, "SIG_IGN")
    assert (code, told) == (0, b"")
    assert b"version" in said


def test_ctrl_c_while_arguments_are_read_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "make_context", interrupted)
    result = CliRunner().invoke(main, ["plan"])
    assert (result.exit_code, result.output) == (130, "")
