"""Many shards fetched side by side, by threads that can be stopped: they mostly wait for a network.

Each thread works in a project of its own. What a stopped thread leaves is as good as what a killed
process leaves: the next one goes on with it.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from corpus_platform.config import Settings
from corpus_platform.errors import CorpusError, UsageError
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard, not_begun
from corpus_platform.stages.uncleared import allowed_missing
from corpus_platform.storage.registry import Shard, key_order
from corpus_platform.storage.sources import discover_some
from corpus_platform.storage.transfer import shown

__all__ = ["Outcome", "Progressed", "fetch_all", "list_shards", "shards_to_fetch"]

Progressed = Callable[[str, int, int | None], None]  # shard, bytes there, bytes in all
STOPPING_SECONDS = 4.0  # a thread that waits for a silent server is not waited for longer


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of one shard: its report, or why there is none."""

    shard: str
    report: Report | None
    error: CorpusError | OSError | None = None


def list_shards(project: Project, *, hurried: bool = False) -> list[Shard]:
    """Return the shards that the sources of a project list now; `hurried`: or give up soon.

    A warning names a pattern of `dedup.priority` that no shard matches.
    """
    settings, registered = project.settings, project.registry.all()
    found = discover_some(
        settings.sources,
        settings.base,
        registered=registered,
        remote=project.remote.hurried() if hurried else project.remote,
    )
    keys = {*registered, *(shard.key for shard in found)}
    for pattern in settings.dedup.priority:
        if not any(fnmatchcase(key, pattern) for key in keys):
            words = "matches no shard; it has to match all of CRAWL/FILE, like '2026-40/*'"
            _log.warning("dedup.priority: %r %s", pattern, words)
    return found


def shards_to_fetch(
    project: Project, names: Sequence[str] = (), limit: int | None = None
) -> list[Shard]:
    """Register listed shards; return those without a whole copy, or with another than listed now.

    `names` are the only ones wanted. With `limit` there are at most so many, and further new ones
    are not registered. What `checks.allow_missing` names is fetched only by name. Raises UsageError
    for a name that is neither listed nor registered, or retired.
    """
    known = set(project.registry.keys())
    listed = {shard.key: shard for shard in list_shards(project)}
    for name in names:
        if name not in listed and name not in known:
            raise UsageError(f"shard {name!r} is neither listed by the sources nor registered")
        if name in known and project.registry.shard(name).retired:
            raise UsageError(f"shard {name!r} is retired; take it in: corpus retire --undo {name}")
    project.registry.register([s for key, s in listed.items() if key in known])
    registered = project.shards()
    candidates = sorted({*listed, *registered} - (known - set(registered)), key=key_order)
    wanted = [k for k in candidates if k in names or not (names or allowed_missing(project, k))]
    lacking = [k for k in wanted if k not in registered or not _is_right(project, k)][:limit]
    project.registry.register([listed[key] for key in lacking if key not in known])
    registered = project.shards()
    return [registered[key] for key in lacking if key in registered]


def _is_right(project: Project, key: str) -> bool:
    """Tell whether a whole copy is there that the source does not contradict, as far as is known."""
    artifact = project.artifact("raw_shards", key)
    if artifact is None or project.store.damage(artifact):
        return False
    return project.witnessed("raw_shards", key, artifact) is None


def fetch_all(
    settings: Settings,
    shards: Sequence[Shard],
    *,
    jobs: int,
    progress: Progressed,
    resume_only: bool = False,
) -> Generator[Outcome]:
    """Yield what became of each shard, as they end; closing the iterator stops what is at work.

    With `resume_only` no download is begun that has nothing to go on with.
    """
    pool = _Pool(settings, shards, progress, resume_only=resume_only)
    try:
        yield from pool.run(jobs)
    finally:
        pool.stop()


class _Pool:
    """Threads that take shards from one queue and put outcomes into another."""

    def __init__(
        self,
        settings: Settings,
        shards: Sequence[Shard],
        progress: Progressed,
        *,
        resume_only: bool,
    ) -> None:
        self._settings, self._progress, self._resume_only = settings, progress, resume_only
        self._left = deque(shards)
        self._count = len(shards)
        self._ended: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, jobs: int) -> Iterator[Outcome]:
        for number in range(min(jobs, self._count)):
            thread = threading.Thread(target=self._work, name=f"fetch-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(self._count):
            ended = self._next()
            if isinstance(ended, BaseException):
                raise ended
            yield ended

    def _next(self) -> Outcome | BaseException:
        while True:
            # polars has a Ctrl-C end no wait: it is heard of between two of them.
            with contextlib.suppress(queue.Empty):
                return self._ended.get(timeout=0.2)

    def stop(self) -> None:
        """Have the threads end at their next byte or wait."""
        self._stop.set()
        until = time.monotonic() + STOPPING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        project = open_project(self._settings)
        project.remote.sleep = self._sleep
        while not self._stop.is_set():
            try:
                shard = self._left.popleft()
            except IndexError:
                return
            try:
                self._ended.put(self._fetch(project, shard))
            except BaseException as error:  # noqa: BLE001 - of ours: raised where it is heard of
                self._ended.put(error)
                return

    def _fetch(self, project: Project, shard: Shard) -> Outcome:
        def progress(done: int, total: int | None) -> None:
            self._check()
            self._progress(shard.key, done, total)

        try:
            if self._resume_only and (member := not_begun(project, shard)) is not None:
                raise UsageError(
                    f"{shard.key}: nothing of {shown(member.location)} is here to go on with, and"
                    " --resume-only begins no download"
                )
            return Outcome(shard.key, fetch_shard(project, shard.key, progress=progress))
        except (CorpusError, OSError) as error:
            return Outcome(shard.key, None, error)

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
