"""Statement: SQL that is put together once, and run by the driver itself.

SQLAlchemy takes three times as long as the driver to run a short statement, and a shard is stored by ten. What it knows
of the types of columns is asked once; failures are those that it would raise.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Executable, Select, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.compiler import SQLCompiler

from offpolicy_monitor.store.failures import driven

Processor = Callable[[Any], Any]
Row = tuple[Any, ...]
INSERT: Final[Mapping[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Statement:
    """`made` is the statement, or what makes it for a dialect by its name; every bound parameter is named."""

    def __init__(self, made: Executable | Callable[[str], Executable]) -> None:
        self._made = made
        self._of_dialect: dict[str, _Compiled] = {}

    def rows(self, connection: Connection, **parameters: Any) -> list[Row]:
        """The rows that it answers, as plain tuples."""
        compiled = self._compiled(connection)
        found: list[Row] = driven(connection, compiled.text, [compiled.bound(parameters)], compiled.read)
        return found

    def run(self, connection: Connection, *of_rows: Mapping[str, Any]) -> None:
        """Run it once for each of these parameters."""
        if of_rows:
            compiled = self._compiled(connection)
            driven(connection, compiled.text, [compiled.bound(row) for row in of_rows])

    def _compiled(self, connection: Connection) -> "_Compiled":
        name = connection.dialect.name
        if name not in self._of_dialect:
            made = self._made(name) if callable(self._made) else self._made
            self._of_dialect[name] = _Compiled(made, connection)
        return self._of_dialect[name]


def putting(table: Table) -> Statement:
    """Inserts a row, in place of one that has the same key."""

    def made(dialect: str) -> Executable:
        statement = INSERT[dialect](table).values({column.name: bindparam(column.name) for column in table.c})
        changed = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        put: Executable = statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
        return put

    return Statement(made)


class _Compiled:
    """The text of a statement for one dialect, how its parameters are bound and its rows are read."""

    def __init__(self, statement: Executable, connection: Connection) -> None:
        dialect, options = connection.dialect, {"render_postcompile": True}
        compiled = statement.compile(dialect=dialect, compile_kwargs=options)  # pyrefly: ignore[missing-attribute]
        assert isinstance(compiled, SQLCompiler)
        self.text: Final = compiled.string
        self._positional = compiled.positional
        self._given = {name: value for name, value in compiled.params.items() if not _is_asked(compiled, name)}
        self._names = compiled.positiontup if compiled.positional and compiled.positiontup else list(compiled.params)
        types = {name: compiled.binds[name].type for name in self._names if name in compiled.binds}
        found = {name: kind.dialect_impl(dialect).bind_processor(dialect) for name, kind in types.items()}
        at = {index: found.get(name) for index, name in enumerate(self._names)}
        self._binding = [(index, process) for index, process in at.items() if process is not None]
        self._columns = [*statement.selected_columns] if isinstance(statement, Select) else []
        self._dialect = dialect
        self._reading: list[tuple[int, Processor]] | None = None

    def bound(self, parameters: Mapping[str, Any]) -> Any:
        """Parameters as the driver takes them; what is written in the statement itself counts where none is given."""
        given = {**self._given, **parameters} if self._given else parameters
        values = [given[name] for name in self._names]
        for index, process in self._binding:
            values[index] = process(values[index])
        return values if self._positional else dict(zip(self._names, values, strict=True))

    def read(self, cursor: DBAPICursor) -> list[Row]:
        """The rows that the driver has found, as SQLAlchemy would answer them."""
        if self._reading is None:
            codes = zip(self._columns, cursor.description, strict=False)
            found = [
                column.type.dialect_impl(self._dialect).result_processor(self._dialect, d[1]) for column, d in codes
            ]
            self._reading = [(index, process) for index, process in enumerate(found) if process is not None]
        if not self._reading:
            return list(cursor.fetchall())
        rows = [list(row) for row in cursor.fetchall()]
        for row in rows:
            for index, process in self._reading:
                row[index] = process(row[index])
        return [tuple(row) for row in rows]


def _is_asked(compiled: SQLCompiler, name: str) -> bool:
    return name in compiled.binds and compiled.binds[name].required
