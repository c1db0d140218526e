"""Settings: one typed object from the environment, `.env` and `campana.toml`, in that order of weight.

Each is read as `CAMPANA_<NAME>`, then as `<NAME>`; an embedded engine reads only the first. Unknown `CAMPANA_*` names and
bad values stop the start with one message that lists them all.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from campana.errors import SettingsError

PREFIX = "CAMPANA_"
SHORTEST_SECRET = 32


class Settings(BaseModel):
    """What an operator may set. The description of a field is its line in the reference."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: str | None = Field(
        None,
        description="SQLAlchemy URL; by default a SQLite file in the data folder; with `?pooled=true` behind a pooler",
    )
    database_direct_url: str | None = Field(
        None, description="PostgreSQL's own URL where DATABASE_URL leads to a pooler: engines hear of new work there at once"
    )
    data: Path = Field(Path("campana-data"), description="Folder for the SQLite file and the secrets made on first start")
    host: str = Field("127.0.0.1", description="Address that the API listens on")
    port: int = Field(8000, ge=0, le=65_535, description="Port that the API listens on; 0 takes a free one")
    bootstrap_key: SecretStr | None = Field(None, description="The owner key that first start creates instead of a random one")
    secret_key: SecretStr | None = Field(
        None, description="Secret of idempotency keys and cursors; required on a server database"
    )
    encryption_keys: SecretStr | None = Field(
        None,
        description="Keys that seal signing secrets at rest, the newest first, with commas between; "
        "unset, one is derived from the secret key, which opens what it sealed in any case",
    )
    scheduler_tick_interval: float = Field(1.0, gt=0, le=3600, description="Seconds between heartbeats; above 1 is used as 1")
    scheduler_poll_interval_seconds: float | None = Field(None, gt=0, le=3600, description="Older name of the tick interval")
    scheduler_batch_size: int = Field(100, ge=1, le=1_000, description="Deliveries taken by one claim")
    max_in_flight: int = Field(100, ge=1, le=10_000, description="Deliveries under way at once in one engine")
    max_in_flight_per_host: int = Field(20, ge=1, le=10_000, description="Requests under way at once to one destination host")
    breaker_trip_after: int = Field(
        5, ge=0, le=1_000, description="Failures in a row after which a receiver is left alone and then probed; 0: it never is"
    )
    breaker_first_seconds: float = Field(
        10, ge=0.1, le=3600, description="How long it is left alone first; doubled by each probe"
    )
    breaker_longest_seconds: float = Field(
        300, ge=0.1, le=3600, description="How long it is left alone at the most, also where it asks for more (Retry-After)"
    )
    lease_seconds: float = Field(60, ge=1, le=3600, description="How long a claim lasts before another engine may take over")
    shutdown_grace_seconds: float = Field(30, ge=0, le=3600, description="How long a stopping engine waits for what is under way")
    disable_all_calls: bool = Field(False, description="True: this host's engines place no call; nobody can lift it from outside")
    hold: bool = Field(False, description="True: engines start with the safe hold engaged, as is right after a restore")
    max_live_per_tenant: int = Field(20_000_000, ge=1, description="Deliveries of one tenant that may wait at once")
    retry_max_attempts: int = Field(3, ge=1, le=1_000, description="Attempts at a delivery that says nothing itself")
    retry_base_delay_seconds: float = Field(60, gt=0, le=86_400, description="First delay of the back-off")
    retry_cap_seconds: float = Field(3600, gt=0, le=864_000, description="Longest delay of the back-off")
    retention_days: float = Field(
        90, ge=1, le=36_500, description="Days for which ended deliveries and events are kept; a dedupe key is free after them"
    )
    webhook_allow_cidrs: str | None = Field(
        None, description="Private networks that webhooks may reach, with commas between; unset on loopback is development mode"
    )
    database_pool_size: int = Field(10, ge=2, le=200, description="Connections to a database server, for API and engine each")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged")
    log_format: Literal["auto", "pretty", "json"] = Field(
        "auto", description="Form of log lines: pretty on a terminal, else JSON"
    )

    @field_validator("secret_key")
    @classmethod
    def _long(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and len(secret.get_secret_value()) < SHORTEST_SECRET:
            message = f"expected at least {SHORTEST_SECRET} characters, got {len(secret.get_secret_value())}"
            raise ValueError(message)
        return secret

    @field_validator("encryption_keys")
    @classmethod
    def _keys(cls, keys: SecretStr | None) -> SecretStr | None:
        lengths = [] if keys is None else [len(part.strip()) for part in keys.get_secret_value().split(",")]
        if keys is not None and min(lengths) < SHORTEST_SECRET:
            message = f"expected keys of at least {SHORTEST_SECRET} characters with commas between, got one of {min(lengths)}"
            raise ValueError(message)
        return keys

    @field_validator("bootstrap_key")
    @classmethod
    def _key(cls, key: SecretStr | None) -> SecretStr | None:
        text = "" if key is None else key.get_secret_value().removeprefix("cmp_")
        plain = text.isascii() and text.isprintable() and " " not in text and 32 <= len(text) <= 200  # noqa: PLR2004 - as the message says
        if key is not None and not (key.get_secret_value().startswith("cmp_") and plain):
            message = "expected cmp_ and then 32 to 200 printable ASCII characters"
            raise ValueError(message)
        return key

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, text: object, info: ValidationInfo) -> object:
        if not isinstance(text, str):
            return text
        return text.upper() if info.field_name == "log_level" else text.lower()

    @field_validator("host")
    @classmethod
    def _somewhere(cls, host: str) -> str:
        # An empty one would listen on every address: a variable that somebody left empty must not open the door.
        if not host.strip():
            message = "expected an address or a host name; 0.0.0.0 listens on every address"
            raise ValueError(message)
        return host

    @field_validator("database_url", "database_direct_url")
    @classmethod
    def _known(cls, url: str | None) -> str | None:
        # Neither is an empty one left out: it is a variable that nobody filled, and a file would take what a server is meant for.
        if url is not None and not _URL.match(url):
            message = "expected sqlite:///file.db, postgresql://user:password@host/name or mysql://user:password@host/name"
            raise ValueError(message)
        # Hosts that hand out a URL still call it by its older name.
        return "postgresql" + url.removeprefix("postgres") if url and url.startswith("postgres://") else url

    @field_validator("webhook_allow_cidrs")
    @classmethod
    def _networks(cls, text: str | None) -> str | None:
        for part in (text or "").split(","):
            try:
                ip_network(part.strip() or "::1")
            except ValueError as error:
                message = f"expected networks such as 10.0.0.0/8 with commas between; {error}"
                raise ValueError(message) from None
        return text

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data.absolute() / 'campana.db'}"

    @property
    def is_file(self) -> bool:
        """Say whether the database is a SQLite file."""
        return self.url.startswith("sqlite")

    @property
    def file(self) -> Path | None:
        """The SQLite file; None on a database server."""
        return Path(self.url.partition(":///")[2].partition("?")[0]) if self.is_file else None

    @property
    def home(self) -> Path:
        """The folder of what is kept beside the data."""
        return self.data if self.file is None else self.file.parent

    @property
    def is_development(self) -> bool:
        """Say whether receivers on loopback are allowed because nothing was said and nobody else can reach us."""
        return self.webhook_allow_cidrs is None and _is_loopback(self.host)

    @property
    def allowed_networks(self) -> tuple[str, ...]:
        """The private networks that webhooks may reach."""
        if self.is_development:
            return ("127.0.0.0/8", "::1/128")
        return tuple(part.strip() for part in (self.webhook_allow_cidrs or "").split(",") if part.strip())

    @property
    def tick_seconds(self) -> float:
        """The tick's period: the stop's bound of two seconds needs at most one."""
        asked = self.scheduler_tick_interval
        if "scheduler_tick_interval" not in self.model_fields_set and self.scheduler_poll_interval_seconds is not None:
            asked = self.scheduler_poll_interval_seconds
        return min(asked, 1.0)

    @classmethod
    def load(
        cls, environment: Mapping[str, str] | None = None, *, folder: Path = Path(), bare_names: bool = True, **given: object
    ) -> Self:
        """Read everything, `given` before all else; raise SettingsError with every fault at once."""
        env = os.environ if environment is None else environment
        found, faults = _from_toml(folder / "campana.toml")
        sources = (_dotenv(folder / ".env"), env)
        # A bare name may be meant for somebody else: one with our prefix wins over it wherever it stands.
        for prefix in ("", PREFIX) if bare_names else (PREFIX,):
            for source in sources:
                names = [name for name in cls.model_fields if prefix or name not in _NEVER_BARE]
                found |= {name: source[prefix + name.upper()] for name in names if prefix + name.upper() in source}
        for source in sources:
            faults += [
                f"{name}: unknown setting"
                for name in sorted(source)
                if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in cls.model_fields and name not in _OTHERS
            ]
        found |= {name: value for name, value in given.items() if value is not None}
        try:
            settings = cls.model_validate(found)
        except ValidationError as error:
            faults += [f"{'.'.join(map(str, e['loc'])).upper()}: {_sentence(e)}, got {_shown(e)}" for e in error.errors()]
            raise SettingsError("; ".join(faults)) from None
        if faults:
            raise SettingsError("; ".join(faults))
        return settings


