"""What may be compiled keeps to what compiled code can do, as far as the source shows it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
COMPILED = {path.removesuffix(".py").replace("/", ".") for path in HOOK["mypyc"]["include"]}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "wsrm_mq").rglob("*.py"))
}


def origins(module: ast.Module) -> dict[str, str]:
    """The names that a module imports from others, with where they come from."""
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_module_that_is_to_be_compiled_is_there() -> None:
    assert set(MODULES) >= COMPILED


def test_no_class_outside_is_derived_from_one_that_is_compiled() -> None:
    """It could not be made: "interpreted classes cannot inherit from compiled"."""
    derived = [
        f"{name}.{node.name}({base.id})"
        for name in sorted(set(MODULES) - COMPILED)
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name) and origins(MODULES[name]).get(base.id) in COMPILED
    ]
    assert derived == []
