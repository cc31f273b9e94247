"""Addresses as people write them, and which of them lie outside a private network."""

from __future__ import annotations

from joinproto.errors import ConfigError


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an IPv6 address stands in brackets.

    Raises:
        ConfigError: it is written otherwise, or the port is not within 0 to 65535.
    """
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, colon, port = text, "", ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"address {text!r}: write an IPv6 address in brackets, as [::1]:7000")
    if not host:
        raise ConfigError(f"address {text!r} names no host; write HOST:PORT")
    if not colon:
        if default_port is None:
            raise ConfigError(f"address {text!r} names no port; write HOST:PORT")
        return host, default_port
    # The length comes first: int() refuses thousands of digits in its own words.
    if not (len(port) <= 5 and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError(f"address {text!r}: the port is a number from 0 to 65535")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """`HOST:PORT`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_PRIVATE = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fe80::/10",
    "fc00::/7",
)


def is_loopback(host: str) -> bool:
    """Whether a numeric address stays on this machine."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_private(host: str) -> bool:
    """Whether a numeric address lies on loopback or a private network; v4-mapped counts as v4."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    networks = map(ipaddress.ip_network, _PRIVATE)
    return any(address in net for net in networks if net.version == address.version)


def cleartext_warning(host: str) -> str | None:
    """What people are to be told before they join across a public network; None: nothing."""
    # Spares the common case the import.
    if host.startswith("127.") or host == "::1" or is_private(host):
        return None
    return (
        f"WARNING: the join channel to {host} crosses a network that is not private, in "
        "cleartext: frames are authenticated, not encrypted; use a tunnel or a VPN"
    )
