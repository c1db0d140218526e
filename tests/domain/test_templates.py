"""Body templates: what comes out is always JSON and never too long, and whatever is wrong is named by its place."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campana.domain import templates
from campana.domain.template_filters import DIRECTIVES, FILTERS
from campana.errors import InvalidError

ROOTS: templates.Roots = {"delivery": ("id", "labels"), "nominal": ("utc", "local"), "recipient": ("key",), "payload": None}
DATA: dict[str, Any] = {
    "delivery": {"id": "d1", "labels": {"team": "billing"}},
    "nominal": {"utc": "2026-12-01T14:00:00Z", "local": "2026-12-01T09:00:00-05:00"},
    "recipient": {"key": None},
    "payload": {
        "name": "Anna",
        "note": " call first ",
        "email": "anna+1@example.com",
        "amount": 17.5,
        "paid": False,
        "lines": [1, 2],
        "rows": [{"sku": "a"}, {"sku": "b"}],
        "my key": "k",
        "größe": "XL",
        "quoted": 'say "hi" \\ \n\u2028',
        "braces": "{{ delivery.id }}",
        "__class__": "only data",
        "0": "zero",
    },
}


def filled(template: Any, data: Mapping[str, Any] = DATA, **given: Any) -> Any:
    return json.loads(templates.render(templates.parse(template, ROOTS), data, **given))


def faults(template: Any, data: Mapping[str, Any] = DATA, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidError) as refused:
        templates.render(templates.parse(template, ROOTS), data, **given)
    assert all(fault.detail for fault in refused.value.faults)
    return [(fault.pointer, fault.code) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("text", "comes_to"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ payload.amount }}", 17.5),
        ("{{payload.paid}}", False),
        ("{{ payload.lines }}", [1, 2]),
        ("{{ delivery.labels }}", {"team": "billing"}),
        ("{{ recipient.key }}", None),
        (" {{ payload.amount }}", " 17.5"),
        ("{{ payload.name }} owes {{ payload.amount }} ({{ payload.paid }})", "Anna owes 17.5 (false)"),
        ("{{ payload.lines }}!", "[1,2]!"),
        ("{{ recipient.key }}!", "null!"),
        ("{{ payload.rows[1].sku }}{{ payload.rows.0.sku }}", "ba"),
        ("{{ payload['my key'] }}", "k"),
        ('{{ payload["größe"] }}{{ payload.größe }}', "XLXL"),
        ("{{ payload.0 }}", "zero"),
        ("{{\tpayload\n.\rname }}", "Anna"),
        ("{{ payload.quoted }}", 'say "hi" \\ \n\u2028'),
        ("x{{ payload.quoted }}", 'xsay "hi" \\ \n\u2028'),
        ("{{ payload.__class__ }}", "only data"),
        ("{{ '{{' }} {{ '}}' }} }} { }", "{{ }} }} { }"),
        ('{{ "it\'s" }} {{ -1.5 }} {{ true }} {{ null }}', "it's -1.5 true null"),
        ("{{ 17 }}", 17),
        ("{{ payload.none.at.all | default:'x' }}", "x"),
        ("{{ recipient.key | default:0 }}", 0),
        ("{{ recipient.key | default:null }}", None),
        ("{{ payload.paid | default:true }}", False),
        ("{{ payload.amount | upper }}", "17.5"),
        ("{{ payload.name | truncate:4 }}{{ payload.name | truncate:1 }}", "Anna…"),
        ("{{ payload.lines | json | json }}", '"[1,2]"'),
        ("{{ nominal.utc | date }} {{ nominal.utc | time:'%H:%M', 'Asia/Kolkata' }}", "2026-12-01 19:30"),
        ("{{ nominal.local | date:'%Y%m%d%% %z' }} {{ nominal.local | time }}", "20261201% -0500 09:00"),
    ],
)
def test_a_string_comes_to(text: str, comes_to: Any) -> None:
    assert filled(text) == comes_to
    assert filled({"a": [text]}) == {"a": [comes_to]}


def test_what_a_value_holds_is_never_read_as_a_template() -> None:
    assert filled(["{{ payload.braces }}", "x{{ payload.braces }}"]) == ["{{ delivery.id }}", "x{{ delivery.id }}"]


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_does_what_its_example_says(name: str) -> None:
    assert f"| {name}" in FILTERS[name].example
    assert filled(FILTERS[name].example) == FILTERS[name].gives


def test_every_directive_of_a_form_says_the_same_as_the_calendar() -> None:
    form = " ".join(f"%{sign}" for sign in DIRECTIVES)
    said = filled(f"{{{{ nominal.local | date:'{form}' }}}}")
    assert said == "2026 26 12 December Dec 01 1 335 Tuesday Tue 2 2026 49 09 09 AM 00 00 000000 -0500 1796133600 %"
    noon = {"payload": {"at": "2027-01-01T12:30:05.25+05:30"}}
    assert filled("{{ payload.at | date:'%I %p %G-%V %f %z' }}", noon) == "12 PM 2026-53 250000 +0530"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(
            (said, "template_syntax")
            for said in ("{{", "{{ }}", "{{ payload", "{{ payload }", "{{ payload. }}", "{{ .payload }}")
        ),
        *((said, "template_syntax") for said in ("{{{ payload }}}", "{{ {{ payload }} }}", "{{ payload {{ name }} }}")),
        *(
            (said, "template_syntax")
            for said in ("{{ payload[ }}", "{{ payload[-1] }}", "{{ payload['a }}", "{{ payload[name] }}")
        ),
        *((said, "template_syntax") for said in ("{{ payload | }}", "{{ payload || upper }}", "{{ payload | upper: }}")),
        *(
            (said, "template_syntax")
            for said in ("{{ payload() }}", "{{ payload.name.upper() }}", "{{ payload + 1 }}", "{{ 1 + 1 }}")
        ),
        *(
            (said, "template_syntax")
            for said in ("{{ payload | default:x }}", "{{ payload | default:[] }}", "{{ 01 }}", "{{ 1e9 }}")
        ),
        *(
            (said, "template_syntax")
            for said in ("{{\u00a0payload }}", "{{ pay\u200bload }}", "{{ payload\uff5d\uff5d", "{{ \u202epayload }}")
        ),
        *(
            (said, "template_syntax")
            for said in ("{{ payload.\u0665 }}", "{{ payload[\uff10] }}", "{{" + " " * 2_000 + "payload }}")
        ),
        *(
            (said, "unknown_path")
            for said in ("{{ nothing }}", "{{ __class__ }}", "{{ self.x }}", "{{ \uff50ayload }}", "{{ Payload }}")
        ),
        *(
            (said, "unknown_path")
            for said in ("{{ delivery.idd }}", "{{ delivery.__class__ }}", "{{ delivery[0] }}", "{{ recipient.name }}")
        ),
        *((said, "unknown_filter") for said in ("{{ payload | eval }}", "{{ payload | Upper }}", "{{ payload | __init__ }}")),
        *(
            (said, "filter_argument")
            for said in ("{{ payload | upper:1 }}", "{{ payload | default }}", "{{ payload | default:1,2 }}")
        ),
        *(
            (said, "filter_argument")
            for said in ("{{ payload | truncate:0 }}", "{{ payload | truncate:true }}", "{{ payload | truncate }}")
        ),
        *((said, "filter_argument") for said in ("{{ payload | truncate:9999999 }}", "{{ payload | truncate:1.5 }}")),
        *(
            (said, "filter_argument")
            for said in ("{{ payload | date:'%Q' }}", "{{ payload | date:'%' }}", "{{ payload | date:1 }}")
        ),
        *((said, "filter_argument") for said in ("{{ payload | date:'%-d' }}", "{{ payload | time:'%H','Mars/Base' }}")),
        ("{{ payload | date:'" + "x" * 101 + "' }}", "filter_argument"),
        ("{{ payload" + ".a" * 32 + " }}", "too_deep"),
        ("{{ payload" + " | trim" * 11 + " }}", "too_many"),
        *((said, "missing_value") for said in ("{{ payload.nothing }}", "{{ payload.name.upper }}", "{{ payload.name.0 }}")),
        *(
            (said, "missing_value")
            for said in ("{{ payload.rows.2 }}", "{{ payload.rows.__len__ }}", "{{ payload.lines['-1'] }}")
        ),
        *((said, "missing_value") for said in ("{{ payload.nothing | upper }}", "{{ payload.rows.999999999.a }}")),
        *(
            (said, "invalid")
            for said in ("{{ payload.lines | upper }}", "{{ recipient.key | trim }}", "{{ payload | urlencode }}")
        ),
        *(
            (said, "invalid")
            for said in ("{{ payload.name | date }}", "{{ payload.amount | time }}", "{{ recipient.key | date }}")
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, code: str) -> None:
    assert faults({"a/b": [0, text]}) == [("/a~1b/1", code)]


def test_every_fault_is_told_at_once_each_with_its_place() -> None:
    template = {"a": "{{ x }} {{ payload.ok }} {{ y | upper }}", "b": ["{{", {"~": "{{ payload | no }}"}], "{{ name }}": 1}
    assert faults(template) == [
        ("/a", "unknown_path"),
        ("/a", "unknown_path"),
        ("/b/0", "template_syntax"),
        ("/b/1/~0", "unknown_filter"),
        ("/{{ name }}", "template_syntax"),
    ]
    assert faults(["{{ payload.x }}", "fine", "{{ payload.y }} {{ payload.z }}"]) == [
        ("/0", "missing_value"),
        ("/2", "missing_value"),
        ("/2", "missing_value"),
    ]


def test_a_template_is_bounded_in_size_depth_and_number_of_expressions() -> None:
    assert len(filled("x" * (templates.LARGEST - 2))) == templates.LARGEST - 2
    assert faults("x" * (templates.LARGEST - 1)) == [("", "too_large")]
    nested: Any = "x"
    for _ in range(templates.DEEPEST):
        nested = [nested]
    assert filled(nested) == nested
    assert faults([nested]) == [("/0" * templates.DEEPEST, "too_deep")]
    assert filled("{{ 1 }}" * templates.MOST_EXPRESSIONS) == "1" * templates.MOST_EXPRESSIONS
    assert faults(["{{ 1 }}"] * (templates.MOST_EXPRESSIONS + 5)) == [(f"/{templates.MOST_EXPRESSIONS}", "too_many")]
    assert len(faults(["{{ x }}"] * 400)) == templates.MOST_FAULTS
    assert len(faults(["{{ payload.x }}"] * 400)) == templates.MOST_FAULTS


@pytest.mark.parametrize(
    "bad",
    [float("nan"), "\ud800", {1: "x"}, {"a": object()}, 10**5_000, b"x"],
    ids=["nan", "surrogate", "number as name", "object", "huge", "bytes"],
)
def test_what_is_no_json_is_no_template_and_no_value(bad: Any) -> None:
    assert {code for _, code in faults({"a": bad})} <= {"invalid", "template_syntax"}
    if bad != {1: "x"}:
        assert faults("{{ payload }}", {"payload": bad}) == [("", "invalid")]
        assert faults("x{{ payload | json | urlencode }}", {"payload": bad}) == [("", "invalid")]


def test_nesting_without_an_end_is_refused_as_template_and_as_value() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    for bad in (circle, deep):
        assert faults(bad) == [("", "invalid")]
        assert faults("{{ payload }}", {"payload": bad}) == [("", "invalid")]


LARGE = {"payload": {"big": "x" * 200_000, "blank": " " * 200_000, "slashes": "\\" * 100_000, "faces": "\U0001f600" * 60_000}}


@pytest.mark.parametrize(
    "template",
    [
        ["{{ payload.big }}"] * 500,
        ["{{ payload }}"] * 500,
        ["{{ payload.slashes" + " | json" * 10 + " }}"] * 500,
        ["{{ payload.faces" + " | urlencode" * 10 + " | truncate:1 }}"] * 500,
        ["{{ payload.big | upper | lower | upper | truncate:1 }}"] * 500,
        ["{{ payload.blank | trim }}"] * 500,
        ["{{ payload | json | truncate:1 }}"] * 500,
    ],
)
def test_what_would_grow_without_end_is_stopped_at_once(template: Any) -> None:
    began = time.process_time()
    assert [code for _, code in faults(template, LARGE)] == ["too_large"]
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    ["{{" * 32_000, "{{ " * 21_000, "{{'" * 21_000, '{{"}}' * 13_000, "{{ payload | x }}" * 3_800, "{" * 65_000, "}}" * 32_000],
)
def test_a_template_without_ends_is_read_in_one_go(text: str) -> None:
    began = time.process_time()
    try:
        templates.parse(text, ROOTS)
    except InvalidError as error:
        assert len(error.faults) <= templates.MOST_FAULTS  # noqa: PT017 - some are plain text, and fine
    assert time.process_time() - began < 2


def test_the_cap_is_exact() -> None:
    assert filled("{{ payload.name }}", at_most=6) == "Anna"
    assert faults("{{ payload.name }}", at_most=5) == [("", "too_large")]
    assert faults("plain", at_most=6) == [("", "too_large")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [
        *("{{", "}}", " ", "|", ".", ":", ",", "[", "]", "'", '"', "{{ payload }}", "{{ payload.a }}", "{{ payload.a.0 }}"),
        *("payload", "delivery.id", "a", "0", "__class__", "17", "-", "true", "null", "\\", "\u2028", "é", "\ud83d", "{%", "%Y"),
        *FILTERS,
        *(one.example for one in FILTERS.values()),
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)
TEMPLATES = st.recursive(TEXT | JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@given(TEMPLATES, JSON, st.integers(0, 400))
@example("{{ payload }}", {"a": 1}, 400)
@example("{{ payload | json | json }}x", "\\", 400)
def test_it_comes_to_json_within_the_cap_or_to_its_own_error(template: Any, payload: Any, at_most: int) -> None:
    try:
        body = templates.render(templates.parse(template, ROOTS), DATA | {"payload": payload}, at_most=at_most)
    except InvalidError as error:
        assert {fault.pointer[:1] for fault in error.faults} <= {"", "/"}  # noqa: PT017 - either way is right
    else:
        assert len(body) <= at_most
        json.loads(body)


@given(JSON)
def test_json_without_expressions_comes_to_itself(value: Any) -> None:
    said = json.dumps(value)
    if "{{" not in said:
        assert filled(value) == json.loads(said)


@given(st.text())
def test_text_goes_in_and_comes_out_the_same(text: str) -> None:
    data = {"payload": {"a": text}}
    assert filled(["{{ payload.a }}", "<{{ payload.a }}>", "{{ payload.a }}{{ payload.a }}"], data) == [
        text,
        f"<{text}>",
        text * 2,
    ]


def test_the_page_about_templates_shows_what_happens(root: Path) -> None:
    page = (root / "docs" / "reference" / "templates.md").read_text(encoding="utf-8")
    example = json.loads(page[page.index('    {"channel"') : page.index("\n\nsends `")])
    data = {"payload": example["payload"], "nominal": {"local": "2026-12-01T09:00:00-05:00"}}
    body = templates.render(templates.parse(example["target"]["body_template"], ROOTS), data)
    assert f"sends `{body.decode()}`" in page
