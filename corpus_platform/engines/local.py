"""map_pieces on this machine: independent pieces of an all-shard stage, in a pool of processes.

Results come in the order of the pieces, whatever finished first. A piece that raises ends the
call with its error; a worker that dies raises StageFailed; no worker outlives its parent. Work that
leaves Python most of the time may have threads instead, which start at once and share memory.
"""

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from corpus_platform.errors import StageFailed

__all__ = ["cores", "die_with_parent", "map_pieces", "worth"]

Piece = TypeVar("Piece")
Result = TypeVar("Result")
_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def worth(workers: int, work: int, *, share: int) -> int:
    """Return how many of some workers an amount of work is worth, one for each full `share` of it.

    A process takes seconds to start, with all that it imports.
    """
    return max(1, min(workers, work // share))


def map_pieces(
    function: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    *,
    workers: int,
    threads: bool = False,
    ahead: int = 8,
) -> Iterator[Result]:
    """Yield function(piece) for each piece, in order; `workers` 1 stays in this process and thread.

    The function and the pieces must be picklable, or with `threads` safe to call side by side.
    For each worker `ahead` pieces are given out, done or not: whoever takes results slowly holds up
    the rest.
    """
    workers = min(workers, len(pieces))
    if workers <= 1:
        yield from map(function, pieces)
        return
    with _pool(workers, threads=threads) as pool:
        waiting = deque[Future[Result]]()
        try:
            for piece in pieces:
                waiting.append(pool.submit(function, piece))
                if len(waiting) >= workers * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise StageFailed(
                f"a worker process of {function} was killed, perhaps for lack of memory;"
                " run again, with run.workers lower"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _pool(workers: int, *, threads: bool) -> ProcessPoolExecutor | ThreadPoolExecutor:
    if threads:
        return ThreadPoolExecutor(workers)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=die_with_parent)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
