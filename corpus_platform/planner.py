"""The planner: registry, manifests and settings in; what is current, blocked or due, and why, out.

It reads and never makes anything. The command, the schedule and the sensors all act on it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from corpus_platform import gates
from corpus_platform.errors import Uncleared, place
from corpus_platform.stages.project import Project
from corpus_platform.stages.uncleared import allowed_missing, included_shards
from corpus_platform.storage.artifacts import Artifact

__all__ = ["ALL_SHARDS", "INGEST", "Blocked", "Due", "State", "Survey", "survey"]

INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")
ALL_SHARDS = ("dedup_clusters", "tokenizer", "shuffled_bins")


@dataclass(frozen=True)
class Due:
    """Something to make, and why."""

    asset: str
    partition: str | None
    reason: str


@dataclass(frozen=True)
class Blocked:
    """A gate that refuses an artifact."""

    asset: str
    partition: str | None
    gate: str
    reason: str


@dataclass(frozen=True)
class State:
    """How one asset stands in one partition: current, stale, missing or blocked.

    `due`: it is to be made; `waits`: only after something before it. `gate` names the gate where the asset itself is
    blocked; None there when something before it is.
    """

    asset: str
    partition: str | None
    state: str
    reason: str
    due: bool = False
    waits: bool = False
    gate: str | None = None
    manifest: str | None = None


@dataclass
class Survey:
    """The state of everything, in the order of the chain."""

    states: list[State] = field(default_factory=list)

    @property
    def due(self) -> list[Due]:
        """What would run now, in order."""
        return [Due(s.asset, s.partition, s.reason) for s in self.states if s.due]

    @property
    def blocked(self) -> list[Blocked]:
        """The gates that refuse something, each once."""
        return [
            Blocked(s.asset, s.partition, s.gate, s.reason)
            for s in self.states
            if s.state == "blocked" and s.gate is not None
        ]

    def of(self, asset: str, partition: str | None = None) -> State:
        """Return one state."""
        return next(s for s in self.states if s.asset == asset and s.partition == partition)


def survey(project: Project, *, given_up: Collection[str] = ()) -> Survey:
    """Look at every asset and partition once.

    What comes after all shards waits for those that are due, except for `given_up` ones: it goes on
    without them where the settings let it.
    """
    with project.unchanging():
        found = Survey()
        ingested: dict[str, dict[str, State]] = {}
        for shard in project.shards():
            ingested[shard] = _ingest_states(project, shard)
            found.states += ingested[shard].values()
        clusters = _clusters_state(project, ingested, given_up)
        tokenizer = _look(project, "tokenizer", None, ())
        if tokenizer.due:
            tokenizer = _after(project, "tokenizer", None, [clusters]) or tokenizer
        found.states += [clusters, tokenizer]
        packs = {
            s: _pack_state(project, s, states, clusters, tokenizer)
            for s, states in ingested.items()
        }
        found.states += packs.values()
        awaited = [s for shard, s in packs.items() if shard not in given_up]
        found.states.append(_release_state(project, awaited, clusters, tokenizer))
    return found


def _ingest_states(project: Project, shard: str) -> dict[str, State]:
    if _may_be_missing(project, shard):
        return {asset: _not_awaited(asset, shard) for asset in INGEST}
    states: dict[str, State] = {}
    for asset in INGEST:
        states[asset] = _look(project, asset, shard, list(states.values())[-1:])
    return states


def _may_be_missing(project: Project, shard: str) -> bool:
    """Tell whether a shard that the settings let be missing has no whole copy, nor a way to one."""
    if not allowed_missing(project, shard):
        return False
    if project.artifact(INGEST[0], shard) is None:
        return True
    raw = _look(project, INGEST[0], shard, ())
    return raw.state == "blocked" and raw.gate == "source_present"


def _not_awaited(asset: str, shard: str) -> State:
    words = "checks.allow_missing names its shard: it is not fetched, and not waited for"
    return State(asset, shard, "missing", words)


def _clusters_state(
    project: Project, ingested: Mapping[str, Mapping[str, State]], given_up: Collection[str]
) -> State:
    asset = "dedup_clusters"
    awaited = [states for shard, states in ingested.items() if shard not in given_up]
    waiting = [s for states in awaited for s in states.values() if s.due]
    try:
        included_shards(project, pending={s.partition for s in waiting})
    except Uncleared as refusal:
        return _state(project, asset, None, "blocked", refusal.reason, gate=refusal.gate)
    return _after(project, asset, None, waiting[:1]) or _look(project, asset, None, ())


def _pack_state(
    project: Project, shard: str, ingested: Mapping[str, State], clusters: State, tokenizer: State
) -> State:
    """Judge a pack by the verdict in force: one that the clusters do not change stays current."""
    asset = "packed_bins"
    if ingested[INGEST[0]] == _not_awaited(INGEST[0], shard):
        return _not_awaited(asset, shard)
    refused = [s for s in ingested.values() if s.state == "blocked"]
    before = [*refused, ingested["cleaned_documents"], tokenizer]
    if (waiting := _after(project, asset, shard, before)) is not None:
        return waiting
    try:
        project.expected("dedup_verdicts", shard)
    except Uncleared:  # the clusters are older than the shard, or were made by other settings
        if (waiting := _after(project, asset, shard, [clusters])) is not None:
            return waiting
    return _look(project, asset, shard, ())


def _release_state(
    project: Project, packs: Iterable[State], clusters: State, tokenizer: State
) -> State:
    waiting = [s for s in (clusters, tokenizer) if s.due or s.state == "blocked"]
    waiting += [s for s in packs if s.due]
    found = _look(project, "shuffled_bins", None, waiting[:1])
    if found.due and project.settings.release.when == "manual":
        reason = f"{found.reason}; release.when is manual: materialize shuffled_bins to make it"
        return replace(found, due=False, waits=False, reason=reason)
    return found


def _look(project: Project, asset: str, partition: str | None, before: Iterable[State]) -> State:
    """Judge one artifact, given the states of what it is made from."""
    if (waiting := _after(project, asset, partition, before)) is not None:
        return waiting
    try:
        expected = project.expected(asset, partition)
        artifact = project.store.find(asset, partition, expected.key)
    except Uncleared as refusal:
        return _refused(project, asset, partition, refusal)
    if artifact is None:
        return _to_make(project, asset, partition)
    return _judge(project, asset, partition, artifact)


def _judge(project: Project, asset: str, partition: str | None, artifact: Artifact) -> State:
    path = str(artifact.manifest_path)
    try:
        if (refusal := project.witnessed(asset, partition, artifact)) is not None:
            raise refusal
        if damage := project.store.damage(artifact):
            reason = f"damaged: {damage[0].name}: {damage[0].reason}"
            return _to_make(project, asset, partition, reason)
    except Uncleared as refusal:
        return State(asset, partition, "blocked", refusal.reason, gate=refusal.gate, manifest=path)
    findings = project.findings_of(asset, partition, artifact)
    if refusals := gates.blocking(findings):
        first = refusals[0]
        reason = _failure(artifact) or first.reason
        return State(asset, partition, "blocked", reason, gate=first.gate, manifest=path)
    unsettled = project.chain[asset].unsettled
    if unsettled is not None and (reason := unsettled(project, artifact)) is not None:
        return _to_make(project, asset, partition, reason)
    warnings = "; ".join(f"{f.gate}: {f.reason}" for f in findings if not f.passed)
    return State(asset, partition, "current", warnings, manifest=path)


def _failure(artifact: Artifact) -> str | None:
    """Return the words in which a stage recorded that it could not read its input."""
    return (
        artifact.manifest.ledger.get("failure") if artifact.numbers.get("readable") == 0 else None
    )


def _to_make(
    project: Project, asset: str, partition: str | None, reason: str | None = None
) -> State:
    ready = project.chain[asset].ready
    if ready is not None:
        try:
            ready(project, partition)
        except Uncleared as refusal:
            return _refused(project, asset, partition, refusal)
    last = project.last_generation(asset, partition)
    state = "missing" if last is None and reason is None else "stale"
    if reason is None:
        reason = "never made" if last is None else project.difference(asset, partition, last)
    return State(asset, partition, state, reason, due=True)


def _refused(project: Project, asset: str, partition: str | None, refusal: Uncleared) -> State:
    own = refusal.asset == asset and refusal.partition == partition
    reason = refusal.reason if own else str(refusal)  # asset and gate are shown beside it
    return _state(project, asset, partition, "blocked", reason, gate=refusal.gate if own else None)


def _after(
    project: Project, asset: str, partition: str | None, before: Iterable[State]
) -> State | None:
    """Return the state of what waits for something before it, None when nothing does."""
    before = list(before)
    for state in before:
        if state.state == "blocked":
            reason = f"after {_name(state)}, which is blocked: {state.reason}"
            return _state(project, asset, partition, "blocked", reason)
    for state in before:
        if state.due:
            reason = f"after {_name(state)}, which is due"
            return _state(project, asset, partition, "stale", reason, due=True)
    return None


def _state(
    project: Project,
    asset: str,
    partition: str | None,
    state: str,
    reason: str,
    *,
    due: bool = False,
    gate: str | None = None,
) -> State:
    last = project.last_generation(asset, partition)
    if state == "stale" and last is None:
        state = "missing"
    path = str(last.manifest_path) if last is not None and state == "blocked" else None
    return State(asset, partition, state, reason, due=due, waits=due, gate=gate, manifest=path)


def _name(state: State) -> str:
    return place(state.asset, state.partition)
