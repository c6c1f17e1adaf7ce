"""The real `corpus` command in processes of its own, and what it leaves on disk.

A `Corpus` is a folder with settings and source files. It runs commands, with faults where asked,
and tells products, leftovers and Dagster runs apart, all by looking from outside.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # values of a JSON object

import dagster as dg
import psutil
import yaml

__all__ = ["Corpus", "Ended", "Started"]

COMMAND = Path(sys.executable).with_name("corpus")
FAULTS = Path(__file__).with_name("faults")
MARK = "CORPUS_TEST_COMMAND"  # carried by every process of a command
PRODUCTS = (
    "raw_shards",
    "cleaned_documents",
    "minhash_signatures",
    "dedup_clusters",
    "dedup_verdicts",
    "tokenizer",
    "packed_bins",
    "releases",
)
TIMEOUT = 180.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its code, all it printed, and what its processes read."""

    code: int
    printed: str
    read_chars: int = 0


class Started:
    """A command at work."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, output: Path) -> None:
        self.process, self._mark, self._output = process, mark, output

    def members(self) -> list[psutil.Process]:
        """Return every living process of the command, orphans included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.status() != "zombie":
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Return its living worker processes."""
        named = []
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                if "corpus_platform.defs.worker" in process.cmdline():
                    named.append(process)
        return named

    def printed(self) -> str:
        """Return what was printed so far."""
        return self._output.read_text(encoding="utf-8")

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        while members := self.members():
            for process in members:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.01)

    def wait(self) -> Ended:
        """Wait for the end of the command and of its processes; past the timeout kill and raise."""
        until = time.monotonic() + TIMEOUT
        while (gone := _exited(self.process.pid)) is None or self.members():
            if time.monotonic() > until:
                self.kill()
                raise TimeoutError(f"the command or its children hang; printed:\n{self.printed()}")
            time.sleep(0.02)
        code = self.process.wait()
        return Ended(code, self.printed(), gone)


def _exited(pid: int) -> int | None:
    """Return what an ended command and its reaped children read, None while it is at work."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        return None
    accounts = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    return int(accounts.split("rchar: ")[1].split()[0])


class Corpus:
    """A corpus in a folder: `corpus.yaml`, source files, and `data` for what is made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "corpus.yaml"
        self.data = folder / "data"

    def copy(self, folder: Path) -> "Corpus":
        """Return a copy, times of files included, that knows nothing of its original's place."""
        shutil.copytree(self.folder, folder)
        for name in ("data/registry.json", "data/catalog/sources.jsonl"):
            if (path := folder / name).exists():
                text = path.read_text(encoding="utf-8")
                path.write_text(text.replace(str(self.folder), str(folder)), encoding="utf-8")
        return Corpus(folder)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder)

    def set(self, **sections: object) -> None:
        """Change sections of the settings; None takes one out."""
        whole = yaml.safe_load(self.config.read_text(encoding="utf-8")) | sections
        kept = {name: value for name, value in whole.items() if value is not None}
        self.config.write_text(yaml.safe_dump(kept, allow_unicode=True), encoding="utf-8")

    def start(
        self,
        *arguments: str,
        fault: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> Started:
        """Start a command; `through` is a program that starts it."""
        mark, output = uuid.uuid4().hex, self.folder / f"printed-{uuid.uuid4().hex}.txt"
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "CORPUS_"))
        }
        env = {**inherited, MARK: mark, "COLUMNS": "200", **(environment or {})}
        if fault is not None:
            found_before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
            env["PYTHONPATH"] = os.pathsep.join([str(FAULTS), *found_before])
            env["CORPUS_FAULT"] = json.dumps(fault)
        with output.open("wb") as printed:
            process = subprocess.Popen(
                [*through, str(COMMAND), *arguments, "--config", str(self.config)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                # A shell has its background jobs ignore interrupts, and their children with them.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        return Started(process, mark, output)

    def do(self, *arguments: str, **options: Any) -> Ended:
        """Run a command to its end."""
        return self.start(*arguments, **options).wait()

    def steps(self, log: Path, **more: object) -> dict[str, object]:
        """Return a fault that counts the steps below the data folder into a log."""
        return {"root": str(self.data), "log": str(log), **more}

    def run(self, **options: Any) -> tuple[Ended, dict[str, Any]]:
        """Run `corpus run`; return how it ended and its JSON, empty where it wrote none."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        ended = self.do("run", "--json", str(result), **options)
        return ended, json.loads(result.read_bytes()) if result.exists() else {}

    def plan(self) -> list[dict[str, Any]]:
        """Return what `corpus plan` says is due."""
        ended = self.do("plan", "--json")
        assert ended.code == 0, ended.printed
        return json.loads(ended.printed)

    def products(self) -> dict[str, str]:
        """Return sha256 by name of every output and pointer, and `content` of every manifest."""
        found = {}
        for path in self._files():
            if path.name == "manifest.json":
                value = json.loads(path.read_bytes())["content"]
            else:
                value = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(self.data))] = value
        return found

    def _files(self) -> Iterator[Path]:
        for asset in PRODUCTS:
            for path in sorted((self.data / asset).rglob("*")):
                below = path.relative_to(self.data).parts
                if path.is_file() and not any(part.startswith(".") for part in below):
                    yield path

    def leftovers(self) -> list[str]:
        """Return drafts and scratch of runs that are over."""
        found = [*self.data.rglob(".draft-*"), *self.data.glob("scratch/*")]
        return sorted(str(p.relative_to(self.data)) for p in found)

    def unwitnessed(self) -> list[str]:
        """Return files under final names that no manifest beside them lists."""
        found = []
        for path in self._files():
            manifest = path.parent / "manifest.json"
            if path.name in ("latest.json", "current.json", "manifest.json"):
                continue
            listed = json.loads(manifest.read_bytes())["outputs"] if manifest.exists() else []
            if path.name not in [output["name"] for output in listed]:
                found.append(str(path.relative_to(self.data)))
        return found

    def generations(self, asset: str, partition: str = "") -> list[Path]:
        """Return the folders of the generations of an artifact."""
        return sorted(p.parent for p in (self.data / asset / partition).glob("*/manifest.json"))

    def output(self, name: str) -> Path:
        """Return the one output file that a pattern below the data folder names."""
        (path,) = self.data.glob(name)
        return path

    def dagster_runs(self) -> list[dg.DagsterRun]:
        """Return the runs of its Dagster instance."""
        with dg.DagsterInstance.from_config(str(self.data / ".dagster")) as instance:
            return list(instance.get_runs())

    def statuses(self) -> list[dg.DagsterRunStatus]:
        """Return how its Dagster runs stand, the latest first."""
        return [run.status for run in self.dagster_runs()]

    def materialized(self) -> list[tuple[str, str]]:
        """Return asset and partition of every materialization of a product that Dagster has recorded."""
        with dg.DagsterInstance.from_config(str(self.data / ".dagster")) as instance:
            return sorted(
                (key.to_user_string(), record.partition_key or "")
                for key in instance.all_asset_keys()
                if key != dg.AssetKey("corpus_status")
                for record in instance.fetch_materializations(key, limit=1000).records
            )
