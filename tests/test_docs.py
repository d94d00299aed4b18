"""The documents tell the truth: what exists is described, what is named exists, and nothing points into the void."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.core.events import DATA_TYPES
from palyra.engine.jobs.kinds import JobHandlers, job_types
from tests.tidy.index import MARK, PAGE, first_sentence, index_page
from tests.tidy.source import GENERATED

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "palyra"
LAWS = [f"L{number}" for number in range(1, 12)]
PASSED_OVER = frozenset({".git", ".venv", ".venv-run", "node_modules", "build", "dist", "__pycache__"})
# Written in pieces so that this file does not find itself.
FORBIDDEN = re.compile(
    "|".join(
        (
            r"pypi\." + "org",
            "files\\.python" + "hosted",
            "registry\\.npm" + "js",
            r"(?:^|[\s\"'`(=:])/wo" + r"rk/",
            r"(?:^|[\s\"'`(=:])/ro" + r"ot/",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SOURCE_NAME = re.compile(r"`((?:adapters|app|cli|config|core|engine|gateway|ports)[\w/]*\.(?:py|sql))`")
# A law is one row in ARCHITECTURE.md, and one part with a heading in docs/laws.md.
LAWS_OF = {
    "ARCHITECTURE.md": re.compile(r"^\| (L\d+) \|(.+)\|$", re.MULTILINE),
    "docs/laws.md": re.compile(r"^## (L\d+):(.+?)(?=^## |\Z)", re.MULTILINE | re.DOTALL),
}
ARCHITECTURE_WORDS_MAX = 2500


def files() -> Iterator[Path]:
    """Every file of the repository, whether or not git is at hand."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        is_passed_over = any(
            part in PASSED_OVER or part.startswith(".venv") or part.endswith(("_cache", ".egg-info")) for part in parts
        )
        if path.is_file() and not is_passed_over and ".hypothesis" not in parts:
            yield path


def documents() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def described() -> str:
    """What a user can read: the README and docs/. The index of modules describes code, and so does not count."""
    texts = [path for path in documents() if path == ROOT / "README.md" or path.parent == ROOT / "docs"]
    texts.remove(PAGE)
    return "\n".join(path.read_text(encoding="utf-8") for path in texts)


