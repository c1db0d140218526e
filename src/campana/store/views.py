"""A readable view beside each table: instants as text, ids and states as words, for people at a database prompt."""

from sqlalchemy import Column, Connection, Table, inspect, text

from campana.domain.deliveries import State
from campana.store import dialects, schema
from campana.store.columns import Id, Instant, Name

_INSTANT = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {0} / 1000000.0, 'unixepoch')",
    "postgresql": "to_timestamp({0} / 1000000.0)",
    "mysql": "timestampadd(microsecond, {0}, '1970-01-01 00:00:00.000000')",
}
_ID = {"sqlite": "lower(hex({0}))", "postgresql": "{0}", "mysql": "lower(hex({0}))"}
_NAME = {"sqlite": "{0}", "postgresql": "{0}", "mysql": "convert({0} using utf8mb4)"}


def name_of(table: Table) -> str:
    """Return the view's name."""
    return f"{table.name}_readable"


def are_there(connection: Connection) -> bool:
    """Say whether every table has its view: where each statement commits, a killed migration may have left some out."""
    return _names() <= set(inspect(connection).get_view_names())


def drop(connection: Connection) -> None:
    """Take the views away, since they would stand in the way of a migration."""
    for name in sorted(_names() & set(inspect(connection).get_view_names())):
        connection.execute(text(f"drop view {name}"))


def _names() -> set[str]:
    return {name_of(table) for table in schema.metadata.sorted_tables}


def create(connection: Connection) -> None:
    """Make the views for the tables as they are now."""
    dialect = dialects.of(connection).name
    for table in schema.metadata.sorted_tables:
        shown = ", ".join(f"{_shown(column, dialect)} as {_quoted(column.name, dialect)}" for column in table.columns)
        connection.execute(text(f"create view {name_of(table)} as select {shown} from {table.name}".replace(":", "\\:")))


def _quoted(name: str, dialect: str) -> str:
    return f"`{name}`" if dialect == "mysql" else f'"{name}"'


def _shown(column: Column[object], dialect: str) -> str:
    name = _quoted(column.name, dialect)
    if isinstance(column.type, Instant):
        return _INSTANT[dialect].format(name)
    if isinstance(column.type, Id):
        return _ID[dialect].format(name)
    if isinstance(column.type, Name):
        return _NAME[dialect].format(name)
    if column.name == "state":
        return "case state " + " ".join(f"when {int(state)} then '{state.word}'" for state in State) + " end"
    return name
