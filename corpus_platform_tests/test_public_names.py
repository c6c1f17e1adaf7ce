"""What a module offers stands in its `__all__`, which is all that others take from it."""

import ast
from pathlib import Path

import pytest

import corpus_platform

HOME = Path(corpus_platform.__file__).parent


@pytest.mark.slow  # two seconds of parsing
def test_a_module_takes_from_another_only_what_that_lists() -> None:
    modules = {_name(path): ast.parse(path.read_bytes()) for path in HOME.rglob("*.py")}
    listed = {name: _listed(tree) for name, tree in modules.items()}
    taken = [
        f"{name} takes {alias.name} from {node.module}"
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in listed
        for alias in node.names
        if alias.name not in listed[node.module] and f"{node.module}.{alias.name}" not in modules
    ]
    assert taken == []
    assert sum(map(len, listed.values())) > 900


def _name(path: Path) -> str:
    parts = path.relative_to(HOME.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed(tree: ast.Module) -> set[str]:
    """Return the names in `__all__`."""
    found = [
        n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]  # fmt: skip
    return set(ast.literal_eval(found[0])) if found else set()