def undescribed(names: list[str], text: str) -> list[str]:
    """Names that no code span or code block of the text begins a word with."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    return [name for name in names if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-]*\w)", code)]


def commands() -> list[str]:
    """Every command of the CLI, with its group before it."""
    if importlib.util.find_spec("palyra.cli.main") is None:
        return []
    typer_main = importlib.import_module("typer.main")
    root = typer_main.get_command(importlib.import_module("palyra.cli.main").app)
    return [f"palyra {name}" for name in command_names(root)]


def command_names(group: object, prefix: str = "") -> Iterator[str]:
    for name, command in getattr(group, "commands", {}).items():
        if getattr(command, "commands", None):
            yield from command_names(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def settings() -> list[str]:
    """Every key of palyra.toml, as `section.key`; none while there is no configuration."""
    if importlib.util.find_spec("palyra.config") is None:
        return []
    names: list[str] = importlib.import_module("palyra.config").setting_names()
    return names


def test_every_event_type_is_described() -> None:
    assert undescribed(list(DATA_TYPES), described()) == []


def test_every_command_is_described() -> None:
    assert undescribed(commands(), described()) == []


# Names of the first description that are not those of the code; docs/names.md tells what each is here.
FIRST_NAMES = (
    *("RunStreamRequest", "execute_model_provider", "process_run_stream_provider_events", "process_run_stream_message"),
    *("MessageAttachment", "ProviderImageInput", "ModelProvider", "StartStreaming", "resolve_orchestrator_session"),
    *("evaluate_with_config", "ResolveApproval", "DEFAULT_AGENT_LOOP_WALL_CLOCK_BUDGET_MS", "search_memory"),
    *("TOOL_APPROVAL_RESPONSE_TIMEOUT", "PreparedModelProviderInput", "PrepareModelProviderInputRequest"),
    *("AUTO_SESSION_COMPACTION_MIN_INPUT_TOKENS", "SESSION_COMPACTION_STRATEGY", "summary_text", "PendingReview"),
    *("apply_workspace_managed_block", "preview_context_references", "render_context_reference_prompt"),
    *("context_references", "spawn_background_queue_loop", "poll_background_queue", "BackgroundQueue"),
    *("OrchestratorBackgroundTaskRecord", "REFLECTION_TASK_KIND", "expires_at_unix_ms", "ObserveOnly"),
    *("schedule_post_run_reflection", "process_post_run_reflection_task", "auto_write_threshold_bps"),
    *("SelfHealingMode", "RunLifecycleState", "OrchestratorTapeRecord", "UsageRoutingPlan", "RouteMessage"),
)


def named_in_rows() -> list[str]:
    """Every name in the first column of docs/names.md."""
    page = CODE_BLOCK.sub("", (ROOT / "docs" / "names.md").read_text(encoding="utf-8"))
    firsts = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    return [name for first in firsts for name in re.findall(r"`([^`]+)`", first)]


def test_every_name_of_the_first_description_has_one_row() -> None:
    rows = named_in_rows()
    assert [name for name in FIRST_NAMES if name not in rows] == []
    assert sorted({name for name in rows if rows.count(name) > 1}) == []


SAID_AT_START = ("listens",)  # What the daemon says of itself in an example of its output.


def test_every_command_that_a_document_or_a_message_names_is_there() -> None:
    sources = [*documents(), *PACKAGE.rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert unknown_commands(text) == []


def unknown_commands(text: str) -> list[str]:
    """Commands in code spans, examples and advice that are not there. Words after a whole command are its arguments."""
    known = {tuple(name.split()[1:]) for name in commands()}
    begun = {name[:length] for name in known for length in range(1, len(name) + 1)}
    named = {
        tuple(words.split()) for words in re.findall(r"(?:`|^ +|; )palyra ((?:[a-z][a-z-]*(?: |\b))+)", text, re.M)
    }

    def is_unknown(words: tuple[str, ...]) -> bool:
        lengths = [length for length in range(1, len(words) + 1) if words[:length] in begun]
        return not lengths or (lengths[-1] < len(words) and words[: lengths[-1]] not in known)

    return sorted(" ".join(words) for words in named if words[0] not in SAID_AT_START and is_unknown(words))


def test_every_kind_of_job_is_described_and_no_other() -> None:
    handlers = JobHandlers(**dict.fromkeys((name for name in JobHandlers.__slots__), None))  # type: ignore[arg-type]
    kinds = (ROOT / "docs" / "jobs.md").read_text().partition("## Kinds")[2].partition("## ")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", kinds, re.MULTILINE)) == sorted(job_types(handlers))


def test_every_setting_is_described() -> None:
    assert undescribed(settings(), described()) == []


@pytest.mark.parametrize(
    ("name", "text", "missing"),
    [
        ("run.done", "`run.done` ends it", []),
        ("run.done", "```\n{run.done}\n```", []),
        ("run.done", "run.done in plain words", ["run.done"]),
        ("run.done", "`run.done.twice`", ["run.done"]),
        ("erased", "`not-erased`", ["erased"]),
    ],
)
def test_what_counts_as_described(name: str, text: str, missing: list[str]) -> None:
    assert undescribed([name], text) == missing


@pytest.mark.parametrize("page", LAWS_OF)
def test_a_page_of_laws_has_every_law_once(page: str) -> None:
    assert [law for law, _ in laws_in(page)] == LAWS


@pytest.mark.parametrize("page", LAWS_OF)
def test_every_law_names_a_test(page: str) -> None:
    assert [law for law, text in laws_in(page) if not TEST_NAME.search(text)] == []


def laws_in(page: str) -> list[tuple[str, str]]:
    return [(law[1], law[2]) for law in LAWS_OF[page].finditer((ROOT / page).read_text(encoding="utf-8"))]


def test_every_test_a_document_names_exists() -> None:
    named = {(match[1], match[2]) for path in documents() for match in TEST_NAME.finditer(path.read_text("utf-8"))}
    assert sorted(f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)) == []


def names_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_source_file_a_document_names_exists() -> None:
    named = {match[1] for path in documents() for match in SOURCE_NAME.finditer(path.read_text("utf-8"))}
    assert sorted(name for name in named if not (PACKAGE / name).is_file()) == []


def test_the_index_of_modules_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == index_page(text), "docs/where-to-look.md is not current; run: make index"


def test_the_index_names_every_package_and_module() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    modules = [path for path in PACKAGE.rglob("*.py") if not path.name.endswith(("__init__.py", GENERATED))]
    folders = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    names = [path.relative_to(PACKAGE).as_posix() for path in modules]
    names += [f"{path.relative_to(PACKAGE).as_posix()}/" for path in folders]
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_architecture_names_every_layer() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    layers = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert sorted(name for name in layers if f"`{name}/`" not in text) == []


def test_architecture_stays_short() -> None:
    """A newcomer reads it in one sitting. What is longer has a page of its own under docs/."""
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= ARCHITECTURE_WORDS_MAX


def test_the_index_keeps_its_head_and_reads_docstrings(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "part.py").write_text('"""One part | of\nit.\n\nMore."""\n')
    text = index_page(f"# Head\n\n{MARK}\nold\n", tmp_path)
    assert text.startswith(f"# Head\n\n{MARK}\n")
    assert "| `part.py` | One part \\| of it. |" in text
    assert "old" not in text


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One line.", "One line."),
        ("One line.\nOwns: more.", "One line."),
        ("A sentence over\ntwo lines.\n\nMore.", "A sentence over two lines."),
        ("No full stop\n\nMore.", "No full stop"),
        ("", ""),
    ],
)
def test_what_counts_as_a_first_sentence(docstring: str, sentence: str) -> None:
    assert first_sentence(docstring) == sentence


def test_every_relative_link_leads_somewhere() -> None:
    assert [f"{path.relative_to(ROOT)}: {link}" for path in documents() for link in broken_links(path)] == []


def broken_links(path: Path) -> list[str]:
    text = CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))
    inner = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
    return [link for link in inner if not leads_somewhere(path, link)]


def leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


def anchors(text: str) -> set[str]:
    """The names that headings can be linked by."""
    headings = HEADING.findall(CODE_BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n[a](page.md) [b](page.md#two-words) [c](gone.md) [d](#three) [e](http://x.example/)\n"
    )
    assert broken_links(page) == ["gone.md", "#three"]


def test_no_file_names_a_package_index_or_a_place_on_one_machine() -> None:
    found = [(path.relative_to(ROOT), match[0]) for path in files() for match in FORBIDDEN.finditer(read_text(path))]
    assert [f"{path}: {text.strip()}" for path, text in found] == []


@pytest.mark.parametrize("text", ["https://pypi." + "org/simple", "cd /wo" + "rk/x", '"/ro' + 'ot/x"'])
def test_forbidden_words_are_found(text: str) -> None:
    assert FORBIDDEN.search(text)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
