"""Where a webhook may go: strict URLs, and our own list of networks that nothing is ever sent to.

`ipaddress.is_global` is no guard: it calls NAT64, 6to4, multicast, site-local and a cloud's metadata address global. So
this is a list of our own, IPv6 is refused unless it is known to be public, and an IPv4 address inside an IPv6 one is
judged as itself.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_URL = 8_000
DEFAULT_PORTS = {"http": 80, "https": 443}

# One sentence for every refused address: which of our networks it is in is nobody's business but the operator's.
REFUSED = "expected a host with a public address"
REFUSED_PORT = "expected port 80, 443 or one from 1024 to 65535 that is not a database's, a cache's or a broker's"

# Addresses at which clouds hand out credentials. Some lie in public space, and no wide range opens them by accident.
_METADATA: frozenset[Address] = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
    )
)

_NETWORKS_4 = tuple(
    (IPv4Network(text), what)
    for text, what in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "multicast tunnels"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

# Only 2000::/3 is public at all, so these are the exceptions inside it; the others are named for the operator's sake.
_PUBLIC_6 = IPv6Network("2000::/3")
_NETWORKS_6 = tuple(
    (IPv6Network(text), what)
    for text, what in (
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("2001::/23", "protocol assignments, Teredo among them"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3ffe::/16", "6bone"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)

_SERVICES = frozenset(
    {
        *(1433, 1434, 1521, 2483, 2484, 3050, 3306, 33060, 5432, 5433, 6432, 26257, 50000),  # SQL
        *(5984, 6984, 7000, 7001, 7199, 7474, 7687, 8086, 8087, 8091, 8529, 9042, 9160),  # documents, graphs, columns
        *(9200, 9300, 27017, 27018, 27019, 28015, 28017),  # search and more documents
        *(6379, 6380, 6381, 16379, 26379, 11211, 11212),  # caches
        *(1883, 4222, 4369, 5671, 5672, 6222, 8883, 9092, 9093, 9094, 15671, 15672, 25672, 61613, 61616),  # brokers
        *(2049, 2181, 2375, 2376, 2379, 2380, 3389, 4001, 5900, 6443, 8300, 8500, 8600, 10250, 10255),  # control planes
    }
)

_PRIVATE_NAMES = frozenset(
    {
        *("localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private", "svc"),
        *("arpa", "example", "invalid", "onion", "test"),  # reserved, or no hosts' names
    }
)

_UNPLAIN = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_TARGET = re.compile(r"[/?]")
_SAFE = re.compile(r"[A-Za-z0-9/?%!$&'()*+,;=:@._~\[\]-]*")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator allows beyond the public internet: loopback in development, or networks of their own."""

    allow: tuple[Network, ...] = ()

    def allows(self, address: Address) -> bool:
        """Say whether the operator named a range with this address in it; metadata addresses are named one by one."""
        return any(
            address in network and (address not in _METADATA or network.num_addresses == 1)
            for network in self.allow
            if network.version == address.version
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A URL that was read once: nothing is left in it that another parser could read differently."""

    scheme: str
    host: str
    """Lower-case ASCII, or an address without brackets."""
    port: int
    target: str
    """Path and query, percent-encoded, as they stand in the request line."""

    @property
    def authority(self) -> str:
        """Return host and port as the Host header has them: a default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(text: str) -> Url:
    """Read an http or https URL; what another reader could take for something else is a ValueError with a sentence."""
    if len(text) > LONGEST_URL:
        raise ValueError(f"expected a URL of at most {LONGEST_URL} characters, got {len(text)}")
    if _UNPLAIN.search(text):
        raise ValueError("expected a URL without spaces, control characters and backslashes: percent-encode them")
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in DEFAULT_PORTS:
        raise ValueError(f"expected a URL that begins with http:// or https://, got {text[:40]!r}")
    if "#" in rest:
        raise ValueError("expected a URL without a fragment: remove '#' and what follows it")
    begin = _TARGET.search(rest)
    end = begin.start() if begin else len(rest)
    host, port = _authority(rest[:end])
    target = rest[end:]
    if _STRAY_PERCENT.search(target):
        raise ValueError("expected two hexadecimal digits after each '%' of the URL: write a plain '%' as %25")
    if not target.startswith("/"):
        target = "/" + target
    return Url(
        scheme=scheme,
        host=host,
        port=DEFAULT_PORTS[scheme] if port is None else port,
        target=target if _SAFE.fullmatch(target) else quote(target, safe="/?%!$&'()*+,;=:@-._~[]"),
    )


@lru_cache(maxsize=4_096)
def _authority(text: str) -> tuple[str, int | None]:
    # Many URLs share few hosts, and reading a host costs more than the rest of a URL.
    host, port = _split(text)
    return _host(host), port


def _split(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise ValueError("expected a URL without user and password: send credentials in a header")
    if "%" in authority:
        raise ValueError("expected a plain host name, got a percent-encoded one")
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"expected a host such as [2606:4700::1111], got {authority[:60]!r}")
        host, colon, port = host + "]", rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
    if not colon:
        return host, None
    if not _PORT.fullmatch(port) or int(port) > 65_535:  # noqa: PLR2004 - ports have 16 bits
        raise ValueError(f"expected a port from 1 to 65535, got {port[:20]!r}")
    return host, int(port)


def _host(host: str) -> str:
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"expected an IPv6 address in the brackets, got {host[:60]!r}") from None
        return str(address.ipv4_mapped or address)
    name = _ascii(host).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):  # noqa: PLR2004 - DNS has 253
        raise ValueError(f"expected a host name, got {host[:60]!r}")
    # A resolver reads 127.1, 2130706433 and 0x7f000001 as addresses, so a name that ends in a number is one or nothing.
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ValueError(f"expected an IPv4 address as four decimal numbers, got {host[:60]!r}") from None
    return name


