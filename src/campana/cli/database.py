"""The database before there is a house: its schema, and one sentence for whatever a driver says of one that can't be used."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from campana.errors import CampanaError, SettingsError, UnavailableError
from campana.settings import Settings
from campana.store import migrate


@contextlib.contextmanager
def _in_a_sentence() -> Iterator[None]:
    try:
        yield
    except CampanaError:
        raise
    except Exception as error:
        # Drivers and SQLAlchemy raise what they like, over many lines; people want the first one.
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnavailableError(f"the database can't be used: {said[:300]}; check DATABASE_URL and the server") from error


async def upgrade(settings: Settings) -> tuple[str | None, str]:
    """Bring the schema up to date, making the SQLite file where there is none; return the revision before and after."""
    if settings.file is not None:
        _make_folder(settings.file.parent)
    with _in_a_sentence():
        return await migrate.upgrade(settings.url)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise SettingsError(f"the data folder can't be made: {folder} is a file; choose another --data") from None
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise SettingsError(f"the data folder {folder} can't be made: {said}; choose another --data") from None


async def current(settings: Settings) -> str | None:
    """Return the schema's revision, or None where there is none; nothing is made."""
    with _in_a_sentence():
        if settings.file is not None and not settings.file.exists():
            return None
        return await migrate.current(settings.url)


async def require(settings: Settings) -> None:
    """Raise unless the schema is the one that this version speaks."""
    found = await current(settings)
    if settings.file is not None and not settings.file.exists():
        # Not only that it wants a schema: who has lost a file, or named another folder, must not be led to begin anew.
        raise SettingsError(
            f"there is no database {settings.file.absolute()}: check --data and DATABASE_URL; to begin an empty one, "
            "run `campana migrate`"
        )
    if not migrate.is_enough(found):
        raise SettingsError(f"the schema is {found or 'not there'}, this version needs {migrate.newest()}: run `campana migrate`")
