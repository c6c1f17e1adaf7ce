"""CPU time to read shards, ours against the readers of datatrove, in turns.

    python benchmarks/read_shards.py FOLDER_OR_SHARD ... [--datatrove PYTHON] [--rounds 9]

PYTHON is an interpreter that can import datatrove (0.10.1 was compared), where this one cannot.
Reading is decompressing, parsing and batching; nothing is done with the documents. Each side is a
process that has imported all it needs and reads a shard once before it is timed; of each shard the
least CPU time of all rounds counts. The last row is a whole process that reads all of them once,
start and imports included. Nothing else should run: the two share caches with whatever does.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OURS = """
from pathlib import Path
from corpus_platform.config import Fields
from corpus_platform.formats.shard import read_shard
def read(name):
    shard = read_shard([Path(name)], Fields(), shard="b/s", max_record_bytes=1 << 25)
    return sum(len(batch) for batch in shard)
"""
THEIRS = """
import os
from datatrove.pipeline.readers import JsonlReader, ParquetReader, WarcReader
from loguru import logger
logger.remove()
def read(name):
    kinds = {".parquet": ParquetReader, ".warc.wet.gz": WarcReader}
    kind = next((k for end, k in kinds.items() if name.endswith(end)), JsonlReader)
    return sum(1 for _ in kind(os.path.dirname(name), glob_pattern=os.path.basename(name)).run())
"""
# A line holds a shard; the answer is records and seconds.
SERVE = """
import sys, time
for line in sys.stdin:
    start = time.process_time()
    records = read(line.rstrip("\\n"))
    print(records, time.process_time() - start, flush=True)
"""
ALL = """
import sys
for name in sys.argv[1:]:
    read(name)
"""
ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".warc.wet.gz")


def main() -> None:
    """Print a row per shard, then the whole process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER_OR_SHARD")
    parser.add_argument("--datatrove", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    shards = [str(path.absolute()) for given in asked.paths for path in _shards(given)]
    other = asked.datatrove if _imports_datatrove(asked.datatrove) else None
    if other is None:
        print(f"{asked.datatrove} cannot import datatrove: ours alone; name another by --datatrove")
    print(
        f"{'shard':30} {'MB':>6} {'records':>8} {'theirs':>8} {'ours ms':>8} {'theirs ms':>9} {'ratio':>6}"
    )
    _in_turns(shards, other, asked.rounds)
    whole = [_whole(sys.executable, OURS, shards), _whole(other, THEIRS, shards) if other else 0.0]
    print(f"{'whole process, all shards':30} {'':24} {_times(*whole)}")


def _shards(path: Path) -> list[Path]:
    """Return a shard, or those below a folder."""
    return (
        [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.name.endswith(ENDINGS))
    )


def _imports_datatrove(python: str) -> bool:
    return not subprocess.run([python, "-c", "import datatrove"], capture_output=True).returncode


def _in_turns(shards: Sequence[str], other: str | None, rounds: int) -> None:
    sides = [_Reader(sys.executable, OURS)] + ([_Reader(other, THEIRS)] if other else [])
    for shard in shards:
        answers = [[side.ask(shard) for side in sides] for _ in range(rounds + 1)][1:]
        best = [min(seconds for _, seconds in column) for column in zip(*answers, strict=True)]
        records = [str(count) for count, _ in answers[0]]
        name, size = "/".join(Path(shard).parts[-2:]), os.path.getsize(shard) / 1e6
        found = f"{name:30} {size:6.1f} {records[0]:>8} {records[1] if other else '':>8}"
        print(f"{found} {_times(best[0], best[1] if other else 0.0)}", flush=True)
    for side in sides:
        side.close()


def _times(ours: float, theirs: float) -> str:
    ratio = f"{theirs * 1e3:9.0f} {theirs / ours:6.2f}" if theirs else ""
    return f"{ours * 1e3:8.0f} {ratio}"


class _Reader:
    """A process that reads the shards it is asked for."""

    def __init__(self, python: str, code: str) -> None:
        command = [python, "-c", code + SERVE]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, shard: str) -> tuple[int, float]:
        """Return how many records it found, and in how many seconds of CPU."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{shard}\n")
        self._process.stdin.flush()
        records, seconds = self._process.stdout.readline().split()
        return int(records), float(seconds)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _whole(python: str, code: str, shards: Sequence[str]) -> float:
    """Return the CPU seconds of a process that reads all shards once, the least of three."""
    return min(_cpu_seconds([python, "-c", code + ALL, *shards]) for _ in range(3))


def _cpu_seconds(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
