"""Which engine encodes a corpus, how that is found out and kept, and what a shard's sample shows."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import EngineFailed, MissingExtra, SettingsError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import encoding as module
from corpus_platform.stages import fast_engine
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.encoding import (
    Choice,
    Encode,
    Encoding,
    ShardCheck,
    encode_shard,
    open_encoding,
)
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.tokenization import exactness
from corpus_platform.tokenization.encoder import Encoder, HuggingFaceEncoder
from corpus_platform.tokenization.fast import load_fast
from corpus_platform_tests.stages.near_copies import cluster, new_corpus, prose
from corpus_platform_tests.tokenization.altered import AlteredEncoder

pytest.importorskip("fastokens", reason="needs corpus-platform[fast]")

EOS = SPECIAL_TOKENS[0]
SHARD = "2026-40/a.jsonl"
SPOILED = prose(3)
TEXTS = [SPOILED if i == 70 else prose(1000 + i, 30) for i in range(120)]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a corpus that is made up to its tokenizer."""
    folder = tmp_path_factory.mktemp("encoding")
    settings = "tokenizer: {vocab_size: 400, sample_bytes: 20000}\n"
    project = new_corpus(folder, {"2026-40/a": TEXTS}, settings)
    cluster(project)
    train_tokenizer(project)
    return folder


@pytest.fixture
def project(once: Path, tmp_path: Path) -> Iterator[Project]:
    """A copy of that corpus; sweeps have a thousand code points, and no corpus is too small."""
    shutil.copytree(once, tmp_path / "corpus")
    few = ((range(0x400), exactness.CONTEXTS),)
    with (
        mock.patch.multiple(exactness, CODE_POINTS=few, LONG=1000),
        mock.patch.object(fast_engine, "WORTH_BYTES", 0),
        mock.patch.dict(os.environ),  # engines are told their threads there
    ):
        yield open_project(load_settings(tmp_path / "corpus" / "corpus.yaml"))


def opened(project: Project, choice: Choice = "auto") -> Encoding:
    return open_encoding(project, eos_token=EOS, choice=choice)


@contextmanager
def altered(spoiled: str) -> Generator[None]:
    """Have the fast engine give one id of the texts that hold this as another one."""

    def load(data: bytes, reference: HuggingFaceEncoder) -> Encoder:
        return AlteredEncoder(load_fast(data, reference), spoiled)

    with mock.patch.object(module, "load_fast", load):
        yield


def records(project: Project) -> dict[str, dict[str, object]]:
    """Return what is known of engines, by file name."""
    folder = project.store.root / "engines"
    return {path.name: json.loads(path.read_bytes()) for path in folder.glob("*.json")}


def test_an_exact_engine_is_used_and_the_sweep_kept_for_the_next_time(project: Project) -> None:
    heard: list[tuple[int, int | None]] = []
    encoding = open_encoding(
        project, eos_token=EOS, progress=lambda done, total: heard.append((done, total))
    )
    assert encoding.engine == "fastokens"
    assert heard[-1][0] == heard[-1][1]
    name = (
        f"{encoding.reference.fingerprint[:16]}-fastokens-{version('fastokens')}"
        f"-tokenizers-{version('tokenizers')}.json"
    )
    assert list(records(project)) == [name]
    assert records(project)[name]["difference"] is None
    assert records(project)[name]["texts"] == heard[-1][0]
    with mock.patch.object(fast_engine, "sweep", side_effect=AssertionError):
        assert opened(project).engine == "fastokens"


def test_the_reference_by_name_asks_nothing(project: Project) -> None:
    encoding = opened(project, "tokenizers")
    assert (encoding.engine, encoding.encoder) == ("tokenizers", encoding.reference)
    assert records(project) == {}


def test_a_corpus_too_small_to_be_worth_a_sweep_is_encoded_by_the_reference(
    project: Project,
) -> None:
    with mock.patch.object(fast_engine, "WORTH_BYTES", 10**6):
        assert opened(project).engine == "tokenizers"
        assert records(project) == {}
        assert opened(project, "fastokens").engine == "fastokens"
        assert opened(project).engine == "fastokens"  # it is known by now


