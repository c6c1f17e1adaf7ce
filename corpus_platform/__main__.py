"""The program `corpus`: the command line of `cli`, with Ctrl-C answered while that is still loaded.

Its modules take seconds to load. An interrupt would end in a traceback out of whichever is on its
way just then, or be taken for a fault of it.
"""

import os
import signal
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def main() -> None:
    """Run the command line; interrupted before that has begun, end at once and without a word."""
    ends = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # & has it ignored
    if ends:
        signal.signal(signal.SIGINT, _end)
    from corpus_platform.cli import main as command

    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _end(number: int, frame: FrameType | None) -> None:
    """End this process: nothing is open yet, and modules half loaded need no farewell."""
    del number, frame
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
