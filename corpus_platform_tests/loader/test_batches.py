"""Batches over ranks, workers and epochs: each window once, and a resumed run goes on exactly."""

import itertools
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import UsageError
from corpus_platform.loader.batches import Batch, Batches, Pin
from corpus_platform.loader.orders import Windows
from corpus_platform_tests.loader.made import counted, places, text

few = settings(deadline=None, max_examples=40)
small = st.integers(1, 9)


def by_workers(batches: Batches, workers: int) -> list[Batch]:
    """Put the batches of workers together as a DataLoader does, and follow each."""
    queues = [batches.of_worker(worker, workers) for worker in range(workers)]
    found = []
    for queue in itertools.cycle(queues):
        batch = next(queue, None)
        if batch is None:
            return found
        batches.follow(batch.state)
        found.append(batch)
    raise AssertionError


@few
@given(st.integers(0, 300), small, small, small, st.integers(0, 3))
def test_every_window_comes_once_over_all_ranks(
    tokens: int, length: int, batch: int, world: int, epoch: int
) -> None:
    whole = counted(tokens).windows(length, batch, seed=3)
    whole.epoch = epoch
    ranks = [list(whole.shard(rank, world)) for rank in range(world)]
    found = [place for rank in ranks for place in places(rank)]
    assert sorted(found) == list(range(0, tokens - length, length))
    assert len({len(rank) for rank in ranks}) == 1, "ranks step together"
    assert all(len(one.x) <= batch for rank in ranks for one in rank)


@few
@given(st.integers(0, 300), small, small, st.integers(1, 5), st.data())
def test_a_run_that_is_resumed_gives_the_batches_of_one_that_was_not(
    tokens: int, length: int, batch: int, world: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, world - 1))
    made = counted(tokens).windows(length, batch, seed=1, jitter=data.draw(st.booleans()))
    undisturbed = made.shard(rank, world)
    every = [b.places.tolist() for _ in range(3) for b in undisturbed]
    first = made.shard(rank, world)
    steps = data.draw(st.integers(0, len(every)))
    found = []
    while len(found) < steps:
        found += [b.places.tolist() for b in itertools.islice(first, steps - len(found))]
    second = counted(tokens).windows(
        length, batch, seed=9, jitter=made.order.settings()["jitter"] is True
    )
    second = second.shard(rank, world)
    second.load_state(text(first.state()))
    while second.epoch < undisturbed.epoch:
        found += [b.places.tolist() for b in second]
    assert found == every
    assert second.state() == undisturbed.state()


@few
@given(st.integers(0, 300), small, st.integers(1, 6), small, st.integers(1, 6), st.integers(0, 9))
def test_another_number_of_ranks_on_resume_repeats_and_loses_nothing(
    tokens: int, batch: int, world: int, then_batch: int, then_world: int, steps: int
) -> None:
    made = counted(tokens).windows(3, batch, seed=1)
    before = [made.shard(rank, world) for rank in range(world)]
    found = [place for one in before for place in places(itertools.islice(one, steps))]
    states = [one.state() for one in before]
    assert states == [states[0]] * world
    if before[0].epoch == 0:
        for rank in range(then_world):
            after = counted(tokens).windows(3, then_batch, seed=1).shard(rank, then_world)
            after.load_state(text(states[0]))
            found += places(after)
    assert sorted(found) == list(range(0, tokens - 3, 3))


