"""A parsed source file and a fault found in it. Owns: reading the tree under a root. Not: any rule."""

import ast
from dataclasses import dataclass
from pathlib import Path

GENERATED = "_pb2.py"  # The end of the names of files that a compiler wrote.
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file. `module` is its dotted name, such as palyra.core.ids."""

    module: str
    text: str
    tree: ast.Module
    is_package: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.module.split("."))


@dataclass(frozen=True, slots=True)
class Fault:
    module: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.rule}: {self.what}"


def parse(module: str, text: str, is_package: bool = False) -> Source:
    return Source(module, text, ast.parse(text), is_package)


def read_sources(root: Path, base: Path) -> list[Source]:
    """Every Python file below `root` that people wrote, named from `base`."""
    return [
        parse(_module_name(path.relative_to(base)), path.read_text(encoding="utf-8"), path.name == "__init__.py")
        for path in sorted(root.rglob("*.py"))
        if not path.name.endswith(GENERATED)
    ]


def functions(tree: ast.AST) -> list[FunctionNode]:
    return [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]


def classes(tree: ast.AST) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
