"""What people do to deliveries: in each state, twice, late, and against everybody else who wants the row."""

import asyncio
import json
from typing import Any

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain.acts import Act, Came, Deed
from campana.domain.deliveries import LIVE, UNDER_WAY, WAITING, State
from campana.domain.tickets import ALONE
from campana.store.schema import events, verdicts
from tests.store import builders
from tests.store.builders import HOUR, NOW, OTHER_TENANT, SECOND, TENANT
from tests.store.desk import Desk, hands, until_blocked

LATER = NOW + HOUR
ON_LETTERS = [Act.REDRIVE, Act.DISCARD, Act.SENT, Act.NOT_SENT]
ANEW = [Act.REDRIVE, Act.NOT_SENT]
LETTER: dict[str, Any] = {
    "state": State.DEAD_LETTER,
    "fence": 4,
    "attempt_count": 3,
    "key_number": 2,
    "key_at": NOW,
    "ambiguous_attempts": 1,
    "crash_count": 3,
    "proven_crashes": 3,
    "suspect_fence": 4,
    "cancel_requested": True,
    "provider_call_id": "call",
    "reason": "exhausted",
    "last_error": "no",
    "finished_at": NOW,
}


def deed(act: Act, **said: Any) -> Deed:
    return Deed(act=act, actor="key:1", **said)


@pytest.mark.parametrize("act", ANEW)
async def test_a_new_generation_begins_with_a_budget_and_keys_of_its_own(desk: Desk, act: Act) -> None:
    it = await desk.add(**LETTER)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(act), now=LATER) == {it: Came.DONE}
    row = await desk.row(it)
    assert (row.state, row.wake_at, row.finished_at, row.generation, row.fence) == (State.SCHEDULED, LATER, None, 2, 5)
    assert (row.attempt_count, row.key_number, row.key_at, row.provider_call_id) == (0, 1, None, None)
    assert (row.cancel_requested, row.proven_crashes, row.suspect_fence) == (False, 0, None)
    assert (row.ambiguous_attempts, row.last_error, row.due_at) == (1, "no", NOW)


async def test_what_killed_workers_stays_a_suspect(desk: Desk) -> None:
    wild, tame = await desk.add_all({**LETTER, "crash_count": 7}, {**LETTER, "crash_count": 1})
    await desk.write(store.acts.perform, TENANT, [wild, tame], deed(Act.REDRIVE), now=LATER)
    assert ((await desk.row(wild)).crash_count, (await desk.row(tame)).crash_count) == (ALONE, 1)


@pytest.mark.parametrize(
    ("act", "state", "reason"), [(Act.DISCARD, State.CANCELLED, "discarded"), (Act.SENT, State.COMPLETED, "sent")]
)
async def test_a_letter_that_is_put_away_ends_for_good(desk: Desk, act: Act, state: State, reason: str) -> None:
    it = await desk.add(**LETTER)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(act, note="seen"), now=LATER) == {it: Came.DONE}
    row = await desk.row(it)
    assert (row.state, row.reason, row.finished_at, row.wake_at, row.generation) == (state, reason, LATER, None, 1)
    assert row.attempt_count == 3


@pytest.mark.parametrize("act", ON_LETTERS)
async def test_who_did_it_and_why_is_on_record_and_told(desk: Desk, act: Act) -> None:
    it = await desk.add(**LETTER)
    await desk.write(store.acts.perform, TENANT, [it], deed(act, note="seen"), now=LATER)
    (record,) = await desk.rows(verdicts)
    assert (record.fence, record.verdict, record.at, record.actor) == (5, act.value, LATER, "key:1")
    assert (record.note, record.reason) == ("seen", "exhausted")
    (event,) = await desk.rows(events)
    assert (event.kind, event.delivery_id, event.at) == (store.acts.KINDS[act], it, LATER)
    said = json.loads(event.data)
    assert (said["state"], said["fence"], said["actor"]) == (State((await desk.row(it)).state).word, 5, "key:1")


@pytest.mark.parametrize("state", sorted(set(State) - {State.DEAD_LETTER}))
@pytest.mark.parametrize("act", ON_LETTERS)
async def test_what_is_no_dead_letter_stays_as_it_is(desk: Desk, act: Act, state: State) -> None:
    it = await desk.add(state=state, ambiguous_attempts=1)
    before = await desk.row(it)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(act), now=NOW) == {it: Came.WRONG_STATE}
    assert (await desk.row(it), await desk.rows(verdicts), await desk.rows(events)) == (before, [], [])


@pytest.mark.parametrize("act", [Act.SENT, Act.NOT_SENT])
async def test_nobody_decides_what_is_certain(desk: Desk, act: Act) -> None:
    it = await desk.add(**LETTER | {"ambiguous_attempts": 0})
    assert await desk.write(store.acts.perform, TENANT, [it], deed(act), now=NOW) == {it: Came.CERTAIN}
    assert (await desk.row(it)).state == State.DEAD_LETTER


