"""Batches as tensors, made by the worker processes of a torch DataLoader.

Needs torch. Each worker makes every n-th batch of its rank, and the DataLoader puts them together in
their order, so that batches and states are the same with any number of workers.
"""

from collections.abc import Iterator, Mapping
from typing import Any  # tensors: torch is optional, its objects have no type here

from corpus_platform.errors import MissingExtra, UsageError
from corpus_platform.loader.batches import Batch, Batches

try:
    import torch  # ty: ignore[import-not-found]
    from torch.utils.data import (  # ty: ignore[import-not-found]
        DataLoader,
        IterableDataset,
        get_worker_info,
    )
except ImportError as _error:
    raise MissingExtra("batches as tensors need torch: pip install torch") from _error

__all__ = ["TorchBatches", "TorchDataset", "tensors", "torch_dataset", "torch_loader"]


def tensors(batch: Batch) -> dict[str, Any]:
    """Return a batch as a dict: x, y, loss, places; cu_seqlens, document, offset where it has them.

    `state` is what goes on behind it. Tensors share the memory of the arrays.
    """
    arrays = {n: getattr(batch, n) for n in ("x", "y", "loss", "places")}
    more = {n: getattr(batch, n) for n in ("cu_seqlens", "document", "offset")}
    arrays |= {n: values for n, values in more.items() if values is not None}
    return {**{n: torch.from_numpy(a) for n, a in arrays.items()}, "state": batch.state}


class TorchDataset(IterableDataset):
    """The batches that are left of an epoch, for a DataLoader with batch_size=None."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield what the worker that this process is has to make, all of it in the main process."""
        worker = get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        return map(tensors, self.batches.of_worker(number, count))

    def follow(self, batch: Mapping[str, Any]) -> None:
        """Stand behind a batch that training has had; without it the same epoch comes again."""
        self.batches.follow(batch["state"])

    def state(self) -> dict[str, object]:
        """Return where training stands: behind the last batch followed, not behind those prefetched."""
        return self.batches.state()

    def load_state(self, state: Mapping[str, object]) -> None:
        """Stand where another run stood."""
        self.batches.load_state(state)


class TorchBatches:
    """A DataLoader that knows which batches training has had, whatever its workers have prefetched.

    Each iteration gives what is left of an epoch, and the next one the next epoch.
    """

    def __init__(self, batches: Batches, **options: Any) -> None:
        own = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "collate_fn"}
        if taken := own & set(options):
            raise UsageError(f"{', '.join(sorted(taken))}: the batches say that themselves")
        if options.get("persistent_workers"):
            raise UsageError(
                "persistent_workers: workers live for an epoch, since they are told where it begins"
            )
        self.dataset = TorchDataset(batches)
        self._options = options

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not len(self):
            self.dataset.batches.end_epoch()
            return
        for batch in DataLoader(self.dataset, batch_size=None, **self._options):
            self.dataset.follow(batch)
            yield batch

    def state(self) -> dict[str, object]:
        """Return where training stands: behind the batch that was given last."""
        return self.dataset.state()

    def load_state(self, state: Mapping[str, object]) -> None:
        """Stand where another run stood."""
        self.dataset.load_state(state)


def torch_dataset(batches: Batches) -> TorchDataset:
    """Return batches as a dataset, for a DataLoader of one's own with batch_size=None."""
    return TorchDataset(batches)


def torch_loader(batches: Batches, **options: Any) -> TorchBatches:
    """Return batches by a DataLoader with options such as num_workers, prefetch_factor, pin_memory."""
    return TorchBatches(batches, **options)
