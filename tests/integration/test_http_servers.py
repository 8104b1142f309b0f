"""Plain HTTP servers behind a manifest: ETags, enforced and not, and targets that may be reached."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from takeback.errors import Problem
from takeback.messages.campaign import HttpServer
from tests.integration.manifest_lab import ManifestLab, manifest_lab
from tests.servers import Backend, Server
from tests.servers_lab.wiki import MANIFEST, Wiki, wiki_app
from tests.serving import served

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "Bearer s3cret"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    shared_database: str, servers: Backend, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ManifestLab, Wiki, str]]:
    wiki = Wiki()
    async with served(wiki_app(wiki)) as url:
        server = HttpServer(
            transport="http",
            url=f"{url}/v1",
            manifest=MANIFEST,
            headers={"Authorization": "Bearer env:TAKEBACK_SECRET_WIKI"},
        )
        folder = tmp_path_factory.mktemp("http")
        async with manifest_lab(
            shared_database,
            servers,
            valkey_server,
            folder,
            server,
            TAKEBACK_SECRET_WIKI="s3cret",
            TAKEBACK_ORIGINS_WIKI=url,
        ) as lab:
            yield lab, wiki, url


@pytest_asyncio.fixture(loop_scope="module")
async def lab(running: tuple[ManifestLab, Wiki, str]) -> ManifestLab:
    lab = running[0]
    await lab.new_run()
    return lab


@pytest.fixture
def wiki(running: tuple[ManifestLab, Wiki, str]) -> Wiki:
    """The server as new, with pages of names that no test has used."""
    wiki = running[1]
    wiki.enforces, wiki.meanwhile = True, None
    wiki.pages.clear()
    wiki.put("home", "Home", "welcome")
    wiki.put("a b/c?d", "Odd", "name")
    for kept in (wiki.writes, wiki.conditions, wiki.authorizations):
        kept.clear()
    return wiki


async def test_an_edited_page_comes_back_under_if_match_once(lab: ManifestLab, wiki: Wiki) -> None:
    """G8: call, undo, undo again; the secret comes from the environment."""
    entry = await lab.call("put_page", name="home", title="Home", text="rubbish")
    written = wiki.pages["home"]["etag"]
    assert await lab.back(entry) == ["reverted"]
    assert wiki.pages["home"]["text"] == "welcome"
    assert wiki.conditions == [None, written]
    assert set(wiki.authorizations) == {SECRET}
    assert await lab.back(entry) == ["already_reverted"]
    assert len(wiki.writes) == 2


async def test_a_name_with_slashes_blanks_and_marks_is_the_same_page_there_and_back(
    lab: ManifestLab, wiki: Wiki
) -> None:
    """J10."""
    entry = await lab.call("put_page", name="a b/c?d", title="Odd", text="rubbish")
    assert await lab.back(entry) == ["reverted"]
    assert wiki.pages["a b/c?d"]["text"] == "name"


async def test_a_new_page_is_deleted_and_a_deleted_one_is_there_again(lab: ManifestLab, wiki: Wiki) -> None:
    """G8."""
    made = await lab.call("put_page", name="new", title="New", text="draft")
    gone = await lab.call("delete_page", name="home")
    assert await lab.back(gone, made) == ["reverted", "reverted"]
    assert "new" not in wiki.pages
    assert wiki.pages["home"]["text"] == "welcome"


async def test_somebody_elses_edit_is_a_conflict_and_survives(lab: ManifestLab, wiki: Wiki) -> None:
    """G8."""
    entry = await lab.call("put_page", name="home", title="Home", text="rubbish")
    wiki.put("home", "Home", "by hand")
    assert await lab.back(entry) == ["conflict"]
    assert wiki.pages["home"]["text"] == "by hand"


async def test_an_edit_in_the_very_last_moment_is_refused_by_a_server_that_enforces_etags(
    lab: ManifestLab, wiki: Wiki
) -> None:
    """G8: between the look and the write."""
    entry = await lab.call("put_page", name="home", title="Home", text="rubbish")
    wiki.meanwhile = lambda: wiki.put("home", "Home", "by hand")
    assert await lab.back(entry) == ["conflict"]
    assert wiki.pages["home"]["text"] == "by hand"
    assert (await lab.entry(entry)).status == "committed"


async def test_a_server_that_does_not_enforce_its_etags_is_compared_before_and_read_after(
    lab: ManifestLab, wiki: Wiki
) -> None:
    """G8: compare, write, read again."""
    wiki.enforces = False
    first = await lab.call("put_page", name="home", title="Home", text="rubbish")
    wiki.put("home", "Home", "by hand")
    assert await lab.back(first) == ["conflict"]
    second = await lab.call("put_page", name="home", title="Home", text="more rubbish")
    assert await lab.back(second) == ["reverted"]
    assert wiki.pages["home"]["text"] == "by hand"


async def test_a_redirect_is_not_followed(lab: ManifestLab, wiki: Wiki) -> None:
    """J16: not to elsewhere, not at all."""
    with pytest.raises(Problem) as failed:
        await lab.ask("wander")
    assert failed.value.slug == "tool-failed"


async def test_a_path_never_climbs(lab: ManifestLab, wiki: Wiki) -> None:
    """J16."""
    for name in ("../secrets", "a/../../b", "%2e%2e/x/.."):
        with pytest.raises(Problem):
            await lab.ask("get_page", name=name)
    assert wiki.authorizations == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://user:pass@127.0.0.1:1/", "no user and no password"),
        ("http://127.0.0.1:1/?a=b", "query"),
        ("http://no-such-host.invalid/", "has no address"),
    ],
)
async def test_a_target_that_may_not_be_reached_is_named_when_it_is_registered(
    lab: ManifestLab, url: str, reason: str
) -> None:
    """J16."""
    with pytest.raises(Problem, match=reason):
        await lab.put(HttpServer(transport="http", url=url, manifest=MANIFEST), name="other")


async def test_a_plain_server_without_a_manifest_or_with_one_that_says_no_requests_is_refused(lab: ManifestLab) -> None:
    """J15."""
    with pytest.raises(Problem, match="needs a manifest"):
        await lab.put(HttpServer(transport="http", url="http://127.0.0.1:1", manifest=None), name="other")
    with pytest.raises(Problem, match="no `request`"):
        manifest = {"takeback": 1, "operations": {"x": {"reads": True, "input": {}}}}
        await lab.put(HttpServer(transport="http", url="http://127.0.0.1:1", manifest=manifest), name="other")
