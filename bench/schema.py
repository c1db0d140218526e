"""One `deliveries` table (A) or a narrow `live` row beside a wide record (B)? Measured, not argued.

    python bench/schema.py --postgres postgresql://u@host/db --mariadb mysql://u:p@host/db --sqlite /tmp/b.db

Needs asyncpg and asyncmy for the servers named. It drops and makes tables `a_*` and `b_*`: give it an empty database.
A and B run in turn, `--rounds` times; the table shows medians and B/A. The ratios are the result, not the numbers.

A claim returns what a send needs (target, payload, policies), so under B it reads the record too. A settle writes
the final state and one attempt row per delivery, in one transaction, each only if fence and state still match.
"""

import argparse
import asyncio
import random
import sqlite3
import time
from statistics import median
from urllib.parse import urlparse
from uuid import UUID

NOW, LEASE = 1_800_000_000_000_000, 1_800_000_060_000_000
TENANTS = [random.Random(i).randbytes(16) for i in range(200)]
PAYLOAD, POLICIES = b'{"n":"' + b"x" * 192 + b'"}', '{"retry":"' + "y" * 186 + '"}'
OWNER, serial = bytes(16), iter(range(10**12))

# --- schema: both layouts from the same column lists -------------------------------------------------------------

RECORD = (
    "id tenant_id project_id target payload policies labels dedupe_key schedule_id occurrence scheduled_for created_at"
).split()
LIVE = "id tenant_id queue priority wake_at".split()  # written at intake; the rest has defaults
ROW = RECORD + LIVE[2:]
ATTEMPT = "delivery_id fence number started_at finished_at outcome code worker".split()
TYPES = {
    "postgres": dict(
        id="uuid",
        short="text",
        bytes="bytea",
        json="jsonb",
        tail=" with (fillfactor=80, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0)",
    ),
    "mariadb": dict(id="binary(16)", short="varchar(100)", bytes="mediumblob", json="json", tail=" engine=innodb"),
    "sqlite": dict(id="blob", short="text", bytes="blob", json="text", tail=""),
}
HEAD = "id {id} primary key, tenant_id {id} not null, "
CONTENT = (
    "project_id {id} not null, target text not null, payload {bytes} not null, policies {json} not null, "
    "labels {json}, dedupe_key {short}, schedule_id {id}, occurrence {short}, scheduled_for bigint not null, "
    "created_at bigint not null, finished_at bigint, last_error text, "
)
QUEUEING = (
    "queue {short} not null, priority smallint not null, fence integer not null default 0, lease_owner {id}, "
    "crash_count smallint not null default 0, key_number smallint not null default 1, lane_key {short}, "
    "held_by {short}, wake_at bigint, "
)
COUNTS = "state smallint not null default 0, attempt_count smallint not null default 0){tail}"


def create_statements(engine, layout):
    # MariaDB has no partial indexes: one instant per reader, null where that reader has no business.
    queueing = QUEUEING + ("timer_at bigint, " if engine == "mariadb" else "")
    tables = [
        f"create table {layout}_deliveries ({HEAD}{CONTENT}{queueing if layout == 'a' else ''}{COUNTS}",
        f"create table {layout}_attempts (delivery_id {{id}} not null, fence integer not null, number smallint, "
        "started_at bigint, finished_at bigint, outcome smallint, code smallint, worker {id}, error text, "
        "primary key (delivery_id, fence)){tail}",
    ]
    if layout == "b":
        tables.append(f"create table b_live ({HEAD}{queueing}{COUNTS}")
    return [sql.format(**TYPES[engine]) for sql in tables] + index_statements(layout, engine != "mariadb")


def index_statements(layout, partial):
    live, record = "a_deliveries" if layout == "a" else "b_live", f"{layout}_deliveries"
    indexes = [
        ("fair", live, "queue, tenant_id, priority, wake_at", "state in (0,3)"),
        ("sends", live, "queue, wake_at", "state in (0,3)"),
        ("timers", live, "wake_at" if partial else "timer_at", "state in (1,2)"),
        ("dedupe", record, "tenant_id, dedupe_key", "dedupe_key is not null"),
        ("occurrence", record, "schedule_id, occurrence", "schedule_id is not null"),
        ("list", record, "tenant_id, id", ""),
    ]
    return [
        f"create {'unique ' if name in ('dedupe', 'occurrence') else ''}index {layout}_{name} on {table} ({columns})"
        + (f" where {where}" if partial and where else "")
        for name, table, columns, where in indexes
    ]


