"""Servers that Takeback starts by itself start, stop and come back."""

import asyncpg
import nats
import redis.asyncio


async def test_each_test_has_a_clean_database(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_each_test_has_a_nats_server_with_jetstream(nats_url: str) -> None:
    client = await nats.connect(nats_url)
    assert (await client.jetstream().account_info()).streams == 0
    await client.close()


async def test_each_test_has_an_empty_valkey(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0


async def test_a_private_valkey_is_empty_after_a_restart(start_valkey) -> None:
    server = await start_valkey()
    async with redis.asyncio.Redis.from_url(server.url) as client:
        await client.set("lease", "held")
    await server.kill()
    await server.start()
    async with redis.asyncio.Redis.from_url(server.url) as client:
        assert await client.dbsize() == 0
