"""HDF5 files of tokens, read with h5py itself and with our reader."""

import hashlib
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import MissingExtra, StageFailed, StorageError, UsageError
from corpus_platform.formats.hdf5 import (
    chunk_for,
    follow_hdf5,
    open_hdf5,
    validate,
)
from corpus_platform.formats.hdf5_tokens import MappedColumn
from corpus_platform_tests.formats.hdf5_processes import (
    DOCUMENTS,
    TOKENIZER,
    send_windows,
    windows_of,
    write,
    writer,
)

h5py = pytest.importorskip("h5py", reason="needs the extra hdf5")

Packing = Literal["gzip"] | None
BOTH = pytest.mark.parametrize("compression", [None, "gzip"])


FLAT = [5, 6, 7, 0, 8, 0, 9, 9, 9, 9, 9, 0]
ENDS = [4, 4, 6, 12]


# What is in the file, by h5py


@BOTH
def test_h5py_reads_what_the_format_says(tmp_path: Path, compression: Packing) -> None:
    path = write(tmp_path / "a.h5", [*DOCUMENTS, [7]], compression=compression, loss=True)
    with h5py.File(path, "r") as file:
        tokens = file["tokens"]
        assert (tokens.dtype.str, tokens.shape, tokens.maxshape, tokens.chunks) == (
            "<u2", (13,), (None,), (4,)
        )  # fmt: skip
        assert tokens.compression == compression
        assert tokens[:].tolist() == [*FLAT, 7]
        assert file["doc_ends"].dtype.str == "<u8"
        assert file["doc_ends"][:].tolist() == [*ENDS, 13]
        assert file["loss"][:].tolist() == [1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1]
        told = {k: v.decode() if isinstance(v, bytes) else int(v) for k, v in file.attrs.items()}
        assert {k: int(v) for k, v in tokens.attrs.items()} == {"token_count": 13, "complete": 1}
    # printf and sha256sum made the hashes.
    assert told == {
        "format": "corpus-token-hdf5",
        "format_version": 1,
        "vocab_size": 1000,
        "eos_id": 0,
        "tokenizer_sha256": TOKENIZER,
        "token_count": 13,
        "complete": 1,
        "sha256": "09595f3e1f723de9793496ee182406ffa3613e34e309bbaedbc40bf566972f1e",
        "doc_ends_sha256": "46307525183f0ba36a5afb00eb1c354201d1631b1ccc9e97d95f4745d4b6a3f3",
        "loss_sha256": "57a3dffdc8c1ea89d0fee8dff119252b2f3925eda7424f10ad38a14463f3655e",
    }


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_ids_take_two_bytes_up_to_65536_of_them(
    tmp_path: Path, vocab_size: int, dtype: str
) -> None:
    path = write(tmp_path / "a.h5", [[vocab_size - 1]], vocab_size=vocab_size, eos_id=None)
    opened = open_hdf5(path)
    assert opened.tokens.dtype.str == dtype
    assert opened.tokens[:].tolist() == [vocab_size - 1]
    assert (opened.eos_id, opened.vocab_size, opened.tokenizer) == (None, vocab_size, TOKENIZER)


@BOTH
def test_what_was_written_is_read(tmp_path: Path, compression: Packing) -> None:
    opened = open_hdf5(write(tmp_path / "a.h5", DOCUMENTS, compression=compression, loss=True))
    assert opened.format == "hdf5"
    assert np.asarray(opened.tokens).tolist() == FLAT
    assert opened.ends is not None
    assert opened.ends.tolist() == ENDS
    assert opened.document(3).tolist() == [9, 9, 9, 9, 9, 0]
    assert opened.loss is not None
    assert opened.loss[:6].tolist() == [1, 0, 1, 0, 0, 0]


