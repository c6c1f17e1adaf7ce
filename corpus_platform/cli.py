"""The `corpus` command: a thin layer of arguments, progress and tables over the platform.

Exit codes: 0 done; 1 a gate blocked something; 2 settings or usage; 3 a stage or the machine
failed, which wins.
"""

import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any  # settings of click's own, which are handed on

import click
import yaml

from corpus_platform import planner
from corpus_platform.commands.collecting import gc
from corpus_platform.commands.comparing import diff
from corpus_platform.commands.counting import tokens
from corpus_platform.commands.explaining import explain
from corpus_platform.commands.exporting import export
from corpus_platform.commands.inspecting import inspect
from corpus_platform.commands.opening import config_option, reading_project, take_open_files
from corpus_platform.commands.pinning import pin
from corpus_platform.commands.sources import fetch, lock, retire, verify
from corpus_platform.commands.tokenizing import tokenizer
from corpus_platform.console import (
    RunView,
    SampleView,
    crawl_table,
    plan_lines,
    printable,
    release_lines,
    sample_lines,
    say,
    standard_output,
    status_lines,
    status_table,
)
from corpus_platform.console_whatif import whatif_json, whatif_table
from corpus_platform.dedup.clusters import Keep
from corpus_platform.errors import CorpusError, UsageError, place
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.stages.tally import tally
from corpus_platform.stages.verifying import Fault
from corpus_platform.stages.whatif import decide_again

__all__ = ["main"]


class _Commands(click.Group):
    """A group whose commands end with a message and a code, never with a traceback, on our errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are met, which is that of this file."""
        del ctx
        return list(self.commands)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:  # click would end with 1, which says "blocked"
            raise SystemExit(130) from None

    def invoke(self, ctx: click.Context) -> object:
        take_open_files()
        try:
            return super().invoke(ctx)
        except CorpusError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # the reader of a pipe has seen enough: click ends without a word
            raise
        except OSError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            ctx.exit(3)
        except KeyboardInterrupt:
            click.echo("stopped; the same command goes on where this one ended", err=True)
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: 1 would say "blocked"
            traceback.print_exc()
            click.echo(f"error: {type(error).__name__}: {error}", err=True)
            ctx.exit(3)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="corpus-platform")
def main() -> None:
    """Turn raw web-crawl shards into token files for training, and prove every step.

    \b
    A first try, without any data of your own:
        corpus sample   makes a small corpus of this machine's documentation
        corpus run      brings everything up to date, and says where the release lies
        corpus ui       shows it all in the browser

    `corpus run` is also all that is needed when shards are added or settings change: what is
    there and current is not made again.

    \b
    Exit codes:
        0  done
        1  a gate blocked something, a file is not as recorded, or there is no such document
        2  the settings or the command line cannot be used
        3  a stage or the machine failed
    """


@main.command()
@config_option
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Write the result to this file too, as JSON.",
)
def run(config_file: Path, json_file: Path | None) -> None:
    """Bring everything up to date.

    Discovers shards, runs what is due through Dagster in the instance that `corpus ui` shows, and
    prints what became of the documents of each crawl, what is blocked and why, where the release
    lies, and the hash of its content, for training to expect. Interrupted or killed, the same
    command goes on where it ended.
    """
    from corpus_platform.defs.driver import Watcher, run_everything  # Dagster takes seconds to load

    settings = load_settings(config_file)
    console = standard_output()
    with RunView(console) as view:
        watcher = Watcher(view.phase, view.progressed, view.ended, view.waiting)
        result = run_everything(settings, config_file, watcher)
    project = open_project(settings)
    blocked = [*result.survey.blocked, *result.refused]
    outcome = "failed" if result.failed else "blocked" if blocked else "complete"
    release = release_in_force(project)
    crawls = tally(project)
    if json_file is not None:
        whole = {
            "outcome": outcome,
            "blocked": [dataclasses.asdict(b) for b in blocked],
            "failed": result.failed,
            "release": release,
            "crawls": {name: crawl.to_json() for name, crawl in crawls.items()},
            "seconds": result.seconds,
            "peak_rss_bytes": result.peak_rss_bytes,
        }
        json_file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    console.print(crawl_table(crawls, width=console.width))
    if result.restored:
        say(console, _restored(result.restored))
    for entry in blocked:
        say(console, f"blocked: {_name(entry)}: {entry.gate}: {entry.reason}")
    for reason in result.failed:
        say(console, f"failed: {reason}")
    if not result.executed:
        say(console, "nothing was due" if blocked else "nothing was due: everything is current")
    for line in release_lines(release):
        say(console, line)
    sys.exit(3 if result.failed else 1 if blocked else 0)


def _restored(shards: Sequence[str]) -> str:
    named = ", ".join(shards[:3]) + (f" and {len(shards) - 3:,} more" if len(shards) > 3 else "")
    return (
        "warning: the partition keys of registered shards were not in Dagster, and are there again:"
        f" {named}; to take a shard out: corpus retire SHARD"
    )


def _name(entry: planner.Blocked | planner.Due | Fault) -> str:
    return place(entry.asset, entry.partition)


@main.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(config_file: Path, *, as_json: bool) -> None:
    """Show what would run, and why; write nothing.

    What is blocked is not due: `corpus status` shows it.
    """
    found = planner.survey(reading_project(load_settings(config_file)))
    due = found.due
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(d) for d in due], indent=1))
    else:
        console = standard_output()
        for line in plan_lines(due, blocked=len(found.blocked)):
            say(console, line)


