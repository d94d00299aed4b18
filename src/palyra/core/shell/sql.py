"""Database clients. Owns: when a query given in words only reads. Not: queries from a file or from input, which ask.

A query is free if it is one statement, begins as a reading one does, and names nothing that writes. A function may do anything,
so only a few known ones may be called.
"""

import re

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import Option, OptionTable, option_table, read_line
from palyra.core.shell.programs import judge_option
from palyra.core.shell.tools import is_help
from palyra.core.shell.words import Argument

QUERY_LENGTH_MAX = 4000  # Longer ones are not looked through.
_TEXT = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_FIRST = frozenset("SELECT SHOW EXPLAIN DESCRIBE DESC WITH VALUES TABLE SUMMARIZE".split())
_WRITING = re.compile(
    r"\b(?:INSERT|UPDATE|DELETE|DROP|CREATE|ALTER|TRUNCATE|GRANT|REVOKE|INTO|CALL|EXEC|EXECUTE|COPY|ATTACH|DETACH|REPLACE|MERGE|"
    r"VACUUM|REINDEX|ANALYZE|ANALYSE|PRAGMA|SET|RESET|LOCK|UNLOAD|EXPORT|IMPORT|INSTALL|LOAD|DO|OUTFILE|DUMPFILE|REFRESH|"
    r"BEGIN|COMMIT|ROLLBACK|KILL|HANDLER|SHUTDOWN|DECLARE|PREPARE|CLUSTER|NOTIFY|LISTEN|SECURITY|USE|FOR\s+UPDATE)\b",
    re.IGNORECASE,
)
_QUOTED_CALL = re.compile(r"''\s*\(")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
_FUNCTIONS = frozenset(
    """
    abs avg cast ceil ceiling char_length coalesce concat concat_ws count cume_dist date date_part date_trunc datetime day
    dense_rank exists extract first_value floor format group_concat hour if ifnull in instr isnull json_array_length json_extract
    julianday lag last_value lead left length lower lpad ltrim max min minute month now ntile nullif over percent_rank
    position power quarter random rank right round row_number rpad rtrim second sign sqrt strftime string_agg
    substr substring sum time to_char to_date total trim trunc typeof upper values version week year any all some union
    array_agg generate_series json_agg unnest
    and as asc between by case cross desc distinct else end except filter from having ilike inner intersect interval is join
    lateral like limit not offset on or outer partition select then using when where within
    """.split()
)
# Comments and quotes of other kinds: databases do not agree where they end.
_DOUBTFUL = re.compile(r"[\\`$#]|--|/\*")

_SQLITE = option_table(
    is_single_dash=True,
    text="-cmd -c -s -separator -newline -nullvalue -lookaside:2 -pagecache:2 -mmap -maxsize",
    flag="-csv -json -line -list -column -table -box -markdown -html -quote -tabs -ascii -header -noheader -readonly "
    "-safe -bail -batch -jsonlines -latex",
)
_PSQL = option_table(
    text="-c --command -U --username -d --dbname -h --host -p --port -F --field-separator -P --pset",
    flag="-t --tuples-only -A --no-align -q --quiet -x --expanded -X --no-psqlrc -l --list -w --no-password -H "
    "--html --csv",
)
_MYSQL = option_table(
    text="-e --execute -u --user -D --database -h --host -P --port",
    flag="-B --batch -N --skip-column-names -t --table -X --xml -H --html -s --silent -r --raw -E --vertical -p",
)
_SQLCMD = option_table(text="-d --database", flag="-t")
_ANY_FILE = re.compile(r"['\"][^'\"]*[./:][^'\"]*['\"]")  # To duckdb a text after FROM may be a file or an address.


def is_reading(query: str) -> bool:
    if len(query) > QUERY_LENGTH_MAX or _DOUBTFUL.search(query):
        return False
    text = _TEXT.sub("''", query).strip().rstrip(";").strip()
    if not text or ";" in text or "'" in text.replace("''", "") or '"' in text or _QUOTED_CALL.search(text):
        return False
    first = re.split(r"[\s(]", text, maxsplit=1)[0].upper()
    if first not in _FIRST or _WRITING.search(text):
        return False
    return all(name.lower() in _FUNCTIONS or name.upper() in _FIRST for name in _CALL.findall(text))


def _judge_query(invocation: Invocation, query: Argument) -> None:
    # The client of MySQL has commands of its own, at the beginning of a line.
    is_odd = invocation.program in ("mysql", "mariadb") and "\n" in (query.value or "")
    if query.value is None or is_odd or not is_reading(query.value):
        invocation.ask(Code.WRITES, f"the query {short(query.source)} is not known to only read", query)


def _read(invocation: Invocation, table: OptionTable) -> tuple[list[Argument], list[Option]]:
    """Operands, and the options with values."""
    line = read_line(table, invocation.arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
    invocation.is_known()
    return list(line.operands), [option for option in line.options if option.values]


def _values(options: list[Option], names: tuple[str, ...]) -> list[Argument]:
    return [value for option in options if option.name in names for value in option.values]


def judge_sqlite(invocation: Invocation) -> None:
    """sqlite3 and duckdb: a database, then queries. Without a query they obey their input, which may run programs."""
    operands, options = _read(invocation, _SQLITE)
    queries = operands[1:] + _values(options, ("-cmd", "-c", "-s"))
    if not queries:
        invocation.ask(Code.RUNS_CODE, f"{invocation.program} without a query obeys its input")
    is_readonly = read_line(_SQLITE, invocation.arguments).has(("-readonly",))
    for operand in operands[:1]:
        if operand.value != ":memory:":
            invocation.reads(operand)
            if not is_readonly:
                words = f"{invocation.program} makes a database that is missing: write -readonly"
                invocation.ask(Code.WRITES, words, operand)
    for query in queries:
        _judge_query(invocation, query)
        if invocation.program == "duckdb" and _ANY_FILE.search(query.value or ""):
            invocation.ask(Code.OUTSIDE_WORKSPACE, "duckdb may read any file that a query names", query)


def judge_psql(invocation: Invocation) -> None:
    _, options = _read(invocation, _PSQL)
    queries = _values(options, ("-c", "--command"))
    is_listing = read_line(_PSQL, invocation.arguments).has(("-l", "--list"))
    _judge_queries(invocation, queries, is_listing=is_listing)


def judge_mysql(invocation: Invocation) -> None:
    _, options = _read(invocation, _MYSQL)
    _judge_queries(invocation, _values(options, ("-e", "--execute")), is_listing=False)


def _judge_queries(invocation: Invocation, queries: list[Argument], *, is_listing: bool) -> None:
    if not queries and not is_listing:
        invocation.ask(Code.RUNS_CODE, f"{invocation.program} without a query obeys its input")
    for query in queries:
        _judge_query(invocation, query)
    invocation.needs_network()


def judge_sqlcmd(invocation: Invocation) -> None:
    if is_help(invocation, frozenset()):
        return
    operands, _ = _read(invocation, _SQLCMD)
    is_query = bool(operands) and operands[0].value == "query"
    _judge_queries(invocation, operands[1:2] if is_query else [], is_listing=False)
    if len(operands) > 2:
        invocation.ask(Code.UNKNOWN_OPTION, "sqlcmd with more than a query is not followed", operands[2])
