"""Who may see a run, and who may start it."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

from joinproto.errors import ConfigError
from joinproto.record import Record
from joinproto.runtime.addresses import is_loopback, parse_address
from joinproto.runtime.exchange import Request

SEE_WITH = "the token of --status-token-file, as ?token= or Bearer"


class Access(Record):
    """On what terms a controller shows itself.

    Fields:
        open: everybody may see the page, the events and the metrics.
        token: who has it may too, and may start the run; None: there is none.
        salt_hex: who has it may start the run, as at published controllers; None under open
            admission.
    """

    hidden = frozenset({"token", "salt_hex"})
    open: bool
    token: str | None = None
    salt_hex: str | None = None

    def why_not_shown(self, request: Request) -> tuple[int, str] | None:
        """Status and reason why this request is shown nothing but what all may see."""
        if _offers(request, self.token):
            return None
        if not self.open:
            return 401, f"not without {SEE_WITH}"
        return _why_rebound(request)

    def why_not_started(self, request: Request) -> tuple[int, str] | None:
        """Status and reason why this request does not start the run."""
        if why := _why_forged(request):
            return why
        if _offers(request, self.token, self.salt_hex):
            return None
        if not is_loopback(request.peer_host):
            return 403, "not from another machine without the token, or ?token=<salt in hex>"
        return _why_rebound(request)


def _offers(request: Request, *secrets: str | None) -> bool:
    """Whether a request holds one of these."""
    # Of bytes: text that is not ASCII cannot be compared so.  An empty secret is none: a bare
    # `Authorization: Bearer` would be equal to it.
    return any(
        hmac.compare_digest(offered, secret.encode())
        for offered in _offered(request)
        for secret in secrets
        if secret
    )


def _offered(request: Request) -> Iterator[bytes]:
    for token in request.query.get("token", ()):
        yield token.encode()
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip().encode("latin-1")


def _why_rebound(request: Request) -> tuple[int, str] | None:
    # A page from anywhere can have a name of its own resolve to 127.0.0.1, and its browser then
    # takes this controller for where the page came from (DNS rebinding).  The Host header still
    # holds that name; an address, or localhost, cannot be made to lead elsewhere.
    host = request.headers.get("host")
    if host is None or not is_loopback(request.peer_host) or _is_address(host):
        return None
    return 403, "from this machine, ask at an address or localhost, or with the token"


def _is_address(host: str) -> bool:
    import ipaddress

    try:
        name, _ = parse_address(host, default_port=80)
        if name.lower() != "localhost":
            ipaddress.ip_address(name)
    except (ConfigError, ValueError):
        return False
    return True


def _why_forged(request: Request) -> tuple[int, str] | None:
    # A page from elsewhere can have its browser post here, without asking, from this machine.
    # Browsers say so; programs send neither header.
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    own = tuple(f"{scheme}://{request.headers.get('host')}" for scheme in ("http", "https"))
    if site in ("cross-site", "same-site") or (origin is not None and origin not in own):
        return 403, "not from the page of another site"
    return None
