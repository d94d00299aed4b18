"""The schema's migrations: which numbered file comes next, and refusing an unknown schema.

Does not own: the SQL itself (migrations/).
Each file in migrations/ is one step forward. It is applied with its number in one transaction, and never edited once
released.
"""

from importlib import resources
from pathlib import Path
from typing import NamedTuple

import apsw

from palyra.core.errors import Corrupt, Unavailable


class Migration(NamedTuple):
    number: int
    sql: str


def known_migrations() -> tuple[Migration, ...]:
    """Returns the migrations in order. Their numbers are the file names' first four digits, from 1 without gaps."""
    folder = resources.files("palyra.adapters.store.sqlite") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(Migration(int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files)


def migrate(connection: apsw.Connection, path: Path, migrations: tuple[Migration, ...]) -> None:
    """Brings the schema up to the last of `migrations`. A step that fails leaves the schema of the one before it."""
    version = schema_version(connection)
    newest = migrations[-1].number
    if version > newest:
        message = (
            f"{path} has schema {version}, this release knows {newest}; run the release that wrote it, or a newer one"
        )
        raise Unavailable("schema_newer", message)
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise Corrupt("not_a_journal", f"{path} is a database of something else; choose another path")
    for migration in migrations[version:]:
        with connection:
            connection.execute(migration.sql)
            connection.execute(f"PRAGMA user_version = {migration.number}")


def schema_version(connection: apsw.Connection) -> int:
    version = connection.execute("PRAGMA user_version").get
    return version if isinstance(version, int) else 0
