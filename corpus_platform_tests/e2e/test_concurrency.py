"""Two commands at once on one storage."""

import pytest

from corpus_platform_tests.e2e.command import Corpus


@pytest.mark.slow
def test_two_runs_at_once_make_everything_once_and_the_waiting_one_says_so(
    fresh: Corpus, undisturbed: Corpus
) -> None:
    started = [fresh.start("run"), fresh.start("run")]
    ended = [command.wait() for command in started]
    assert [e.code for e in ended] == [0, 0], [e.printed for e in ended]
    waited = [e for e in ended if "another corpus run is at work (process " in e.printed]
    (second,) = waited
    assert "nothing was due: everything is current" in second.printed
    assert fresh.materialized() == undisturbed.materialized()
    assert len(fresh.dagster_runs()) == len(undisturbed.dagster_runs())
    assert fresh.products() == undisturbed.products()
