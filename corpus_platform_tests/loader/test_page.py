"""What the page of the loader shows can be run, and each option that there is stands in it."""

import inspect
import json
import re
from pathlib import Path

import pytest

from corpus_platform.loader.batches import Batch, Batches
from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release import Release
from corpus_platform_tests.loader.test_opening import made

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "loader.md").read_text("utf-8")


def test_the_first_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path)
    content = json.loads((folder / "manifest.json").read_bytes())["content"]
    pointer = {"id": folder.name, "content": content}
    (tmp_path / "data" / "releases" / "current.json").write_text(json.dumps(pointer))
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(example, names)
    assert names["state"]["epoch"] == 2


def test_every_option_and_name_is_explained() -> None:
    functions = (open_release, Release.windows, Release.sequential, Release.rows)
    options = {name for f in functions for name in inspect.signature(f).parameters} - {"self"}
    public = {n for kind in (Batch, Batches) for n in vars(kind) if not n.startswith("_")}
    inner = {"of_worker", "end_epoch", "count", "follow", "offset", "document"}
    words = set(re.findall(r"\w+", PAGE))
    assert sorted((options | (public - inner)) - words) == []
