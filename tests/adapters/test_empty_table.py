"""That a table is empty is asked once, and a row that was announced meanwhile is never overlooked."""

import apsw
import pytest

from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.reads import Answer, Question

pytestmark = pytest.mark.anyio


class CountedReads:
    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        self.connection.execute("CREATE TABLE things (id)")
        self.count = 0
        self.table: EmptyTable | None = None

    async def ask(self, question: Question[Answer]) -> Answer:
        self.count += 1
        answer = question(self.connection)
        if self.table is not None:
            self.table.expect_row()
        return answer

    async def close(self) -> None:
        self.connection.close()


async def test_empty_table_is_asked_once_until_a_row_is_announced() -> None:
    reads = CountedReads()
    table = EmptyTable(reads, "things")
    assert [await table.is_empty(), await table.is_empty(), reads.count] == [True, True, 1]
    table.expect_row()
    assert [await table.is_empty(), reads.count] == [False, 1]


async def test_table_with_a_row_is_not_empty() -> None:
    reads = CountedReads()
    reads.connection.execute("INSERT INTO things VALUES (1)")
    assert await EmptyTable(reads, "things").is_empty() is False


async def test_row_that_is_announced_during_the_question_counts_more_than_its_answer() -> None:
    reads = CountedReads()
    table = reads.table = EmptyTable(reads, "things")
    assert await table.is_empty() is False
