"""Heads kept outside the database (J13): whoever cuts a tail, removes a run or puts an old backup back is found out.

A file of signed lines; each names the heads that moved since the line before it and that line's SHA-256. Several recorders
may share the folder: a lock on the file orders them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from recorder.journal.chain import instant
from recorder.journal.dsse import BadSignature, Signer, opened
from takeback import json

PAYLOAD_TYPE = "application/vnd.takeback.checkpoint+json"
FILE = "heads.jsonl"


class CheckpointBroken(Exception):
    """The checkpoint file is not as it was written; the message names the line. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a stream went at a time, and the hash there."""

    stream: str
    seq: int
    hash: str
    at: str


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints in *folder*, signed and verified with *signer*'s key."""

    folder: Path
    signer: Signer
    _newest: dict[str, Checkpoint] = field(default_factory=dict)
    _read: int = 0
    _lines: int = 0
    _last: str = ""

    @classmethod
    def beside(cls, keys_dir: Path) -> Checkpoints:
        """The installation's: a folder ``checkpoints`` beside its keys."""
        return cls(keys_dir.resolve().parent / "checkpoints", Signer.from_keys(keys_dir))

    def newest(self, stream: str) -> Checkpoint | None:
        """The newest checkpoint of *stream*; raises `CheckpointBroken`."""
        with self._locked() as file:
            self._catch_up(file)
        return self._newest.get(stream)

    def streams(self) -> list[Checkpoint]:
        """The newest checkpoint of every stream; raises `CheckpointBroken`."""
        with self._locked() as file:
            self._catch_up(file)
        return sorted(self._newest.values(), key=lambda checkpoint: checkpoint.stream)

    def add(self, heads: Iterable[tuple[str, int, str]], at: datetime) -> int:
        """Append the *heads* (stream, seq, hash in hexadecimal) that moved on since; answers how many did.

        Durable when it returns. Raises `CheckpointBroken`.
        """
        with self._locked() as file:
            self._catch_up(file)
            moved = [
                [stream, seq, hash_]
                for stream, seq, hash_ in heads
                if stream not in self._newest or self._newest[stream].seq < seq
            ]
            if moved:
                statement = {"line": self._lines + 1, "previous": self._last, "at": instant(at), "heads": moved}
                os.lseek(file, 0, os.SEEK_END)
                _write(file, json.dumps(self.signer.sign(PAYLOAD_TYPE, statement)) + b"\n")
                os.fsync(file)
                self._catch_up(file)
        return len(moved)

    def _locked(self) -> _LockedFile:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _LockedFile(self.folder / FILE)

    def _catch_up(self, file: int) -> None:
        """Read what others have appended since."""
        size = os.fstat(file).st_size
        if size < self._read:
            raise CheckpointBroken(
                f"{self.folder / FILE} has become shorter: checkpoints were removed. Nothing was written."
            )
        if size == self._read:
            return
        content = os.pread(file, size - self._read, self._read)
        for line in content.splitlines(keepends=True):
            self._take(line)
            self._read += len(line)

    def _take(self, line: bytes) -> None:
        number = self._lines + 1
        try:
            statement = opened(json.loads(line), PAYLOAD_TYPE, self.signer.public_key)
        except (BadSignature, ValueError) as error:
            raise self._broken(number, str(error)) from error
        if statement["line"] != number or statement["previous"] != self._last:
            raise self._broken(number, "it does not continue from the line before it")
        for stream, seq, hash_ in statement["heads"]:
            self._newest[stream] = Checkpoint(stream, seq, hash_, statement["at"])
        self._lines = number
        self._last = sha256(line).hexdigest()

    def _broken(self, number: int, what: str) -> CheckpointBroken:
        return CheckpointBroken(
            f"Line {number} of {self.folder / FILE} is not as it was written: {what}. Nothing was written. Put the file back "
            "as it was, or move it away and say in your records why."
        )


class _LockedFile:
    """The file's descriptor, held alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