def _ascii(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        encoded = host.encode("idna").decode("ascii")
        # What IDNA folds into something else (full-width digits, a Kelvin sign, ß) may be read differently elsewhere.
        plain = encoded.encode("ascii").decode("idna") == unicodedata.normalize("NFC", host).lower()
    except UnicodeError:
        plain, encoded = False, ""
    if not plain:
        raise ValueError(f"expected a host name that is plain after IDNA, got {host[:60]!r}: write it as xn--…")
    return encoded.lower()


def literal(host: str) -> Address | None:
    """Return the address that this host (of a `Url`) is, or None where it is a name."""
    if ":" in host or host[-1:].isdigit():
        try:
            return ip_address(host)
        except ValueError:
            return None
    return None


def never_public(host: str) -> bool:
    """Say whether this name means something only inside a network: no dot, or an ending that the public DNS has not."""
    if literal(host) is not None:
        return False
    return "." not in host or host.rsplit(".", 1)[-1] in _PRIVATE_NAMES


def refusal(address: Address | str, port: int, rules: Rules) -> str | None:
    """Return why nothing may be sent to this address and port, in the operator's words, or None where it may."""
    try:
        seen = ip_address(address)
    except ValueError:
        return "not an address"
    if isinstance(seen, IPv6Address):
        if seen.scope_id is not None:
            return "an address with a zone"
        seen = seen.ipv4_mapped or seen
    if rules.allows(seen):
        return None
    return _why(seen) or (None if _is_open(port) else f"port {port} is not open to webhooks")


def _why(address: Address) -> str | None:
    if address in _METADATA:
        return "a cloud's metadata service"
    if isinstance(address, IPv4Address):
        return next((what for network, what in _NETWORKS_4 if address in network), None)
    # Where only IPv6 is spoken every public IPv4 host has a NAT64 address, so that is as good as what it stands for.
    carries = address in _NAT64 or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP
    inner = _why(IPv4Address(int(address) & 0xFFFF_FFFF)) if carries else None
    if inner or address in _NAT64:
        return inner
    outside = None if address in _PUBLIC_6 else "not public"
    return next((what for network, what in _NETWORKS_6 if address in network), outside)


def _is_open(port: int) -> bool:
    return port in (80, 443) or (1024 <= port <= 65_535 and port not in _SERVICES)  # noqa: PLR2004 - privileged ports end


def url_refusal(url: Url, rules: Rules) -> str | None:
    """Return a sentence for the caller if this URL's own text shows that it is refused; names resolve elsewhere."""
    return _refusal_of(url.host, url.port, rules)


@lru_cache(maxsize=4_096)
def _refusal_of(host: str, port: int, rules: Rules) -> str | None:
    address = literal(host)
    if address is not None:
        if refusal(address, DEFAULT_PORTS["http"], rules):
            return REFUSED
        return REFUSED_PORT if refusal(address, port, rules) else None
    local = host == "localhost" and any(network.is_loopback for network in rules.allow)
    if never_public(host) and not local:
        return REFUSED
    # Within a range that the operator allows any port is fine, and only the connection knows where a name leads.
    return REFUSED_PORT if not _is_open(port) and not rules.allow else None


def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Read ranges such as 10.0.0.0/8 for `Rules.allow`; a range with host bits is a ValueError."""
    return tuple(ip_network(text) for text in texts)