@main.command()
@config_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, with the path of every manifest."
)
def status(config_file: Path, *, as_json: bool) -> None:
    """Show how every shard and asset stands.

    Each is current, stale, blocked or missing. What is blocked stands below the table with the
    gate and the reason; the last lines name the release in force and its content.
    """
    project = reading_project(load_settings(config_file))
    found = planner.survey(project)
    if as_json:
        click.echo(json.dumps(_status_json(found), indent=1))
    else:
        console = standard_output()
        console.print(status_table(found))
        for line in (*status_lines(found), *release_lines(release_in_force(project))):
            say(console, line)


def _status_json(found: planner.Survey) -> dict[str, dict[str, dict[str, str | None]]]:
    shards: dict[str, dict[str, dict[str, str | None]]] = {}
    for state in found.states:
        row = {"state": state.state, "reason": state.reason, "manifest": state.manifest}
        shards.setdefault(state.partition or "corpus", {})[state.asset] = row
    return shards


main.add_command(fetch)
main.add_command(inspect)


@main.command()
@config_option
def settings(config_file: Path) -> None:
    """Print the settings in force as YAML.

    Those of the file and the defaults for all others; it can be loaded again as a settings file.
    Comments at its end are the cleaning rules that the settings make.
    """
    effective = load_settings(config_file)
    rules = {name: rule.model_dump(mode="json") for name, rule in effective.clean.rules().items()}
    click.echo(_yaml(effective.model_dump(mode="json")), nl=False)
    click.echo("# The cleaning rules in force, in the order in which they judge:")
    for line in _yaml(rules).splitlines():
        click.echo(f"#   {line}")


def _yaml(value: Mapping[str, object]) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


main.add_command(verify)
main.add_command(lock)
main.add_command(retire)


@main.command()
def warm() -> None:
    """Compile what runs as machine code, so that no run waits for it.

    Prints what was compiled, what was found compiled, and the folder that keeps it. Without this
    the first run compiles what it needs, for about half a minute. The folder is beside the program
    or, where that cannot be written, in the user's cache; NUMBA_CACHE_DIR names another. The byte
    code of the program's own modules is written too.
    """
    from corpus_platform.dedup.warming import compile_modules, warm_kernels  # numba takes 0.6 s

    click.echo("compiling what is not compiled yet: up to a minute", err=True)
    compile_modules()
    found = warm_kernels()
    for kernel in found:
        click.echo(f"{'compiled' if kernel.compiled else 'found':8}  {kernel.name}")
    for folder in sorted({str(kernel.folder) for kernel in found}):
        click.echo(f"kept in {folder}")


@main.group()
def whatif() -> None:
    """Decide again from stored numbers, without reading texts."""


@whatif.command()
@config_option
@click.option(
    "--threshold",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    metavar="JACCARD",
    help="Another dedup.threshold; not below that of the last run.",
)
@click.option(
    "--keep",
    type=click.Choice(["first_seen", "one_per_cluster"]),
    help="Another dedup.keep.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dedup(config_file: Path, threshold: float | None, keep: Keep | None, *, as_json: bool) -> None:
    """Show what another threshold or policy would keep, beside what the last clusters did.

    Goes by the stored edges and exact keys: an answer takes seconds, and is that of a real run.
    """
    if threshold is None and keep is None:
        raise UsageError("what is to be different? Name --threshold or --keep")
    project = reading_project(load_settings(config_file))
    now = decide_again(project)
    then = decide_again(project, threshold=threshold, keep=keep)
    if as_json:
        click.echo(json.dumps({"now": whatif_json(now), "then": whatif_json(then)}, indent=2))
    else:
        standard_output().print(whatif_table(now, then))


main.add_command(tokenizer)
main.add_command(tokens)
main.add_command(export)
main.add_command(explain)
main.add_command(diff)
main.add_command(pin)
main.add_command(gc)


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("sample"))
@click.option(
    "--megabytes",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="About how much text to take.",
)
def sample(folder: Path, megabytes: int) -> None:
    """Make a small real corpus of this machine's documentation.

    Writes two crawls, of six and two shards, below FOLDER (by default `sample`). Nothing is
    fetched from a network; the same bytes are written every time, until Python, a package or the
    system's documentation is upgraded.
    """
    from corpus_platform.stages.sample import make_sample

    with SampleView(standard_output()) as view:
        report = make_sample(folder, target_bytes=megabytes * 1_000_000, progress=view.progressed)
    for line in sample_lines(report):
        click.echo(line)


@main.command()
@config_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=3000,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; one that is not loopback needs the flag below.",
)
@click.option(
    "--i-have-an-authenticating-proxy",
    "behind_a_proxy",
    is_flag=True,
    help="Allow an address that other machines reach: a proxy in front asks who calls.",
)
def ui(config_file: Path, port: int, host: str, *, behind_a_proxy: bool) -> None:
    """Serve the Dagster web UI and daemon on this corpus's instance.

    Only this machine can reach it, since Dagster has no login: whoever reaches the port can launch
    runs and read logs. Stop it with Ctrl-C.
    """
    from corpus_platform.defs.ui import serve

    effective = load_settings(config_file)
    sys.exit(
        serve(
            effective,
            config_file,
            port=port,
            say=click.echo,
            host=host,
            behind_a_proxy=behind_a_proxy,
        )
    )
