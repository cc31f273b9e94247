"""access: who may see a run, and who may start it."""

from __future__ import annotations

import pytest

from joinproto.runtime.access import Access
from tests.support.served import request

TOKEN = "correct-horse"
SALT = "c0ffee00" * 4
FAR = "192.0.2.7"
OPEN = Access(open=True)
GUARDED = Access(open=False, token=TOKEN, salt_hex=SALT)


def shown(access: Access, **asked: str) -> int:
    why = access.why_not_shown(request(**asked))
    return 200 if why is None else why[0]


def started(access: Access, **asked: str) -> int:
    why = access.why_not_started(request(**asked))
    return 200 if why is None else why[0]


def test_no_secret_is_in_its_repr() -> None:
    assert repr(GUARDED) == "Access(open=False)"


# -- to see it --------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["127.0.0.1", FAR])
def test_what_is_not_open_needs_the_token(peer: str) -> None:
    assert shown(GUARDED, peer_host=peer, host="x:1") == 401
    assert shown(GUARDED, peer_host=peer, host="x:1", token=TOKEN) == 200
    assert shown(GUARDED, peer_host=peer, host="x:1", authorization=f"bearer  {TOKEN} ") == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"token": ""},
        {"token": TOKEN[:-1]},
        {"token": "é"},
        {"token": SALT},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer \xe9"},
        {"authorization": "Bearer"},
    ],
)
def test_what_is_not_the_token(asked: dict[str, str]) -> None:
    assert shown(GUARDED, **asked) == 401


def test_no_token_fits_where_there_is_none() -> None:
    assert shown(Access(open=False), token="") == 401
    assert shown(Access(open=False), token="None") == 401


@pytest.mark.parametrize("asked", [{"token": ""}, {"authorization": "Bearer"}])
def test_an_empty_token_is_none(asked: dict[str, str]) -> None:
    access = Access(open=False, token="", salt_hex="")
    assert shown(access, **asked) == 401
    assert started(access, peer_host=FAR, **asked) == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7000", 200),
        ("[::1]:7000", 200),
        ("[::1]", 200),
        ("localhost", 200),
        ("LocalHost:80", 200),
        ("10.0.0.1", 200),
        ("evil.example:7000", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
        ("[", 403),
        ("a:b:c", 403),
        ("127.0.0.1:x", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_shows_nothing(host: str, status: int) -> None:
    assert shown(OPEN, host=host) == status
    assert started(OPEN, host=host) == status
    # Others reach this controller by whatever name it has.
    assert shown(OPEN, host=host, peer_host=FAR) == 200


def test_programs_of_old_name_no_host() -> None:
    assert shown(OPEN) == started(OPEN) == 200


def test_with_the_token_any_name_will_do() -> None:
    access = Access(open=True, token=TOKEN)
    assert shown(access, host="name.example") == 403
    assert shown(access, host="name.example", token=TOKEN) == 200
    assert started(access, host="name.example", token=TOKEN) == 200


# -- to start it ------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_from_this_machine_no_token_is_needed(peer: str) -> None:
    assert started(GUARDED, peer_host=peer, host="127.0.0.1:1") == 200


def test_from_elsewhere_it_is() -> None:
    assert started(GUARDED, peer_host=FAR) == 403
    assert started(GUARDED, peer_host=FAR, token=TOKEN) == 200
    assert started(GUARDED, peer_host=FAR, token=SALT) == 200
    assert started(GUARDED, peer_host=FAR, token=SALT[1:]) == 403
    assert started(OPEN, peer_host=FAR, token="None") == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "http://127.0.0.1:7000"}, 200),
        ({"origin": "https://127.0.0.1:7000"}, 200),
        ({"origin": "http://127.0.0.1:7001"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
    ],
)
def test_pages_of_other_sites_start_nothing(headers: dict[str, str], status: int) -> None:
    assert started(OPEN, host="127.0.0.1:7000", **headers) == status
    # Not even with the token: it may be in a link.
    assert started(GUARDED, host="127.0.0.1:7000", token=TOKEN, **headers) == status


def test_no_reason_holds_what_was_offered() -> None:
    for why in (
        GUARDED.why_not_shown(request(token="offered")),
        GUARDED.why_not_started(request(token="offered", peer_host=FAR)),
        OPEN.why_not_shown(request(token="offered", host="offered.example")),
        OPEN.why_not_started(request(token="offered", origin="http://offered")),
    ):
        assert why is not None
        assert "offered" not in why[1]
        assert "\n" not in why[1]
