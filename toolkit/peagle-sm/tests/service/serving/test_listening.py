"""Which hosts are loopback, and what others connect to."""

from __future__ import annotations

import pytest

from peagle_sm.service.serving.listening import is_loopback, reachable


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.7", "2001:db8::7", "nobody.invalid"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_all_interfaces_are_named_by_an_address_that_others_can_use(host: str) -> None:
    assert reachable(host) not in ("", "0.0.0.0", "::", "[::]", "127.0.0.1", "[::1]", "localhost")


@pytest.mark.parametrize(
    ("host", "shown"), [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "[2001:db8::7]"), ("box.lan", "box.lan")]
)
def test_a_named_host_is_shown_as_a_url_needs_it(host: str, shown: str) -> None:
    assert reachable(host) == shown
