"""Settings: where they come from, which source wins, and one message for everything that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from campana.errors import SettingsError
from campana.settings import Settings

DEFAULTS: dict[str, Any] = {
    "database_url": None,
    "data": Path("campana-data"),
    "host": "127.0.0.1",
    "port": 8000,
    "bootstrap_key": None,
    "secret_key": None,
    "encryption_keys": None,
    "database_direct_url": None,
    "scheduler_tick_interval": 1.0,
    "scheduler_poll_interval_seconds": None,
    "scheduler_batch_size": 100,
    "max_in_flight": 100,
    "max_in_flight_per_host": 20,
    "breaker_trip_after": 5,
    "breaker_first_seconds": 10,
    "breaker_longest_seconds": 300,
    "lease_seconds": 60,
    "shutdown_grace_seconds": 30,
    "disable_all_calls": False,
    "hold": False,
    "max_live_per_tenant": 20_000_000,
    "retry_max_attempts": 3,
    "retry_base_delay_seconds": 60,
    "retry_cap_seconds": 3600,
    "retention_days": 90,
    "webhook_allow_cidrs": None,
    "database_pool_size": 10,
    "log_level": "INFO",
    "log_format": "auto",
}
OTHER: dict[str, str] = {
    "database_url": "postgresql://u:p@db/campana",
    "database_direct_url": "postgresql://u:p@direct/campana",
    "data": "/var/lib/campana",
    "host": "0.0.0.0",
    "port": "9000",
    "bootstrap_key": "cmp_" + "b" * 40,
    "secret_key": "s" * 40,
    "encryption_keys": "e" * 40 + ", " + "f" * 32,
    "scheduler_tick_interval": "0.5",
    "scheduler_poll_interval_seconds": "0.25",
    "scheduler_batch_size": "7",
    "max_in_flight": "8",
    "max_in_flight_per_host": "9",
    "breaker_trip_after": "8",
    "breaker_first_seconds": "7",
    "breaker_longest_seconds": "70",
    "lease_seconds": "10",
    "shutdown_grace_seconds": "0",
    "disable_all_calls": "true",
    "hold": "1",
    "max_live_per_tenant": "5",
    "retry_max_attempts": "12",
    "retry_base_delay_seconds": "1.5",
    "retry_cap_seconds": "14",
    "retention_days": "30",
    "webhook_allow_cidrs": "10.0.0.0/8, fd00::/8",
    "database_pool_size": "16",
    "log_level": "debug",
    "log_format": "JSON",
}
NEVER_BARE = {"data", "hold", "host", "port"}
WRONG: dict[str, list[str]] = {
    "database_url": [
        "redis://x",
        "sqlite://",
        "sqlite:///:memory:",
        "campana.db",
        "postgresql+psycopg2://u:hunter2@h/d",
        "oracle://h",
        "",
    ],
    "database_direct_url": [""],
    "host": ["", " "],
    "port": ["-1", "65536", "x", "1.5", ""],
    "bootstrap_key": ["cmp_short", "x" * 50, "cmp_" + "a" * 201, "cmp_" + "a b" * 20, "cmp_" + "é" * 40],
    "secret_key": ["", "x" * 31],
    "encryption_keys": ["", "x" * 31, "x" * 40 + ",", "x" * 40 + ", short"],
    "scheduler_tick_interval": ["0", "-1", "3601", "nan", "inf", "1s"],
    "scheduler_batch_size": ["0", "1001", "many"],
    "max_in_flight": ["0", "10001"],
    "lease_seconds": ["0.5", "3601"],
    "disable_all_calls": ["", "perhaps"],
    "retry_max_attempts": ["0", "1001"],
    "retry_base_delay_seconds": ["0", "86401"],
    "webhook_allow_cidrs": ["10.0.0.0/33", "example.com", "10.0.0.1/8", "10.0.0.0/8;fd00::/8"],
    "database_pool_size": ["1", "201"],
    "log_level": ["LOUD", ""],
    "log_format": ["xml"],
}


def load(folder: Path, environment: dict[str, str] | None = None, **given: Any) -> Settings:
    return Settings.load(environment or {}, folder=folder, **given)


def plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def as_read(name: str) -> Any:
    return plain(getattr(Settings.model_validate({name: OTHER[name]}), name))


def test_the_defaults_are_these(tmp_path: Path) -> None:
    assert load(tmp_path).model_dump() == DEFAULTS
    assert OTHER.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("name", OTHER)
def test_each_is_read_from_every_source_and_the_nearer_one_wins(tmp_path: Path, name: str) -> None:
    def found(environment: dict[str, str] | None = None, **given: Any) -> Any:
        return plain(getattr(load(tmp_path, environment, **given), name))

    expected, upper = as_read(name), name.upper()
    assert expected != DEFAULTS[name]
    assert found({f"CAMPANA_{upper}": OTHER[name]}) == expected
    assert (found({upper: OTHER[name]}) == expected) is (name not in NEVER_BARE)
    assert found({upper: OTHER[name]}, bare_names=False) == DEFAULTS[name]
    given: dict[str, Any] = {name: OTHER[name]}
    assert found(**given) == expected
    (tmp_path / "campana.toml").write_text(f'{name} = "{OTHER[name]}"\n')
    assert found() == expected
    (tmp_path / "campana.toml").write_text("")
    (tmp_path / ".env").write_text(f"# ours\nexport CAMPANA_{upper}='{OTHER[name]}'\nOTHER=1\n\n")
    assert found() == expected


def test_toml_gives_way_to_dotenv_and_that_to_the_environment_and_that_to_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "campana.toml").write_text("MAX_IN_FLIGHT = 1\n")
    assert load(tmp_path).max_in_flight == 1
    (tmp_path / ".env").write_text("MAX_IN_FLIGHT=2\n")
    assert load(tmp_path).max_in_flight == 2
    assert load(tmp_path, {"MAX_IN_FLIGHT": "3"}).max_in_flight == 3
    assert load(tmp_path, {"MAX_IN_FLIGHT": "3", "CAMPANA_MAX_IN_FLIGHT": "4"}).max_in_flight == 4
    assert load(tmp_path, {"CAMPANA_MAX_IN_FLIGHT": "4"}, max_in_flight=5).max_in_flight == 5
    assert load(tmp_path, {"CAMPANA_MAX_IN_FLIGHT": "4"}, max_in_flight=None).max_in_flight == 4


def test_a_name_with_our_prefix_wins_over_a_bare_one_that_may_be_meant_for_others(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CAMPANA_DATABASE_URL=postgresql://ours/x\n")

    assert load(tmp_path, {"DATABASE_URL": "postgresql://theirs/x"}).database_url == "postgresql://ours/x"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_bad_value_stops_the_start_and_is_named(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name.upper()}: ") as caught:
        load(tmp_path, {f"CAMPANA_{name.upper()}": value})

    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    if name in {"bootstrap_key", "encryption_keys", "secret_key"}:
        assert str(caught.value).endswith("got (not shown)")


def test_what_is_wrong_with_a_number_or_a_word_is_said_in_our_words(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, {"CAMPANA_PORT": "x", "LEASE_SECONDS": "1s", "CAMPANA_HOLD": "perhaps"})

    said = str(caught.value).split("; ")
    assert sorted(said) == [
        "HOLD: expected true or false, got 'perhaps'",
        "LEASE_SECONDS: expected a number, got '1s'",
        "PORT: expected a whole number, got 'x'",
    ]


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "campana.toml").write_text('port = "x"\nbogus = 1\n')
    (tmp_path / ".env").write_text("CAMPANA_NO_SUCH=1\nLOG_LEVEL=LOUD\n")

    with pytest.raises(SettingsError) as caught:
        load(tmp_path, {"CAMPANA_PROT": "9000", "CAMPANA_MAX_IN_FLIGHT": "0", "SOMEBODY_ELSES": "1"})

    said = str(caught.value)
    for piece in (
        "unknown setting bogus",
        "CAMPANA_NO_SUCH: unknown",
        "CAMPANA_PROT: unknown",
        "PORT: ",
        "LOG_LEVEL: ",
        "MAX_IN_FLIGHT: ",
    ):
        assert piece in said
    assert "SOMEBODY_ELSES" not in said


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"[port]\nx = 1\n"])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "campana.toml").write_bytes(content)

    with pytest.raises(SettingsError, match=r"campana\.toml|PORT"):
        load(tmp_path)


def test_secrets_are_in_no_text_of_the_settings(tmp_path: Path) -> None:
    settings = load(tmp_path, {"SECRET_KEY": "s" * 40, "ENCRYPTION_KEYS": "e" * 40, "CAMPANA_BOOTSTRAP_KEY": "cmp_" + "b" * 40})

    assert "s" * 40 not in repr(settings) + str(settings) + settings.model_dump_json()
    assert "b" * 40 not in repr(settings) + str(settings)
    assert "e" * 40 not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize("length", [32, 200])
def test_a_bootstrap_key_is_any_32_to_200_printable_characters(tmp_path: Path, length: int) -> None:
    key = "cmp_" + ("!~" * 100)[:length]

    assert plain(load(tmp_path, {"CAMPANA_BOOTSTRAP_KEY": key}).bootstrap_key) == key


@pytest.mark.parametrize(
    ("host", "cidrs", "development", "networks"),
    [
        ("127.0.0.1", None, True, ("127.0.0.0/8", "::1/128")),
        ("::1", None, True, ("127.0.0.0/8", "::1/128")),
        ("localhost", None, True, ("127.0.0.0/8", "::1/128")),
        ("127.0.0.1", "", False, ()),
        ("127.0.0.1", "10.0.0.0/8", False, ("10.0.0.0/8",)),
        ("0.0.0.0", None, False, ()),
        ("::", None, False, ()),
        ("campana.example.com", None, False, ()),
    ],
)
def test_development_mode_is_loopback_with_nothing_said(
    tmp_path: Path, host: str, cidrs: str | None, development: bool, networks: tuple[str, ...]
) -> None:
    settings = load(tmp_path, {} if cidrs is None else {"WEBHOOK_ALLOW_CIDRS": cidrs}, host=host)

    assert (settings.is_development, settings.allowed_networks) == (development, networks)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({}, 1.0),
        ({"SCHEDULER_TICK_INTERVAL": "0.2"}, 0.2),
        ({"SCHEDULER_TICK_INTERVAL": "60"}, 1.0),
        ({"SCHEDULER_POLL_INTERVAL_SECONDS": "0.3"}, 0.3),
        ({"SCHEDULER_POLL_INTERVAL_SECONDS": "0.3", "SCHEDULER_TICK_INTERVAL": "0.2"}, 0.2),
        ({"SCHEDULER_POLL_INTERVAL_SECONDS": "0.3", "SCHEDULER_TICK_INTERVAL": "1"}, 1.0),
    ],
)
def test_the_tick_is_at_most_a_second_and_its_newer_name_wins(tmp_path: Path, said: dict[str, str], seconds: float) -> None:
    assert load(tmp_path, said).tick_seconds == seconds


def test_without_a_url_the_database_is_a_file_in_the_data_folder(tmp_path: Path) -> None:
    settings = load(tmp_path, data=tmp_path / "d")

    assert settings.url == f"sqlite:///{tmp_path}/d/campana.db"
    assert (settings.file, settings.home) == (tmp_path / "d" / "campana.db", tmp_path / "d")


def test_what_is_kept_beside_the_data_is_beside_the_file_wherever_that_is(tmp_path: Path) -> None:
    settings = load(tmp_path, {"DATABASE_URL": f"sqlite:///{tmp_path}/x/app.db?timeout=5"})

    assert (settings.is_file, settings.file, settings.home) == (True, tmp_path / "x" / "app.db", tmp_path / "x")


def test_an_older_name_of_postgresql_is_understood(tmp_path: Path) -> None:
    assert load(tmp_path, {"DATABASE_URL": "postgres://u:p@h/d"}).url == "postgresql://u:p@h/d"
