"""tokenizer: trains the tokenizer once on a bounded sample of kept training documents, then keeps it.

A refresh never trains again: what it was trained on stands in its manifest and is no declared
input. It is due only when the `tokenizer:` settings change. A copy is kept beside the artifacts, so
that a lost or damaged tokenizer comes back as it was instead of being trained on today's corpus.
Which training of some settings counts, of those that `retraining` made, says a small file there.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import Uncleared
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.clusters_files import CLUSTER_FILE
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.project import Making, Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tokenizer_sample import (
    choose_documents,
    every_so_many_kept,
    sample_texts,
)
from corpus_platform.storage.files import copy_hashed, publish_bytes
from corpus_platform.storage.manifest import Json, generation_key
from corpus_platform.storage.pointer import move_pointer, read_pointer
from corpus_platform.tokenization.acceptance import Acceptance, examine
from corpus_platform.tokenization.training import tokenizer_bytes, train

__all__ = [
    "REPORT_FILE",
    "STAGE",
    "TOKENIZER_FILE",
    "count_training",
    "frozen_folder",
    "of_training",
    "train_tokenizer",
    "training_in_force",
]

ASSET = "tokenizer"
TOKENIZER_FILE, REPORT_FILE = "tokenizer.json", "report.json"
RECORD_FILE = "record.json"  # of the kept copy
ACCEPTANCE_DOCUMENTS = 200


def train_tokenizer(project: Project, *, progress: Progress = quiet) -> Report:
    """Train the tokenizer that the settings ask for; do nothing when it is there."""
    with project.making(ASSET, None) as making:
        if (report := making.current()) is not None:
            _freeze(project, report)
            return report
        if (report := _restore(project, making)) is not None:
            return report
        settings = project.settings.tokenizer
        sample = choose_documents(project)
        if not len(sample):
            reason = (
                "no document is kept for training, so there is nothing to train a tokenizer on:"
                " bring more, or keep more of them; split.validation 0 holds none out"
            )
            raise Uncleared("dedup_clusters", None, gate="not_empty", reason=reason)
        texts = sample_texts(project, sample, progress)
        trained = train(
            texts,
            vocab_size=settings.vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            single_digits=settings.digits == "singly",
        )
        data = tokenizer_bytes(trained)
        with making.draft() as draft:
            (draft / TOKENIZER_FILE).write_bytes(data)
            acceptance = _examine(project, data)
            (draft / REPORT_FILE).write_bytes(_report(acceptance))
            ledger = {
                "vocab_size": acceptance.vocab_size,
                "vocab_size_asked": settings.vocab_size,
                "sample_documents": len(sample),
                "sample_bytes": sample.bytes,
            }
            measured = {"trained_on": latest_clusters(project).content}
            products = [Product(TOKENIZER_FILE), Product(REPORT_FILE)]
            report = making.publish(draft, products, ledger=ledger, measured=measured)
        _freeze(project, report)
    return report


def frozen_folder(project: Project, key: str) -> Path:
    """Return the folder of the kept copy of a tokenizer of this key."""
    return project.store.root / "frozen" / key[:16]


def _freeze(project: Project, report: Report) -> None:
    """Keep a copy of a tokenizer artifact; its record comes last."""
    folder = frozen_folder(project, report.artifact.entry.key)
    if (folder / RECORD_FILE).exists():
        return
    manifest = report.artifact.manifest
    for output in manifest.outputs:
        publish_bytes(folder / output.name, report.artifact.path(output.name).read_bytes())
    record = {
        "files": [[o.name, o.sha256] for o in manifest.outputs],
        "ledger": manifest.ledger,
        "trained_on": manifest.measured["trained_on"],
    }
    publish_bytes(folder / RECORD_FILE, (json.dumps(record, sort_keys=True) + "\n").encode())


def _restore(project: Project, making: Making) -> Report | None:
    """Publish the kept copy of the tokenizer again; return None where there never was one.

    Raises Uncleared (gate `frozen`) when the copy is damaged as well.
    """
    folder = frozen_folder(project, making.key)
    try:
        record = json.loads((folder / RECORD_FILE).read_bytes())
    except FileNotFoundError:
        return None
    with making.draft() as draft:
        for name, sha256 in record["files"]:
            kept = folder / name
            if not kept.exists() or copy_hashed(kept, draft / name)[1] != sha256:
                reason = (
                    f"it is lost, and its copy {kept} is damaged too; training again would give"
                    f" another one: restore that file, or remove {folder} to train a new tokenizer"
                )
                raise Uncleared(ASSET, None, gate="frozen", reason=reason)
        products = [Product(name) for name, _ in record["files"]]
        measured = {"trained_on": record["trained_on"]}
        return making.publish(draft, products, ledger=record["ledger"], measured=measured)


def _examine(project: Project, data: bytes) -> Acceptance:
    """Examine a tokenizer on hostile strings and real documents."""
    texts, languages = [], []
    clusters = latest_clusters(project).path(CLUSTER_FILE)
    for shard, wanted in every_so_many_kept(clusters, at_least=ACCEPTANCE_DOCUMENTS):
        cleaned = project.artifact("cleaned_documents", shard)
        if cleaned is None:
            continue  # other documents are wanted by now; the tokenizer stays what it is
        rows = pl.scan_parquet(cleaned.path(DOCUMENTS)).filter(pl.col("row").is_in(wanted))
        found = rows.select("text", "lang").collect()
        texts += found["text"].to_list()
        languages += [lang or "und" for lang in found["lang"].to_list()]
    return examine(data, texts, languages=languages, special_tokens=list(SPECIAL_TOKENS))


def _report(acceptance: Acceptance) -> bytes:
    """Return the acceptance as a JSON file for people: counts, and ratios per language."""
    fertility = {
        language: {
            "documents": f.documents,
            "chars_per_token": round(f.chars_per_token, 4),
            "bytes_per_token": round(f.bytes_per_token, 4),
        }
        for language, f in acceptance.fertility.items()
    }
    whole = {**asdict(acceptance), "fertility": fertility}
    return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode()


def _audit(project: Project, _: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    found = _examine(project, (folder / TOKENIZER_FILE).read_bytes())
    return {
        "vocab_size": found.vocab_size,
        "vocab_size_asked": ledger["vocab_size_asked"],
        "sample_documents": ledger["sample_documents"],
        "sample_bytes": ledger["sample_bytes"],
        "sample_bytes_asked": project.settings.tokenizer.sample_bytes,
        "texts": found.texts,
        "round_trip_failures": found.round_trip_failures + len(found.hostile_failures),
        "special_tokens_missing": len(found.missing_special_tokens),
        "bytes_missing": found.missing_bytes,
        "bad_ids": found.duplicate_ids + found.missing_ids,
        "literals_encoded": len(found.specials_made_of_text) + found.texts_with_special_ids,
        **{f"chars_per_token/{n}": f.chars_per_token for n, f in found.fertility.items()},
    }


def training_in_force(project: Project) -> int:
    """Return the number of the training that counts for the settings of today; the first is 0."""
    number = read_pointer(_training_path(project)).get("training")
    return int(number) if isinstance(number, str) and number.isdecimal() else 0


def count_training(project: Project, number: int) -> None:
    """Have another training count from now on."""
    move_pointer(_training_path(project), {"training": str(number)})


def _training_path(project: Project) -> Path:
    key = generation_key(ASSET, None, STAGE.version, _asked(project), {})
    return project.store.root / "frozen" / f"{key[:16]}.json"


def _asked(project: Project) -> Json:
    settings = project.settings.tokenizer.model_dump()
    if settings["digits"] == "together":  # as all tokenizers before there was a choice
        del settings["digits"]
    return {**settings, "special_tokens": list(SPECIAL_TOKENS)}


def of_training(number: int) -> Stage:
    """Return the stage as it makes the tokenizer of one training, whichever counts."""
    return replace(STAGE, settings=lambda project, _: _settings_of(project, number))


def _settings_of(project: Project, number: int) -> Json:
    return {**_asked(project), **({"training": number} if number else {})}


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=False,
    settings=lambda project, _: _settings_of(project, training_in_force(project)),
    common=_asked,  # a code version says what the settings say, in processes that go on for weeks
    inputs=lambda project, _: {},
    audit=_audit,
)
