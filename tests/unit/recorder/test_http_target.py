"""Where a plain HTTP server may be (J16)."""

from __future__ import annotations

import pytest

from recorder.toolport import ToolRefused
from recorder.toolport.http_target import Target, is_public, pinned_address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
     "fe80::1", "fe80::1%eth0", "fc00::1", "::", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"],
)  # fmt: skip
def test_an_address_that_is_not_anybodys_is_private_in_every_disguise(address: str) -> None:
    assert not is_public(address)


def test_an_address_of_the_internet_is_public() -> None:
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


async def test_a_private_address_is_refused_unless_the_operator_says_so() -> None:
    target = Target.of("http://localhost:1/x/")
    assert (target.origin, target.path) == ("http://localhost:1", "/x")
    with pytest.raises(ToolRefused, match="TAKEBACK_HTTP_ALLOW_PRIVATE"):
        await pinned_address(target, allow_private=False)
    assert await pinned_address(target, allow_private=True) in {"127.0.0.1", "::1"}
    for disguise in ("http://2130706433/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/"):
        with pytest.raises(ToolRefused):
            await pinned_address(Target.of(disguise), allow_private=False)


@pytest.mark.parametrize(
    "url", ["ftp://x/", "http:///x", "file:///etc/passwd", "http://u@x/", "http://x/?q", "http://x/#f", "http://xn--a/"]
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(ToolRefused):
        Target.of(url)
