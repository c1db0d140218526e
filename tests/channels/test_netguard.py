"""The address guard: what is refused in all its spellings, and what still gets through."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.channels import netguard
from tests.channels.refused import REFUSED

NONE = netguard.Rules()
LOOPBACK = netguard.Rules(allow=netguard.networks(("127.0.0.0/8", "::1/128")))


def is_refused(text: str, rules: netguard.Rules = NONE) -> bool:
    try:
        return netguard.url_refusal(netguard.parse(text), rules) is not None
    except ValueError:
        return True


@pytest.mark.parametrize("text", REFUSED)
def test_a_url_that_could_lead_inside_or_be_read_in_two_ways_is_refused(text: str) -> None:
    assert is_refused(text)


@pytest.mark.parametrize("text", REFUSED)
def test_allowing_loopback_opens_loopback_alone(text: str) -> None:
    ported = re.fullmatch(r"http://example\.com:([1-9][0-9]{0,4})/", text)
    is_left_to_the_connection = ported is not None and int(ported[1]) <= 65_535
    loopback = {
        *("http://127.0.0.1/", "http://127.0.0.1./", "http://localhost/", "http://LOCALHOST./", "http://[::1]/"),
        *("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::1]:22/"),
        "http://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    }
    assert is_refused(text, LOOPBACK) == (text not in loopback and not is_left_to_the_connection)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.com", ("https", "example.com", 443, "/")),
        ("HTTPS://EXAMPLE.com./Path?q=1", ("https", "example.com", 443, "/Path?q=1")),
        ("http://example.com?q=1", ("http", "example.com", 80, "/?q=1")),
        ("http://example.com:8080/a%20b", ("http", "example.com", 8080, "/a%20b")),
        ("http://example.com/ü?q=é", ("http", "example.com", 80, "/%C3%BC?q=%C3%A9")),
        ("http://example.com/a?b=http://c.d/e@f:g", ("http", "example.com", 80, "/a?b=http://c.d/e@f:g")),
        ("http://bücher.example.com/", ("http", "xn--bcher-kva.example.com", 80, "/")),
        ("http://xn--bcher-kva.example.com/", ("http", "xn--bcher-kva.example.com", 80, "/")),
        ("http://under_score.example.com/", ("http", "under_score.example.com", 80, "/")),
        ("http://1.1.1.1:443/", ("http", "1.1.1.1", 443, "/")),
        ("http://[2606:4700:0000::1111]:8443/x", ("http", "2606:4700::1111", 8443, "/x")),
        ("http://[64:ff9b::1.1.1.1]/", ("http", "64:ff9b::101:101", 80, "/")),
        ("http://[::ffff:1.1.1.1]/", ("http", "1.1.1.1", 80, "/")),
    ],
)
def test_a_public_url_is_read_once_and_for_all(text: str, expected: tuple[str, str, int, str]) -> None:
    url = netguard.parse(text)
    assert (url.scheme, url.host, url.port, url.target) == expected
    assert netguard.url_refusal(url, NONE) is None


def test_the_host_header_leaves_out_a_default_port_and_brackets_addresses() -> None:
    assert netguard.parse("https://example.com:443/").authority == "example.com"
    assert netguard.parse("http://example.com:443/").authority == "example.com:443"
    assert netguard.parse("http://[2606:4700::1111]:8080/").authority == "[2606:4700::1111]:8080"


def test_every_refused_address_gets_the_same_sentence() -> None:
    texts = (
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "http://[fec0::1]/",
        "http://redis/",
        "http://10.0.0.1:22/",
    )
    assert {netguard.url_refusal(netguard.parse(text), NONE) for text in texts} == {netguard.REFUSED}


def test_an_allowed_range_opens_every_port_of_its_addresses() -> None:
    rules = netguard.Rules(allow=netguard.networks(("10.1.0.0/16",)))
    assert netguard.refusal("10.1.2.3", 5432, rules) is None
    assert netguard.refusal("::ffff:10.1.2.3", 22, rules) is None
    assert netguard.refusal("10.2.0.1", 80, rules) == "private"
    assert netguard.refusal("1.1.1.1", 5432, rules) == "port 5432 is not open to webhooks"
    assert not is_refused("http://10.1.2.3:22/", rules)


def test_the_port_of_a_name_is_left_to_the_connection_where_ranges_are_allowed() -> None:
    assert is_refused("http://example.com:5432/", NONE)
    assert not is_refused("http://example.com:5432/", LOOPBACK)


def test_no_wide_range_opens_a_metadata_address() -> None:
    wide = netguard.Rules(allow=netguard.networks(("0.0.0.0/0", "169.254.0.0/16", "::/0")))
    assert netguard.refusal("169.254.169.254", 80, wide) is not None
    assert netguard.refusal("::ffff:169.254.169.254", 80, wide) is not None
    assert netguard.refusal("fd00:ec2::254", 80, wide) is not None
    assert netguard.refusal("169.254.1.1", 80, wide) is None
    exact = netguard.Rules(allow=netguard.networks(("169.254.169.254/32",)))
    assert netguard.refusal("169.254.169.254", 80, exact) is None


def test_loopback_in_an_embedded_spelling_stays_refused_where_loopback_is_allowed() -> None:
    assert not is_refused("http://127.0.0.1:9999/", LOOPBACK)
    assert not is_refused("http://localhost:9999/", LOOPBACK)
    for text in ("http://[2002:7f00:1::]/", "http://[64:ff9b::7f00:1]/", "http://[::7f00:1]/", "http://0.0.0.0/"):
        assert is_refused(text, LOOPBACK)


@pytest.mark.parametrize("answer", ["", "example.com", "1.2.3", "fe80::1%eth0", "2606:4700::1%1", "0x7f000001"])
def test_a_resolver_that_answers_something_odd_is_refused(answer: str) -> None:
    assert netguard.refusal(answer, 443, NONE) is not None


def test_an_address_of_each_public_kind_is_let_through() -> None:
    for address in (
        "1.1.1.1",
        "100.128.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
    ):
        assert netguard.refusal(address, 443, NONE) is None


def test_names_without_a_public_meaning_are_told_from_others() -> None:
    for host in ("redis", "localhost", "a.localhost", "db.internal", "x.local", "y.home.arpa", "z.test"):
        assert netguard.never_public(host)
    for host in ("example.com", "localhost.example.com", "internal.example.com", "1.1.1.1", "2606:4700::1111"):
        assert not netguard.never_public(host)


def test_a_range_with_host_bits_is_refused_in_the_settings() -> None:
    assert netguard.networks(("10.0.0.0/8", "::1/128")) == (ip_network("10.0.0.0/8"), ip_network("::1/128"))
    with pytest.raises(ValueError, match="host bits"):
        netguard.networks(("10.0.0.1/8",))


PIECES = st.sampled_from(
    [*"/?#@:[]\\%.-_ \t\r\n\0aZ0é１。", "http://", "https://", "127", "0x", "::1", "example", "com", "localhost", "%2e"]  # noqa: RUF001 - full-width characters are the point
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40).map("http://".__add__) | st.text(max_size=40))
def test_whatever_is_written_is_a_plain_url_or_a_sentence(text: str) -> None:
    try:
        url = netguard.parse(text)
    except ValueError as error:
        sentence: str | None = str(error)
    else:
        sentence = None
        assert_plain(url)
    assert sentence is None or sentence.startswith("expected")


def assert_plain(url: netguard.Url) -> None:
    assert url.scheme in {"http", "https"}
    assert set(url.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
    assert 0 < url.port < 65_536
    assert url.target.startswith("/")
    assert all("!" <= character <= "~" for character in url.target)
    again = netguard.parse(f"{url.scheme}://{url.authority}{url.target}")
    assert again == url


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "64:ff9b::{}", "2606:4700::5efe:{}"]))
def test_an_embedded_address_is_never_more_welcome_than_itself(address: IPv4Address, spelling: str) -> None:
    if netguard.refusal(address, 443, NONE):
        assert netguard.refusal(spelling.format(address), 443, NONE)


@given(st.ip_addresses())
def test_nothing_that_the_standard_library_knows_as_inside_gets_through(address: IPv4Address | IPv6Address) -> None:
    # Mapped and NAT64 addresses are reserved to it whatever they carry; we look at what they carry, as above.
    carries = any(address in ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
    inside = address.is_private or address.is_multicast or address.is_reserved or address.is_loopback
    if inside and not carries:
        assert netguard.refusal(address, 443, NONE)