def test_a_failed_sweep_is_kept_and_the_engine_not_used(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    with altered("\u0395"), caplog.at_level(logging.WARNING):
        assert opened(project).engine == "tokenizers"
    (found,) = records(project).values()
    assert "code point U+0395" in str(found["difference"])
    assert "fastokens is not used for this tokenizer" in caplog.text
    assert opened(project).engine == "tokenizers"  # an exact one by now: what is kept counts
    with pytest.raises(SettingsError, match=r"run\.encoder: fastokens .*U\+0395.* kept in .*json"):
        opened(project, "fastokens")


def test_a_document_of_the_corpus_is_among_what_is_swept(project: Project) -> None:
    with altered(TEXTS[5]):
        assert opened(project).engine == "tokenizers"
    (found,) = records(project).values()
    assert str(found["difference"]).startswith("a document: ")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"probes": 0, "texts": 1}'])
def test_what_was_kept_of_other_probes_or_is_damaged_is_found_out_again(
    project: Project, content: bytes
) -> None:
    opened(project)
    (path,) = (project.store.root / "engines").glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(content)
    assert opened(project).engine == "fastokens"
    assert path.read_bytes() == whole


def test_several_at_once_find_out_once(project: Project) -> None:
    sweeps = []

    def counted(*args: object, **options: object) -> None:
        sweeps.append(args)

    with mock.patch.object(fast_engine, "sweep", counted), ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: opened(project).engine, range(4))]
    assert found == ["fastokens"] * 4
    assert len(sweeps) == 1


def test_an_engine_that_is_not_installed_is_no_error_unless_asked_for(project: Project) -> None:
    with mock.patch.dict(sys.modules, {"fastokens": None}):
        assert opened(project).engine == "tokenizers"
        with pytest.raises(MissingExtra, match=r"corpus-platform\[fast\]"):
            opened(project, "fastokens")


def test_a_tokenizer_that_the_engine_does_not_know_is_encoded_by_the_reference(
    project: Project,
) -> None:
    with mock.patch.object(module, "load_fast", side_effect=EngineFailed("no such model")):
        assert opened(project).engine == "tokenizers"
        with pytest.raises(SettingsError, match="no such model"):
            opened(project, "fastokens")


@pytest.mark.parametrize(
    ("workers", "cores", "variable", "value"),
    [
        (2, 2, "TOKENIZERS_PARALLELISM", "false"),
        (4, 2, "TOKENIZERS_PARALLELISM", "false"),
        (1, 4, "RAYON_NUM_THREADS", "4"),
        (2, 8, "RAYON_NUM_THREADS", "4"),
    ],
)
def test_engines_take_their_share_of_the_cores(
    project: Project, workers: int, cores: int, variable: str, value: str
) -> None:
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS"):
        os.environ.pop(name, None)
    run = project.settings.run.model_copy(update={"workers": workers})
    project.settings = project.settings.model_copy(update={"run": run})
    with mock.patch.object(module, "cores", return_value=cores):
        opened(project)
    assert os.environ[variable] == value
    assert os.environ["FASTOKENS_BPE_THREADS"] == "1"


def cleaned(project: Project) -> pl.DataFrame:
    return pl.read_parquet(project.present("cleaned_documents", SHARD).path("documents.parquet"))


def bytes_of(project: Project, encoding: Encoding) -> module.Written[bytes]:
    """Return the shard's ids as encode_shard has them written, in batches of 50 documents."""
    documents = cleaned(project)

    def write(encode: Encode) -> bytes:
        parts = []
        for batch in documents.iter_slices(50):
            texts, metas = batch["text"].to_list(), batch["meta"].to_list()
            parts.append(encode(batch["row"].to_numpy(), texts, metas).flat)
        return np.concatenate(parts).astype("<u2").tobytes()

    return encode_shard(encoding, SHARD, documents["row"].to_numpy(), write)


def test_a_shard_of_an_exact_engine_has_the_bytes_of_the_reference(project: Project) -> None:
    fast = bytes_of(project, opened(project))
    reference = bytes_of(project, opened(project, "tokenizers"))
    assert (fast.engine, reference.engine) == ("fastokens", "tokenizers")
    assert fast.value == reference.value
    assert fast.engine_differences == reference.engine_differences == 0
    versions = {name: version(name) for name in ("fastokens", "tokenizers")}
    assert fast.measured() == {"encoder": {"engine": "fastokens", "versions": versions}}