_NEVER_BARE = frozenset({"data", "hold", "host", "port"})
_OTHERS = frozenset({"CAMPANA_TEST_POSTGRESQL", "CAMPANA_TEST_PGBOUNCER", "CAMPANA_TEST_MARIADB", "CAMPANA_TEST_MYSQL"})


_URL = re.compile(
    r"(?:sqlite:///(?!:memory:)[^?]|(?:postgres|postgresql|postgresql\+asyncpg|mysql|mysql\+asyncmy|mariadb)://[^/])"
)


def _sentence(error: Mapping[str, Any]) -> str:
    if error["type"] in _PLAIN:
        return _PLAIN[error["type"]]
    said = str(error["msg"])
    return said.removeprefix("Value error, ").replace("Input should be", "expected", 1)


_PLAIN = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "finite_number": "expected a number that is not endless",
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
}
_SECRET = {"secret_key", "encryption_keys", "bootstrap_key", "database_url", "database_direct_url"}


def _shown(error: Mapping[str, object]) -> str:
    location = error["loc"]
    return "(not shown)" if isinstance(location, tuple) and _SECRET & set(location) else repr(error["input"])[:80]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _dotenv(path: Path) -> Mapping[str, str]:
    if not path.is_file():
        return {}
    lines = (line.strip().removeprefix("export ") for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#") and "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _from_toml(path: Path) -> tuple[dict[str, object], list[str]]:
    if not path.is_file():
        return {}, []
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return {}, [f"{path.name}: {error}"]
    known = {name.lower(): value for name, value in said.items()}
    unknown = [f"{path.name}: unknown setting {name}" for name in sorted(known) if name not in Settings.model_fields]
    return {name: value for name, value in known.items() if name in Settings.model_fields}, unknown
