"""What a person is told of a compaction: which rules and tasks went, and by which words."""

from palyra.cli.terminal.compaction_view import compaction_lines, record_lines
from palyra.cli.terminal.style import Style
from palyra.core.events.base import JsonObject

TASK: JsonObject = {"kind": "task", "text": "Todo: write it.", "by": "It is written.", "by_place": 9}
RULE: JsonObject = {"kind": "rule", "text": "Use tabs.", "by": "Use spaces.", "by_place": 7}
LINES = ["retired Todo: write it. (done at 9: It is written.)", "retired Use tabs. (replaced at 7: Use spaces.)"]


def test_a_compaction_tells_what_it_retired_and_by_which_words() -> None:
    answer: JsonObject = {"committed": True, "by": "rules", "exchanges_count": 3, "retired": [TASK, RULE]}
    assert compaction_lines(answer, Style(False))[1:] == LINES


def test_the_record_tells_the_same_also_if_only_the_event_is_left() -> None:
    event: JsonObject = {"at_ms": 0, "data": {"by": "rules", "checkpoint_id": "C", "retired": [TASK, RULE]}}
    whole: JsonObject = {"kept": [], "retired": [TASK, RULE]}
    for record in (None, whole):
        assert record_lines(event, record, Style(False))[1:] == [f"  {line}" for line in LINES]


def test_one_exchange_is_one() -> None:
    assert (
        compaction_lines({"by": "rules", "exchanges_count": 1}, Style())[0]
        == "would compact 1 exchange, summary by the rules"
    )