@pytest.mark.parametrize(("act", "came"), [(Act.REDRIVE, Came.EXPIRED), (Act.NOT_SENT, Came.EXPIRED), (Act.DISCARD, Came.DONE)])
async def test_what_has_expired_is_not_sent_again(desk: Desk, act: Act, came: Came) -> None:
    it = await desk.add(**LETTER, expires_at=LATER)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(act), now=LATER) == {it: came}


@pytest.mark.parametrize("state", sorted(WAITING))
async def test_what_waits_is_rescheduled(desk: Desk, state: State) -> None:
    it = await desk.add(state=state, held_by="all", slot_at=NOW, fence=2, attempt_count=1)
    done = deed(Act.RESCHEDULE, at=LATER)
    assert await desk.write(store.acts.perform, TENANT, [it], done, now=NOW) == {it: Came.DONE}
    row = await desk.row(it)
    assert (row.state, row.due_at, row.wake_at, row.held_by, row.slot_at) == (state, LATER, LATER, None, None)
    assert (row.fence, row.attempt_count, row.scheduled_for, row.reason) == (3, 1, NOW, "rescheduled")


async def test_what_is_rescheduled_into_the_past_wakes_now(desk: Desk) -> None:
    it = await desk.add(wake_at=LATER, due_at=LATER)
    await desk.write(store.acts.perform, TENANT, [it], deed(Act.RESCHEDULE, at=NOW - SECOND), now=NOW)
    row = await desk.row(it)
    assert (row.due_at, row.wake_at) == (NOW - SECOND, NOW)


async def test_nothing_is_rescheduled_past_its_expiry(desk: Desk) -> None:
    it = await desk.add(expires_at=LATER)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(Act.RESCHEDULE, at=LATER), now=NOW) == {it: Came.EXPIRED}


@pytest.mark.parametrize("state", sorted(set(State) - WAITING))
async def test_what_does_not_wait_is_not_rescheduled(desk: Desk, state: State) -> None:
    it = await desk.add(state=state)
    before = await desk.row(it)
    assert await desk.write(store.acts.perform, TENANT, [it], deed(Act.RESCHEDULE, at=LATER), now=NOW) == {it: Came.WRONG_STATE}
    assert await desk.row(it) == before


@pytest.mark.parametrize("act", [*ON_LETTERS, Act.RESCHEDULE])
async def test_run_again_it_finds_its_own_and_says_the_same(desk: Desk, act: Act) -> None:
    it = await desk.add(**LETTER) if act in ON_LETTERS else await desk.add()
    done = deed(act, at=LATER if act is Act.RESCHEDULE else None)
    first = await desk.write(store.acts.perform, TENANT, [it], done, now=NOW)
    before = await desk.row(it)
    assert await desk.write(store.acts.perform, TENANT, [it], done, now=NOW) == first == {it: Came.DONE}
    assert await desk.row(it) == before
    assert (len(await desk.rows(verdicts)), len(await desk.rows(events))) == (1, act in store.acts.KINDS)


async def test_a_second_redrive_by_somebody_else_is_refused(desk: Desk) -> None:
    it = await desk.add(**LETTER)
    await desk.write(store.acts.perform, TENANT, [it], deed(Act.REDRIVE), now=NOW)
    again = Deed(act=Act.REDRIVE, actor="key:2")
    assert await desk.write(store.acts.perform, TENANT, [it], again, now=NOW) == {it: Came.WRONG_STATE}
    assert (await desk.row(it)).generation == 2


async def test_another_tenants_letters_are_unknown(desk: Desk) -> None:
    it, nobody = await desk.add(**LETTER), builders.new_id()
    came = await desk.write(store.acts.perform, OTHER_TENANT, [it, nobody], deed(Act.REDRIVE), now=NOW)
    assert came == {it: Came.UNKNOWN, nobody: Came.UNKNOWN}
    assert (await desk.row(it)).state == State.DEAD_LETTER


async def test_of_many_each_is_judged_by_itself(desk: Desk) -> None:
    good, done, gone = await desk.add_all(LETTER, {"state": State.COMPLETED}, LETTER | {"expires_at": NOW})
    came = await desk.write(store.acts.perform, TENANT, [gone, done, good], deed(Act.REDRIVE), now=NOW)
    assert came == {good: Came.DONE, done: Came.WRONG_STATE, gone: Came.EXPIRED}


# --- against the engine


async def test_an_outcome_of_the_generation_before_changes_nothing(desk: Desk) -> None:
    it = await desk.add(**LETTER)
    await desk.write(store.acts.perform, TENANT, [it], deed(Act.REDRIVE), now=NOW)
    (ticket,) = (await desk.database.claim(builders.wish())).tickets
    assert (ticket.generation, ticket.fence, ticket.number, ticket.key_number) == (2, 6, 1, 1)
    applied = await desk.write(store.settlements.apply, [builders.settlement(it, fence=4)], now=NOW)
    assert len(applied.late) == 1
    row = await desk.row(it)
    assert (row.state, row.fence, row.generation) == (State.PROCESSING, 6, 2)


