"""Our token files in the tools that they are for, which an environment of its own holds.

CORPUS_INTEROP_PYTHON names an interpreter that has them; without it one is made under the folder
for temporary files, once, from the package index (1.1 GB, minutes).
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.formats.datatrove import (
    DatatroveWriter,
    datatrove_name,
    merge_datatrove,
    three_digits,
    write_total,
)
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import MegatronWriter, merge_megatron
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.olmo import OlmoWriter

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("interop")]

TORCH = "torch==2.13.0+cpu"  # from an index or a folder that pip is told of; the plain one is 3 GB
STEPS = (
    ("numpy", "packaging", "setuptools", TORCH),
    ("--no-deps", "megatron-core==0.16.1", "datatrove==0.10.1", "ai2-olmo-core==3.0.0"),
    (
        "loguru",
        "humanize",
        "multiprocess",
        "dill",
        "fsspec",
        "huggingface_hub",
        "tqdm",
        "tokenizers",
    ),
    ("cached_path", "importlib_resources", "dataclass-extensions", "bettermap", "rich"),
    ("requests", "pyyaml", "safetensors"),
)
Documents = list[list[int]]


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter with the tools; tests are skipped, with what pip said, where it cannot be."""
    named = os.environ.get("CORPUS_INTEROP_PYTHON")
    if named:
        return named
    made_of = hashlib.sha256(repr(STEPS).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"corpus-interop-{made_of}"
    if not folder.exists():
        _make(folder)
    return str(folder / "bin" / "python")


def _make(folder: Path) -> None:
    """Make the environment beside its place, so that it is there whole or not at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        begun = Path(name) / "env"
        subprocess.run([sys.executable, "-m", "venv", str(begun)], check=True)
        for step in STEPS:
            _install(str(begun / "bin" / "python"), step)
        with contextlib.suppress(OSError):  # another run was faster
            begun.rename(folder)


def _install(interpreter: str, packages: Sequence[str]) -> None:
    done = subprocess.run(
        [interpreter, "-m", "pip", "install", "-q", *packages], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot install {' '.join(packages)}: {done.stderr.strip()[-300:]}")


def ask(python: str, script: str, *arguments: object) -> dict:
    """Run a script in the other environment, with arguments as JSON, and return what it prints."""
    done = subprocess.run(
        [python, "-W", "ignore", "-c", textwrap.dedent(script), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def documents_of(vocab_size: int, *, empty: bool = True, seed: int = 1) -> Documents:
    """Return documents that end in 0 and hold the largest id; some are empty, the ends included."""
    rng = np.random.default_rng(seed)
    found = [[*rng.integers(1, vocab_size, n).tolist(), 0] for n in rng.integers(0, 30, 40)]
    found[3] = [vocab_size - 1, 0]
    if empty:
        found[0] = found[7] = found[8] = found[-1] = []
    return found


def flat(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
    ids = [token for document in documents for token in document]
    lengths = [len(document) for document in documents]
    return np.array(ids, np.int64), np.cumsum(lengths, dtype=np.int64)


READ_MEGATRON = """
    import json, sys
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    (prefix,) = json.loads(sys.argv[1])
    found = {}
    for mmap in (True, False):
        data = IndexedDataset(prefix, multimodal=False, mmap=mmap)
        found[mmap] = {
            "sequences": [data[i].tolist() for i in range(len(data))],
            "lengths": data.sequence_lengths.tolist(),
            "borders": data.document_indices.tolist(),
            "tail": data.get(5, offset=1).tolist(),
        }
    assert found[True] == found[False]
    print(json.dumps(found[True]))
"""

BUILD_MEGATRON = """
    import json, sys
    import torch
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    prefixes, parts, vocab_size = json.loads(sys.argv[1])
    dtype = DType.optimal_dtype(vocab_size)
    for prefix, documents in zip(prefixes, parts):
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        for document in documents:
            builder.add_item(torch.tensor(document, dtype=torch.int64))
            builder.end_document()
        builder.finalize(f"{prefix}.idx")
    merged = IndexedDatasetBuilder(f"{prefixes[-1]}.merged.bin", dtype=dtype)
    for prefix in prefixes:
        merged.add_index(prefix)
    merged.finalize(f"{prefixes[-1]}.merged.idx")
    print("{}")
"""


def write_megatron(prefix: Path, documents: Documents, vocab_size: int) -> None:
    with MegatronWriter(prefix, vocab_size=vocab_size) as writer:
        writer.append(*flat(documents))


@pytest.mark.parametrize("vocab_size", [65_499, 65_500, 70_001])
def test_megatron_reads_our_documents(tmp_path: Path, python: str, vocab_size: int) -> None:
    documents = documents_of(vocab_size)
    write_megatron(tmp_path / "m", documents, vocab_size)
    assert ask(python, READ_MEGATRON, str(tmp_path / "m")) == {
        "sequences": documents,
        "lengths": [len(document) for document in documents],
        "borders": list(range(len(documents) + 1)),
        "tail": documents[5][1:],
    }


@pytest.mark.parametrize("vocab_size", [65_499, 65_500])
def test_our_bytes_are_those_of_megatrons_builder(
    tmp_path: Path, python: str, vocab_size: int
) -> None:
    parts = [documents_of(vocab_size, seed=seed) for seed in (1, 2)]
    ours, theirs = [tmp_path / "o1", tmp_path / "o2"], [tmp_path / "t1", tmp_path / "t2"]
    for prefix, documents in zip(ours, parts, strict=True):
        write_megatron(prefix, documents, vocab_size)
    merge_megatron(ours, tmp_path / "o2.merged")
    ask(python, BUILD_MEGATRON, [str(prefix) for prefix in theirs], parts, vocab_size)
    for name in ("1.bin", "1.idx", "2.bin", "2.idx", "2.merged.bin", "2.merged.idx"):
        assert (tmp_path / f"o{name}").read_bytes() == (tmp_path / f"t{name}").read_bytes(), name


READ_DATATROVE = """
    import json, sys
    from datatrove.utils.dataset import DatatroveFolderDataset
    folder, window, token_size = json.loads(sys.argv[1])
    data = DatatroveFolderDataset(
        folder, window - 1, token_size=token_size, return_positions=True
    )
    items = [data[i] for i in range(len(data))]
    print(json.dumps({key: [item[key].tolist() for item in items] for key in items[0]}))
"""

MERGE_DATATROVE = """
    import json, sys
    from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger
    source, target = json.loads(sys.argv[1])
    DocumentTokenizerMerger(
        source, target, "train", shuffle=False, save_loss_metadata=True, progress=False
    ).run()
    print("{}")
"""


def write_datatrove(path: Path, documents: Documents, vocab_size: int) -> None:
    ids, ends = flat(documents)
    with DatatroveWriter(path, vocab_size=vocab_size, tokenizer="tiny", loss=True) as writer:
        writer.append(ids, ends, ids % 3 != 0)


def windows(documents: Documents, length: int) -> list[list[int]]:
    """Cut the tokens into windows; the rest goes."""
    ids = [token for document in documents for token in document]
    return [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]


def positions(documents: Documents, length: int) -> list[list[int]]:
    """Count each token from the start of its document or, where that is later, of its window."""
    starts = windows([list(range(len(document))) for document in documents], length)
    return [[min(at, i) for i, at in enumerate(window)] for window in starts]


@pytest.mark.parametrize("vocab_size", [65_536, 65_537])
def test_datatrove_reads_our_folder(tmp_path: Path, python: str, vocab_size: int) -> None:
    parts = [documents_of(vocab_size, empty=False, seed=seed) for seed in (1, 2)]
    for number, documents in enumerate(parts):
        write_datatrove(tmp_path / datatrove_name(number, "train"), documents, vocab_size)
    write_total(tmp_path, "train", tokenizer="tiny", vocab_size=vocab_size, tokens=1)
    size = 2 if vocab_size == 65_536 else 4
    read = ask(python, READ_DATATROVE, str(tmp_path), 16, size)
    assert read["input_ids"] == [window for part in parts for window in windows(part, 16)]
    assert read["positions"] == [window for part in parts for window in positions(part, 16)]


def test_datatrove_merges_our_files_as_we_do(tmp_path: Path, python: str) -> None:
    for folder in ("source", "ours", "theirs"):
        (tmp_path / folder).mkdir()
    paths = [tmp_path / "source" / f"{name}.ds" for name in ("a", "b")]
    for seed, path in enumerate(paths):
        write_datatrove(path, documents_of(70_001, seed=seed), 70_001)
    target = tmp_path / "ours" / "000_train.ds"
    (first, *_) = merge_datatrove(paths, target)
    write_total(target.parent, "train", tokenizer="tiny", vocab_size=70_001, tokens=first.tokens)
    ask(python, MERGE_DATATROVE, str(tmp_path / "source"), str(tmp_path / "theirs"))
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        for folder in ("ours", "theirs")
    )
    assert ours == theirs
    assert len(ours) == 5


def test_an_empty_document_hides_a_border_from_datatroves_positions(
    tmp_path: Path, python: str
) -> None:
    write_datatrove(tmp_path / "a.ds", [[1, 2], [], [3, 4]], 10)
    read = ask(python, READ_DATATROVE, str(tmp_path), 4, 2)
    assert read == {"input_ids": [[1, 2, 3, 4]], "positions": [[0, 1, 2, 3]]}


def test_counts_are_told_as_humanize_tells_them(python: str) -> None:
    rng = np.random.default_rng(3)
    counts = [*range(2000), *(10**n + d for n in range(1, 16) for d in (-6, -5, -1, 0, 1, 5))]
    counts += [int(10**power) for power in rng.uniform(0, 17, 3000)]
    script = """
        import json, sys
        import humanize
        (counts,) = json.loads(sys.argv[1])
        print(json.dumps({"said": [humanize.metric(count, unit="T") for count in counts]}))
    """
    said = ask(python, script, counts)["said"]
    assert [f"{three_digits(count)}T" for count in counts] == said


def test_nanogpts_batches_are_our_tokens(tmp_path: Path, python: str) -> None:
    ids, ends = flat(documents_of(65_536))
    with NanogptWriter(tmp_path / "train.bin", vocab_size=65_536) as writer:
        writer.append(ids, ends)
    script = """
        import json, sys
        import numpy as np
        import torch
        path, block = json.loads(sys.argv[1])
        data = np.memmap(path, dtype=np.uint16, mode="r")
        last = len(data) - block - 1
        x = torch.from_numpy(data[last : last + block].astype(np.int64))
        y = torch.from_numpy(data[last + 1 : last + 1 + block].astype(np.int64))
        print(json.dumps({"tokens": len(data), "x": x.tolist(), "y": y.tolist()}))
    """
    assert ask(python, script, str(tmp_path / "train.bin"), 8) == {
        "tokens": len(ids),
        "x": ids[-9:-1].tolist(),
        "y": ids[-8:].tolist(),
    }


# What llmc/dataloader.h asks of a file, in C of our own: magic, version, a count above 0, its size.
CHECK_LLMC = r"""
#include <stdint.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int32_t fields[256];
    uint16_t id;
    int64_t sum = 0, read = 0;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(fields, 4, 256, file) != 256) return 2;
    if (fields[0] != 20240520 || fields[1] != 1 || fields[2] <= 0) return 3;
    for (; fread(&id, 2, 1, file) == 1; read++) sum += id;
    if (read != fields[2] || fgetc(file) != EOF) return 4;
    fseek(file, 0, SEEK_END);
    if ((int64_t)ftell(file) != 1024 + 2 * (int64_t)fields[2]) return 5;
    printf("%lld %lld\n", (long long)read, (long long)sum);
    return 0;
}
"""


@pytest.fixture(scope="module")
def llmc_check(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that prints count and sum of the ids of a file that llm.c's loader would take."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("llmc")
    (folder / "check.c").write_text(CHECK_LLMC)
    program = str(folder / "check")
    subprocess.run([compiler, "-O1", "-o", program, str(folder / "check.c")], check=True)
    return program


def test_llmcs_loader_takes_our_files(tmp_path: Path, llmc_check: str) -> None:
    ids, ends = flat(documents_of(65_536))
    path = tmp_path / "train_000000.bin"
    with LlmcWriter(path, vocab_size=65_536) as writer:
        writer.append(ids, ends)
    done = subprocess.run([llmc_check, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(ids)} {ids.sum()}\n"
    path.write_bytes(path.read_bytes()[:-1])
    assert subprocess.run([llmc_check, str(path)]).returncode == 4


READ_OLMO = """
    import json, sys
    import numpy as np
    from olmo_core.data.numpy_dataset import NumpyFSLDataset
    from olmo_core.data.utils import iter_document_indices, load_array_slice
    path, mask, window, vocab_size, dtype = json.loads(sys.argv[1])
    dtype = getattr(np, dtype)
    data = NumpyFSLDataset(
        path,
        sequence_length=window,
        pad_token_id=0,
        eos_token_id=0,
        vocab_size=vocab_size,
        dtype=dtype,
        label_mask_paths=[mask],
    )
    spans = list(iter_document_indices(path, dtype=dtype))
    print(json.dumps({
        "windows": [data[i]["input_ids"].tolist() for i in range(len(data))],
        "masks": [data[i]["label_mask"].tolist() for i in range(len(data))],
        "documents": [load_array_slice(path, a, b, dtype).tolist() for a, b in spans],
    }))
"""


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(256, "uint8"), (65_536, "uint16"), (65_537, "uint32")]
)
@pytest.mark.parametrize("with_source", [True, False])
def test_olmo_core_reads_our_files(
    tmp_path: Path, python: str, vocab_size: int, dtype: str, *, with_source: bool
) -> None:
    documents = documents_of(vocab_size)
    ids, ends = flat(documents)
    path, loss = tmp_path / "part.npy", ids % 3 != 0
    with OlmoWriter(path, vocab_size=vocab_size, loss=True) as writer:
        if with_source:
            names = [f'page {i}, "a\nb"' for i in range(len(documents))]
            rows = range(len(documents))
            writer.append(ids, ends, loss, ids=names, shards=["s"] * len(ends), rows=rows)
        else:
            writer.append(ids, ends, loss)
    mask = str(tmp_path / "part.label_mask")
    read = ask(python, READ_OLMO, str(path), mask, 16, vocab_size, dtype)
    assert read["windows"] == windows(documents, 16)
    assert read["masks"] == windows([loss.tolist()], 16)
    assert read["documents"] == [document for document in documents if document]
