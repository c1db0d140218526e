"""Names that lead to where webhooks may not go: found out when a delivery is saved, and again whenever one is sent."""

import asyncio
from collections.abc import Iterable
from typing import Any

from campana.channels import netguard
from campana.operations.office import Office

PATIENCE = 0.5
"""Seconds after which a name that says nothing is taken; what is sent is checked in any case."""
MOST_NAMES = 100
"""Names of one request that are looked up; the API is no means to ask the world's name servers about ten thousand."""


async def refused(office: Office, items: Iterable[Any]) -> frozenset[str]:
    """Return the webhook URLs among these items, as they are written, whose names lead to a refused address."""
    urls: dict[tuple[str, int], netguard.Url] = {}
    written: dict[tuple[str, int], set[str]] = {}
    for text in _urls(items):
        try:
            url = netguard.parse(text)
        except ValueError:
            continue
        if netguard.literal(url.host) is None and netguard.url_refusal(url, office.rules) is None:
            urls[url.host, url.port] = url
            written.setdefault((url.host, url.port), set()).add(text)
    found: set[str] = set()

    async def ask(place: tuple[str, int]) -> None:
        if await office.leads_inside(urls[place]):
            found.update(written[place])

    tasks = [asyncio.ensure_future(ask(place)) for place in list(urls)[:MOST_NAMES]]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()
    return frozenset(found)


def _urls(items: Iterable[Any]) -> Iterable[str]:
    for said in items:
        target = said.get("target") if isinstance(said, dict) and said.get("channel") == "webhook" else None
        url = target.get("url") if isinstance(target, dict) else None
        if isinstance(url, str):
            yield url