@few
@given(st.integers(0, 200), small, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_workers_give_the_batches_of_one_process_in_order(
    tokens: int, batch: int, world: int, workers: int, drop_last: bool
) -> None:
    made = counted(tokens).windows(2, batch, seed=5, drop_last=drop_last).shard(0, world)
    alone = made.shard(0, world)
    expected = [(b.places.tolist(), b.state) for b in alone]
    assert [(b.places.tolist(), b.state) for b in by_workers(made, workers)] == expected


@pytest.mark.parametrize("shuffled", [True, False])
def test_ld_01_a_state_is_applied_once(shuffled: bool) -> None:
    """100 samples, batch 4, 2 workers: 21 batches, a restart, the other 16 samples, all 100 again."""

    def begun() -> Batches:
        return counted(101).windows(1, 4, seed=1) if shuffled else counted(101).sequential(1, 4)

    undisturbed = begun()
    first_epoch, second_epoch = places(undisturbed), places(undisturbed)
    batches = begun()
    seen = by_workers(begun(), 2)[:21]
    for batch in seen:
        batches.follow(batch.state)
    saved = text(batches.state())
    assert (saved["epoch"], saved["position"]) == (0, 84)

    after = begun()
    after.load_state(saved)
    rest = places(by_workers(after, 2))
    assert len(rest) == 16
    assert places(seen) + rest == first_epoch
    assert sorted(first_epoch) == list(range(100))
    again = by_workers(after, 2)
    assert len(again) == 25
    assert places(again) == second_epoch
    assert sorted(second_epoch) == list(range(100))
    assert (first_epoch != second_epoch) == shuffled


def test_ld_04_ranks_and_workers_share_what_there_is() -> None:
    """8 windows on 4 ranks, each once; 3 windows on 4 workers, one of which has nothing to do."""
    eight = counted(9).windows(1, 1, seed=5)
    assert sorted(p for rank in range(4) for p in places(eight.shard(rank, 4))) == list(range(8))
    three = counted(4).windows(1, 1, seed=5)
    found = [places(three.of_worker(worker, 4)) for worker in range(4)]
    assert sorted(itertools.chain(*found)) == [0, 1, 2]
    assert [len(worker) for worker in found] == [1, 1, 1, 0]


def test_sh_06_the_last_windows_of_an_epoch_are_not_dropped() -> None:
    """100 tokens, B=2, T=8, 4 ranks: 96 tokens are inputs; of whole batches alone 64 would be."""
    kept = counted(100).sequential(8, 2)
    assert sum(b.x.size for rank in range(4) for b in kept.shard(rank, 4)) == 96
    dropping = [counted(100).sequential(8, 2, drop_last=True).shard(rank, 4) for rank in range(4)]
    assert sum(b.x.size for rank in dropping for b in rank) == 64
    assert [rank.dropped for rank in dropping] == [4, 4, 4, 4]


def test_what_drop_last_leaves_out_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    batches = counted(11).sequential(1, 4, drop_last=True)
    with caplog.at_level(logging.INFO):
        assert len(places(batches)) == 8
    assert batches.dropped == 2
    assert caplog.messages == ["epoch 0: 2 of 10 left out, no whole batch"]
    places(batches)
    assert batches.dropped == 4
    assert counted(9).sequential(1, 4, drop_last=True).dropped == 0


def test_an_epoch_without_a_whole_batch_ends_too() -> None:
    batches = counted(11).sequential(1, 4, drop_last=True).shard(1, 3)
    assert list(batches) == []
    assert (batches.epoch, batches.position, batches.dropped) == (1, 0, 10)


def test_more_ranks_than_windows_get_batches_without_a_line() -> None:
    made = counted(4).windows(1, 2, seed=1)
    ranks = [list(made.shard(rank, 5)) for rank in range(5)]
    assert [[b.x.shape for b in rank] for rank in ranks] == [[(1, 1)]] * 3 + [[(0, 1)]] * 2


def test_who_stops_in_the_middle_goes_on_from_there() -> None:
    batches = counted(11).sequential(1, 2)
    assert places(itertools.islice(batches, 2)) == [0, 1, 2, 3]
    assert len(batches) == 3
    assert places(batches) == [4, 5, 6, 7, 8, 9]
    assert places(batches) == list(range(10))
    assert batches.epoch == 2


def test_a_batch_can_be_read_again_by_its_position() -> None:
    batches = counted(100).windows(3, 4, seed=2).shard(1, 2)
    list(batches)
    (third,) = itertools.islice(batches, 2, 3)
    assert batches.read(1, 16).x.tolist() == third.x.tolist()


def test_a_state_is_numbers_and_the_release_that_it_belongs_to() -> None:
    batches = counted(100).windows(3, 4, seed=2)
    next(iter(batches))
    assert text(batches.state()) == {
        "seed": 2,
        "epoch": 0,
        "position": 4,
        "release": "r1",
        "content": "c1",
        "split": "train",
        "order": {"kind": "windows", "seq_len": 3, "jitter": False, "tokens": 100},
    }


REFUSED = {
    "release": ("r0", "release 'r0', this is 'r1'; open release r0 by its own folder"),
    "content": ("c0", "content 'c0', this is 'c1'"),
    "split": ("val", "split 'val', this is 'train'"),
    "order": ({"kind": "rows"}, "order .*only the same goes on"),
    "position": (34, "position 34, epoch 0 has 33"),
    "epoch": (-1, "epoch -1: a number from 0 on"),
    "seed": ("1", "seed '1': a number from 0 on"),
    "more": (1, "state has the keys"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_of_something_else_is_refused(name: str) -> None:
    value, words = REFUSED[name]
    batches = counted(100).windows(3, 4, seed=2)
    with pytest.raises(UsageError, match=words):
        batches.load_state({**batches.state(), name: value})
    assert (batches.seed, batches.epoch, batches.position) == (2, 0, 0)


@pytest.mark.parametrize("changed", [{"seq_len": 4}, {"jitter": True}, {"random_starts": True}])
def test_a_state_of_other_settings_is_refused(changed: dict[str, Any]) -> None:
    state = counted(100).windows(3, 4, seed=2).state()
    settings: dict[str, Any] = {"seq_len": 3, "batch": 4, "seed": 2, **changed}
    with pytest.raises(UsageError, match="state was made with order"):
        counted(100).windows(**settings).load_state(state)


def test_what_cannot_be_is_refused() -> None:
    release = counted(100)
    with pytest.raises(UsageError, match="batch 0"):
        release.windows(3, 0, seed=1)
    with pytest.raises(UsageError, match="seed -1"):
        release.windows(3, 1, seed=-1)
    with pytest.raises(UsageError, match="rank 2 of 2: ranks are 0 to 1"):
        release.windows(3, 1, seed=1).shard(2, 2)


def test_a_large_epoch_is_walked_without_a_table() -> None:
    """An epoch of 10^12 windows: its first batches, and the second one after a resume."""

    def begun() -> Batches:
        order = Windows(2 * 10**12 + 1, 2)
        return Batches(order, lambda at: Batch(at, at, at, at), Pin("r", "c", "s"), batch=4, seed=1)

    first = begun()
    found = [batch.places.tolist() for batch in itertools.islice(first, 3)]
    second = begun()
    second.load_state({**first.state(), "position": 4})
    assert next(iter(second)).places.tolist() == found[1]
    assert len(second) == 25 * 10**10 - 2
