"""Tests of what a collection spares, where names of shards are unusual."""

from pathlib import Path

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.collecting import look
from corpus_platform.stages.release_pins import pin_release
from corpus_platform_tests.small import documents, run_chain, write_shard

SETTINGS = """\
sources: [{glob: "in/{crawl}/*"}]
clean: {preset: none}
tokenizer: {vocab_size: 300}
release: {keep: 1}
"""


def test_what_a_pinned_release_was_made_of_stays_whatever_its_shard_is_called(
    tmp_path: Path,
) -> None:
    config, shard = tmp_path / "corpus.yaml", "2026-40/part[1]"
    config.write_text(SETTINGS)
    write_shard(tmp_path / "in" / shard, documents()[:12])
    old = run_chain(open_project(load_settings(config)))
    config.write_text(SETTINGS + "pack: {bos_token: '<|im_start|>'}\n")
    project = open_project(load_settings(config))
    run_chain(project)
    pin_release(project, old.name, "run-7")
    assert [item.name for item in look(project).items] == []
    assert len(list(project.store.generations("packed_bins", shard))) == 2
