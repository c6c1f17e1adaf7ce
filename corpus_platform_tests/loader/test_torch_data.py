"""Batches through a torch DataLoader, in the environment of the interop tests.

That has numpy and torch, and nothing of what this package needs besides.
"""

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release import Release
from corpus_platform_tests.e2e.test_interop import ask, python
from corpus_platform_tests.stages.releases import empty_project, write_release, write_rows

__all__ = ["python"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("interop")]
TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def this_package() -> Any:
    """The other interpreter finds this package by its folder."""
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(TOP)}):
        yield


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of 60 tokens in two files."""
    project = empty_project(tmp_path_factory.mktemp("torch"))
    files = {"train-00000": [range(1, 40)], "train-00001": [range(50, 69)], "val-00000": []}
    name = write_release(project, files)
    return open_release(project.store.folder("shuffled_bins", None) / name)


EPOCHS = """
    import json, sys
    import torch
    from corpus_platform.loader.opening import open_release
    from corpus_platform.loader.torch_data import torch_loader

    def main():
        folder, options, settings, rank, world = json.loads(sys.argv[1])
        batches = open_release(folder).windows(2, **settings).shard(rank, world)
        loader = torch_loader(batches, **options)
        found = []
        for epoch in range(2):
            for batch in loader:
                assert batch["x"].dtype == torch.int64 and batch["loss"].dtype == torch.bool
                assert batch["state"] == loader.state()
                found.append([batch["x"].tolist(), batch["y"].tolist(), loader.state()])
        print(json.dumps(found))

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 3, "multiprocessing_context": "spawn"}],
    ids=["0", "2-fork", "3-spawn"],
)
def test_batches_and_states_are_those_without_torch(
    release: Release, python: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"batch": 3, "seed": 1, "jitter": True}
    batches = release.windows(2, **settings).shard(1, 2)
    expected = [[b.x.tolist(), b.y.tolist(), batches.state()] for _ in range(2) for b in batches]
    script = tmp_path / "epochs.py"  # a file: processes that are spawned read it again
    script.write_text(textwrap.dedent(EPOCHS))
    arguments = json.dumps([str(release.folder), options, settings, 1, 2])
    done = subprocess.run([python, str(script), arguments], capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    assert json.loads(done.stdout) == expected


RESUME = """
    import itertools, json, sys
    from corpus_platform.loader.opening import open_release
    from corpus_platform.loader.torch_data import torch_loader
    folder, state, taken, epochs = json.loads(sys.argv[1])
    loader = torch_loader(open_release(folder).windows(2, 3, 9), num_workers=2, prefetch_factor=4)
    if state is not None:
        loader.load_state(state)
    seen = [batch["places"].tolist() for batch in itertools.islice(loader, taken)]
    seen += [batch["places"].tolist() for _ in range(epochs) for batch in loader]
    print(json.dumps([seen, loader.state()]))
"""


def test_ld_01_a_state_is_what_training_had_and_not_what_workers_prefetched(
    release: Release, python: str
) -> None:
    batches = release.windows(2, 3, 9)
    undisturbed = [b.places.tolist() for _ in range(2) for b in batches]
    assert len(undisturbed) == 20
    first, state = _asked(python, release, None, 4, 0)
    rest, behind = _asked(python, release, state, 0, 2)
    assert (state["epoch"], state["position"]) == (0, 12)
    assert first + rest == undisturbed
    assert behind == batches.state()


def _asked(python: str, release: Release, *arguments: object) -> Any:
    return ask(python, RESUME, str(release.folder), *arguments)


OWN_LOADER = """
    import json, sys
    import torch
    from torch.utils.data import DataLoader
    from corpus_platform.errors import UsageError
    from corpus_platform.loader.opening import open_release
    from corpus_platform.loader.torch_data import torch_dataset, torch_loader
    folder, rows = json.loads(sys.argv[1])
    dataset = torch_dataset(open_release(folder).windows(2, 3, 9))
    seen = []
    for _ in range(2):
        for batch in DataLoader(dataset, batch_size=None, num_workers=2):
            dataset.follow(batch)
            seen.append(batch["places"].tolist())
    refused = []
    for options in ({"persistent_workers": True}, {"batch_size": 4}):
        try:
            torch_loader(dataset.batches, **options)
        except UsageError as error:
            refused.append(str(error).partition(":")[0])
    (packed,) = torch_loader(open_release(rows).rows(2, None))
    names = ("x", "cu_seqlens", "document", "offset", "loss")
    short = torch_loader(open_release(folder).windows(500, 3, 9), num_workers=2)
    print(json.dumps({
        "seen": seen,
        "refused": refused,
        "rows": [packed[name].tolist() for name in names],
        "short": [len(list(short)), short.state()["epoch"]],
    }))
"""


def test_a_loader_of_ones_own_rows_and_streams_without_a_window(
    release: Release, python: str, tmp_path: Path
) -> None:
    project = empty_project(tmp_path)
    pieces = [[(0, 0, [1, 2, 0]), (1, 0, [0])], [(2, 0, [3, 0]), (-1, 0, [9, 9])]]
    rows = project.store.folder("shuffled_bins", None) / write_rows(
        project, {"train-00000": pieces, "val-00000": []}
    )
    found = ask(python, OWN_LOADER, str(release.folder), str(rows))
    batches = release.windows(2, 3, 9)
    assert found["seen"] == [b.places.tolist() for _ in range(2) for b in batches]
    assert found["refused"] == ["persistent_workers", "batch_size"]
    assert found["rows"] == [
        [[1, 2, 0, 0], [3, 0, 9, 9]],
        [0, 3, 4, 6, 8],
        [0, 1, 2, -1],
        [0, 0, 0, 0],
        [[True, True, False, False], [True, False, False, False]],
    ]
    assert found["short"] == [0, 1]