@pytest.mark.parametrize("act", ON_LETTERS)
async def test_what_comes_to_light_after_a_person_decided_is_shown_and_changes_nothing(desk: Desk, act: Act) -> None:
    it = await desk.add(**LETTER)
    await desk.write(store.acts.perform, TENANT, [it], deed(act), now=NOW)
    before = await desk.row(it)
    applied = await desk.write(store.settlements.apply, [builders.settlement(it, fence=4)], now=LATER)
    assert (len(applied.settled), len(applied.late)) == (0, 1)
    assert await desk.row(it) == before
    (attempt,) = await desk.read(store.attempts.of_delivery, TENANT, it)
    assert (attempt.late, attempt.outcome) == (True, "delivered")


async def test_a_redrive_waits_for_the_settle_that_buries(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING)
    async with hands(desk.url, 1) as (settler,):
        buried = builders.settlement(it, transition=model.Buried(reason="permanent"))
        await settler.do(store.settlements.apply, [buried], now=NOW)
        redriving = asyncio.create_task(desk.write(store.acts.perform, TENANT, [it], deed(Act.REDRIVE), now=NOW))
        await until_blocked(desk.url)
        await settler.commit()
    assert await redriving == {it: Came.DONE}
    assert (await desk.row(it)).generation == 2


async def test_a_claim_that_meets_a_redrive_takes_nothing_until_it_is_durable(desk: Desk) -> None:
    it = await desk.add(**LETTER)
    async with hands(desk.url, 1) as (user,):
        await user.do(store.acts.perform, TENANT, [it], deed(Act.REDRIVE), now=NOW)
        claiming = asyncio.create_task(desk.database.claim(builders.wish()))
        if "sqlite" not in desk.url:
            assert (await claiming).tickets == []
        await user.commit()
    claimed = await claiming
    again = claimed.tickets or (await desk.database.claim(builders.wish(lease_until=NOW + HOUR))).tickets
    assert [ticket.id for ticket in again] == [it]


async def test_a_reschedule_that_meets_a_claim_waits_for_it_and_is_refused(desk: Desk) -> None:
    it = await desk.add()
    async with hands(desk.url, 1) as (claimer,):
        assert (await claimer.do(store.claims.claim, builders.wish())).tickets
        asking = desk.write(store.acts.perform, TENANT, [it], deed(Act.RESCHEDULE, at=LATER), now=NOW)
        rescheduling = asyncio.create_task(asking)
        await until_blocked(desk.url)
        await claimer.commit()
    assert await rescheduling == {it: Came.WRONG_STATE}
    assert (await desk.row(it)).state == State.PROCESSING


async def test_a_claim_that_meets_a_reschedule_takes_nothing(desk: Desk) -> None:
    it = await desk.add()
    async with hands(desk.url, 1) as (user,):
        await user.do(store.acts.perform, TENANT, [it], deed(Act.RESCHEDULE, at=LATER), now=NOW)
        claiming = asyncio.create_task(desk.database.claim(builders.wish()))
        if "sqlite" not in desk.url:
            assert (await claiming).tickets == []
        await user.commit()
    assert (await claiming).tickets == []
    assert (await desk.row(it)).wake_at == LATER


async def test_of_two_people_one_is_first(desk: Desk) -> None:
    it = await desk.add(**LETTER)
    acts = [Deed(act=act, actor=f"key:{act}") for act in ON_LETTERS]
    came = await asyncio.gather(*(desk.write(store.acts.perform, TENANT, [it], one, now=NOW) for one in acts))
    assert sorted(one[it].name for one in came) == ["DONE", "WRONG_STATE", "WRONG_STATE", "WRONG_STATE"]
    assert (len(await desk.rows(verdicts)), (await desk.row(it)).fence) == (1, 5)


async def test_a_lost_worker_is_buried_or_redriven_but_never_both(desk: Desk) -> None:
    assert UNDER_WAY < LIVE
    it = await desk.add(state=State.PROCESSING, wake_at=NOW)

    def judge(row: Any, last: Any) -> Any:
        del last
        return builders.settlement(row.id, fence=row.fence, transition=model.Buried(reason="crash_loop"))

    async with hands(desk.url, 1) as (timers,):
        await timers.do(store.settlements.reclaim, judge, ["webhook"], now=NOW, limit=10, sparing=None)
        redriving = asyncio.create_task(desk.write(store.acts.perform, TENANT, [it], deed(Act.REDRIVE), now=NOW))
        await until_blocked(desk.url)
        await timers.commit()
    assert await redriving == {it: Came.DONE}
    row = await desk.row(it)
    assert (row.state, row.generation, row.fence) == (State.SCHEDULED, 2, 2)
