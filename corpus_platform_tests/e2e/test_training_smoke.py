"""A tiny model is trained on a release, as any training program would do it: with the loader alone.

The model sees one token and tells the next: an embedding, a softmax, plain SGD in numpy. That is
enough for the loss to start at ln(vocabulary) and to fall, and for a wrong batch to show.
"""

import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from corpus_platform.loader.batches import Batch, Batches
from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release import Release
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.shuffled_bins import current_path

pytestmark = pytest.mark.slow
WINDOW, BATCH, STEPS, WIDTH = 64, 8, 60, 32


class Weights(NamedTuple):
    """An embedding, and what makes logits of it."""

    embedding: np.ndarray
    out: np.ndarray


class Step(NamedTuple):
    """What was read and what came of it."""

    places: list[int]
    checksum: int
    loss: float


def begun(vocabulary: int) -> Weights:
    random = np.random.default_rng(0)
    return Weights(*(random.normal(0, 0.02, (vocabulary, WIDTH)) for _ in range(2)))


def softmax(weights: Weights, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of all tokens behind each one, and the logarithms of the labels'."""
    logits = weights.embedding[batch.x.ravel()] @ weights.out.T
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    return chances, np.log(chances[np.arange(len(chances)), batch.y.ravel()])


def loss_of(weights: Weights, batch: Batch) -> float:
    """Return the mean loss of the labels that count."""
    return float(-softmax(weights, batch)[1][batch.loss.ravel()].mean())


def train(weights: Weights, batch: Batch, rate: float = 8.0) -> float:
    """Change the weights by one step down; return the loss before it."""
    chances, right = softmax(weights, batch)
    counts = batch.loss.ravel()
    chances[np.arange(len(chances)), batch.y.ravel()] -= 1
    slope = chances * (counts / counts.sum())[:, None]
    seen = weights.embedding[batch.x.ravel()]
    back = slope @ weights.out
    weights.out[:] -= rate * (slope.T @ seen)
    np.subtract.at(weights.embedding, batch.x.ravel(), rate * back)
    return float(-right[counts].mean())


def run(weights: Weights, batches: Batches, steps: int) -> list[Step]:
    """Train over as many epochs as the steps take."""
    found = list[Step]()
    while len(found) < steps:
        for batch in itertools.islice(batches, steps - len(found)):
            checksum = int((batch.x * 31 + batch.y).sum())
            found.append(Step(batch.places.tolist(), checksum, train(weights, batch)))
    return found


@pytest.fixture
def release(finished: Path) -> Release:
    """The release in force, all bytes checked."""
    pointer = current_path(open_project(load_settings(finished)))
    tokenizer = pointer.parent / json.loads(pointer.read_bytes())["id"] / "tokenizer.json"
    return open_release(pointer, verify="sha256", expect_tokenizer=tokenizer)


def windows(release: Release, **more: Any) -> Batches:
    return release.windows(WINDOW, BATCH, seed=7, jitter=True, **more)


def shortly_before_the_end(release: Release) -> Batches:
    """Return batches of which 10 are left in the first epoch."""
    batches = windows(release)
    batches.load_state({**batches.state(), "position": (len(batches) - 10) * BATCH})
    return batches


def test_the_loss_begins_at_that_of_guessing_and_falls_on_new_text_too(release: Release) -> None:
    weights, val = begun(release.vocab_size), open_release(release.folder, split="val")
    guessing = math.log(release.vocab_size)

    def validation() -> float:
        batches = [*val.sequential(WINDOW, 64)]
        assert batches
        sizes = [b.loss.sum() for b in batches]
        return float(np.average([loss_of(weights, b) for b in batches], weights=sizes))

    before = validation()
    losses = [step.loss for step in run(weights, windows(release), 300)]
    assert losses[0] == pytest.approx(guessing, rel=0.02)
    assert before == pytest.approx(guessing, rel=0.02)
    assert np.mean(losses[-20:]) < 0.8 * guessing
    assert validation() < 0.85 * guessing


def test_a_run_that_is_resumed_repeats_the_batches_and_losses_of_one_that_was_not(
    release: Release, tmp_path: Path
) -> None:
    """Stopped in the second epoch, saved to files, and gone on with in all new objects."""
    whole = run(begun(release.vocab_size), shortly_before_the_end(release), STEPS)

    weights, batches = begun(release.vocab_size), shortly_before_the_end(release)
    first = run(weights, batches, STEPS // 2)
    np.savez(tmp_path / "weights.npz", *weights)
    (tmp_path / "state.json").write_text(json.dumps(batches.state()))

    saved = np.load(tmp_path / "weights.npz")
    state = json.loads((tmp_path / "state.json").read_text())
    assert (state["epoch"], state["position"]) == (1, (STEPS // 2 - 10) * BATCH)
    batches = windows(open_release(release.folder))
    batches.load_state(state)
    assert first + run(Weights(*saved.values()), batches, STEPS // 2) == whole


def test_two_ranks_train_on_the_windows_of_one(release: Release) -> None:
    alone = [place for batch in windows(release) for place in batch.places.tolist()]
    ranks = [windows(release).shard(rank, 2) for rank in range(2)]
    together = [place for rank in ranks for batch in rank for place in batch.places.tolist()]
    assert sorted(together) == sorted(alone)
    assert len(set(alone)) == len(alone) > 100


def test_labels_behind_documents_can_be_left_out(release: Release) -> None:
    """As many as documents begin behind another one, over all windows side by side."""
    batches = release.sequential(WINDOW, 64, mask_boundary="begin")
    masked = sum(int((~batch.loss).sum()) for batch in batches)
    covered = (len(release) - 1) // WINDOW * WINDOW
    assert masked == len(release.stream.borders(0, covered + 1))
    assert 0 < masked < release.documents
