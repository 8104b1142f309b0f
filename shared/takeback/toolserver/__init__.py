'''The SDK for a tool server whose effects can be taken back: one decorator per operation, nothing else to write.

An application says, for each tool, what a careful author writes anyway: how dangerous it is, how to read the record that
it changes and how to put that record back. The SDK does the rest in the application's own database transaction: the
effect, the compensation token, the state before and the answer for the idempotency key commit together or not at all.

    import asyncpg
    from takeback.toolserver import OperationError, PostgresStore, ToolServer

    pool = await asyncpg.create_pool(url)
    server = ToolServer("crm", store=PostgresStore(pool))

    # A record that is a row: how its resource is named. Reading and putting back (also after a delete) come with it.
    deal = server.table("deals", resource="crm://acme/deal/{deal_id}", key="id")

    @server.operation(record=deal, tier="high", window="P7D", undo_side_effects=["the owner is told"])
    async def update_deal(tx: asyncpg.Connection, deal_id: str, stage: str) -> dict:
        """Move a deal to another stage."""                # the tool's description; the schema comes from the hints
        if stage not in STAGES:
            raise OperationError(f"{stage} is no stage")   # the tool's own error: rolled back, the entry is `failed`
        await tx.execute("update deals set stage = $2 where id = $1", deal_id, stage)
        return {"dealId": deal_id, "stage": stage}

    @server.operation(record=deal, tier="high", window="P7D")
    async def create_deal(tx, title: str) -> dict:         # the id is new: it is taken from the result
        return {"deal_id": await tx.fetchval("insert into deals (title) values ($1) returning id::text", title)}

    # An operation with a state of its own, free in form: write the two functions that seed A writes.
    @server.operation(resource="game://table/{character_id}/rest", tier="high", window="P1D")
    async def rest(tx, call: Call, character_id: str, kind: Literal["short", "long"]) -> dict:
        ...
        call.broadcast({"type": "rest_completed", "characterId": character_id})
        return {"rested": True}

    @rest.snapshot                                         # before and after the call, at an undo, when observed
    async def _(tx, character_id: str) -> dict | None:     # None: there is no such record. Read `for update`
        return {"resources": [...], "events": [...]}

    @rest.revert                                           # before: what to put back (None: it did not exist)
    async def _(tx, character_id: str, before: dict, after: dict) -> None:
        added = set(after["events"]) - set(before["events"])
        ...

    @server.operation(undo="none", tier="high", external=True, side_effects=["the mail is sent"])
    async def send_mail(to: str, subject: str, body: str) -> dict: ...      # no database effect: no tx needed

    @server.read(resource="crm://acme/deal/{deal_id}")
    async def get_deal(tx, call: Call, deal_id: str) -> dict:
        call.used(f"crm://acme/deal/{deal_id}")            # the default; say more where more was read
        ...

    app = server.http_app(secret=os.environ["CRM_SECRET"])     # MCP, streamable HTTP at /mcp: a Starlette app
    await server.serve_stdio()                                 # MCP over stdin and stdout
    service = await server.serve_nats(nats, "tools.crm")       # the same operations on the bus; `await service.close()`

Python's `snake_case` arguments are `camelCase` on the wire (`dealId`), in the resource templates too.
'''

from takeback.toolserver.call import Call
from takeback.toolserver.calling import InDoubt
from takeback.toolserver.errors import OperationError
from takeback.toolserver.operation import Operation
from takeback.toolserver.record import Record, Tx
from takeback.toolserver.server import ToolServer
from takeback.toolserver.store import PostgresStore

__all__ = ["Call", "InDoubt", "Operation", "OperationError", "PostgresStore", "Record", "ToolServer", "Tx"]
