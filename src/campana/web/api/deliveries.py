"""Routes of deliveries."""

from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from campana import operations
from campana.domain.deliveries import WORDS, State
from campana.errors import CampanaError, Fault, InvalidError, TooLargeError, UnreadableError
from campana.operations.deliveries import BREATH, LARGEST_BATCH, Made
from campana.operations.office import Actor, Office
from campana.store.deliveries import Filter
from campana.web import bodies, idempotency, problems
from campana.web.api import describe, queries, shapes
from campana.web.auth import admit, cursor, read_cursor

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])
T = TypeVar("T")
LARGEST_BATCH_BODY = 32 << 20
Id = Annotated[str, Path(description="The delivery's id")]
NDJSON = "application/x-ndjson"


def _answer(said: Any, status: int = 200, **headers: str) -> Response:
    return Response(bodies.dump(said), status_code=status, headers=headers, media_type="application/json")


def _shown(office: Office, made: Made) -> dict[str, Any]:
    if made.record is None:
        return {"deduplicated": True, "delivery": None}
    shown = shapes.delivery(office, made.record)
    return shown | {"deduplicated": True} if made.deduplicated else shown


@router.post("", **describe.CREATE)
async def create(request: Request) -> Response:
    """Accept one delivery. It is durable when the answer comes."""
    who = await admit(request, "write")
    queries.none(request)
    said = await bodies.read_json(request)

    async def work(office: Office, actor: Actor) -> Response:
        made = await operations.deliveries.create(office, actor, said)
        where = {} if made.record is None else {"location": f"/v1/deliveries/{made.record.id}"}
        return _answer(_shown(office, made), 200 if made.deduplicated else 201, **where)

    return await idempotency.once(request, who, said, work)


@router.post("/batch", **describe.BATCH)
async def batch(request: Request) -> Response:
    """Accept up to 10,000 deliveries: a JSON array or NDJSON, a result per item in the same form and order.

    Answers in NDJSON begin with the first items that are durable, unless they are to be kept under an idempotency key.
    """
    who = await admit(request, "write")
    queries.none(request)
    body = await bodies.read(request, at_most=LARGEST_BATCH_BODY, types=(bodies.JSON, NDJSON))
    is_ndjson = bodies.kind(request) == NDJSON
    items = await _items(who[0], body, is_ndjson=is_ndjson)
    if is_ndjson and idempotency.key_of(request) is None:
        lines = _results(*who, items)
        # The first ones before the answer begins: what befalls them can still be its status.
        first = await anext(lines, None)
        return StreamingResponse(_flow(first, lines), media_type=NDJSON)

    async def work(office: Office, actor: Actor) -> Response:
        said: list[bytes] = []
        kind = Response
        async for some, is_unfinished in _results(office, actor, items):
            said += some
            kind = idempotency.Unfinished if is_unfinished else kind
        if is_ndjson:
            return kind(b"".join(line + b"\n" for line in said), media_type=NDJSON)
        return kind(b'{"items":[' + b",".join(said) + b"]}", media_type=bodies.JSON)

    return await idempotency.once(request, who, items, work)


Lines = tuple[list[bytes], bool]
_WORTH_ANOTHER_TRY = {409, 429, 503}


async def _results(office: Office, actor: Actor, items: Sequence[Any]) -> AsyncIterator[Lines]:
    """Return results as they are durable, and whether some of them may come out otherwise another time."""
    index = 0
    async for some in operations.deliveries.create_many(office, actor, items):
        said = []
        async for number, result in _in_breaths(office, some):
            said.append(_result(office, index + number, result))
        index += len(some)
        yield [bodies.dump(one) for one in said], any(one["status"] in _WORTH_ANOTHER_TRY for one in said)


async def _flow(first: Lines | None, rest: AsyncIterator[Lines]) -> AsyncIterator[bytes]:
    if first is not None:
        yield b"".join(line + b"\n" for line in first[0])
    async for said, _ in rest:
        yield b"".join(line + b"\n" for line in said)


async def _items(office: Office, body: bytes, *, is_ndjson: bool) -> list[Any]:
    if is_ndjson:
        items: Any = list(islice(bodies.lines(body), LARGEST_BATCH + 1))
    else:
        items = bodies.parse(body, deepest=bodies.DEEPEST + 1)
    if not isinstance(items, list):
        raise InvalidError(Fault(pointer="", code="wrong_type", detail="expected a list of deliveries"))
    if len(items) > LARGEST_BATCH:
        raise TooLargeError(f"expected at most {LARGEST_BATCH} deliveries, got more")
    return [_line(line) async for _, line in _in_breaths(office, items)] if is_ndjson else items


