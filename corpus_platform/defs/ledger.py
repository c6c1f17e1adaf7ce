"""What was told, and how far the runs of the instance were read: kept in Memory, durable at once.

The sensor that tells is its only writer. What was told is forgotten after thirty days, and nothing
that old is told.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from corpus_platform.defs.memory import Memory
from corpus_platform.defs.messages import CrashedCheck, Fact, FailedRun, GateFailure

__all__ = ["FORGET_SECONDS", "Cause", "Ledger", "Told", "cause_of", "recall"]

NAME = "alerts"  # in Memory
FORGET_SECONDS = 30 * 24 * 3600.0


Cause = tuple[str, str | None]  # asset and partition


@dataclass(frozen=True)
class Told:
    """When something was told, and what may be missing for its sake."""

    at: float
    cause: Cause | None


@dataclass
class Ledger:
    """`since`: nothing earlier is told; `upto`: all runs that changed up to then are done with.

    `done`: runs done with after that, each with the time of its last change. `pause`: Slack is not
    asked before. `warned`: the reason that keeps all from being told, once it was said.
    """

    since: float = 0.0  # 0 before the first tick that could tell anything
    upto: float = 0.0
    done: dict[str, float] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    pause: float = 0.0
    warned: str = ""

    def note(self, facts: Iterable[Fact], now: float) -> None:
        """Take facts for told."""
        self.told |= {fact.key: Told(now, cause_of(fact)) for fact in facts}

    def save(self, memory: Memory, now: float) -> None:
        """Make the ledger durable, without what is forgotten."""
        oldest = now - FORGET_SECONDS
        self.told = {key: told for key, told in self.told.items() if told.at >= oldest}
        self.done = {run: at for run, at in self.done.items() if at > self.upto}
        memory.set(NAME, vars(self) | {"told": {k: vars(told) for k, told in self.told.items()}})


def recall(memory: Memory) -> Ledger:
    """Return the ledger as last saved."""
    found = memory.get(NAME)
    if found is None:
        return Ledger()
    told = {key: _told(**one) for key, one in found["told"].items()}
    return Ledger(**(found | {"told": told}))


def cause_of(fact: Fact) -> Cause | None:
    """Return what may be missing because of a failure; None where it stops nothing."""
    if isinstance(fact, GateFailure) and fact.severity == "WARN":
        return None
    if isinstance(fact, GateFailure | CrashedCheck | FailedRun) and fact.asset is not None:
        return fact.asset, fact.partition
    return None


def _told(at: float, cause: Sequence[str | None] | None) -> Told:
    return Told(at, None if cause is None else (str(cause[0]), cause[1]))
