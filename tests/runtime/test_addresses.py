"""addresses: how they are written, and which of them lie on a private network."""

from __future__ import annotations

import pytest

from joinproto.errors import ConfigError
from joinproto.runtime.addresses import (
    cleartext_warning,
    format_address,
    is_loopback,
    is_private,
    parse_address,
)

# -- parsing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node1:7000", "node1", 7000),
        ("node1.example.org:0", "node1.example.org", 0),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[::1]:7000", "::1", 7000),
        ("[fe80::1%eth0]:7000", "fe80::1%eth0", 7000),
        ("[node1]:7000", "node1", 7000),
        ("node1:00080", "node1", 80),
    ],
)
def test_host_and_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert parse_address(text, default_port=1) == (host, port)


@pytest.mark.parametrize(
    ("text", "host"),
    [("node1", "node1"), ("10.0.0.1", "10.0.0.1"), ("[::1]", "::1"), ("[node1]", "node1")],
)
def test_a_host_alone(text: str, host: str) -> None:
    assert parse_address(text, default_port=7000) == (host, 7000)
    assert parse_address(text, default_port=0) == (host, 0)
    with pytest.raises(ConfigError, match="names no port; write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1", "::1:7000", "fe80::1", "[::1:7000", "::1]:7000", "a:b:1"])
def test_ipv6_without_brackets(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write an IPv6 address in brackets, as \[::1\]:7000"):
        parse_address(text, default_port=7000)


@pytest.mark.parametrize("text", ["", ":7000", "[]:7000", "[]", ":"])
def test_no_host(text: str) -> None:
    with pytest.raises(ConfigError, match="names no host; write HOST:PORT"):
        parse_address(text, default_port=7000)


@pytest.mark.parametrize(
    "port",
    ["", "http", "-1", "+1", " 1", "1 ", "1_0", "65536", "70000", "٣", "²", "0x10", "9" * 5000],
    ids=lambda port: ascii(port)[:10],
)
@pytest.mark.parametrize("host", ["node1", "[::1]"])
def test_a_bad_port(host: str, port: str) -> None:
    with pytest.raises(ConfigError, match="the port is a number from 0 to 65535") as caught:
        parse_address(f"{host}:{port}", default_port=7000)
    assert repr(f"{host}:{port}") in str(caught.value)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("node1", "node1:7000"),
        ("10.0.0.1", "10.0.0.1:7000"),
        ("::1", "[::1]:7000"),
        ("::ffff:10.0.0.1", "[::ffff:10.0.0.1]:7000"),
    ],
)
def test_format_is_the_way_back(host: str, text: str) -> None:
    assert format_address(host, 7000) == text
    assert parse_address(text) == (host, 7000)


# -- networks ---------------------------------------------------------------------------------

LOOPBACK = ["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"]

PRIVATE = [
    *("10.0.0.0", "10.255.255.255"),
    *("172.16.0.0", "172.31.255.255"),
    *("192.168.0.0", "192.168.255.255"),
    *("169.254.0.0", "169.254.255.255"),
    *("100.64.0.0", "100.127.255.255"),
    *("fe80::1", "fe80::1%eth0", "febf:ffff::1"),
    *("fc00::1", "fd12:3456::1", "fdff:ffff::1"),
    *("::ffff:10.1.2.3", "::ffff:192.168.0.1", "::ffff:100.64.0.1", "::ffff:a9fe:1"),
]

PUBLIC = [
    *("9.255.255.255", "11.0.0.0"),
    *("172.15.255.255", "172.32.0.0"),
    *("192.167.255.255", "192.169.0.0"),
    *("169.253.255.255", "169.255.0.0"),
    *("100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "8.8.8.8", "0.0.0.0"),
    *("::", "::2", "fe7f::1", "fec0::1", "fbff::1", "fe00::1", "2001:db8::1"),
    *("::ffff:8.8.8.8", "::ffff:100.63.255.255", "::7f00:1"),
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert is_private(host)
    assert cleartext_warning(host) is None


@pytest.mark.parametrize("host", PRIVATE)
def test_private(host: str) -> None:
    assert is_private(host)
    assert not is_loopback(host)
    assert cleartext_warning(host) is None


@pytest.mark.parametrize("host", PUBLIC)
def test_public(host: str) -> None:
    assert not is_private(host)
    assert not is_loopback(host)
    warning = cleartext_warning(host)
    assert warning is not None
    assert warning.startswith(f"WARNING: the join channel to {host} crosses a network that is not")
    assert "cleartext" in warning


@pytest.mark.parametrize("host", ["", "node1", "localhost", "10.0.0", "10.0.0.256", "[::1]"])
def test_what_is_no_numeric_address_is_not_held_for_private(host: str) -> None:
    assert not is_loopback(host)
    assert not is_private(host)
    assert cleartext_warning(host) is not None
