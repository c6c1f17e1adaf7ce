"""A worker process: executes whole runs in process on the shared instance, one after another.

It reads tasks as JSON lines from standard input and answers on standard output: `ready`, then per
task `progress` lines and one `done`; `fell` when it ends by an error. Everything else that is
printed goes to standard error. It ends at once when its parent does.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any  # values of a JSON object that our own parent wrote

import dagster as dg

from corpus_platform.defs.failures import is_failed_check, reason_of
from corpus_platform.defs.home import open_instance
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.progress import PROGRESS_FD
from corpus_platform.defs.resources import TASK_TAG

__all__ = ["main"]

USER_TAG = "user"  # the UI shows it as who launched the run


def main() -> None:
    """Serve tasks until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)
    os.environ[PROGRESS_FD] = str(answers)
    try:
        _serve(answers)
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        _answer(answers, {"event": "fell", "reason": f"{type(error).__name__}: {first_line}"})
        raise


def _serve(answers: int) -> None:
    definitions = build_definitions(Path(os.environ["CORPUS_CONFIG"]))
    _answer(answers, {"event": "ready"})
    with open_instance() as instance:
        for task in _tasks():
            _answer(answers, {"event": "done", **_execute(definitions, instance, task)})


def _tasks() -> Iterator[dict[str, Any]]:
    """Yield tasks; a thread watches the pipe, so that the end of the parent is seen in mid-task."""
    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def watch() -> None:
        for line in sys.stdin:
            queue.put(json.loads(line))
        os._exit(0)  # the parent closed the pipe or died: no run may go on without it

    threading.Thread(target=watch, daemon=True).start()
    while True:
        yield queue.get()


def _execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, task: dict[str, Any]
) -> dict[str, object]:
    job = definitions.resolve_job_def(task["job"])
    result = job.execute_in_process(
        instance=instance,
        partition_key=task.get("partition"),
        asset_selection=[dg.AssetKey(asset) for asset in task["assets"]] or None,  # with checks
        tags={TASK_TAG: task["id"], USER_TAG: "corpus run"},
        raise_on_error=False,
    )
    return {
        "success": result.success,
        "run_id": result.run_id,
        "failures": list(_failures(result)),
        "seconds": dict(_seconds(result)),
    }


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[dict[str, object]]:
    """Yield why a run failed: each failed gate, what a step said, or the error behind it."""
    for check in result.get_asset_check_evaluations():
        if not check.passed and check.severity == dg.AssetCheckSeverity.ERROR:
            asset = check.asset_key.to_user_string()
            gate, reason = check.check_name, check.description or "failed"
            refusal = {"asset": asset, "partition": check.partition, "gate": gate, "reason": reason}
            yield {"reason": f"{gate}: {reason}", "refusal": refusal}
    for event in result.get_step_failure_events():
        given = event.step_failure_data.user_failure_data
        if given is not None and given.description:
            yield {"reason": given.description, "refusal": _refusal(given.metadata)}
        elif not is_failed_check(event):
            yield {"reason": reason_of(event), "refusal": None}


def _refusal(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, object] | None:
    """Return what refused a step; None where it failed for another reason."""
    if "gate" not in metadata:
        return None
    named = {name: metadata[name].value for name in ("asset", "partition", "gate", "reason")}
    return named | {"partition": named["partition"] or None}


def _seconds(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, float]]:
    for event in result.all_events:
        if event.event_type == dg.DagsterEventType.STEP_SUCCESS:
            yield event.step_key or "", event.step_success_data.duration_ms / 1000


def _answer(descriptor: int, message: dict[str, object]) -> None:
    os.write(descriptor, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
