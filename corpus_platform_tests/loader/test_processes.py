"""Batches in other processes, pickled or forked, and what importing the loader brings along."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from corpus_platform import loader
from corpus_platform.errors import StorageError
from corpus_platform.loader.opening import open_release
from corpus_platform_tests.loader.made import in_processes, places
from corpus_platform_tests.loader.test_opening import TOKENS, made

HEAVY = (
    "pyarrow",
    "polars",
    "pydantic",
    "dagster",
    "tokenizers",
    "boto3",
    "numba",
    "msgspec",
    "h5py",
)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_worker_processes_read_the_windows_of_one(tmp_path: Path, way: str) -> None:
    batches = open_release(made(tmp_path)).windows(2, 2, seed=1)
    expected = sorted(line for batch in batches for line in batch.x.tolist())
    batches.epoch = 0
    found = in_processes(batches, 2, way)
    assert sorted(found) == expected


def test_a_pickled_run_goes_on_where_it_stood(tmp_path: Path) -> None:
    batches = open_release(made(tmp_path)).windows(2, 2, seed=1)
    next(iter(batches))
    data = pickle.dumps(batches)
    assert len(data) < 8000
    assert places(pickle.loads(data)) == places(batches)


def test_a_process_that_begins_later_refuses_files_that_took_their_names(tmp_path: Path) -> None:
    folder = made(tmp_path / "one")
    release = open_release(folder)
    data = pickle.dumps(release)
    folder.rename(folder.parent / "away")
    other = made(tmp_path / "other", masks={"train-00000": [1, 1, 0, 1]})
    other.rename(folder)
    assert release.get_slice(0, 13).tolist() == TOKENS
    with pytest.raises(StorageError, match=r"train-00000.json: was replaced since"):
        pickle.loads(data).get_slice(0, 13)


def test_importing_it_brings_numpy_and_nothing_heavier() -> None:
    """In a process of its own, in which nothing else was imported."""
    script = f"""
        import sys
        import corpus_platform.loader.opening
        print([n for n in {HEAVY} if n in sys.modules], "numpy" in sys.modules)
    """
    lines = "\n".join(line.strip() for line in script.splitlines())
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"


def _imports(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_it_imports_nothing_of_ours_but_errors_and_formats_that_need_numpy_alone() -> None:
    (folder,) = loader.__path__
    modules = {path.stem: _imports(path) for path in Path(folder).glob("*.py")}
    assert {"opening", "release", "stream", "batches"} <= set(modules)
    plain = {
        f"corpus_platform.formats.token_{kind}" for kind in ("arrays", "bin", "rows", "windows")
    }
    of_hdf5 = {f"corpus_platform.formats.{name}" for name in ("hdf5", "shards_json")}
    for name, imported in modules.items():
        allowed = {"corpus_platform.errors", "numpy", *plain}
        allowed |= {"hdf5_export": of_hdf5, "torch_data": {"torch", "torch.utils.data"}}.get(
            name, set()
        )
        others = {m for m in imported - allowed if not m.startswith("corpus_platform.loader.")}
        assert {m for m in others if m.partition(".")[0] not in sys.stdlib_module_names} == set(), (
            name
        )


def test_without_torch_tensors_say_what_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None; import corpus_platform.loader.torch_data"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.endswith("MissingExtra: batches as tensors need torch: pip install torch\n")
