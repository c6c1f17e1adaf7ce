"""What the header of a token file says, field by field, as it stands there; for people to read."""

import json
from pathlib import Path

import numpy as np

from corpus_platform.formats.token_file import TokenFile

__all__ = ["header_fields"]

_MEGATRON = np.dtype(
    [
        ("magic", "V9"),
        ("version", "<u8"),
        ("dtype_code", "u1"),
        ("sequences", "<u8"),
        ("document_indices", "<u8"),
    ]
)


def header_fields(file: TokenFile) -> dict[str, object]:
    """Return the fields of a file that was opened; nothing of a format without a header."""
    if file.format == "native":
        fields = json.loads(file.path.read_bytes())
        return {name: value for name, value in fields.items() if not isinstance(value, dict)}
    if file.format == "llmc":
        values = np.fromfile(file.path, "<i4", count=3).tolist()
        return dict(zip(("magic", "version", "tokens"), values, strict=True))
    if file.format == "megatron":
        raw = np.fromfile(Path(f"{file.path}.idx"), _MEGATRON, count=1)[0]
        return {name: int(raw[name]) for name in _MEGATRON.names or () if name != "magic"}
    if file.format == "datatrove":
        beside = Path(f"{file.path}.metadata")
        lines = beside.read_text(encoding="utf-8").split("\n") if beside.exists() else []
        return {"metadata": lines} if lines else {}
    return _attributes(file.path) if file.format == "hdf5" else {}


def _attributes(path: Path) -> dict[str, object]:
    from corpus_platform.formats.hdf5_tokens import load_h5py, reading  # h5py is an extra

    with reading(path), load_h5py().File(path, "r") as file:
        found = {name: _plain(value) for name, value in file.attrs.items()}
        chunks = file["tokens"].chunks
        return found | {"chunk_tokens": chunks[0] if chunks else None}


def _plain(value: object) -> object:
    plain = value.item() if isinstance(value, np.generic) else value
    return plain.decode() if isinstance(plain, bytes) else plain