def make_rows(count, keyed, spread=1):
    """Rows in the order of ROW; ids are UUIDv7-shaped, so they grow with time. All rows are due."""
    rows = []
    for _ in range(count):
        i = next(serial)
        key = (NOW // 1000 + i // 10).to_bytes(6, "big") + (0x7000 | i % 10).to_bytes(2, "big") + random.randbytes(8)
        origin = (random.randbytes(16), f"2027-01-15/{i}") if keyed else (None, None)
        rows.append(
            (
                key,
                random.choice(TENANTS),
                OWNER,
                "https://hooks.example.com/orders/created",
                PAYLOAD,
                POLICIES,
                '{"env":"prod"}',
                None,
                *origin,
                NOW,
                NOW,
                "webhook",
                1,
                NOW - random.randrange(spread),
            )
        )
    return rows


# --- PostgreSQL: every step is one statement -----------------------------------------------------------------------

CLAIM = """with due as materialized (select id from {live} where queue = 'webhook' and state in (0,3)
             and wake_at <= $1 order by wake_at limit $2 for update skip locked)
           update {live} l set state = 1, fence = l.fence + 1, lease_owner = $3, wake_at = $4 from due {join}
           where l.id = due.id returning l.id, l.fence, {wide}.target, {wide}.payload, {wide}.policies"""
# `state + 0`: a plain `state = 1` lets the planner walk the whole timers index, which its statistics call empty.
OUTCOMES = "unnest($1::uuid[], $2::int[]) o(id, fence) where l.id = o.id and l.fence = o.fence and l.state + 0 = 1"
SETTLE = {
    "a": f"""with done as (update a_deliveries l set state = 4, wake_at = null, lease_owner = null, finished_at = $3,
               attempt_count = attempt_count + 1 from {OUTCOMES} returning l.id, l.fence, l.attempt_count)""",
    "b": f"""with done as (delete from b_live l using {OUTCOMES}
               returning l.id, l.fence, l.attempt_count + 1 as attempt_count),
             final as (update b_deliveries d set state = 4, finished_at = $3, attempt_count = done.attempt_count
               from done where d.id = done.id)""",
}
CASTS = dict(
    id="uuid",
    tenant_id="uuid",
    project_id="uuid",
    payload="bytea",
    policies="jsonb",
    labels="jsonb",
    schedule_id="uuid",
    scheduled_for="bigint",
    created_at="bigint",
    priority="smallint",
    wake_at="bigint",
)


class Postgres:
    name = "postgres"

    async def open(self, dsn):
        import asyncpg

        self.c = await asyncpg.connect(dsn)
        self.run = self.c.execute
        return self

    async def analyze(self):
        await self.run("vacuum analyze")

    async def wal(self):
        return int(await self.c.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    async def listing(self, sql, tenant):
        return await self.c.fetch(sql.format("$1"), UUID(bytes=tenant))

    async def intake(self, layout, rows):
        arrays = ", ".join(f"${i}::{CASTS.get(n, 'text')}[]" for i, n in enumerate(ROW, 1))
        source = f"with i as materialized (select * from unnest({arrays}) i({', '.join(ROW)}))"
        record, live = ", ".join(RECORD), ", ".join(LIVE)
        sql = (
            f"{source} insert into a_deliveries ({', '.join(ROW)}) select * from i"
            if layout == "a"
            else f"{source}, r as (insert into b_deliveries ({record}) select {record} from i) "
            f"insert into b_live ({live}) select {live} from i"
        )
        columns = [
            [v and UUID(bytes=v) for v in column] if CASTS.get(n) == "uuid" else list(column)
            for n, column in zip(ROW, zip(*rows))
        ]
        await self.run(sql, *columns)

    async def claim(self, layout, n):
        sql = (
            CLAIM.format(live="a_deliveries", join="", wide="l")
            if layout == "a"
            else CLAIM.format(live="b_live", join="join b_deliveries r on r.id = due.id", wide="r")
        )
        return [(r[0], r[1]) for r in await self.c.fetch(sql, NOW, n, UUID(bytes=OWNER), LEASE)]

    async def settle(self, layout, got):
        sql = (
            f"{SETTLE[layout]} insert into {layout}_attempts ({', '.join(ATTEMPT)}) "
            "select id, fence, attempt_count, $3, $3, 1, 200, $4 from done"
        )
        done = await self.run(sql, *map(list, zip(*got)), NOW, UUID(bytes=OWNER))
        assert done == f"INSERT 0 {len(got)}", done

    def shapes(self, got):
        ids, fences = map(list, zip(*got))
        head = "update a_deliveries l set state=4, wake_at=null, lease_owner=null, finished_at=$3"
        one = "where id = {} and fence = $2 and state + 0 = 1"
        return {
            "unnest": (self.run, f"{head} from {OUTCOMES}", ids, fences, NOW),
            "unnest, state = 1": (self.run, f"{head} from {OUTCOMES.replace(' + 0', '')}", ids, fences, NOW),
            "= any": (self.run, f"{head} {one.format('any($1::uuid[])')}", ids, fences[0], NOW),
            "executemany": (self.c.executemany, f"{head} {one.format('$1')}", [(*g, NOW) for g in got]),
        }


# --- MariaDB and SQLite: locked select, then updates by key list ---------------------------------------------------


class ByKeys:
    def keys(self, ids):
        return f"id in ({', '.join([self.mark] * len(ids))})"

    async def listing(self, sql, tenant):
        return await self.run(sql.format(self.mark), (tenant,))

    async def insert(self, table, names, rows):
        marks = ", ".join([self.mark] * len(names))
        await self.many(f"insert into {table} ({', '.join(names)}) values ({marks})", rows)

    async def intake(self, layout, rows):
        if layout == "a" and len(rows) == 1:  # one statement is its own transaction
            return await self.insert("a_deliveries", ROW, rows)
        await self.run(self.begin)
        await self.insert(f"{layout}_deliveries", *((ROW, rows) if layout == "a" else (RECORD, [r[:12] for r in rows])))
        if layout == "b":
            await self.insert("b_live", LIVE, [r[:2] + r[12:] for r in rows])
        await self.run("commit")

    async def claim(self, layout, n):
        live, wide = ("a_deliveries", "id, fence, target, payload, policies") if layout == "a" else ("b_live", "id, fence")
        await self.run(self.begin)
        got = await self.run(
            f"select {wide} from {live} where queue = 'webhook' and {self.ready} and wake_at <= {self.mark} "
            f"order by wake_at limit {n} {self.lock}",
            (NOW,),
        )
        ids = [r[0] for r in got]
        await self.run(
            f"update {live} set state = 1, fence = fence + 1, lease_owner = {self.mark}, {self.lease} where {self.keys(ids)}",
            (OWNER, LEASE, *ids),
        )
        await self.run("commit")
        if layout == "b":
            await self.run(f"select id, target, payload, policies from b_deliveries where {self.keys(ids)}", tuple(ids))
        return [(r[0], r[1] + 1) for r in got]

    async def settle(self, layout, got):
        """One statement per group of equal (fence, values); a short count would be read back, row by row."""
        ids, fence, m = [g[0] for g in got], got[0][1], self.mark
        guard, final = f"where {self.keys(ids)} and fence = {m} and state = 1", f"state = 4, finished_at = {m}, "
        await self.run(self.begin)
        if layout == "a":
            done = await self.run(
                f"update a_deliveries set {final} attempt_count = attempt_count + 1, lease_owner = null, {self.clear} {guard}",
                (NOW, *ids, fence),
            )
        else:
            done = await self.run(f"delete from b_live {guard}", (*ids, fence))
            await self.run(f"update b_deliveries set {final} attempt_count = 1 where {self.keys(ids)}", (NOW, *ids))
        assert done == len(got), done
        await self.insert(f"{layout}_attempts", ATTEMPT, [(i, f, 1, NOW, NOW, 1, 200, OWNER) for i, f in got])
        await self.run("commit")

    def shapes(self, got):
        ids, fence, m = [g[0] for g in got], got[0][1], self.mark
        head = f"update a_deliveries set state=4, {self.clear}, lease_owner=null, finished_at={m} where"
        return {
            "in list": (self.run, f"{head} {self.keys(ids)} and fence={m} and state=1", (NOW, *ids, fence)),
            "executemany": (self.many, f"{head} id={m} and fence={m} and state=1", [(NOW, *g) for g in got]),
        }


class MariaDB(ByKeys):
    name, mark, begin, lock, ready = "mariadb", "%s", "begin", "for update skip locked", "true"
    lease, clear = "timer_at = %s, wake_at = null", "timer_at = null"

    async def open(self, dsn):
        import asyncmy

        u = urlparse(dsn)
        self.c = await asyncmy.connect(
            host=u.hostname,
            port=u.port or 3306,
            user=u.username,
            password=u.password or "",
            db=u.path.strip("/"),
            autocommit=True,
        )
        await self.run("set session transaction isolation level read committed")
        return self

    async def run(self, sql, args=None):
        await (cur := self.c.cursor()).execute(sql, args)
        return await cur.fetchall() if cur.description else cur.rowcount

    async def many(self, sql, rows):
        await self.c.cursor().executemany(sql, rows)

    async def analyze(self):
        pass  # InnoDB keeps its own statistics


class SQLite(ByKeys):
    name, mark, begin, lock, ready = "sqlite", "?", "begin immediate", "", "state in (0,3)"
    lease, clear = "wake_at = ?", "wake_at = null"

    async def open(self, path):
        self.c = sqlite3.connect(path, isolation_level=None)
        self.c.executescript("pragma journal_mode=wal; pragma synchronous=full; pragma cache_size=-65536")
        return self

    async def run(self, sql, args=()):
        cur = self.c.execute(sql, args)
        return cur.fetchall() if cur.description else cur.rowcount

    async def many(self, sql, rows):
        self.c.executemany(sql, rows)

    async def analyze(self):
        await self.run("pragma wal_checkpoint(truncate)")


# --- measuring -----------------------------------------------------------------------------------------------------

LISTING = {
    "a": "select id, target, state, wake_at, attempt_count, scheduled_for from a_deliveries "
    "where tenant_id = {} order by id desc limit 50",
    "b": "select r.id, r.target, coalesce(l.state, r.state), l.wake_at, coalesce(l.attempt_count, r.attempt_count), "
    "r.scheduled_for from b_deliveries r left join b_live l on l.id = r.id "
    "where r.tenant_id = {} order by r.id desc limit 50",
}


async def reset(store, layout):
    for table in ("deliveries", "live", "attempts"):
        await store.run(f"drop table if exists {layout}_{table}")
    for sql in create_statements(store.name, layout):
        await store.run(sql)


async def timed(*awaitables):
    begin = time.perf_counter()
    for awaitable in awaitables:
        result = await awaitable
    return time.perf_counter() - begin, result


async def drain(store, layout, count, claims):
    """Claim 100, settle 100, until `count` rows are through."""
    while count > 0:
        spent, got = await timed(store.claim(layout, 100))
        claims.append(spent * 1000)
        await store.settle(layout, got)
        count -= len(got)


async def lists(store, layout):
    return median([(await timed(store.listing(LISTING[layout], tenant)))[0] * 1000 for tenant in TENANTS])


async def small_round(store, second, layout, args, note):
    """Intake, drain, list on fresh tables of some ten thousand rows."""
    await reset(store, layout)
    batches = [make_rows(500, args.keyed, 10**6) for _ in range(args.rows // 500)]
    note("intake, batches of 500, rows/s", args.rows / (await timed(*(store.intake(layout, b) for b in batches)))[0])
    singles = [make_rows(1, args.keyed) for _ in range(500)]
    note("intake, single, rows/s", 500 / (await timed(*(store.intake(layout, s) for s in singles)))[0])
    await store.analyze()
    half, claims, wal = args.rows // 2, [], await store.wal() if second else None
    note("claim+settle+attempt, 1 client, rows/s", half / (await timed(drain(store, layout, half, claims)))[0])
    note("claim of 100, small table, p50 ms", median(claims))
    note("list 50, small table, p50 ms", await lists(store, layout))
    if wal:
        note("WAL of claim+settle+attempt, bytes/row", (await store.wal() - wal) / half)
        both = asyncio.gather(*(drain(s, layout, half * 2 // 5, []) for s in (store, second)))
        note("claim+settle+attempt, 2 clients, rows/s", half * 4 // 5 / (await timed(both))[0])


async def deep_rounds(store, args, notes):
    """`--deep` waiting rows in both layouts at once; A and B take turns on them. Wake order is not id order."""
    name = f", {args.deep:,} waiting, "
    for layout in "ab":
        await reset(store, layout)
        for _ in range(args.deep // 5000):
            await store.intake(layout, make_rows(5000, args.keyed, 10**9))
        await store.analyze()
    for layout in "ab" * args.rounds:
        claims, wal = [], await store.wal() if store.name == "postgres" else None
        notes[layout](f"claim+settle+attempt{name}rows/s", 3000 / (await timed(drain(store, layout, 3000, claims)))[0])
        notes[layout](f"claim of 100{name}p50 ms", median(claims))
        notes[layout](f"list 50{name}p50 ms", await lists(store, layout))
        if wal:
            notes[layout](f"WAL of claim+settle+attempt{name}bytes/row", (await store.wal() - wal) / 3000)


async def shape_rounds(store):  # the settle's update of A in several shapes, on the same claimed rows, rolled back
    await reset(store, "a")
    await store.intake("a", make_rows(5000, False, 10**6))
    await store.analyze()
    found = {}
    for _ in range(20):
        for name, (call, *arguments) in store.shapes(await store.claim("a", 100)).items():
            await store.run("begin")
            found.setdefault(name, []).append((await timed(call(*arguments)))[0] * 1000)
            await store.run("rollback")
    for name, times in found.items():
        print(f"| {store.name} | settle of 100 by `{name}`, p50 ms | {median(times):.2f} | | |")


async def measure(kind, dsn, args):
    store, second, results = await kind().open(dsn), kind is Postgres and await kind().open(dsn), {"a": {}, "b": {}}
    notes = {x: lambda name, value, x=x: results[x].setdefault(name, []).append(value) for x in "ab"}
    for number in range(args.rounds):
        for layout in ("ab", "ba")[number % 2]:
            await small_round(store, second, layout, args, notes[layout])
    await deep_rounds(store, args, notes) if args.deep else None
    for name, values in results["a"].items():
        a, b = median(values), median(results["b"][name])
        a_text, b_text = (f"{v:,.0f}" if v >= 100 else f"{v:.2f}" for v in (a, b))
        print(f"| {store.name} | {name} | {a_text} | {b_text} | {b / a:.2f} |", flush=True)
    if args.shapes:
        await shape_rounds(store)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("postgres", "mariadb", "sqlite"):
        parser.add_argument(f"--{name}", help="file path" if name == "sqlite" else "URL of an empty database")
    for name, value, text in (
        ("rows", 20_000, "rows of a small round"),
        ("rounds", 5, "repeats of A and B"),
        ("deep", 1_000_000, "waiting rows of the deep part; 0 leaves it out"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=text)
    for name, text in ("keyed", "every row has a (schedule_id, occurrence)"), ("shapes", "also compare shapes of the settle"):
        parser.add_argument(f"--{name}", action="store_true", help=text)
    args = parser.parse_args()
    print("| store | measure | A one table | B split | B/A |\n|---|---|---|---|---|")
    for kind in (Postgres, MariaDB, SQLite):
        if dsn := getattr(args, kind.name):
            await measure(kind, dsn, args)


if __name__ == "__main__":
    asyncio.run(main())
