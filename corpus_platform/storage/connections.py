"""Several connections that fetch the missing parts of a file side by side.

How a range is asked for is given as a function; what comes is counted, hashed, written and marked in
blocks, so that memory does not grow with the parts, and neither does what a killed process loses. A
connection that breaks goes on where it broke. The first error, or Ctrl-C, ends all: what was
finished until then is listed in the file, the rest is marked.
"""

import contextlib
import hashlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from corpus_platform.storage.parts import Part, PartsFile
from corpus_platform.storage.transfer import Patience, Read

__all__ = [
    "BLOCK",
    "Answer",
    "Body",
    "Fault",
    "Open",
    "Replaced",
    "Tally",
    "Turns",
    "fetch_missing",
]

# What a killed process loses of each connection. A download of 200 MB takes 0.67 s of CPU time with
# it, 0.66 s with 1 MiB and 0.74 s with 128 KiB (medians of 5, by `weed` over loopback).
BLOCK = 256 << 10
_T = TypeVar("_T")
_ENDS_WITHIN = 1.0  # seconds; a thread that waits for a silent server is left to find it is over


class Fault(Exception):
    """Something after which the same is asked again; `asked` is how long the server said to wait."""

    def __init__(self, reason: str, *, asked: float | None = None) -> None:
        self.reason, self.asked = reason, asked
        super().__init__(reason)


class Replaced(Exception):
    """The object is another one by now; `etag` where the answer named it."""

    def __init__(self, etag: str | None = None) -> None:
        self.etag = etag
        super().__init__(etag)


class Body(Protocol):
    """The bytes of an answer; `read` returns none at its end, and raises Fault where it breaks."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """The bytes from `start` to `end` of an object of `total` bytes, in its version `etag`."""

    start: int
    end: int
    total: int
    etag: str
    body: Body


Open = Callable[[int, int], Answer]  # start and end; raises Fault or Replaced


class Tally:
    """Tells `read` of bytes, one thread at a time; counts those that came over the network."""

    def __init__(self, read: Read) -> None:
        self._read, self._lock = read, threading.Lock()
        self._told, self.transferred = 0, 0

    def kept(self, count: int) -> None:
        """Tell of bytes that were there already."""
        with self._lock:
            self._told += count
            self._read(count)

    def came(self, count: int) -> None:
        """Tell of bytes that came."""
        with self._lock:
            self.transferred += count
            self._told += count
            self._read(count)

    def lost(self) -> None:
        """Take back all that was told: what is there is of no use."""
        with self._lock:
            self._read(-self._told)
            self._told = 0


class Turns:
    """The patience that all connections of a file share.

    Connections that fail while one of them waits do not wait and count for themselves: a server
    that is too busy would else exhaust it the sooner, the more they are.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience, self._turn = patience, 0
        self._counting, self._waiting = threading.Lock(), threading.Lock()

    def began(self) -> int:
        """Count a request; return the turn it belongs to."""
        with self._counting:
            self._patience.began()
            return self._turn

    @property
    def attempts(self) -> int:
        """How many requests were made."""
        return self._patience.attempts

    @property
    def now(self) -> int:
        """The turn of a request that begins now."""
        return self._turn

    def progressed(self) -> None:
        """Forget failures: bytes came."""
        self._patience.progressed()

    def wait(self, turn: int, fault: Fault) -> None:
        """Wait after a request of this turn failed; raises StorageError when patience is at its end."""
        with self._waiting:
            if turn == self._turn:
                self._turn += 1
                self._patience.wait(fault.reason, asked=fault.asked)

    def until_answered(self, ask: Callable[[], _T]) -> _T:
        """Ask until there is an answer."""
        while True:
            turn = self.began()
            try:
                return ask()
            except Fault as fault:
                self.wait(turn, fault)


def fetch_missing(
    file: PartsFile,
    ask: Open,
    *,
    first: Answer | None,
    connections: int,
    part_bytes: int,
    turns: Turns,
    tally: Tally,
) -> None:
    """Fetch the parts that a file misses; `first` is an answer that was had already, for its start.

    Raises what `ask` raises, but Faults; StorageError when patience is at its end.
    """
    crew = _Crew(file, ask, turns, tally)
    missing = file.missing(part_bytes)
    if first and not missing:  # an object of no bytes
        first.body.close()
    given = [first, *[None] * len(missing)]
    crew.run(connections, [_Range(s, e, a) for (s, e), a in zip(missing, given, strict=False)])


