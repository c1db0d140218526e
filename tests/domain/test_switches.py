from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from campana.domain import switches
from tests.domain import builders


def test_the_scopes_above_a_delivery_stand_widest_first() -> None:
    assert switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel="voice") == (
        "all",
        "all/channel:voice",
        "all/tenant:00000000-0000-0000-0000-000000000001",
        "tenant:00000000-0000-0000-0000-000000000001",
        "tenant:00000000-0000-0000-0000-000000000001/channel:voice",
        "tenant:00000000-0000-0000-0000-000000000001/project:00000000-0000-0000-0000-000000000002",
        "all/hold",
        "all/DISABLE_ALL_CALLS",
    )


def test_a_safe_hold_is_above_calls_and_messages_alone() -> None:
    def above(channel: str) -> tuple[str, ...]:
        return switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel=channel)

    covered = {
        channel for channel in ("webhook", "voice", "sms", "email", "slack", "python", "log") if "all/hold" in above(channel)
    }
    assert covered == {"voice", "sms"}


def test_a_delivery_of_a_schedule_stands_under_it_too() -> None:
    above = switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel="log", schedule_id=UUID(int=7))
    assert above[-1] == switches.within(builders.TENANT, "schedule", UUID(int=7))


def test_a_scope_is_spelled_the_same_wherever_it_is_made() -> None:
    above = switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel="voice")
    assert switches.ALL in above
    assert switches.everywhere("voice") in above
    assert switches.tenant(builders.TENANT) in above
    assert switches.within(builders.TENANT, "channel", "voice") in above
    assert switches.within(builders.TENANT, "project", builders.PROJECT) in above
    assert switches.within(builders.TENANT, "schedule", 7) == f"tenant:{builders.TENANT}/schedule:7"


@given(st.uuids(), st.uuids(), st.uuids(), st.uuids())
def test_two_tenants_share_only_the_scopes_of_the_installation(one: UUID, other: UUID, project: UUID, another: UUID) -> None:
    ours = switches.above(tenant_id=one, project_id=project, channel="webhook")
    theirs = switches.above(tenant_id=other, project_id=another, channel="webhook")
    assert len(set(ours)) == len(ours)
    if one != other:
        assert set(ours) & set(theirs) == {"all", "all/channel:webhook"}


def test_a_scope_is_spoken_as_its_own_people_call_it() -> None:
    mine, theirs = builders.TENANT, UUID(int=9)
    spoken = {
        switches.tenant(mine): "tenant",
        switches.within(mine, "channel", "sms"): "channel:sms",
        switches.over(mine): f"tenant:{mine}",
        switches.over(theirs): f"tenant:{theirs}",
        switches.everywhere("sms"): "all/channel:sms",
        switches.ALL: "all",
        f"suspended:{mine}": f"suspended:{mine}",
    }
    assert {scope: switches.spoken(scope, mine) for scope in spoken} == spoken


def test_the_environments_stop_is_above_calls_alone() -> None:
    def is_above(channel: str) -> bool:
        return switches.DISABLED_CALLS in switches.above(tenant_id=builders.TENANT, project_id=builders.PROJECT, channel=channel)

    assert {channel for channel in switches.CHANNELS if is_above(channel)} == {"voice"}
