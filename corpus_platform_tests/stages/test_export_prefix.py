"""Tests of exports to a real S3 server: what is sent, what is not sent again, and in which order."""

import json
from pathlib import Path
from typing import Any  # a client of boto3 has no type

import numpy as np
import pytest

from corpus_platform.errors import UsageError
from corpus_platform.stages import exporting
from corpus_platform.stages.exporting import ExportOptions, ExportReport, export_release
from corpus_platform.stages.project import Project
from corpus_platform_tests.s3_server import BUCKET, S3Server
from corpus_platform_tests.stages.releases import empty_project, write_release

pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_keys")]

FILES = {"train-00000": [[5, 6, 7], [8]], "val-00000": [[11, 12]]}


@pytest.fixture
def project(tmp_path: Path, weed: S3Server) -> Project:
    """A project with one release, whose S3 is the server."""
    project = empty_project(tmp_path / "p", f"s3: {{endpoint_url: '{weed.url}'}}\n")
    write_release(project, FILES)
    return project


def _export(project: Project, prefix: str, scratch: Path, **options: object) -> ExportReport:
    (artifact,) = project.store.generations("shuffled_bins", None)
    chosen = ExportOptions(to=f"s3://{BUCKET}/{prefix}", local_scratch=scratch, **options)  # ty: ignore[invalid-argument-type]
    return export_release(project, artifact.folder.name, "megatron", chosen)


def _objects(client: Any, prefix: str) -> dict[str, Any]:
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
    return {row["Key"].removeprefix(f"{prefix}/"): row for row in listed}


def _bytes(client: Any, prefix: str, name: str) -> bytes:
    return client.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")["Body"].read()


def test_an_export_arrives_with_its_hashes_and_nothing_is_left_here(
    project: Project, weed: S3Server, tmp_path: Path
) -> None:
    prefix, scratch = f"exports/{tmp_path.name}", tmp_path / "scratch"
    report = _export(project, prefix, scratch)
    found = _objects(weed.client, prefix)
    assert found.keys() == {
        "export.json", "tokenizer.json", "train-00000.bin", "train-00000.idx", "val-00000.bin",
        "val-00000.idx",
    }  # fmt: skip
    ids = np.frombuffer(_bytes(weed.client, prefix, "train-00000.bin"), "<u2").tolist()
    assert ids == [5, 6, 7, 0, 8, 0]
    said = json.loads(_bytes(weed.client, prefix, "export.json"))
    for file in said["files"]:
        head = weed.client.head_object(Bucket=BUCKET, Key=f"{prefix}/{file['path']}")
        assert (head["ContentLength"], head["Metadata"]["sha256"]) == (file["bytes"], file["sha256"])  # fmt: skip
    assert list(scratch.iterdir()) == []
    assert report.written == 5
    assert _export(project, prefix, scratch).written == 0
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_a_killed_export_sends_only_what_is_not_there(
    project: Project, weed: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, scratch = f"exports/{tmp_path.name}", tmp_path / "scratch"
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "export_json", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _export(project, prefix, scratch)
    before = _objects(weed.client, prefix)
    assert "export.json" not in before
    assert _export(project, prefix, scratch).written == 0
    after = _objects(weed.client, prefix)
    assert after.keys() - before.keys() == {"export.json"}
    assert all(after[name]["LastModified"] == before[name]["LastModified"] for name in before)


@pytest.mark.slow
def test_what_was_noted_may_be_lost_and_nothing_is_sent_twice(
    project: Project, weed: S3Server, tmp_path: Path
) -> None:
    prefix = f"exports/{tmp_path.name}"
    _export(project, prefix, tmp_path / "one")
    before = _objects(weed.client, prefix)
    weed.client.delete_object(Bucket=BUCKET, Key=f"{prefix}/export.json")
    assert _export(project, prefix, tmp_path / "two").written == 5  # here, to know their hashes
    after = _objects(weed.client, prefix)
    unsent = before.keys() - {"export.json"}
    assert all(after[name]["LastModified"] == before[name]["LastModified"] for name in unsent)


def test_an_object_that_is_something_else_is_not_replaced(
    project: Project, weed: S3Server, tmp_path: Path
) -> None:
    prefix = f"exports/{tmp_path.name}"
    key = {"Bucket": BUCKET, "Key": f"{prefix}/train-00000.bin"}
    weed.client.put_object(**key, Body=b"precious")
    with pytest.raises(UsageError, match=r"train-00000.bin: another object has this name"):
        _export(project, prefix, tmp_path / "scratch")
    assert weed.client.get_object(**key)["Body"].read() == b"precious"
    assert "export.json" not in _objects(weed.client, prefix)
