"""Column types that mean the same on every database."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Dialect, LargeBinary, String, Text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

from campana.domain import instants


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime, kept as 64-bit microseconds: no database rounds it, shifts it or forgets its zone."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Refuse naive values."""
        del dialect
        return None if value is None else instants.to_micros(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return an aware datetime."""
        del dialect
        return _from_micros(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """Return what reads a value, without the two calls around it: a claimed row has five of them."""
        del dialect, coltype
        return _from_micros


def _from_micros(value: int | None) -> datetime | None:
    return None if value is None else instants.from_micros(value)


class Id(TypeDecorator[UUID]):
    """A UUID: native on PostgreSQL, sixteen bytes elsewhere, sorted by creation on all of them."""

    impl = LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Pick the native form."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.UUID(as_uuid=True))
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.BINARY(16))
        return dialect.type_descriptor(LargeBinary(16))

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """Return what the database keeps."""
        return value if value is None or dialect.name == "postgresql" else value.bytes

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        """Return a UUID."""
        return value if value is None or dialect.name == "postgresql" else UUID(bytes=bytes(value))

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Say that PostgreSQL's driver takes UUIDs as they are: a call for each that changes nothing is not free."""
        return None if dialect.name == "postgresql" else super().bind_processor(dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Say that PostgreSQL's driver gives UUIDs."""
        return None if dialect.name == "postgresql" else super().result_processor(dialect, coltype)


class Name(TypeDecorator[str]):
    """Text that identifies something: compared byte by byte. MySQL's text ignores trailing blanks, so there it is bytes."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        """Keep the length in characters."""
        self.characters = length
        super().__init__(length)

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Pick bytes on MySQL and MariaDB, and on PostgreSQL the order of bytes."""
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.VARBINARY(self.characters * 4))
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.VARCHAR(self.characters, collation="C"))
        return dialect.type_descriptor(String(self.characters))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Return what the database keeps."""
        return value if value is None or dialect.name != "mysql" else value.encode()

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Return text."""
        del dialect
        return bytes(value).decode() if isinstance(value, bytes | bytearray) else value


def long_text() -> TypeEngine[str]:
    """Return a text type without MySQL's 64 KiB bound."""
    return Text().with_variant(mysql.MEDIUMTEXT(), "mysql")


def long_bytes() -> TypeEngine[bytes]:
    """Return a bytes type without MySQL's 64 KiB bound."""
    return LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql")
