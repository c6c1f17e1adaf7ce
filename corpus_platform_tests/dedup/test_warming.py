import os
import subprocess
import sys
from pathlib import Path

import pytest

import corpus_platform

# Everything that a run does with kernels, on what comes out of files: arrays that are read only.
WORK = """
import sys
import numpy as np
from corpus_platform.dedup import warming
from corpus_platform.dedup.bands import bucket_pairs
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup_settings import DedupSettings
if sys.argv[1:] == ["warm"]:
    warming.warm_kernels()
else:
    texts = ["one text of a few words", "中文 " * 9, "!!!", "x" * 3000]
    for scheme in ("fast", "datasketch"):
        for shingle in ("auto", "char", "word"):
            signer = Signer(DedupSettings(scheme=scheme, shingle=shingle))
            signed = signer.sign(texts)
            flat, ends = signer.shingle_sets(texts)
            signer.signatures_of(np.frombuffer(flat.tobytes(), np.uint64), ends)
            bucket_pairs(signed.bands[:, 0], np.arange(4), cap=64)
from corpus_platform.dedup import cluster_kernels, join_kernels, kernels
from corpus_platform.text import kernels as text_kernels
modules = (text_kernels, kernels, cluster_kernels, join_kernels)
print(*[k.name for m in modules for k in warming._kernels(m) if k.compiled])
"""


def compiled_by(argument: str, cache: Path | None = None) -> list[str]:
    """Return the kernels that a process had to compile."""
    place = {"NUMBA_CACHE_DIR": str(cache)} if cache else {}
    command = [sys.executable, "-c", WORK, argument]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **place}
    )
    return result.stdout.split()


def test_work_after_warming_compiles_nothing() -> None:
    compiled_by("warm")  # into the cache of all tests, so that only the first time takes long
    assert compiled_by("work") == []


@pytest.mark.slow
def test_a_second_process_finds_all_that_the_first_compiled(tmp_path: Path) -> None:
    first = compiled_by("warm", tmp_path)
    assert {"corpus_platform.text.kernels.hash_units"} < set(first)
    files = sorted(tmp_path.rglob("*"))
    assert compiled_by("warm", tmp_path) == compiled_by("work", tmp_path) == []
    assert sorted(tmp_path.rglob("*")) == files


def test_warming_writes_the_byte_code_of_every_module_also_where_python_may_write_none(
    tmp_path: Path,
) -> None:
    work = "from corpus_platform.dedup.warming import compile_modules; compile_modules()"
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", work], check=True, env=environment)
    (package,) = corpus_platform.__path__
    modules = {p.relative_to(package).with_suffix("") for p in Path(package).rglob("*.py")}
    kept = tmp_path / Path(package).relative_to("/")
    assert {Path(str(p.relative_to(kept)).split(".")[0]) for p in kept.rglob("*.pyc")} == modules
