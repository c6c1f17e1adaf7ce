"""Tests of the definitions: what Dagster is shown, and which settings change what."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any  # a config type of Dagster, whose kinds have no public names

import dagster as dg
import pytest

from corpus_platform import definitions
from corpus_platform.defs.jobs import JOB_OF
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS
from corpus_platform.errors import SettingsError
from corpus_platform.gates import GATES
from corpus_platform.stages.chain import CHAIN
from corpus_platform_tests.instances import in_memory

PER_SHARD = {
    "raw_shards",
    "cleaned_documents",
    "minhash_signatures",
    "dedup_verdicts",
    "packed_bins",
}
WHOLE = {"dedup_clusters", "tokenizer", "shuffled_bins"}
STATUS = "corpus_status"
HOUSEKEEPING = {"verify_corpus", "register_shards", "prune_history"}
SOURCE = "sources: [{glob: 'a/{crawl}/*'}]\n"


def _build(folder: Path, more: str = "") -> dg.Definitions:
    config = folder / "corpus.yaml"
    config.write_text(SOURCE + more, encoding="utf-8")
    return build_definitions(config)


def _specs(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {s.key.to_user_string(): s for s in defs.resolve_all_asset_specs()}


def _code_versions(defs: dg.Definitions) -> dict[str, str | None]:
    return {name: spec.code_version for name, spec in _specs(defs).items()}


def test_they_load_and_write_nothing(tmp_path: Path) -> None:
    dg.Definitions.validate_loadable(_build(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.yaml"]


def test_the_module_loads_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.yaml").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv("CORPUS_CONFIG", str(tmp_path / "other.yaml"))
    assert set(_specs(definitions.defs())) == PER_SHARD | WHOLE | {STATUS}
    (tmp_path / "other.yaml").write_text("storage: 3", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"other\.yaml: storage"):
        definitions.defs()


def test_assets_have_the_names_of_the_chain_and_a_description(tmp_path: Path) -> None:
    specs = _specs(_build(tmp_path))
    assert set(CHAIN) == PER_SHARD | WHOLE
    assert set(specs) == set(CHAIN) | {STATUS}
    assert all(s.description and s.kinds and s.group_name for s in specs.values())


def test_what_is_made_shard_by_shard_is_partitioned_by_shard(tmp_path: Path) -> None:
    specs = _specs(_build(tmp_path))
    assert {n for n, s in specs.items() if s.partitions_def == SHARDS} == PER_SHARD
    assert {n for n, s in specs.items() if s.partitions_def is None} == WHOLE | {STATUS}
    assert SHARDS.name == "shards"


def test_the_graph_is_the_chain_and_the_tokenizer_depends_on_nothing(tmp_path: Path) -> None:
    above = {
        name: {d.asset_key.to_user_string() for d in spec.deps}
        for name, spec in _specs(_build(tmp_path)).items()
    }
    assert above == {
        "raw_shards": set(),
        "cleaned_documents": {"raw_shards"},
        "minhash_signatures": {"cleaned_documents"},
        "dedup_clusters": {"minhash_signatures"},
        "dedup_verdicts": {"dedup_clusters"},
        "tokenizer": set(),
        "packed_bins": {"cleaned_documents", "dedup_verdicts", "tokenizer"},
        "shuffled_bins": {"packed_bins", "tokenizer"},
        STATUS: set(),
    }


def test_every_gate_is_a_blocking_check_with_the_partitions_of_its_asset(tmp_path: Path) -> None:
    checks = [
        spec
        for check in _build(tmp_path).asset_checks or []
        if isinstance(check, dg.AssetChecksDefinition)
        for spec in check.check_specs
    ]
    named = [(s.asset_key.to_user_string(), s.name) for s in checks]
    assert sorted(named) == sorted((a, g.name) for a, gates in GATES.items() for g in gates)
    assert all(s.blocking and s.description for s in checks)
    partitioned = {s.asset_key.to_user_string() for s in checks if s.partitions_def is not None}
    assert partitioned == PER_SHARD - {"dedup_verdicts"}


def test_every_asset_but_the_verdicts_has_checks() -> None:
    assert {asset for asset, gates in GATES.items() if not gates} == {"dedup_verdicts"}


def _steps(defs: dg.Definitions, job: str) -> set[str]:
    return {node.name for node in defs.resolve_job_def(job).nodes}


def test_the_job_of_an_asset_makes_it_and_checks_it_and_tells_the_status(tmp_path: Path) -> None:
    defs = _build(tmp_path)
    assert set(JOB_OF) == set(CHAIN) - {"dedup_verdicts"}
    for job in set(JOB_OF.values()):
        made = {asset for asset, its in JOB_OF.items() if its == job}
        assert _steps(defs, job) == made | {f"{asset}_gates" for asset in made} | {STATUS}


def test_there_are_no_other_jobs(tmp_path: Path) -> None:
    jobs = {job.name for job in _build(tmp_path).resolve_all_job_defs()}
    assert {name for name in jobs if not name.startswith("__")} == set(
        JOB_OF.values()
    ) | HOUSEKEEPING


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ("clean: {set: {too_short.min_chars: 300}}", {"cleaned_documents"}),
        ("clean: {preset: source_document}", {"cleaned_documents"}),
        ("dedup: {width: 4}", {"minhash_signatures", "dedup_clusters"}),
        ("dedup: {shingle: char}", {"minhash_signatures", "dedup_clusters"}),
        ("dedup: {bands: 32, rows: 4}", {"minhash_signatures"}),
        ("dedup: {scheme: datasketch}", {"minhash_signatures", "dedup_clusters"}),
        ("dedup: {prefer: longest}", {"dedup_clusters"}),
        ("dedup: {threshold: 0.9}", {"dedup_clusters"}),
        ("dedup: {keep: one_per_cluster}", {"dedup_clusters"}),
        ("split: {seed: 1}", {"dedup_clusters"}),
        ("tokenizer: {vocab_size: 500}", {"tokenizer"}),
        ("shuffle: {seed: 1}", {"shuffled_bins"}),
        ("pack: {sequence_length: 4096}", set()),
        ("checks: {min_kept_share: 0.5}", set()),
        ("waivers: [{gate: sha256, reason: because, expires: 2999-01-01}]", set()),
        ("schedule: {cron: '1 1 * * *'}", set()),
        ("release: {when: manual}", set()),
        ("alerts: {slack: {}}", set()),
        ("run: {workers: 7}", set()),
        ("storage: elsewhere", set()),
    ],
)
def test_a_setting_changes_the_code_version_of_what_takes_it_and_of_nothing_else(
    more: str, changed: set[str], tmp_path: Path
) -> None:
    before = _code_versions(_build(tmp_path))
    after = _code_versions(_build(tmp_path, more))
    assert {name for name in before if before[name] != after[name]} == changed


def test_another_source_changes_no_code_version(tmp_path: Path) -> None:
    before = _code_versions(_build(tmp_path))
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: x, crawl: a, fields: {text: t}}]", encoding="utf-8")
    assert _code_versions(build_definitions(config)) == before


def test_every_asset_has_owners_a_scope_and_at_most_three_kinds(tmp_path: Path) -> None:
    specs = _specs(_build(tmp_path, "owners: [team:data, ada@example.org]"))
    assert all(list(s.owners) == ["team:data", "ada@example.org"] for s in specs.values())
    scopes = {name: spec.tags["corpus/scope"] for name, spec in specs.items()}
    assert {name for name, scope in scopes.items() if scope == "shard"} == PER_SHARD
    assert {name for name, scope in scopes.items() if scope == "corpus"} == WHOLE | {STATUS}
    assert all(1 <= len(spec.kinds) <= 3 for spec in specs.values())
    assert {spec.group_name for spec in specs.values()} == {"ingest", "corpus", "tokens"}


def test_a_team_answers_for_the_assets_where_nobody_is_named(tmp_path: Path) -> None:
    assert {tuple(s.owners) for s in _specs(_build(tmp_path)).values()} == {("team:corpus",)}


def _settable(config: Any, path: str = "") -> Iterator[str]:
    """Yield what of a run's configuration may be given, as paths.

    The job of all assets takes names of ops and resources that it has not, and heeds none.
    """
    fields = getattr(config, "fields", None)
    if fields is None or (config.kind.name == "PERMISSIVE_SHAPE" and path.count("/") > 1):
        yield path
    for name, field in (fields or {}).items():
        yield from _settable(field.config_type, f"{path}/{name}")


def test_a_launchpad_can_set_how_a_run_is_logged_and_executed_and_nothing_else(
    tmp_path: Path,
) -> None:
    for job in _build(tmp_path).resolve_all_job_defs():
        settable = set(_settable(job.run_config_schema.config_type))
        assert settable, job.name
        others = {p for p in settable if not p.startswith(("/loggers/", "/execution/"))}
        assert others == set(), job.name


def test_the_walk_over_a_jobs_configuration_finds_what_can_be_set() -> None:
    @dg.asset
    def takes_anything() -> int:
        return 1

    @dg.asset(config_schema={"limit": int, "more": dg.Permissive()})
    def takes_a_limit() -> int:
        return 2

    defs = dg.Definitions(assets=[takes_anything, takes_a_limit], executor=dg.in_process_executor)
    (job,) = defs.resolve_all_job_defs()
    settable = set(_settable(job.run_config_schema.config_type))
    assert {path for path in settable if path.startswith(("/ops/", "/resources/"))} == {
        "/ops/takes_anything/config",
        "/ops/takes_a_limit/config/limit",
        "/ops/takes_a_limit/config/more",
        "/resources/io_manager/config/base_dir",
    }


def _jobs_and_ops(defs: dg.Definitions) -> Iterator[tuple[dg.JobDefinition, str]]:
    for job in defs.resolve_all_job_defs():
        yield from ((job, node.name) for node in job.nodes)


def test_a_run_with_a_made_up_configuration_is_refused_before_it_is_one(tmp_path: Path) -> None:
    defs = _build(tmp_path)
    ops = set()
    with in_memory() as instance:
        for job, op in _jobs_and_ops(defs):
            ops.add(op)
            for given in ({"ops": {op: {"config": {"min_chars": 1}}}}, {"ops": {op: {"x": 1}}}):
                with pytest.raises(dg.DagsterInvalidConfigError, match=r"min_chars|x"):
                    job.execute_in_process(instance=instance, run_config=given)
        assert instance.get_runs() == []
    assert {*JOB_OF, "corpus_status", "packed_bins_gates", "verify"} <= ops


def test_no_run_can_say_where_values_go(tmp_path: Path) -> None:
    given = {"resources": {"io_manager": {"config": {"base_dir": "/elsewhere"}}}}
    for job in _build(tmp_path).resolve_all_job_defs():
        with pytest.raises(dg.DagsterInvalidConfigError, match="base_dir"):
            dg.validate_run_config(job, given)


def test_the_module_of_the_definitions_is_short() -> None:
    assert len(Path(definitions.__file__).read_text(encoding="utf-8").splitlines()) < 60
