"""Secrets at rest (J18): sealed inside the record from the first one on, because what is append-only cannot be cleaned later.

A key per campaign, wrapped by the installation's ``master.key``. A seal is AES-256-GCM bound to its campaign, entry and place,
so that a sealed value cannot be moved to where somebody may read it.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import asyncpg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from recorder.journal.matchable import matchable_values
from takeback import json

_NONCE = 12
_KEY = 32
_cipher = lru_cache(maxsize=1024)(AESGCM)


class SealBroken(Exception):
    """A sealed value does not open: another key, another place, or changed bytes. Nothing was read."""


@dataclass(frozen=True, slots=True, repr=False)
class CampaignKeys:
    """What one campaign's secrets are sealed with, and its matchable values are hashed with. No I/O."""

    campaign: str
    sealing: bytes
    matching: bytes

    def seal(self, entry: str, path: str, value: Any) -> dict[str, str]:
        """``{"sealed": …}`` in place of *value*; *path* says where in the entry it stands (``undo.compensationToken``)."""
        nonce = secrets.token_bytes(_NONCE)
        box = _cipher(self.sealing).encrypt(nonce, json.dumps(value), self._place(entry, path))
        return {"sealed": b64encode(nonce + box).decode()}

    def unseal(self, entry: str, path: str, sealed: Any) -> Any:
        """The value that `seal` was given for that *entry* and *path*; raises `SealBroken`."""
        if not is_sealed(sealed):
            raise SealBroken(f"{path} of {entry} is not a sealed value")
        try:
            box = b64decode(sealed["sealed"], validate=True)
            return json.loads(_cipher(self.sealing).decrypt(box[:_NONCE], box[_NONCE:], self._place(entry, path)))
        except (InvalidTag, ValueError) as error:
            raise SealBroken(f"{path} of {entry} does not open with the campaign's key") from error

    def seal_fields(self, entry: str, path: str, value: Any, fields: Collection[str]) -> Any:
        """*value* with every member named in *fields*, at any depth, sealed."""
        if not fields:
            return value
        if isinstance(value, dict):
            return {
                key: self.seal(entry, f"{path}.{key}", inner)
                if key in fields and inner is not None
                else self.seal_fields(entry, f"{path}.{key}", inner, fields)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.seal_fields(entry, f"{path}.{i}", inner, fields) for i, inner in enumerate(value)]
        return value

    def unseal_fields(self, entry: str, path: str, value: Any) -> Any:
        """*value* with everything that `seal_fields` sealed there opened; what does not open stays as it is."""
        if is_sealed(value):
            try:
                return self.unseal(entry, path, value)
            except SealBroken:
                return value  # a caller's own {"sealed": …}, which was never ours to open
        if isinstance(value, dict):
            return {key: self.unseal_fields(entry, f"{path}.{key}", inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.unseal_fields(entry, f"{path}.{i}", inner) for i, inner in enumerate(value)]
        return value

    def matchables(self, value: Any) -> list[str]:
        """Keyed hashes of the telling values inside *value* (G1): equal values, equal hashes, within this campaign only."""
        return [_matchable(self.matching, text) for text in matchable_values(value)]

    def _place(self, entry: str, path: str) -> bytes:
        return json.dumps([self.campaign, entry, path])


class Vault:
    """The campaigns' keys, made when first needed; *master* is the 32 bytes of ``master.key``."""

    def __init__(self, pool: asyncpg.Pool, master: bytes) -> None:
        if len(master) != _KEY:
            raise ValueError(f"master.key holds {len(master)} bytes, not {_KEY}")
        self._pool = pool
        self._master = AESGCM(master)
        self._keys: dict[str, CampaignKeys] = {}

    @classmethod
    def from_keys(cls, pool: asyncpg.Pool, keys_dir: Path) -> Vault:
        """The vault of the installation whose keys are in *keys_dir*."""
        return cls(pool, (keys_dir / "master.key").read_bytes())

    async def keys(self, campaign: str) -> CampaignKeys:
        """The keys of *campaign*; raises `SealBroken` when ``master.key`` is not the one that wrapped them."""
        known = self._keys.get(campaign)
        if known is None:
            known = self._keys[campaign] = await self._load(campaign)
        return known

    async def seal(self, campaign: str, entry: str, path: str, value: Any) -> dict[str, str]:
        """See `CampaignKeys.seal`."""
        return (await self.keys(campaign)).seal(entry, path, value)

    async def unseal(self, campaign: str, entry: str, path: str, sealed: Any) -> Any:
        """See `CampaignKeys.unseal`."""
        return (await self.keys(campaign)).unseal(entry, path, sealed)

    async def matchables(self, campaign: str, value: Any) -> list[str]:
        """See `CampaignKeys.matchables`."""
        return (await self.keys(campaign)).matchables(value)

    async def _load(self, campaign: str) -> CampaignKeys:
        select = "select wrapped from campaign_keys where campaign = $1"
        wrapped = await self._pool.fetchval(select, campaign)
        if wrapped is None:
            nonce = secrets.token_bytes(_NONCE)
            fresh = nonce + self._master.encrypt(nonce, secrets.token_bytes(2 * _KEY), campaign.encode())
            await self._pool.execute(
                "insert into campaign_keys (campaign, wrapped) values ($1, $2) on conflict do nothing", campaign, fresh
            )
            wrapped = await self._pool.fetchval(select, campaign)  # another recorder's, if that one was first
        try:
            plain = self._master.decrypt(wrapped[:_NONCE], wrapped[_NONCE:], campaign.encode())
        except InvalidTag as error:
            raise SealBroken(f"the keys of campaign {campaign} do not open with this master.key") from error
        return CampaignKeys(campaign, plain[:_KEY], plain[_KEY:])


@lru_cache(maxsize=16_384)
def _matchable(key: bytes, text: str) -> str:
    """What one call names is named by the next one too, so most of these were asked for before."""
    return hmac.digest(key, text.encode(), "sha256")[:16].hex()


def is_sealed(value: Any) -> TypeGuard[dict[str, str]]:
    """Whether *value* is what `seal` puts in place of a secret."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("sealed"), str)
