"""Explain: true in every state and for every reason that can keep a delivery."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain import switches
from campana.domain.deliveries import FINAL, State
from campana.store.schema import engines, lanes, slots, tenants
from tests.api.site import Site, wanted

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


class Case:
    """One delivery, put where a test wants it, and what is said of it."""

    def __init__(self, here: Site, client: httpx2.AsyncClient, delivery_id: str, tenant: UUID) -> None:
        self.here = here
        self.client = client
        self.id = delivery_id
        self.tenant = tenant
        self.now: datetime = here.now

    async def put(self, **values: Any) -> None:
        """Write columns as an engine would; due a minute ago unless told otherwise."""
        due = {"due_at": self.now - 60 * SECOND, "wake_at": self.now - SECOND}
        await self.here.force(self.id, **due | values)

    async def write(self, function: Any, *said: Any, **named: Any) -> Any:
        return await self.here.house.office.database.write(function, *said, **named)

    async def insert(self, table: Any, **values: Any) -> None:
        await self.write(lambda connection: connection.execute(table.insert().values(**values)))

    async def engine(self, *queues: str, seen_ago: timedelta = SECOND) -> None:
        said = {"started_at": self.now, "seen_at": self.now - seen_ago, "free_slots": 1, "version": "1"}
        await self.insert(engines, id=uuid4(), queues=json.dumps(queues), **said)

    async def throw(self, scope: str) -> None:
        await self.write(store.switches.throw, scope, off=True, reason="flood", actor="me", now=self.now)

    async def told(self) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/deliveries/{self.id}/explain")
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        assert said["text"].startswith(("It ", "An ", "The "))
        assert all(one["text"] in said["text"] for one in said["holds"])
        assert (said["next"] is None) == (said["status"] in {state.word for state in FINAL})
        return said

    async def kinds(self) -> list[str]:
        return [one["kind"] for one in (await self.told())["holds"]]


@pytest.fixture
async def case(here: Site, client: httpx2.AsyncClient) -> Case:
    made = (await client.post("/v1/deliveries", json=wanted())).json()["id"]
    return Case(here, client, made, await here.tenant("default"))


# --- what waits


async def test_what_is_not_due_says_when_it_is(case: Case) -> None:
    await case.engine("log")
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["not_due"]
    assert said["holds"][0]["until"] == said["next"]["at"] == "2199-01-01T00:00:00Z"
    assert (said["status"], said["next"]["what"]) == ("scheduled", "attempt")
    assert "2199-01-01 00:00:00 UTC" in said["text"]


async def test_what_is_due_waits_for_a_free_place(case: Case) -> None:
    await case.engine("log")
    await case.put()
    assert await case.kinds() == ["queue"]


async def test_without_an_engine_that_takes_it_it_waits(case: Case) -> None:
    await case.put()
    assert "No engine is running" in (await case.told())["text"]
    await case.engine("webhook")
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["engine"]
    assert "serves the queue `log`" in said["text"]
    await case.engine("log", seen_ago=HOUR)
    assert await case.kinds() == ["engine"]
    await case.engine("log")
    assert await case.kinds() == ["queue"]


async def test_an_engine_that_does_not_say_what_it_takes_is_no_reason(case: Case) -> None:
    await case.insert(engines, id=uuid4(), queues=None, started_at=case.now, seen_at=case.now, free_slots=1, version="0")
    await case.put()
    assert await case.kinds() == ["queue"]


@pytest.mark.parametrize("parked", [True, False])
@pytest.mark.parametrize(
    ("scope", "named"),
    [
        ("all", "everything"),
        ("all/channel:log", "the whole installation's channel log"),
        ("all/tenant:{tenant}", "its tenant (a switch of the installation's operators)"),
        ("tenant:{tenant}", "its tenant"),
        ("tenant:{tenant}/channel:log", "its tenant's channel log"),
        ("tenant:{tenant}/project:{project}", "its project"),
        ("tenant:{tenant}/schedule:{schedule}", "its schedule"),
    ],
)
async def test_a_switch_over_it_is_named_with_its_reason(case: Case, scope: str, named: str, *, parked: bool) -> None:
    schedule = uuid4()
    project = await case.here.project("default", "default")
    its = scope.format(tenant=case.tenant, project=project, schedule=schedule)
    await case.engine("log")
    await case.throw(its)
    held = {"held_by": its, "wake_at": case.now + HOUR} if parked else {}
    await case.put(schedule_id=schedule, **held)
    said = await case.told()
    assert [(one["kind"], one["scope"]) for one in said["holds"]] == [("switch", switches.spoken(its, case.tenant))]
    assert f"The switch of {named} is off" in said["text"]
    assert "flood" in said["text"]
    assert said["next"]["what"] == "look"


async def test_switches_that_do_not_stand_over_it_are_not_named(case: Case) -> None:
    await case.engine("log")
    await case.put()
    for scope in ("all/channel:webhook", switches.SAFE_HOLD, f"tenant:{uuid4()}", f"tenant:{case.tenant}/channel:sms"):
        await case.throw(scope)
    assert await case.kinds() == ["queue"]


async def test_a_safe_hold_is_named_where_it_holds(case: Case) -> None:
    await case.engine("log")
    await case.throw(switches.SAFE_HOLD)
    await case.put(channel="voice", held_by=switches.SAFE_HOLD, wake_at=case.now + HOUR)
    assert "The switch of the safe hold" in (await case.told())["text"]


async def test_what_the_environment_stops_is_not_said_to_be_free(case: Case) -> None:
    await case.engine("log")
    await case.put(channel="voice", held_by=switches.DISABLED_CALLS, wake_at=case.now + HOUR)
    assert "It is held by the setting DISABLE_ALL_CALLS of an engine (no call is placed there)." in (await case.told())["text"]


async def test_an_engine_that_has_left_serves_nobody(case: Case) -> None:
    await case.engine("log")
    await case.put()
    await case.write(lambda connection: connection.execute(engines.update().values(left_at=case.now)))
    assert "No engine is running." in (await case.told())["text"]


async def test_a_suspended_tenant_is_told(case: Case) -> None:
    await case.engine("log")
    suspended = tenants.update().where(tenants.c.id == case.tenant).values(suspended_at=case.now)
    await case.write(lambda connection: connection.execute(suspended))
    await case.put(held_by=f"suspended:{case.tenant}", wake_at=case.now + HOUR)
    assert await case.kinds() == ["suspension"]


async def test_a_lane_names_who_holds_it(case: Case) -> None:
    await case.engine("log")
    other = (await case.client.post("/v1/deliveries", json=wanted())).json()["id"]
    await case.insert(lanes, lane_key="lane:anna", delivery_id=UUID(other), until=case.now + HOUR)
    await case.put(lane_key="lane:anna", held_by="lane:anna", wake_at=case.now + HOUR)
    said = await case.told()
    assert [(one["kind"], one["scope"]) for one in said["holds"]] == [("lane", "lane:anna")]
    assert f"Delivery {other}" in said["text"]


async def test_a_lane_of_another_tenants_delivery_does_not_name_it(case: Case) -> None:
    await case.engine("log")
    stranger = await case.here.client(tenant="other")
    other = (await stranger.post("/v1/deliveries", json=wanted())).json()["id"]
    await case.insert(lanes, lane_key="lane:anna", delivery_id=UUID(other), until=case.now + HOUR)
    await case.put(lane_key="lane:anna", held_by="lane:anna", wake_at=case.now + HOUR)
    said = await case.told()
    assert "Another delivery is under way in the same lane" in said["text"]
    assert other not in json.dumps(said)


async def test_a_lane_of_its_own_holds_nothing(case: Case) -> None:
    await case.engine("log")
    await case.insert(lanes, lane_key="lane:anna", delivery_id=UUID(case.id), until=case.now + HOUR)
    await case.put(lane_key="lane:anna")
    assert await case.kinds() == ["queue"]


async def test_a_full_resource_is_told_while_it_is_full(case: Case) -> None:
    await case.engine("log")
    await case.insert(slots, resource="slots:line", n=1, delivery_id=uuid4())
    await case.put(resource="slots:line", held_by="slots:line", wake_at=case.now + HOUR)
    assert await case.kinds() == ["slots"]
    await case.insert(slots, resource="slots:line", n=2, delivery_id=None)
    assert await case.kinds() == ["parked"]
    assert "is free again" in (await case.told())["text"]


async def test_a_limits_turn_is_told(case: Case) -> None:
    await case.engine("log")
    await case.put(slot_at=case.now + HOUR, wake_at=case.now + HOUR, reason="rate_limited")
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["limit"]
    assert said["holds"][0]["until"] == said["next"]["at"]


async def test_what_was_just_let_go_says_so_and_what_holds_unknown_is_named(case: Case) -> None:
    await case.engine("log")
    await case.put(held_by="all", wake_at=case.now + HOUR)
    assert "It was held by everything, which is free again" in (await case.told())["text"]
    await case.put(held_by="recipient:anna", wake_at=case.now + HOUR)
    assert "It is held by `recipient:anna`." in (await case.told())["text"]


@pytest.mark.parametrize(("deaths", "way"), [(2, "with few others like it"), (3, "alone")])
async def test_a_suspect_is_told_how_it_goes(case: Case, deaths: int, way: str) -> None:
    await case.engine("log")
    await case.put(crash_count=deaths)
    assert await case.kinds() == ["suspect"]
    assert f"so it goes {way}" in (await case.told())["text"]


async def test_a_retry_says_which_attempt_comes_when(case: Case) -> None:
    await case.engine("log")
    await case.put(state=int(State.PENDING_RETRY), attempt_count=2, wake_at=case.now + HOUR)
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["retry"]
    assert said["text"].startswith("It has used 2 of its 3 attempts and waits to be tried again. Its next attempt is at ")
    assert "Attempt 3 of 3 follows" in said["text"]


async def test_what_lost_workers_put_off_says_so(case: Case) -> None:
    await case.engine("log")
    await case.put(wake_at=case.now + HOUR, reason="worker_lost", crash_count=2)
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["deferred"]
    assert "workers were lost" in said["text"]


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PENDING_RETRY])
async def test_what_waits_for_a_signing_secret_says_so_and_what_to_look_at(case: Case, state: State) -> None:
    await case.engine("log")
    await case.put(state=int(state), attempt_count=1, wake_at=case.now + HOUR, reason="signing_secret_unreadable")
    said = await case.told()
    assert [one["kind"] for one in said["holds"]] == ["deferred"]
    assert "its project's signing secret could not be opened, as the log and `campana doctor` say" in said["text"]


async def test_what_expires_first_is_skipped_and_not_sent(case: Case) -> None:
    await case.engine("log")
    await case.put(expires_at=case.now - SECOND)
    assert ((await case.told())["next"]["what"], "It expired at" in (await case.told())["text"]) == ("skip", True)
    await case.throw("all")
    await case.put(expires_at=case.now + HOUR, held_by="all", wake_at=case.now + HOUR)
    said = await case.told()
    assert (said["next"]["what"], [one["kind"] for one in said["holds"]]) == ("skip", ["switch"])
    assert "unless it is let go before" in said["text"]


# --- what is under way


async def test_what_is_in_hand_says_until_when_it_is_believed(case: Case) -> None:
    await case.put(state=int(State.PROCESSING), wake_at=case.now + HOUR, lease_owner=uuid4(), cancel_requested=True)
    said = await case.told()
    assert (said["holds"], said["next"]["what"]) == ([], "lease")
    assert "An engine has it in hand, as attempt 1 of 3." in said["text"]
    assert "Cancelling was asked for" in said["text"]
    await case.put(state=int(State.PROCESSING), wake_at=case.now - SECOND)
    assert "has not been heard of since" in (await case.told())["text"]


@pytest.mark.parametrize(
    ("awaiting", "what", "words"), [("callback", "callback", "accepted it"), ("lookup", "lookup", "is asked")]
)
async def test_what_a_provider_has_says_what_is_awaited(case: Case, awaiting: str, what: str, words: str) -> None:
    await case.put(state=int(State.IN_PROGRESS), awaiting=awaiting, awaiting_since=case.now, wake_at=case.now + HOUR)
    said = await case.told()
    assert (said["status"], said["holds"], said["next"]["what"]) == ("in_progress", [], what)
    assert words in said["text"]


# --- what has ended


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (State.COMPLETED, None, "It had its effect."),
        (State.COMPLETED, "sent", "as a person said"),
        (State.DEAD_LETTER, "exhausted", "all its attempts are used up. Redrive it, or discard it."),
        (State.DEAD_LETTER, "permanent", "the answer was final"),
        (State.DEAD_LETTER, "not_retried", "its policy does not try again"),
        (State.DEAD_LETTER, model.HOLD_REASON, "may have had its effect"),
        (State.DEAD_LETTER, model.CRASH_LOOP, "3 workers died"),
        (State.DEAD_LETTER, "unreadable", "can't be read"),
        (State.DECLINED, None, "The recipient said no."),
        (State.SKIPPED, "expired", "it had expired"),
        (State.SKIPPED, "already_satisfied", "already satisfied"),
        (State.CANCELLED, "cancelled", "it was cancelled"),
        (State.CANCELLED, "discarded", "it was discarded"),
    ],
)
async def test_what_has_ended_says_how(case: Case, state: State, reason: str | None, words: str) -> None:
    await case.put(state=int(state), reason=reason, wake_at=None, finished_at=case.now)
    said = await case.told()
    assert (said["status"], said["reason"], said["holds"], said["next"]) == (state.word, reason, [], None)
    assert words in said["text"]
    assert (said["story"][-1]["kind"], said["story"][-1]["verdict"]) == ("ended", state.word)


async def test_an_ambiguous_letter_says_that_a_person_may_decide(case: Case) -> None:
    letter = {"state": int(State.DEAD_LETTER), "wake_at": None, "finished_at": case.now}
    await case.put(**letter, reason="ambiguous", ambiguous_attempts=1)
    assert "Resolve it as `sent` or `not_sent`" in (await case.told())["text"]


# --- the story


def record(case: Case, fence: int, verdict: str, reason: str = "", **said: Any) -> dict[str, Any]:
    row = {"delivery_id": UUID(case.id), "fence": fence, "tenant_id": case.tenant, "at": case.now, "guards": ""}
    return {**row, "verdict": verdict, "reason": reason, **said}


def attempt(case: Case, fence: int, outcome: str | None, **said: Any) -> dict[str, Any]:
    row = {"delivery_id": UUID(case.id), "fence": fence, "tenant_id": case.tenant, "generation": 1, "number": 1}
    times = {"started_at": case.now, "finished_at": case.now}
    flags = {"ambiguous": outcome == "ambiguous", "late": False, "worker": uuid4(), "key_number": 1}
    return {**row, **times, **flags, "outcome": outcome, **said}


async def test_the_story_is_told_in_the_order_of_its_claims(case: Case) -> None:
    v, a = store.schema.verdicts, store.schema.attempts
    await case.insert(v, **record(case, 1, "hold", "switched_off", guards="switch"))
    await case.insert(v, **record(case, 2, "defer", "rate_limited", guards="switch,suspension,expiry,rate"))
    await case.insert(v, **record(case, 3, "lost", "worker_lost"))
    await case.insert(a, **attempt(case, 4, "failed", response_code=503, error="status 503", ambiguous=True, guards="switch"))
    await case.insert(a, **attempt(case, 5, "ambiguous", error="no complete answer in time", late=True))
    await case.insert(v, **record(case, 6, "lookup", "absent"))
    await case.insert(v, **record(case, 7, "not_sent", "ambiguous", actor="key:1", note="asked them"))
    await case.insert(a, **attempt(case, 8, None, finished_at=None, generation=2))
    await case.insert(v, **record(case, 9, "skip", "expired", guards="switch,suspension,expiry"))
    await case.put(state=int(State.SKIPPED), reason="expired", wake_at=None, finished_at=case.now)
    story = (await case.told())["story"]
    assert [(one["kind"], one["verdict"]) for one in story] == [
        ("accepted", None),
        ("guard", "hold"),
        ("guard", "defer"),
        ("lost", "worker_lost"),
        ("attempt", "failed"),
        ("attempt", "ambiguous"),
        ("lookup", "absent"),
        ("act", "not_sent"),
        ("attempt", None),
        ("guard", "skip"),
        ("ended", "skipped"),
    ]
    texts = [one["text"] for one in story]
    assert texts[1] == "It was put aside: a switch over it was off."
    assert texts[4] == "Attempt 1 failed, and may have had its effect all the same (status 503)."
    assert "came after its claim was lost" in texts[5]
    assert texts[7] == (
        "It had no effect, as key:1 said, and was begun anew"
        " (an attempt may have had its effect, and must not be repeated without knowing): asked them."
    )
    assert texts[8] == "Attempt 1 began, and nothing is known of it yet."
    assert story[2]["guards"] == ["switch", "suspension", "expiry", "rate"]
    assert (story[7]["actor"], story[7]["note"]) == ("key:1", "asked them")


@pytest.mark.parametrize(
    "outcome",
    ["delivered", "accepted", "failed", "timed_out", "ambiguous", "no_answer", "busy", "voicemail", "declined", "rescheduled"],
)
async def test_every_outcome_has_words_of_its_own(case: Case, outcome: str) -> None:
    await case.insert(store.schema.attempts, **attempt(case, 1, outcome))
    line = (await case.told())["story"][1]
    assert (line["verdict"], line["number"]) == (outcome, 1)
    assert "came to" not in line["text"]


@pytest.mark.parametrize(
    ("act", "body", "words"),
    [
        ("redrive", None, "It was begun anew by key:"),
        ("discard", None, "It was discarded by key:"),
        ("resolve", {"effect": "sent"}, "It had its effect, as key:"),
    ],
)
async def test_what_people_did_is_part_of_it(case: Case, act: str, body: Any, words: str) -> None:
    await case.put(state=int(State.DEAD_LETTER), wake_at=None, finished_at=case.now, ambiguous_attempts=1)
    await case.client.post(f"/v1/deliveries/{case.id}/{act}", json=body)
    (line,) = [one for one in (await case.told())["story"] if one["kind"] == "act"]
    assert words in line["text"]
    assert line["actor"].startswith("key:")


async def test_a_cancel_is_part_of_it(case: Case) -> None:
    await case.client.post(f"/v1/deliveries/{case.id}/cancel")
    told = await case.told()
    assert [line["kind"] for line in told["story"]] == ["accepted", "act", "ended"]
    assert told["story"][1]["text"].startswith("It was cancelled by key:")


async def test_a_reschedule_is_part_of_it(case: Case) -> None:
    await case.client.post(f"/v1/deliveries/{case.id}/reschedule", json={"at": "2199-06-01T00:00:00Z"})
    (line,) = [one for one in (await case.told())["story"] if one["kind"] == "act"]
    assert line["text"].startswith("It was moved to 2199-06-01 00:00:00 UTC by key:")
