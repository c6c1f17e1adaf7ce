"""The batches of an order of windows or rows, shared out to ranks and workers, and gone on with.

What comes when depends on seed, epoch and position alone: a position counts windows or rows of an
epoch over all ranks, so a run may go on with another number of ranks, workers or batch size and
neither repeats nor loses one.
"""

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np

from corpus_platform.errors import UsageError
from corpus_platform.loader.orders import Order

__all__ = ["Batch", "Batches", "Pin", "Read"]

_log = logging.getLogger(__name__)
_BLOCK = (
    8192  # places of an order that are found at a time: of 1,024 each one costs four times as much
)
State = dict[str, object]


class Pin(NamedTuple):
    """What a state belongs to: a release by id and content, and a split of it."""

    release: str
    content: str
    split: str


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of T tokens: arrays of B lines, where nothing else is said.

    `y` is what follows each token of `x`. `loss` says which labels count. `places` are the tokens of
    the stream where windows begin, or the numbers of rows. `cu_seqlens` (int32) are the borders of
    documents in all lines back to back: 0, each border, B x T; every line begins a new piece. Rows
    have a `document` for each piece, -1 of padding, and `offset`, where the piece begins in it.
    """

    x: np.ndarray
    y: np.ndarray
    loss: np.ndarray
    places: np.ndarray
    cu_seqlens: np.ndarray | None = None
    document: np.ndarray | None = None
    offset: np.ndarray | None = None
    state: State = dataclasses.field(default_factory=dict)  # that goes on behind this batch

    @property
    def tokens(self) -> np.ndarray:
        """The same as `x`."""
        return self.x

    @property
    def max_seqlen(self) -> int:
        """The tokens of the longest piece."""
        return int(np.diff(self._borders()).max(initial=0))

    def position_ids(self, *, continued: bool = False) -> np.ndarray:
        """Return the position of each token in its piece; of rows, where `continued`, in its document."""
        borders = self._borders().astype(np.int64)
        begun = borders[:-1]
        if continued:
            if self.offset is None:
                raise UsageError("continued positions: windows do not know where documents begin")
            begun = begun - self.offset
        positions = np.arange(self.x.size) - np.repeat(begun, np.diff(borders))
        return positions.reshape(self.x.shape)

    def labels(self, ignore: int = -100) -> np.ndarray:
        """Return `y` with `ignore` where the loss does not count."""
        return np.where(self.loss, self.y, np.array(ignore, np.result_type(self.y, np.int32)))

    def _borders(self) -> np.ndarray:
        if self.cu_seqlens is None:
            raise UsageError("this batch has no borders of documents: ask for borders=True")
        return self.cu_seqlens


Read = Callable[[np.ndarray], Batch]


class Batches:
    """Iterate over what is left of an epoch; the next time, over the next epoch.

    `epoch` and `position` say where it stands: behind the batch that was given last.
    """

    def __init__(
        self, order: Order, read: Read, pin: Pin, *, batch: int, seed: int, drop_last: bool = False
    ) -> None:
        if batch < 1:
            raise UsageError(f"batch {batch}: at least 1 is wanted")
        if not 0 <= seed < 1 << 63:
            raise UsageError(f"seed {seed}: from 0 to 2^63 - 1 is wanted")
        self.order, self.pin, self.batch, self.seed = order, pin, batch, seed
        self.drop_last, self.rank, self.world = drop_last, 0, 1
        self.epoch = self.position = self.dropped = 0
        self._read = read

    def shard(self, rank: int, world: int) -> Self:
        """Return the batches of one of `world` ranks: positions rank, rank + world, …

        All ranks take the same number of steps. In the last one of an epoch some may get a smaller
        batch than others, or one of 0 lines, unless `drop_last`.
        """
        if not 0 <= rank < world:
            raise UsageError(f"rank {rank} of {world}: ranks are 0 to {world - 1}")
        mine = copy.copy(self)
        mine.rank, mine.world = rank, world
        return mine

    def count(self, epoch: int | None = None) -> int:
        """Return the windows or rows of an epoch, over all ranks."""
        return self.order.count(self.seed, self.epoch if epoch is None else epoch)

    def __len__(self) -> int:
        """Return the batches that are left of this epoch."""
        left, taken = max(0, self.count() - self.position), self.batch * self.world
        return left // taken if self.drop_last else -(-left // taken)

    def __iter__(self) -> Iterator[Batch]:
        if not len(self):
            self.end_epoch()
            return
        for batch in self.of_worker(0, 1):
            self.follow(batch.state)
            yield batch

    def of_worker(self, worker: int, workers: int) -> Iterator[Batch]:
        """Yield the batches of this epoch that one of some workers of the rank makes, in order.

        Leaves `epoch` and `position` as they are: whoever puts the batches of all workers together
        calls `follow` with the state of each.
        """
        # What is left is settled now, not when the first batch is asked for.
        return self._walk(self.epoch, self.position, len(self), worker, workers)

    def _walk(
        self, epoch: int, begin: int, steps: int, worker: int, workers: int
    ) -> Iterator[Batch]:
        count, stride = self.count(epoch), self.batch * self.world
        block = max(1, _BLOCK // self.batch)
        for first in range(0, steps, block):
            after = min(steps, first + block)
            places = self._places(epoch, begin + first * stride, begin + after * stride, count)
            for step in range(first + (worker - first) % workers, after, workers):
                at = (step - first) * self.batch
                made = self._read(places[at : at + self.batch])
                last = step + 1 == steps
                behind = (epoch + 1, 0) if last else (epoch, begin + (step + 1) * stride)
                yield dataclasses.replace(made, state=self._state(*behind))

    def read(self, epoch: int, position: int) -> Batch:
        """Return the batch of this rank that begins at a position of an epoch, whatever came before."""
        stop = position + self.batch * self.world
        return self._read(self._places(epoch, position, stop, self.count(epoch)))

    def _places(self, epoch: int, start: int, stop: int, count: int) -> np.ndarray:
        """Return where this rank's part of some positions lies."""
        mine = np.arange(start + self.rank, min(stop, count), self.world)
        return self.order.places(self.seed, epoch, mine)

    def follow(self, state: Mapping[str, object]) -> None:
        """Stand behind a batch, given its state."""
        if state["epoch"] == self.epoch:
            self.position = _number(state, "position")
            return
        self.position = min(self.count(), self.position + self.batch * self.world)
        self.end_epoch()

    def end_epoch(self) -> None:
        """Go to the next epoch; what was left of this one is counted in `dropped`."""
        left = self.count() - self.position
        if left:
            _log.info("epoch %d: %d of %d left out, no whole batch", self.epoch, left, self.count())
        self.dropped += left
        self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> State:
        """Return what `load_state` goes on with: plain numbers and texts, fit for JSON."""
        return self._state(self.epoch, self.position)

    def _state(self, epoch: int, position: int) -> State:
        numbers: State = {"seed": self.seed, "epoch": epoch, "position": position}
        return {**numbers, **self.pin._asdict(), "order": self.order.settings()}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Stand where another run stood; batch, ranks and workers may be others than it had.

        Raises UsageError where that read another release, another split or in another order.
        """
        mine = self.state()
        if set(state) != set(mine):
            raise UsageError(f"state has the keys {sorted(state)}, expected {sorted(mine)}")
        for name in (*Pin._fields, "order"):
            if state[name] != mine[name]:
                raise UsageError(_other(name, state, mine))
        seed, epoch, position = (_number(state, name) for name in ("seed", "epoch", "position"))
        count = self.order.count(seed, epoch)
        if position > count:
            raise UsageError(f"state has position {position}, epoch {epoch} has {count}")
        self.seed, self.epoch, self.position = seed, epoch, position


def _number(state: Mapping[str, object], name: str) -> int:
    value = state[name]
    if type(value) is not int or value < 0:
        raise UsageError(f"state has {name} {value!r}: a number from 0 on is wanted")
    return value


def _other(name: str, state: Mapping[str, object], mine: Mapping[str, object]) -> str:
    said = f"state was made with {name} {state[name]!r}, this is {mine[name]!r}"
    if name in ("release", "content"):
        return f"{said}; open release {state['release']} by its own folder to go on with it"
    return f"{said}; only the same goes on with it"