async def _in_breaths(office: Office, items: Sequence[T]) -> AsyncIterator[tuple[int, T]]:
    """Number the items, and let others go on after every few: a batch must not hold up the engine beside it."""
    for number, item in enumerate(items):
        if number % BREATH == 0:
            await office.world.clock.sleep(0)
        yield number, item


def _line(line: bytes) -> Any:
    try:
        return bodies.parse(line)
    except UnreadableError as error:
        return InvalidError(Fault(pointer="", code=error.code, detail=error.detail.replace("the body", "the line", 1)))


def _result(office: Office, index: int, result: Made | CampanaError) -> dict[str, Any]:
    if isinstance(result, CampanaError):
        document = problems.document(result)
        return {"index": index, "status": document["status"], "error": document}
    return {"index": index, "status": 200 if result.deduplicated else 201, "delivery": _shown(office, result)}


@router.get("", **describe.LIST)
async def newest(request: Request) -> Response:
    """Return deliveries, the newest first."""
    office, actor = await admit(request, "read")
    query = queries.Query(request)
    states = [_state(query, word) for word in query.every("status")]
    limit = query.one("limit", queries.limit) or queries.DEFAULT
    asked = query.narrowing("limit", "cursor")
    before = query.one("cursor", lambda said: read_cursor(office, actor, asked, said))
    wanted = Filter(
        states=frozenset(state for state in states if state is not None),
        channel=query.one("channel", queries.text),
        recipient=query.one("recipient", queries.text),
        dedupe_key=query.one("dedupe_key", queries.text),
        provider_call_id=query.one("provider_call_id", queries.text),
        schedule_id=query.one("schedule_id", queries.schedule),
        due_from=query.one("due_from", queries.instant),
        due_to=query.one("due_to", queries.instant),
        labels=query.labels(),
        project_id=await operations.projects.named(office, actor, query.one("project", queries.text), query.faults),
    )
    query.check()
    page = await operations.deliveries.page(office, actor, wanted, before=before, limit=limit)
    following = None if page.after is None else cursor(office, actor, asked, page.after)
    return _answer(queries.page([shapes.delivery(office, row) for row in page.records], following))


def _state(query: queries.Query, word: str) -> State | None:
    if word not in WORDS:
        query.fail("status", "not_one_of", f"expected one of {', '.join(WORDS)}, got {word[:40]!r}")
    return WORDS.get(word)


@router.get("/{delivery_id}", **describe.GET)
async def get(request: Request, delivery_id: Id) -> Response:
    """Return one delivery with its attempts."""
    office, actor = await admit(request, "read")
    queries.none(request)
    record, tries = await operations.deliveries.story(office, actor, queries.uuid(delivery_id))
    return _whole(office, record, tries)


def _whole(office: Office, record: Any, tries: Sequence[Any]) -> Response:
    return _answer(shapes.delivery(office, record) | {"attempts": [shapes.summary(office, one) for one in tries]})


@router.get("/{delivery_id}/wait", **describe.WAIT)
async def wait(request: Request, delivery_id: Id) -> Response:
    """Return a delivery as soon as it has ended, or as it stands when the time is over."""
    office, actor = await admit(request, "read")
    query = queries.Query(request)
    longest = query.one("timeout", queries.patience)
    query.check()
    its_id, longest = queries.uuid(delivery_id), operations.waiting.UNLESS_SAID if longest is None else longest

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return _whole(office, *await operations.waiting.wait(office, actor, its_id, longest=longest, gone=gone))


@router.get("/{delivery_id}/attempts", **describe.ATTEMPTS)
async def attempts(request: Request, delivery_id: Id) -> Response:
    """Return a delivery's attempts, the first one first."""
    office, actor = await admit(request, "read")
    queries.none(request)
    _, tries = await operations.deliveries.story(office, actor, queries.uuid(delivery_id))
    return _answer(queries.page([shapes.attempt(office, one) for one in tries], None))


@router.post("/{delivery_id}/cancel", **describe.CANCEL)
async def cancel(request: Request, delivery_id: Id) -> Response:
    """End a waiting delivery (200), or request it of one that is under way (202)."""
    who = await admit(request, "write")
    queries.none(request)
    await bodies.read_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        record, ended = await operations.deliveries.cancel(office, actor, queries.uuid(delivery_id))
        return _answer(shapes.delivery(office, record), 200 if ended else 202)

    return await idempotency.once(request, who, None, work)
