"""Turns text and variables into a Config, or into everything that is wrong with them.

Does not own: the file system (config.load).
Invariant: any text and any variables give a Config or at least one ConfigProblem, never another exception.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from palyra.config.environment import Overrides, find_hint, read_overrides, with_overrides
from palyra.config.lines import find_lines
from palyra.config.problems import ConfigProblem, ConfigProblems, suggestion
from palyra.config.records import Config, plain_sections, repeated_sections
from palyra.config.references import check_embedder, check_references
from palyra.config.tables import read_table

TEXT_BYTES_MAX = 1_000_000  # A configuration is written by hand; a larger file is another file by mistake.
_LINE = re.compile(r"at line (\d+)")
Document = dict[str, Any]


def read_config(text: str, environ: Mapping[str, str], source: str) -> Config | tuple[ConfigProblem, ...]:
    """`source` names the file in messages. Problems of the file come first, in order of lines."""
    parsed = _parse(text, source)
    if isinstance(parsed, ConfigProblem):
        return (parsed,)
    document, report = parsed
    overrides = read_overrides(environ, report)
    members = {**_plain(document, overrides, report), **_repeated(document, report)}
    _check_sections(document, report)
    check_references(document, report)
    if not document.get("provider"):
        members["provider_hint"] = find_hint(environ, report)
    config = None if report.problems else Config(**members)
    if config is not None:
        _check_together(config, overrides, report)
    return config if config is not None and not report.problems else report.problems


def _parse(text: str, source: str) -> tuple[Document, ConfigProblems] | ConfigProblem:
    if len(text) > TEXT_BYTES_MAX:
        return ConfigProblem(source=source, line=1, where="", what=f"is longer than {TEXT_BYTES_MAX} characters")
    normal = text.replace("\r\n", "\n")
    try:
        document = tomllib.loads(normal)
        return document, ConfigProblems(source, find_lines(normal))
    except RecursionError:
        return ConfigProblem(source=source, line=1, where="", what="lists or tables lie too deep in each other")
    except ValueError as cause:
        match = _LINE.search(str(cause))
        line = int(match[1]) if match else normal.rstrip("\n").count("\n") + 1
        what = str(cause).partition(" (at ")[0]
        return ConfigProblem(source=source, line=line, where="", what=f"is not TOML: {what[:1].lower()}{what[1:]}")


def _plain(document: Document, overrides: Overrides, report: ConfigProblems) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for name, section in plain_sections().items():
        table = document.get(name, {})
        if not isinstance(table, dict):
            report.add((name,), f"is one table: write [{name}] and its keys below")
            continue
        record = read_table(section, table, (name,), report)
        if record is not None:
            sections[name] = with_overrides(record, overrides.get(name, {}))
    return sections


def _repeated(document: Document, report: ConfigProblems) -> dict[str, Any]:
    members: dict[str, Any] = {}
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(Config)}
    for name, section in repeated_sections().items():
        tables = document.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            report.add((name,), f"is a list of tables: write [[{name}]] before the keys of each")
            continue
        records = [read_table(section, table, (name, index), report) for index, table in enumerate(tables)]
        members[attributes[name]] = tuple(record for record in records if record is not None)
    return members


def _check_sections(document: Document, report: ConfigProblems) -> None:
    known = [*plain_sections(), *repeated_sections()]
    for name in document:
        if name not in known:
            report.add((name,), f"there is no such section{suggestion(name, known)}")


def _check_together(config: Config, overrides: Overrides, report: ConfigProblems) -> None:
    """Checks what a file alone cannot tell, because a variable may override it."""
    if (config.server.tls_cert is None) is not (config.server.tls_key is None):
        given = "tls_cert" if config.server.tls_cert is not None else "tls_key"
        report.add(("server", given), "tls_cert and tls_key go together: name both files or none")
    if config.server.grpc_client_ca is not None and config.server.tls_cert is None:
        report.add(("server", "grpc_client_ca"), "needs tls_cert and tls_key: client certificates are part of TLS")
    if config.learning.review_bps > config.learning.auto_write_bps:
        report.add(("learning", "review_bps"), "must not be above auto_write_bps")
    if config.learning.review_bps > config.learning.auto_apply_bps:
        report.add(("learning", "review_bps"), "must not be above auto_apply_bps")
    if "embedder" in overrides.get("memory", {}):
        check_embedder(config.memory.embedder, [model.name for model in config.models], partial(_say_variable, report))


def _say_variable(report: ConfigProblems, what: str) -> None:
    report.add_variable("PALYRA_MEMORY__EMBEDDER", what)
