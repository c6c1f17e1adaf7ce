"""A whole `corpus run`, from raw shards to a release, as a user meets it; beside another command.

    python benchmarks/end_to_end.py 'crawls/{crawl}/*' [--set corpus.yaml] [--peer 'COMMAND'] [--rounds 2]

The pattern names shards as `glob` in corpus.yaml does. Each round begins with an empty folder, and
runs the peer after ours, in a folder of its own, with WORK in its command replaced by that. Printed
are seconds by the clock, CPU seconds of all processes that came of the command, and the most memory
that they had at once (RSS, looked at five times a second; what lives for less than that is missed).
"""

import argparse
import ctypes
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

CORPUS = "from corpus_platform.cli import main; main()"
_PR_SET_CHILD_SUBREAPER = 36


class Used(NamedTuple):
    """What a command took."""

    seconds: float
    cpu: float
    rss: int

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} CPU s, {self.rss / 1e6:.0f} MB"


def main() -> None:
    """Print what ours and the peer take in each round, and the ratios of the least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", help="glob of the shards, with {crawl}")
    parser.add_argument(
        "--set", type=Path, help="settings to add: YAML without storage and sources"
    )
    parser.add_argument("--peer", help="another command; WORK in it is an empty folder")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # workers whose parent ends stay below
    more = args.set.read_text(encoding="utf-8") if args.set else ""
    pattern = Path.cwd() / args.shards
    ours, theirs = [], []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as name:
            settings = f"storage: data\nsources:\n  - glob: {pattern}\n{more}"
            (Path(name) / "corpus.yaml").write_text(settings, encoding="utf-8")
            ours.append(used([sys.executable, "-c", CORPUS, "run"], Path(name)))
            print(f"ours: {ours[-1]}", flush=True)
        if args.peer:
            with tempfile.TemporaryDirectory() as name:
                theirs.append(used(shlex.split(args.peer.replace("WORK", name)), Path.cwd()))
                print(f"peer: {theirs[-1]}", flush=True)
    if theirs:
        for what in ("seconds", "cpu", "rss"):
            least = [min(getattr(one, what) for one in side) for side in (theirs, ours)]
            print(f"ratio of {what}: {least[0] / least[1]:.2f}")


def used(command: list[str], folder: Path) -> Used:
    """Run a command in a folder and return what it took; end where it fails."""
    begun, peak, cpu = time.perf_counter(), 0, dict[tuple[int, float], float]()
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, look(cpu))
            time.sleep(0.2)
    if process.returncode:
        sys.exit(
            f"{command}: exit code {process.returncode}\n{(folder / 'log').read_text()[-2000:]}"
        )
    return Used(time.perf_counter() - begun, sum(cpu.values()), peak)


def look(cpu: dict[tuple[int, float], float]) -> int:
    """Note the CPU seconds of all processes below this one; return what they have resident."""
    rss = 0
    for one in psutil.Process().children(recursive=True):
        try:
            with one.oneshot():
                times = one.cpu_times()
                cpu[one.pid, one.create_time()] = times.user + times.system
                rss += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return rss


if __name__ == "__main__":
    main()