def test_a_file_of_nothing_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", [])
    opened = open_hdf5(path)
    assert opened.ends is not None
    assert (len(opened.tokens), len(opened.ends), opened.tokens[:].tolist()) == (0, 0, [])
    assert validate(path) == hashlib.sha256(b"").hexdigest()


def test_documents_of_no_tokens_are_kept(tmp_path: Path) -> None:
    opened = open_hdf5(write(tmp_path / "a.h5", [[], [1], [], []]))
    assert opened.ends is not None
    assert opened.ends.tolist() == [0, 1, 1, 1]


@BOTH
@given(
    lengths=st.lists(st.integers(0, 9), max_size=12),
    cuts=st.sets(st.integers(0, 11)),
    chunk=st.integers(1, 7),
)
@settings(max_examples=8, deadline=None)
def test_the_bytes_do_not_depend_on_how_appends_were_cut(
    compression: Packing, lengths: list[int], cuts: set[int], chunk: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("cuts")
    documents = [[(i * 31 + j) % 1000 for j in range(n)] for i, n in enumerate(lengths)]
    options: dict[str, Any] = {"chunk_tokens": chunk, "compression": compression}
    whole = write(folder / "whole.h5", documents, **options).read_bytes()
    with writer(folder / "cut.h5", **options) as file:
        bounds = [0, *sorted(c for c in cuts if 0 < c < len(documents)), len(documents)]
        for start, stop in itertools.pairwise(bounds):
            given = documents[start:stop]
            flat = np.array([t for d in given for t in d], dtype=np.uint32)
            file.append(flat, np.cumsum([len(d) for d in given], dtype=np.int64))
    assert (folder / "cut.h5").read_bytes() == whole


def test_the_bytes_are_those_that_hdf5_1_14_and_2_0_wrote(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", DOCUMENTS, loss=True)
    told = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout
    assert (told[:64], path.stat().st_size) == (
        "16361caefdf54f6cb62c4f902874bf34b8035daee0ef22d58d793536431b3c47",
        16682,
    )


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    here = write(tmp_path / "a.h5", DOCUMENTS).read_bytes()
    code = (
        "import sys; from pathlib import Path;"
        " from corpus_platform_tests.formats.hdf5_processes import DOCUMENTS, write;"
        " write(Path(sys.argv[1]), DOCUMENTS)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "b.h5"], check=True)
    assert (tmp_path / "b.h5").read_bytes() == here


# Slices


@BOTH
@given(
    start=st.none() | st.integers(-15, 15),
    stop=st.none() | st.integers(-15, 15),
    step=st.sampled_from([None, 1, 2, 5, -1, -3]),
)
@settings(max_examples=30, deadline=None)
def test_slices_are_those_of_a_list(
    compression: Packing, start: int | None, stop: int | None, step: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    path = tmp_path_factory.getbasetemp() / f"slices-{compression}.h5"
    if not path.exists():
        write(path, DOCUMENTS, compression=compression, chunk_tokens=5)
    tokens = open_hdf5(path).tokens
    assert tokens[start:stop:step].tolist() == FLAT[start:stop:step]


@BOTH
def test_single_tokens_are_those_of_a_list(tmp_path: Path, compression: Packing) -> None:
    tokens = open_hdf5(write(tmp_path / "a.h5", DOCUMENTS, compression=compression)).tokens
    assert [int(tokens[i]) for i in range(-12, 12)] == FLAT + FLAT
    for outside in (12, -13):
        with pytest.raises(IndexError, match=f"token {outside} of 12"):
            tokens[outside]


def test_chunks_that_lie_apart_are_read_in_order(tmp_path: Path) -> None:
    # Chunks of documents and of HDF5's own index come to lie between those of the tokens.
    flat = np.arange(4000) % 1000
    path = tmp_path / "a.h5"
    with writer(path, chunk_tokens=16) as file:
        file.append(flat, np.arange(1, 4001))
    tokens = open_hdf5(path).tokens
    assert isinstance(tokens, MappedColumn)
    assert len(tokens._run_places) > 1
    assert (tokens[:] == flat).all()
    for start in range(0, 4000, 97):
        assert (tokens[start : start + 33] == flat[start : start + 33]).all()


def test_a_repacked_file_in_one_piece_is_an_array(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", DOCUMENTS)
    with h5py.File(path, "r+") as file:
        kept = {name: file["tokens"].attrs[name] for name in file["tokens"].attrs}
        del file["tokens"]
        file.create_dataset("tokens", data=np.array(FLAT, "<u2")).attrs.update(kept)
    tokens = open_hdf5(path).tokens
    assert isinstance(tokens, np.ndarray)
    assert tokens.tolist() == FLAT
    validate(path)


# What is behind token_count


def test_what_lies_behind_the_count_is_never_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", [[1, 2, 3]])
    with h5py.File(path, "r+") as file:
        file["tokens"].resize((8,))
        assert file["tokens"][:].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    opened = open_hdf5(path)
    assert opened.tokens[:].tolist() == [1, 2, 3]
    assert opened.tokens[2:100].tolist() == [3]


# What the writer refuses


def test_the_chunk_for_a_window_is_its_largest_multiple_that_fits() -> None:
    windows = [(1, 65_536), (2048, 65_536), (2049, 63_519), (65_536, 65_536), (65_537, 65_537)]
    assert [(w, chunk_for(w)) for w, _ in windows] == windows
    with pytest.raises(UsageError, match="a window of 0"):
        chunk_for(0)


def test_a_chunk_that_is_no_multiple_of_the_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"chunks of 65536 tokens are no multiple .* 63519 is one"):
        writer(tmp_path / "a.h5", chunk_tokens=65_536, window=2049)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eos_id": 1000}, "eos_id 1000 is outside the vocabulary 0..999"),
        ({"compression": "lzf"}, "compression 'lzf'"),
        ({"chunk_tokens": 0}, "chunks of 0 tokens"),
        ({"chunk_tokens": 1 << 31}, "chunks of 4294967296 bytes"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        writer(tmp_path / "a.h5", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_id_outside_the_vocabulary_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match="token id 1000 in document 1"):
        write(tmp_path / "a.h5", [[1], [1000]])
    assert list(tmp_path.iterdir()) == []


def test_without_h5py_the_pip_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.h5", DOCUMENTS)
    monkeypatch.setitem(sys.modules, "h5py", None)
    for act in (lambda: open_hdf5(path), lambda: writer(tmp_path / "b.h5")):
        with pytest.raises(MissingExtra, match=r"pip install 'corpus-platform\[hdf5\]'"):
            act()


# Files that are not whole


def unfinished(path: Path) -> Path:
    file = writer(path)
    file.append(np.array(FLAT), np.array(ENDS))
    file._drop()
    return path


def with_attribute(name: str, value: object) -> Any:
    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            file.attrs[name] = value

    return change


def resized(name: str, length: int) -> Any:
    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            file[name].resize((length,))

    return change


def without(name: str) -> Any:
    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file[name]

    return change


FAULTS = {
    "gone": (Path.unlink, "No such file"),
    "empty": (lambda path: path.write_bytes(b""), "cannot be read as HDF5"),
    "no HDF5": (lambda path: path.write_bytes(b"tokens" * 100), "cannot be read as HDF5"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-200]), "cannot be read as HDF5"),
    "cut in half": (lambda path: os.truncate(path, path.stat().st_size // 2), "as HDF5"),
    "unfinished": (unfinished, "is unfinished"),
    "of others": (with_attribute("format", "x"), "has no attribute format=corpus-token-hdf5"),
    "later version": (with_attribute("format_version", 2), "version 2, expected version 1"),
    "wider ids": (with_attribute("vocab_size", 70_000), "'tokens' is 1-dimensional uint16"),
    "count too high": (with_attribute("token_count", 13), "token_count is 13"),
    "tokens cut": (resized("tokens", 11), "token_count is 12, but 'tokens' holds 11"),
    "documents cut": (resized("doc_ends", 3), "document ends must rise .* the last is 6"),
    "documents added": (resized("doc_ends", 5), "document ends must rise"),
    "no documents": (without("doc_ends"), "has no dataset 'doc_ends'"),
    "no tokens": (without("tokens"), "has no dataset 'tokens'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_not_whole_is_refused_when_opened(tmp_path: Path, fault: str) -> None:
    path = write(tmp_path / "a.h5", DOCUMENTS)
    change, words = FAULTS[fault]
    change(path)
    with pytest.raises(StorageError, match=words) as refusal:
        open_hdf5(path)
    assert str(path) in str(refusal.value)


@BOTH
@pytest.mark.parametrize("name", ["tokens", "doc_ends", "loss"])
def test_validation_finds_a_changed_value(tmp_path: Path, compression: Packing, name: str) -> None:
    documents = [[1, 2], [3, 4]]
    path = write(tmp_path / "a.h5", documents, compression=compression, loss=True)
    assert validate(path) == hashlib.sha256(np.array([1, 2, 3, 4], "<u2").tobytes()).hexdigest()
    with h5py.File(path, "r+") as file:
        file[name][0] = 0
    with pytest.raises(StorageError, match=f"sha256 of {name} is .* expected .* damaged"):
        validate(path)


def test_a_packed_chunk_that_is_damaged_is_told_when_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", [list(range(900))], compression="gzip", chunk_tokens=900)
    with h5py.File(path, "r") as file:
        place = file["tokens"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[place : place + 50] = bytes(50)
    path.write_bytes(data)
    with pytest.raises(StorageError, match=f"{path}: cannot be read as HDF5"):
        open_hdf5(path).tokens[:]


# Processes


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_h5_03_workers_read_the_same_windows_as_the_parent(tmp_path: Path, method: str) -> None:
    files = []
    for compression in (None, "gzip"):
        path = tmp_path / f"{compression}.h5"
        with writer(path, compression=compression, chunk_tokens=60) as file:
            file.append(np.arange(1000), np.array([1000]))
        files.append(open_hdf5(path).tokens)
        assert files[-1][0:3].tolist() == [0, 1, 2]  # the parent has read one sample
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    shares = [range(50), range(50, 100)]
    workers = [context.Process(target=send_windows, args=(files, s, results)) for s in shares]
    for worker in workers:
        worker.start()
    sent = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    expected = Counter(tuple(range(10 * i, 10 * i + 10)) for i in range(100))
    for number, tokens in enumerate(files):
        assert Counter(windows_of(tokens, range(100))) == expected  # no workers
        assert Counter(window for one in sent for window in one[number]) == expected


@BOTH
def test_what_was_pickled_refuses_another_file_of_that_name(
    tmp_path: Path, compression: Packing
) -> None:
    path = write(tmp_path / "a.h5", DOCUMENTS, compression=compression)
    sent = pickle.dumps(open_hdf5(path).tokens)
    write(tmp_path / "b.h5", [*DOCUMENTS, [1]], compression=compression).replace(path)
    with pytest.raises(StorageError, match="was replaced since it was opened"):
        pickle.loads(sent)[:]


R = """
import sys, h5py
file = h5py.File(sys.argv[1], "r")
print(file["tokens"][:].tolist(), flush=True)
for line in sys.stdin:
    print(file["tokens"][:].tolist(), flush=True)
"""


def test_h5_01_new_content_gets_a_new_name_while_a_reader_keeps_the_old(tmp_path: Path) -> None:
    path = write(tmp_path / "out.h5", [[0, 1, 2]])
    before = path.read_bytes()
    command = [sys.executable, "-c", R, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as r:
        assert r.stdin is not None
        assert r.stdout is not None
        assert r.stdout.readline() == "[0, 1, 2]\n"
        new = [[10, 11, 12, 13], [14]]
        write(tmp_path / ".out-2.part", new).replace(tmp_path / "out-2.h5")
        assert open_hdf5(tmp_path / "out-2.h5").tokens[:].tolist() == [10, 11, 12, 13, 14]
        print(file=r.stdin, flush=True)
        assert r.stdout.readline() == "[0, 1, 2]\n"
        assert path.read_bytes() == before
        write(path, new)  # even of the same name it is another file
        print(file=r.stdin, flush=True)
        assert r.stdout.readline() == "[0, 1, 2]\n"
        r.stdin.close()


# A file in writing


WRITER = """
import sys
from pathlib import Path
import numpy as np
from corpus_platform_tests.formats.hdf5_processes import writer
file = writer(Path(sys.argv[1]), chunk_tokens=10)
print("made", flush=True)
for i, line in enumerate(sys.stdin):  # documents of 4 tokens
    file.append(np.arange(4 * i, 4 * i + 4), np.array([4]))
    print("written", flush=True)
file.close()
print("closed", flush=True)
"""


class Other:
    """Another process, which writes a document of 4 tokens when it is told to."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._says() == "made"

    def write(self) -> None:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        assert self._says() == "written"

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self._says() == "closed"
        assert self.process.wait() == 0

    def _says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    one = Other(tmp_path / "a.h5")
    yield one
    one.process.kill()
    with one.process:
        one.process.wait()


def test_a_file_in_writing_is_read_as_far_as_it_has_come(tmp_path: Path, other: Other) -> None:
    followed = follow_hdf5(tmp_path / "a.h5")
    seen = []
    for _ in range(9):
        other.write()
        followed.refresh()
        assert followed.tokens[:].tolist() == list(range(len(followed.tokens)))
        assert not followed.complete
        seen.append((len(followed.tokens), followed.ends.tolist()))
    # A chunk of 10 is written when the 11th token comes; a document shows when all of it is there.
    assert seen[1:] == [
        (0, []), (10, [4, 8]), (10, [4, 8]), (10, [4, 8]),
        (20, [4, 8, 12, 16, 20]), (20, [4, 8, 12, 16, 20]), (30, [4, 8, 12, 16, 20, 24, 28]),
        (30, [4, 8, 12, 16, 20, 24, 28]),
    ]  # fmt: skip
    other.end()
    followed.refresh()
    assert (len(followed.tokens), len(followed.ends), followed.complete) == (36, 9, True)
    followed.close()
    assert open_hdf5(tmp_path / "a.h5").tokens[:].tolist() == list(range(36))


BUSY = """
import sys
from pathlib import Path
import numpy as np
from corpus_platform_tests.formats.hdf5_processes import writer
with writer(Path(sys.argv[1]), chunk_tokens=500, compression=sys.argv[2] or None) as file:
    print("made", flush=True)
    for i in range(800):
        file.append(np.arange(i * 977, (i + 1) * 977) % 1000, np.array([100, 977]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["", "gzip"])
def test_a_reader_beside_a_busy_writer_sees_only_what_is_true(tmp_path: Path, packing: str) -> None:
    command = [sys.executable, "-c", BUSY, str(tmp_path / "a.h5"), packing]
    seen = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        followed = follow_hdf5(tmp_path / "a.h5")
        while not followed.complete:
            followed.refresh()
            count = len(followed.tokens)
            assert (followed.tokens[:] == np.arange(count) % 1000).all()
            ends = [e for i in range(count // 977 + 1) for e in (977 * i + 100, 977 * i + 977)]
            assert followed.ends.tolist() == [end for end in ends if end <= count]
            seen.add(count)
        followed.close()
    assert max(seen) == 800 * 977
    assert len(seen) > 5


def test_a_file_in_writing_is_not_taken_for_a_finished_one(tmp_path: Path, other: Other) -> None:
    other.write()
    with pytest.raises(StorageError, match="is still being written, or its writer was killed"):
        open_hdf5(tmp_path / "a.h5")


def test_what_a_killed_writer_leaves_is_never_taken_for_finished(
    tmp_path: Path, other: Other
) -> None:
    for _ in range(5):
        other.write()
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.wait()
    with pytest.raises(StorageError, match="its writer was killed"):
        open_hdf5(tmp_path / "a.h5")
    left = follow_hdf5(tmp_path / "a.h5")
    assert (left.tokens[:].tolist(), left.complete) == (list(range(10)), False)
    left.close()


# A full disk

FULL = """
import sys
from pathlib import Path
import numpy as np
from corpus_platform.errors import StorageError
from corpus_platform_tests.formats.hdf5_processes import writer
packing = sys.argv[2] or None
try:
    with writer(Path(sys.argv[1]), chunk_tokens=4096, compression=packing) as file:
        for i in range(40):
            tokens = np.random.default_rng(i).integers(0, 1000, 4000)
            file.append(tokens, np.arange(400, 4001, 400))
except StorageError as error:
    print(error)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk in memory")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def write_on(folder: Path, kilobytes: int, packing: str) -> subprocess.CompletedProcess[str]:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", folder], check=True)
    command = [sys.executable, "-c", FULL, str(folder / "a.h5"), packing]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("kilobytes", [16])
def test_a_full_disk_is_told_in_words_and_leaves_nothing(small_disk: Path, kilobytes: int) -> None:
    ended = write_on(small_disk, kilobytes, "")
    words = f"{small_disk / 'a.h5'}: cannot be written: No space left on device\n"
    # HDF5 by itself ends such a process with a segmentation fault.
    assert (ended.stdout, ended.stderr, ended.returncode) == (words, "", 0)
    assert list(small_disk.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["", "gzip"])
def test_wherever_the_disk_fills_up_it_is_told(small_disk: Path, packing: str) -> None:
    outcomes = Counter()
    for kilobytes in range(8, 400, 28):
        ended = write_on(small_disk, kilobytes, packing)
        assert (ended.returncode, ended.stderr) == (0, "")
        left = [p.name for p in small_disk.iterdir()]
        outcomes[ended.stdout.rpartition(": ")[2], *left] += 1
        for path in small_disk.iterdir():
            validate(path)
            path.unlink()
    assert set(outcomes) == {("No space left on device\n",), ("", "a.h5")}


def _without_a_chunk(whole: Path, path: Path, written: slice) -> Path:
    """Copy a file of 16 tokens in chunks of 4 with room for 24, and write only some of them."""
    with h5py.File(whole, "r") as old, h5py.File(path, "w") as new:
        tokens = new.create_dataset("tokens", shape=(24,), maxshape=(None,), chunks=(4,), dtype="<u2")  # fmt: skip
        tokens[:4], tokens[written] = old["tokens"][:4], 7
        new.create_dataset("doc_ends", data=old["doc_ends"][:])
        for made, given in ((new, old), (tokens, old["tokens"])):
            for name, value in given.attrs.items():
                made.attrs[name] = value
    return path


def test_a_chunk_that_was_never_written_is_refused_and_not_skipped(tmp_path: Path) -> None:
    """As many chunks as are needed are there, but the second is not: the third is no second."""
    whole = write(tmp_path / "whole.h5", [[5, 6, 7, 8] * 3, [1, 2, 3, 4]])
    damaged = _without_a_chunk(whole, tmp_path / "damaged.h5", slice(8, 24))
    with pytest.raises(StorageError, match=r"damaged\.h5: 'tokens' lacks chunks of its 16 numbers"):
        open_hdf5(damaged)
    more = _without_a_chunk(whole, tmp_path / "more.h5", slice(4, 24))
    assert open_hdf5(more).tokens[:].tolist() == [5, 6, 7, 8, *[7] * 12]
