"""The wiki's tool server: each call is a handful of clicks, and so is its undo (J15, `via: ui`)."""

from __future__ import annotations

from typing import Annotated, Any

import asyncpg
from pydantic import Field

from examples.browser.wiki import Change, Wiki
from takeback.toolserver import Call, OperationError, PostgresStore, ToolServer

# The wiki takes `Notes` and `notes` for one page, so there is one way to write its name: two names for a record would be
# two records to whoever looks for conflicts.
PageName = Annotated[str, Field(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$", description="As in the page's address.")]
Text = Annotated[str, Field(pattern=r"\S", description="Markdown; the wiki takes off blanks at both ends.")]
Summary = Annotated[str, Field(min_length=1, max_length=200, description="Why, for the wiki's own changelog.")]


def wiki_server(wiki: Wiki, pool: asyncpg.Pool[Any]) -> ToolServer:
    """Tools that work *wiki* through its screens; what the SDK keeps is in the database of *pool*.

    The wiki keeps every revision for ever, so nothing here has a window.
    """
    server = ToolServer("wiki", store=PostgresStore(pool))
    # What is fingerprinted is the changed page alone: its name on the screen and its text.
    page_record = server.record("wiki://team/page/{page}")
    new_record = server.record("wiki://team/page/{new_name}")
    site_record = server.record("wiki://team/site")

    @page_record.read
    async def _(page: str) -> dict[str, str] | None:
        return await wiki.page(page)

    @new_record.read
    async def _(new_name: str) -> dict[str, str] | None:
        return await wiki.page(new_name)

    @site_record.read
    async def _() -> dict[str, str]:
        return await wiki.site()

    @server.read(record=page_record)
    async def get_page(page: PageName) -> dict[str, str]:
        """A page's text."""
        found = await wiki.page(page)
        if found is None:
            raise OperationError(f"There is no page {page}.")
        return found

    @server.operation(record=page_record, via="ui", external=True, tier="medium")
    async def edit_page(call: Call, page: PageName, text: Text, summary: Summary) -> Change:
        """Write a page anew, or make it, in the wiki's editor."""
        return await wiki.write(page, text, _marked(summary, call))

    @server.operation(record=page_record, via="ui", external=True, tier="high")
    async def delete_page(call: Call, page: PageName, summary: Summary) -> Change:
        """Delete a page."""
        return await wiki.delete(page, _marked(summary, call))

    @server.operation(record=[page_record, new_record], via="ui", external=True, tier="medium")
    async def rename_page(call: Call, page: PageName, new_name: PageName, summary: Summary) -> Change:
        """Give a page another name."""
        return await wiki.rename(page, new_name, _marked(summary, call))

    async def revert(call: Call, result: Change) -> Change | None:
        return await wiki.revert(result, _marked("Taken back", call))

    # The wiki's own reverse, and the only one: a deletion is restored by it, and so is a revert.
    for operation in (edit_page, delete_page, rename_page):
        operation.revert(revert)

    # To type the old name again is no reverse that the wiki offers.
    @server.operation(record=site_record, via="ui", external=True, tier="high", undo="none")
    async def rename_site(name: str) -> dict[str, str]:
        """Give the whole wiki another name."""
        await wiki.name_site(name)
        return {"name": name}

    return server


def _marked(summary: str, call: Call) -> str:
    return f"{summary} [{call.key}]"
