"""That the launchpad has nothing to set: what a product was made by stands in its ledger alone.

Settings come from the settings file; an op that declares nothing would take any configuration and
heed none, and Dagster's own I/O manager pickles into a folder that a run can change.
"""

import dagster as dg

__all__ = ["NOTHING_TO_SET", "NO_VALUES"]

NOTHING_TO_SET: dict[str, object] = {}


class _NoValues(dg.IOManager):
    """Refuses to carry a value from asset to asset: artifacts are files, found by their manifests."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        del obj
        raise dg.Failure(f"{context.name}: no asset hands over a value; write an artifact")

    def load_input(self, context: dg.InputContext) -> object:
        raise dg.Failure(f"{context.name}: no asset is given a value; read an artifact")


NO_VALUES = dg.IOManagerDefinition(lambda _: _NoValues(), config_schema=NOTHING_TO_SET)
