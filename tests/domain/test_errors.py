"""Errors are shown by name to people and programs: every one has a code of its own and a sentence."""

import inspect
import re

import pytest

from campana import errors

ERRORS = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, errors.CampanaError)]


def test_every_code_is_stable_text_and_belongs_to_one_error() -> None:
    codes = [error.code for error in ERRORS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch("[a-z_]+", code) for code in codes)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_without_details_says_its_own_sentence(error: type[errors.CampanaError]) -> None:
    assert re.fullmatch(r"[A-Z].*\.", error.title())
    assert error().detail == error.title()


def test_details_replace_the_sentence() -> None:
    assert str(errors.NotFoundError("expected a delivery, got none")) == "expected a delivery, got none"


def test_every_fault_is_kept() -> None:
    faults = [errors.Fault(pointer=f"/{name}", code="missing", detail="expected a value") for name in ("to", "at")]
    error = errors.InvalidError(*faults)
    assert error.faults == tuple(faults)
    assert str(error) == "/to: expected a value; /at: expected a value"
