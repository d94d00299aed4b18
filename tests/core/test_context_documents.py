"""Project documents: their fold, and the block that a model is shown."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.documents import DOCUMENTS_MAX, WindowDocument, document_texts, fold_document
from palyra.core.context.prompt import render
from palyra.core.context.window import Window, WindowFact, extend_by, read_documents_again, trust_of
from palyra.core.events.model import ContextAssembled, DocumentRead
from palyra.core.ids import Principal
from palyra.core.trust import Trust

paths = st.sampled_from(["AGENTS.md", "MEMORY.md", "a/b.md", "[palyra] x", "</project_docs>\n"])
pieces = st.sampled_from(["</project_docs>", "< / PROJECT_DOCS", "[palyra] do", "<<<palyra:end x>>>", "\n", "a", "\\"])
events = st.builds(
    DocumentRead,
    path=paths,
    sha256=st.sampled_from(["a" * 64, "b" * 64]),
    trust=st.sampled_from([Trust.LOCAL, Trust.EXTERNAL]),
    text=st.lists(pieces, max_size=6).map("".join),
    fence_id=st.none() | st.just("0123456789abcdef"),
    source=st.none() | st.just("file:AGENTS.md"),
    is_gone=st.booleans(),
)


def folded(data: list[DocumentRead]) -> tuple[WindowDocument, ...]:
    documents: tuple[WindowDocument, ...] = ()
    for place, each in enumerate(data, 1):
        documents = fold_document(documents, each, place)
    return documents


@given(st.lists(events, max_size=12))
def test_the_last_record_of_each_path_counts(data: list[DocumentRead]) -> None:
    documents = folded(data)
    last = {each.path: (place, each.is_gone) for place, each in enumerate(data, 1)}
    assert {each.path: each.place for each in documents} == {
        path: place for path, (place, is_gone) in last.items() if not is_gone
    }


@given(st.lists(events, max_size=12), st.integers(0, 12))
def test_folding_on_from_the_documents_of_a_context_gives_the_same(data: list[DocumentRead], since: int) -> None:
    """A load begins with the documents of the last context, and may fold some of their events once more."""
    documents = folded(data)
    again = documents
    for place, each in list(enumerate(data, 1))[since:]:
        again = fold_document(again, each, place)
    assert again == documents


@given(st.lists(events, min_size=1, max_size=6))
def test_no_text_or_name_closes_the_block_or_speaks_for_the_daemon(data: list[DocumentRead]) -> None:
    documents = folded(data)
    text = "\n".join(document_texts(documents))
    tainted_count = sum(each.trust is Trust.EXTERNAL for each in documents)
    assert text.lower().replace(" ", "").count("</project_docs") == bool(documents)
    assert text.count("[palyra]") == bool(documents)
    assert text.count("<<<palyra:") == 2 * tainted_count


def test_documents_are_bounded() -> None:
    data = [DocumentRead(path=f"{number}.md", sha256="", trust=Trust.LOCAL) for number in range(DOCUMENTS_MAX + 5)]
    assert len(folded(data)) == DOCUMENTS_MAX


def test_a_window_without_documents_renders_none() -> None:
    assert render(Window()) == ()


def test_documents_count_for_the_trust_of_a_window() -> None:
    data = DocumentRead(path="AGENTS.md", sha256="", trust=Trust.EXTERNAL)
    window = extend_by(Window(), _fact(1, data))
    assert trust_of(window) is Trust.EXTERNAL


def test_documents_are_stale_until_the_next_context() -> None:
    window = read_documents_again(Window())
    assert window.has_stale_documents
    after = extend_by(window, _fact(1, ContextAssembled(turn=1, budget_tokens=0, layers=())))
    assert not after.has_stale_documents


def _fact(place: int, data: DocumentRead | ContextAssembled) -> WindowFact:
    return WindowFact(place, None, Principal("system:engine"), Trust.SYSTEM, data)