def test_a_shard_whose_sample_differs_is_done_again_by_the_reference(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    with altered(SPOILED), mock.patch.object(module, "SAMPLED_DOCUMENTS", 120):
        encoding = opened(project)
        assert encoding.engine == "fastokens"  # no probe holds that text
        again = bytes_of(project, encoding)
    assert (again.engine, again.engine_differences) == ("tokenizers", 1)
    assert again.value == bytes_of(project, opened(project, "tokenizers")).value
    assert f"{SHARD} is encoded again by the reference: row 70: " in caplog.text
    assert again.measured()["encoder"]["engine"] == "tokenizers"


def test_an_engine_that_failed_on_a_document_is_not_used_again(project: Project) -> None:
    with altered(SPOILED), mock.patch.object(module, "SAMPLED_DOCUMENTS", 120):
        bytes_of(project, opened(project))
        assert opened(project).engine == "tokenizers"
        with pytest.raises(SettingsError, match=rf"{SHARD}: row 70"):
            opened(project, "fastokens")


def test_an_engine_that_gives_up_has_the_shard_done_by_the_reference(project: Project) -> None:
    encoding = opened(project)
    with mock.patch.object(encoding.encoder, "encode", side_effect=EngineFailed("too long")):
        again = bytes_of(project, encoding)
    assert (again.engine, again.engine_differences) == ("tokenizers", 0)
    assert again.value == bytes_of(project, encoding).value
    assert opened(project).engine == "fastokens"


@pytest.mark.parametrize(("documents", "sampled"), [(0, 0), (7, 7), (120, 50), (90_001, 91)])
def test_the_sample_is_one_of_a_thousand_and_fifty_at_least(
    project: Project, documents: int, sampled: int
) -> None:
    encoding, rows = opened(project, "tokenizers"), np.arange(documents) * 3
    check = ShardCheck(encoding, SHARD, rows)
    assert len(set(check.rows.tolist()) & set(rows.tolist())) == sampled
    assert np.array_equal(check.rows, ShardCheck(encoding, SHARD, rows[::-1]).rows)


def test_another_shard_has_another_sample(project: Project) -> None:
    encoding, rows = opened(project, "tokenizers"), np.arange(1000)
    first, second = (set(ShardCheck(encoding, s, rows).rows.tolist()) for s in (SHARD, "b/c"))
    assert len(first & second) < 15


def packed(project: Project, choice: Choice) -> Artifact:
    """Pack the shard anew, whatever there is."""
    run = project.settings.run.model_copy(update={"encoder": choice})
    project.settings = project.settings.model_copy(update={"run": run})
    shutil.rmtree(project.store.root / "packed_bins", ignore_errors=True)
    return pack_shard(project, SHARD).artifact


def test_a_pack_has_the_bytes_of_the_reference_whatever_an_engine_did(project: Project) -> None:
    wanted = packed(project, "tokenizers")
    with altered(SPOILED), mock.patch.object(module, "SAMPLED_DOCUMENTS", 120):
        again = packed(project, "fastokens")
    assert again.manifest.measured["encoder"]["engine"] == "tokenizers"
    assert again.manifest.measured["engine_differences"] == 1
    assert again.content == wanted.content
    shutil.rmtree(project.store.root / "engines")
    exact = packed(project, "fastokens")
    assert exact.manifest.measured["encoder"]["engine"] == "fastokens"
    assert exact.content == wanted.content


@pytest.mark.parametrize("role", ["eos", "bos"])
def test_a_control_token_that_is_none_ends_packing_before_any_file(
    project: Project, role: str
) -> None:
    pack = project.settings.pack.model_copy(update={f"{role}_token": "<|nowhere|>"})
    project.settings = project.settings.model_copy(update={"pack": pack})
    with pytest.raises(SettingsError, match=r"no (end|begin) token '<\|nowhere\|>' among its"):
        pack_shard(project, SHARD)
    assert [*project.store.root.rglob("*.bin")] == []
