"""How long the daemon's ticks and the status take over many shards that are all there.

    python benchmarks/many_shards.py [SHARDS] [FOLDER]

Makes the shards in a folder (ten thousand take some minutes), or takes those that are there, and
prints seconds and the largest resident size. A quiet tick is what comes every few seconds.
"""

import datetime
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from corpus_platform.defs.resources import load_corpus
from corpus_platform.defs.status import status_metadata
from corpus_platform.planner import survey
from corpus_platform_tests.daemon import Daemon
from corpus_platform_tests.many import write_many_shards

T = TypeVar("T")
NIGHT = datetime.datetime(2026, 11, 30, 2, tzinfo=datetime.UTC)


def main() -> None:
    """Print one line for each thing that is timed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()) / f"{count}"
    if not (folder / "corpus.yaml").exists():
        _timed(f"{count:,} shards made", lambda: write_many_shards(folder, count))
    daemon = Daemon(folder / "corpus.yaml", folder / "home")
    corpus = load_corpus(folder / "corpus.yaml")
    found = _timed("survey", lambda: survey(corpus.project()))
    print(f"  {len(found.states):,} states, {len(found.due)} due, {len(found.blocked)} blocked")
    _timed("corpus_status from a survey", lambda: status_metadata(corpus, found))
    _timed("first night: partitions added", lambda: daemon.night(NIGHT))
    _timed("night, nothing new", lambda: daemon.night(NIGHT + datetime.timedelta(days=1)))
    _timed("look that surveys", daemon.look)
    _timed("quiet look", daemon.look)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


def _timed(what: str, do: Callable[[], T]) -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    result = do()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{wall:8.2f} s wall {cpu:8.2f} s cpu  {what}", flush=True)
    return result


if __name__ == "__main__":
    main()
