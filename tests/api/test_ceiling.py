"""A tenant's ceiling of live deliveries: stated in the answer, counted seldom, and no concern of other tenants."""

from __future__ import annotations

from pathlib import Path

import pytest

from campana import store
from campana.errors import UnavailableError
from campana.operations import ceiling
from tests.api import site
from tests.api.site import wanted


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    site.copy(prepared, tmp_path)
    return tmp_path


async def test_at_the_ceiling_a_tenant_is_told_to_wait_and_others_are_not(folder: Path) -> None:
    async with site.open_site(folder, max_live_per_tenant=3) as here:
        full, other = await here.client(), await here.client(tenant="other")
        ids = [(await full.post("/v1/deliveries", json=wanted())).json()["id"] for _ in range(3)]
        refused = await full.post("/v1/deliveries", json=wanted())
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "too_many_live", "60")
        assert "at most 3 deliveries that wait at once in this tenant, it has 3" in refused.json()["detail"]
        assert (await full.post("/v1/deliveries/batch", json=[wanted()])).status_code == 429
        assert (await other.post("/v1/deliveries", json=wanted())).status_code == 201
        assert await here.count() == 4
        await full.post(f"/v1/deliveries/{ids[0]}/cancel")
        here.house.office.loads[here.tenants["default"]].counted_at -= ceiling.FULL_FOR
        assert (await full.post("/v1/deliveries", json=wanted())).status_code == 201


async def test_of_a_batch_what_has_room_is_taken_chunk_by_chunk(folder: Path) -> None:
    async with site.open_site(folder, max_live_per_tenant=1_500) as here:
        client = await here.client()
        items = (await client.post("/v1/deliveries/batch", json=[wanted()] * 2_000)).json()["items"]
        assert [one["status"] for one in items] == [201] * 1_000 + [429] * 1_000
        assert items[-1]["error"]["code"] == "too_many_live"
        assert await here.count() == 1_000


async def test_it_is_counted_seldom_and_once_for_many_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0

    def count(connection: object, tenant_id: object, *, at_most: int) -> int:
        nonlocal counted
        counted += 1
        return 0

    monkeypatch.setattr(store.ceilings, "waiting", count)
    async with site.open_site(folder, max_live_per_tenant=1_000) as here:
        client = await here.client()
        for _ in range(101):
            await client.post("/v1/deliveries", json=wanted())
        assert counted == 1
        await client.post("/v1/deliveries", json=wanted())
        assert counted == 2, "a tenth of the room that was left is used"


async def test_where_it_can_not_be_counted_nobody_is_turned_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(connection: object, tenant_id: object, *, at_most: int) -> int:
        raise UnavailableError

    monkeypatch.setattr(store.ceilings, "waiting", count)
    async with site.open_site(folder, max_live_per_tenant=5) as here:
        client = await here.client()
        assert (await client.post("/v1/deliveries", json=wanted())).status_code == 201
        assert here.house.telemetry.counts["ceiling.not_counted"] == 1