@dataclass
class _Range:
    """A part to come: how far it has come, and the answer that brings it."""

    start: int
    end: int
    answer: Answer | None
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.at = self.start

    def part(self) -> Part:
        """Return what is there of it."""
        return Part(self.start, self.at - self.start, self.digest.hexdigest())


class _Crew:
    """Threads that take ranges in order; the caller's thread flushes, lists and hashes."""

    def __init__(self, file: PartsFile, ask: Open, turns: Turns, tally: Tally) -> None:
        self._file, self._ask, self._turns, self._tally = file, ask, turns, tally
        self._waiting: deque[_Range] = deque()
        self._done: queue.Queue[Part | BaseException] = queue.Queue()
        self._unlisted: list[Part] = []
        self._over = threading.Event()
        # Parts begun and not yet listed: a slow disk else leaves much to repeat after a power cut.
        self._unsafe = threading.Semaphore(0)

    def run(self, connections: int, ranges: list[_Range]) -> None:
        """Fetch all ranges; at most twice as many as there are connections are not listed yet."""
        self._waiting.extend(ranges)
        self._unsafe.release(2 * connections)
        # Not a pool, whose threads would be waited for at the end of the process.
        threads = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(connections, len(ranges)))
        ]
        try:
            for thread in threads:
                thread.start()
            self._keep_all(len(ranges))
        finally:
            self._end(threads)

    def _keep_all(self, left: int) -> None:
        while left:
            if self._done.empty() and self._file.hash_next():
                continue  # there was nothing to list meanwhile
            error = self._collect(self._done.get())
            left -= self._list()
            if error is not None:
                raise error

    def _collect(self, done: Part | BaseException | None) -> BaseException | None:
        """Take whatever is finished by now, since one flush does for all; return the first error."""
        error = None
        with contextlib.suppress(queue.Empty):
            while True:
                if isinstance(done, Part):
                    self._unlisted.append(done)
                else:
                    error = error or done
                done = self._done.get_nowait()
        return error

    def _list(self) -> int:
        count = len(self._unlisted)
        if count:
            self._file.keep(self._unlisted)
            self._unlisted = []
            self._unsafe.release(count)
        return count

    def _end(self, threads: list[threading.Thread]) -> None:
        """Have the threads end, and list what they finished meanwhile."""
        self._over.set()
        self._unsafe.release(max(1, len(threads)))
        deadline = time.monotonic() + _ENDS_WITHIN
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))
        self._collect(None)
        with contextlib.suppress(OSError):  # a full disk; what ended the work is more telling
            self._list()

    def _work(self) -> None:
        try:
            while self._unsafe.acquire() and not self._over.is_set():
                range_ = self._waiting.popleft()
                if self._fetch(range_):
                    self._done.put(range_.part())
        except IndexError:  # none is left
            return
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._done.put(error)

    def _fetch(self, range_: _Range) -> bool:
        """Fetch one part, going on where a connection breaks; False when all is over."""
        while range_.at < range_.end:
            turn = self._turns.now if range_.answer else self._turns.began()
            try:
                range_.answer = range_.answer or self._ask(range_.at, range_.end)
                self._receive(range_, range_.answer)
            except Fault as fault:
                if not self._over.is_set():
                    self._turns.wait(turn, fault)
            if self._over.is_set():
                return False
            range_.answer = None
        return True

    def _receive(self, range_: _Range, answer: Answer) -> None:
        with contextlib.closing(answer.body):
            while range_.at < answer.end and not self._over.is_set():
                block = answer.body.read(min(BLOCK, answer.end - range_.at))
                if not block:
                    raise Fault(f"the answer ended {answer.end - range_.at} bytes early")
                range_.digest.update(block)
                if not self._file.write(range_.at, block):
                    return
                range_.at += len(block)
                self._file.mark(range_.part())
                self._turns.progressed()
                self._tally.came(len(block))
