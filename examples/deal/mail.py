"""E-mail that an agent sends. Nothing takes it back, so a person is asked before it goes."""

from __future__ import annotations

from typing import Any

import aiosmtplib
import asyncpg

from examples.deal.post import Post
from takeback.toolserver import Call, OperationError, PostgresStore, ToolServer
from takeback.toolserver.record import Tx


def mail_server(pool: asyncpg.Pool[Any], post: Post) -> ToolServer:
    """The mail tool; *pool*'s search path is the schema `mail`."""
    server = ToolServer("mail", store=PostgresStore(pool))

    @server.operation(undo="none", tier="high", external=True, side_effects=["The e-mail is delivered."])
    async def send_mail(tx: Tx, call: Call, to: str, subject: str, body: str) -> dict[str, Any]:
        """Send an e-mail. It cannot be taken back."""
        try:
            message_id = await post.send(to, subject, body, str(call.key))
        except aiosmtplib.SMTPConnectError as error:
            raise OperationError(f"The mail server cannot be reached: {error}. Nothing was sent.") from error
        await tx.execute("insert into sent values ($1, $2, $3, $4)", message_id, to, subject, body)
        return {"messageId": message_id, "to": to, "subject": subject}

    return server
