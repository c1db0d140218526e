from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import breakers, deliveries, guards, switches
from campana.domain.guards import ALLOW, Defer, Guard, Hold, Skip, Verdict
from tests.domain import builders

MICROSECOND = timedelta(microseconds=1)
VERDICTS: tuple[Verdict, ...] = (
    ALLOW,
    guards.Allow(),
    Defer(until=builders.NOW, reason="quiet_hours"),
    Hold(scope="all", reason="switched_off"),
    Skip(reason="expired"),
    guards.Doubt(reason="key_too_old"),
)


@given(st.lists(st.sampled_from(VERDICTS), max_size=8))
def test_the_first_guard_that_does_not_allow_decides_and_all_that_were_asked_are_kept(verdicts: Sequence[Verdict]) -> None:
    called: list[int] = []

    def guard(number: int, verdict: Verdict) -> Guard:
        def check(facts: guards.Facts) -> Verdict:
            called.append(number)
            return verdict

        return Guard(f"guard {number}", check)

    ruling = guards.rule([guard(*pair) for pair in enumerate(verdicts)], builders.guard_facts())
    against = [number for number, verdict in enumerate(verdicts) if not isinstance(verdict, guards.Allow)]
    expected = list(range(against[0] + 1 if against else len(verdicts)))
    assert called == expected, "a guard after the deciding one is not asked"
    assert ruling.asked == tuple(f"guard {number}" for number in expected)
    assert ruling.verdict == (verdicts[against[0]] if against else ALLOW)


def test_the_guards_stand_in_the_order_of_the_model() -> None:
    assert [guard.name for guard in guards.PIPELINE] == ["switch", "suspension", "expiry", "rate", "breaker", "key"]


def test_a_delivery_waits_for_the_instant_that_a_limit_gave_it_and_for_no_other() -> None:
    later = builders.NOW + MICROSECOND
    ruling = guards.rule(guards.PIPELINE, builders.guard_facts(slot_at=later))
    assert ruling.verdict == guards.Defer(until=later, reason="rate_limited", slot_at=later)
    assert guards.rule(guards.PIPELINE, builders.guard_facts(slot_at=builders.NOW)).verdict == ALLOW


def test_a_key_that_may_be_forgotten_makes_a_repeat_unsafe() -> None:
    until = builders.NOW + MICROSECOND
    assert guards.rule(guards.PIPELINE, builders.guard_facts(key_until=until)).verdict == ALLOW
    for pipeline in (guards.PIPELINE, guards.EDGE):
        ruling = guards.rule(pipeline, builders.guard_facts(key_until=builders.NOW))
        assert ruling.verdict == guards.Doubt(reason="key_too_old")


def test_nothing_stands_against_an_ordinary_delivery() -> None:
    ruling = guards.rule(guards.PIPELINE, builders.guard_facts(expires_at=builders.NOW + MICROSECOND))
    assert ruling == guards.Ruling(verdict=ALLOW, asked=("switch", "suspension", "expiry", "rate", "breaker", "key"))


@pytest.mark.parametrize(
    "scope",
    [
        "all",
        "all/channel:webhook",
        f"tenant:{builders.TENANT}",
        f"tenant:{builders.TENANT}/channel:webhook",
        f"tenant:{builders.TENANT}/project:{builders.PROJECT}",
    ],
)
def test_a_switch_at_any_scope_above_holds(scope: str) -> None:
    ruling = guards.rule(guards.PIPELINE, builders.guard_facts(switched_off=frozenset({scope, "all/channel:voice"})))
    assert ruling == guards.Ruling(verdict=Hold(scope=scope, reason="switched_off"), asked=("switch",))


@pytest.mark.parametrize(
    "scope",
    [
        "all/channel:voice",
        "all/channel:web",
        f"tenant:{builders.PROJECT}",
        f"tenant:{builders.TENANT}/channel:voice",
        f"tenant:{builders.PROJECT}/channel:webhook",
        f"tenant:{builders.TENANT}/project:{builders.TENANT}",
        "",
        "ALL",
    ],
)
def test_a_switch_beside_it_does_not_hold(scope: str) -> None:
    facts = builders.guard_facts(switched_off=frozenset({scope}))
    assert guards.rule(guards.PIPELINE, facts).verdict == ALLOW


def test_the_widest_of_several_switches_holds() -> None:
    off = frozenset(switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel="webhook"))
    assert guards.rule(guards.PIPELINE, builders.guard_facts(switched_off=off)).verdict == Hold(
        scope="all", reason="switched_off"
    )


def test_a_suspended_tenant_is_held_and_its_neighbour_is_not() -> None:
    ruling = guards.rule(guards.PIPELINE, builders.guard_facts(suspended=frozenset({builders.TENANT})))
    assert ruling.verdict == Hold(scope=f"suspended:{builders.TENANT}", reason="tenant_suspended")
    assert ruling.asked == ("switch", "suspension")
    assert guards.rule(guards.PIPELINE, builders.guard_facts(suspended=frozenset({builders.PROJECT}))).verdict == ALLOW


def test_what_has_expired_is_skipped_from_that_very_instant() -> None:
    for expires_at in (builders.NOW, builders.NOW - MICROSECOND):
        ruling = guards.rule(guards.PIPELINE, builders.guard_facts(expires_at=expires_at))
        assert ruling == guards.Ruling(verdict=Skip(reason="expired"), asked=("switch", "suspension", "expiry"))


@given(st.booleans(), st.booleans(), st.timedeltas(timedelta(days=-2), timedelta(days=2)))
def test_what_is_held_sleeps_until_later_or_ends_at_its_expiry(off: bool, suspended: bool, left: timedelta) -> None:
    facts = builders.guard_facts(
        expires_at=builders.NOW + left,
        switched_off=frozenset({"all"} if off else ()),
        suspended=frozenset({builders.TENANT} if suspended else ()),
    )
    verdict = guards.rule(guards.PIPELINE, facts).verdict
    if left <= timedelta(0):
        assert verdict == Skip(reason="expired")
    elif isinstance(verdict, Hold):
        parked = deliveries.Returned(at=builders.NOW + deliveries.PARKED, reason=verdict.reason, held_by=verdict.scope)
        woken = deliveries.wake_at(deliveries.expire(parked, facts.expires_at))
        assert woken is not None
        assert woken > builders.NOW, "it would be looked at again and again"
    else:
        assert (verdict, off, suspended) == (ALLOW, False, False)


def test_what_its_receiver_can_not_take_waits_until_it_might() -> None:
    later = builders.NOW + MICROSECOND
    tripped = breakers.Breaker(failures=5, period=MICROSECOND, until=later)
    asked = breakers.Breaker(until=later)
    for breaker, reason in ((tripped, guards.BREAKER_OPEN), (asked, guards.RETRY_AFTER)):
        ruling = guards.rule(guards.PIPELINE, builders.guard_facts(breaker=breaker))
        assert (ruling.verdict, ruling.asked[-1]) == (Defer(until=later, reason=reason), "breaker")
        assert guards.rule(guards.EDGE, builders.guard_facts(breaker=breaker)).verdict == ALLOW, "the probe itself may go"
        past = replace(breaker, until=builders.NOW)
        assert guards.rule(guards.PIPELINE, builders.guard_facts(breaker=past)).verdict == ALLOW
