"""The keys of an installation: made once, kept in one folder, never overwritten.

`master.key` wraps the campaigns' keys, `signing.pem` signs records, `token.pem` signs tokens where no issuer is set.
The public halves stand beside them: `signing_public.pem` for whoever verifies a record, `token_public.pem` for services that
only check tokens.
"""

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

MASTER_KEY = "master.key"
SIGNING_KEY = "signing.pem"
TOKEN_KEY = "token.pem"  # noqa: S105  a file's name
SIGNING_PUBLIC_KEY = "signing_public.pem"
TOKEN_PUBLIC_KEY = "token_public.pem"  # noqa: S105  a file's name


def keys_folder(environ: Mapping[str, str], data: Path) -> Path:
    """Where the keys are: TAKEBACK_KEYS_DIR, else the data folder's `keys/`."""
    return Path(environ.get("TAKEBACK_KEYS_DIR") or data / "keys")


def ensure_keys(folder: Path) -> None:
    """Make the keys that are missing. Several processes may do so at once: the first one's keys count."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep(folder / MASTER_KEY, secrets.token_bytes(32))
    for private, public in ((SIGNING_KEY, SIGNING_PUBLIC_KEY), (TOKEN_KEY, TOKEN_PUBLIC_KEY)):
        new = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        kept = load_pem_private_key(_keep(folder / private, new), None)
        pem = kept.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        _keep(folder / public, pem, mode=0o644)


def publish_keys(folder: Path, public: Path) -> None:
    """Put the public halves into the folder *public*, for services that hold no private key; older ones are replaced."""
    public.mkdir(parents=True, exist_ok=True)
    for name in (SIGNING_PUBLIC_KEY, TOKEN_PUBLIC_KEY):
        new = public / f".{name}.{secrets.token_hex(8)}"
        new.write_bytes((folder / name).read_bytes())
        new.chmod(0o644)
        new.replace(public / name)


def database_password(folder: Path, service: str) -> str:
    """The password of *service*'s database role in an embedded stack: derived, so the same at every start."""
    return hmac.digest((folder / MASTER_KEY).read_bytes(), f"database role of {service}".encode(), "sha256").hex()


def _keep(path: Path, content: bytes, mode: int = 0o600) -> bytes:
    """Write *content* unless the file is there, whole or not at all; answers what is there now."""
    if not path.exists():
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(new, path)  # fails where another process was first
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_bytes()
