"""Tests of what a release says of its sources: places without secrets, and whose licence is whose."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_sources import licences_of, location_of
from corpus_platform.storage.registry import Member


def _project(folder: Path, *sources: str) -> Project:
    config = folder / "corpus.yaml"
    lines = "".join(f"  - {{{source}}}\n" for source in sources)
    config.write_text(f"storage: data\nsources:\n{lines}", encoding="utf-8")
    return open_project(load_settings(config))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return _project(tmp_path, "glob: 'in/{crawl}/*'")


@pytest.mark.parametrize(
    ("locations", "place"),
    [
        (["https://a:b@host/x/1.gz?token=secret"], "https://host/x/1.gz"),
        (["https://host/x/1.gz?s=1", "https://host/x/2.gz?s=2"], "https://host/x/*"),
        (["https://host/x/a/1.gz", "https://host/x/b/2.gz"], "https://host/x/*"),
        (["https://one/1.gz", "https://other/2.gz"], "https://*"),
        (["s3://bucket/p/1", "s3://bucket/p/10"], "s3://bucket/p/*"),
        (["/elsewhere/deep/in/1.gz"], "…/in/1.gz"),
        (["/elsewhere/deep/in/1.gz", "/elsewhere/deep/in/2.gz"], "…/in/*"),
        (["{base}/in/c/1.gz", "{base}/in/c/12.gz"], "in/c/*"),
    ],
)
def test_a_place_is_what_all_files_begin_with(
    locations: Sequence[str], place: str, project: Project
) -> None:
    base = project.settings.base.absolute()
    members = [Member(location.replace("{base}", str(base))) for location in locations]
    assert location_of(project, members) == place


def test_a_source_that_names_the_crawl_has_its_licence(tmp_path: Path) -> None:
    project = _project(
        tmp_path,
        "listing: a.txt, crawl: a, license: MIT",
        "listing: b.txt, crawl: b",
        "listing: all.json, license: CC0-1.0",
    )
    members = [Member("https://host/1.gz")]
    assert licences_of(project, "a", members) == ("MIT",)
    assert licences_of(project, "b", members) == ()
    assert licences_of(project, "c", members) == ("CC0-1.0",)


def test_a_crawl_that_a_glob_found_has_the_licence_of_that_glob(tmp_path: Path) -> None:
    project = _project(
        tmp_path,
        "glob: 'in/{crawl}/*.gz', license: ODC-BY",
        "glob: 'other/{crawl}/*.gz', license: MIT",
        "glob: 's3://bucket/{crawl}/**/*.zst', license: CC-BY-4.0",
    )
    base = project.settings.base.absolute()
    assert licences_of(project, "c", [Member(f"{base}/in/c/1.gz")]) == ("ODC-BY",)
    assert licences_of(project, "c", [Member("s3://bucket/c/x/1.zst")]) == ("CC-BY-4.0",)
    both = [Member(f"{base}/in/c/1.gz"), Member(f"{base}/other/c/1.gz")]
    assert licences_of(project, "c", both) == ("MIT", "ODC-BY")
    assert licences_of(project, "c", [Member("https://host/1.gz")]) == ()
