"""A secret goes where the operator of the recorders bound it to, and nowhere else."""

from __future__ import annotations

import pytest

from recorder.toolport import secrets
from recorder.toolport.secrets import BadSecret

HEADERS = {"Authorization": "Bearer env:TAKEBACK_SECRET_CRM"}
CRM = "https://crm.example"
BOUND = {"TAKEBACK_SECRET_CRM": "s3cret", "TAKEBACK_ORIGINS_CRM": f"http://crm:9000 {CRM}"}


@pytest.mark.parametrize("url", [f"{CRM}/mcp", "https://CRM.example:443/v2?x=1", "http://crm:9000/mcp"])
def test_a_secret_is_sent_to_each_origin_that_it_is_bound_to(url: str) -> None:
    secrets.check_headers(HEADERS, BOUND, url)
    assert secrets.resolve(HEADERS, BOUND, url) == {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/mcp",
        "http://crm.example/mcp",
        "https://crm.example:8443",
        "https://crm.example.evil.example",
    ],
)
@pytest.mark.parametrize("trusted", [{}, {"TAKEBACK_ALLOW_COMMANDS": "1"}, {"TAKEBACK_SERVER_ADMINS": "olga"}])
def test_a_bound_secret_is_sent_to_no_other_host_port_or_scheme(url: str, trusted: dict[str, str]) -> None:
    """J16: an owner who registers a server of their own is not sent what belongs to another one."""
    for refuse in (secrets.check_headers, secrets.resolve):
        with pytest.raises(BadSecret, match="may not be sent to") as refused:
            refuse(HEADERS, BOUND | trusted, url)
        assert "s3cret" not in str(refused.value)


def test_a_bound_secret_is_given_to_no_command() -> None:
    with pytest.raises(BadSecret, match="no command"):
        secrets.check({"TOKEN": "env:TAKEBACK_SECRET_CRM"}, BOUND | {"TAKEBACK_ALLOW_COMMANDS": "1"}, None)


def test_a_secret_that_is_not_bound_goes_to_the_server_that_names_it_and_is_told_of() -> None:
    """contract.md: secrets as ``env:NAME``."""
    environ = {"TAKEBACK_SECRET_CRM": "s3cret", "TAKEBACK_SECRET_EMPTY": "", "PATH": "/bin"}
    assert secrets.resolve(HEADERS, environ, f"{CRM}/mcp") == {"Authorization": "Bearer s3cret"}
    assert secrets.unbound(environ) == ["TAKEBACK_SECRET_CRM"]
    assert secrets.unbound(environ | {"TAKEBACK_ORIGINS_CRM": CRM}) == []
