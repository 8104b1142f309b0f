"""docker-compose.yml, the Dockerfile and the page about them name nothing that the code does not have (issue 2, deployment)."""

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from takeback.auth import issue_token
from takeback.database import role_of, services
from takeback.edge import _OWN as OWN_PATHS
from takeback.keys import TOKEN_KEY, ensure_keys, publish_keys
from takeback.settings import ServiceSettings
from takeback.stack import SERVICES
from tests.compose import COMPOSE_FILE, ROOT, Compose, ComposeService, Dockerfile

PAGE = ROOT / "docs/deployment.md"
LISTENS = {"postgres": {5432}, "nats": {4222}, "redis": {6379}, "mail": {1025, 8025}, "edge": {8080}}
DOCKERFILE = Dockerfile()
COMPOSE = Compose({name: f"p{name.lower()}" for name in Compose.required()})
TAKEBACK = [each for each in COMPOSE.services.values() if each.target in SERVICES]
PLANNER = COMPOSE.services["planner"]


def settings_of(service: str) -> type[ServiceSettings]:
    found: type[ServiceSettings] = importlib.import_module(f"{service}.settings").Settings
    return found


def kept_in(service: ComposeService, variable: str) -> str:
    """The volume in which the folder of *variable* is."""
    path = service.environment[variable]
    [source] = [m.source for m in service.mounts if path == m.target or path.startswith(f"{m.target}/")]
    return source


def test_every_service_runs_with_two_recorders_and_what_it_needs_comes_first() -> None:
    """Issue 2: PostgreSQL, NATS, Redis, a mail sink, migrate, the three services, an edge, two recorders."""
    assert set(COMPOSE.services) >= {"postgres", "nats", "redis", "mail", "migrate", "edge"}
    assert sorted(each.target for each in TAKEBACK) == ["notifier", "planner", "recorder", "recorder"]  # type: ignore[type-var]
    for service in TAKEBACK:
        assert service.needs["migrate"] == "service_completed_successfully"
    assert COMPOSE.services["recorder-1"].environment == COMPOSE.services["recorder-2"].environment
    for service in COMPOSE.services.values():
        assert set(service.needs) <= set(COMPOSE.services)
        for name, condition in service.needs.items():
            assert condition != "service_healthy" or COMPOSE.services[name].healthcheck


@pytest.mark.parametrize("name", [each.name for each in COMPOSE.services.values() if each.target])
def test_the_command_is_that_of_the_image_and_of_the_command_line(name: str) -> None:
    service = COMPOSE.services[name]
    assert service.target is not None
    assert service.command == DOCKERFILE.command(service.target)
    program, command, *rest = service.command
    assert program == "takeback"
    if command == "serve":
        assert rest[0] == service.target
        assert rest[0] in {point.name for point in importlib.metadata.entry_points(group="takeback.services")}
    else:
        assert (command, rest) == ("migrate", [])


@pytest.mark.parametrize("service", TAKEBACK, ids=lambda service: service.name)
def test_every_variable_is_a_setting_of_its_service(service: ComposeService) -> None:
    settings = settings_of(str(service.target))
    unknown = {
        name
        for name in service.environment
        if name.removeprefix("TAKEBACK_").lower() not in settings.model_fields
        and not name.startswith(("TAKEBACK_SECRET_", "TAKEBACK_ORIGINS_"))
    }
    assert not unknown
    made = settings.of(service.environment)
    assert urlsplit(made.postgres_url).username == role_of(str(service.target))
    assert getattr(made, "allow_commands", False) is False


def test_migrate_gives_each_service_the_password_that_it_logs_in_with() -> None:
    migrate = COMPOSE.services["migrate"].environment
    passwords = {name: f"TAKEBACK_{name.upper()}_PASSWORD" for name in services()}
    keys = {"TAKEBACK_KEYS_DIR", "TAKEBACK_PUBLIC_KEYS_DIR"}
    assert set(migrate) == {"TAKEBACK_POSTGRES_URL", "TAKEBACK_NATS_URL", *passwords.values(), *keys}
    for service in TAKEBACK:
        at = urlsplit(service.environment["TAKEBACK_POSTGRES_URL"])
        assert at.password == migrate[passwords[str(service.target)]]
        assert service.environment["TAKEBACK_NATS_URL"] == migrate["TAKEBACK_NATS_URL"]


def test_every_address_is_a_service_on_a_port_that_it_listens_on() -> None:
    listens = LISTENS | {each.name: {int(each.command[each.command.index("--port") + 1])} for each in TAKEBACK}
    for service in COMPOSE.services.values():
        for value in service.environment.values():
            for host, port in re.findall(r"(?:^|[ @/])([a-z][a-z0-9-]*):(\d+)(?=[ /]|$)", value):
                assert int(port) in listens[host], (service.name, value)
        for _, inner in service.ports:
            assert inner in listens[service.name]


def test_every_volume_is_declared_and_used_and_every_file_is_there() -> None:
    mounts = [mount for service in COMPOSE.services.values() for mount in service.mounts]
    assert {mount.source for mount in mounts if mount.is_volume} == set(COMPOSE.document["volumes"])
    for mount in mounts:
        assert mount.is_volume or ((ROOT / mount.source).is_file() and mount.read_only)


def test_the_image_makes_the_folders_of_its_volumes_for_its_own_user() -> None:
    """A named volume takes its owner from the image's folder; Takeback's user is not root."""
    runtime = DOCKERFILE.stages["runtime"]
    [user] = runtime.of("USER")
    assert user != "root"
    made = set(
        chain.from_iterable(re.findall(rf"install -d -o {user} -m \d+ ([^&]+)", run) for run in runtime.of("RUN"))
    )
    folders = set(" ".join(made).split())
    for service in [*TAKEBACK, COMPOSE.services["migrate"]]:
        assert service.target is not None
        assert DOCKERFILE.stages[service.target].base == "runtime"
        assert {mount.target for mount in service.mounts} <= folders


def test_only_recorders_have_the_private_keys_and_the_others_cannot_write_the_public_ones() -> None:
    """Design: only recorders hold private keys; checkpoints stand beside them, outside the database (J13)."""
    migrate = COMPOSE.services["migrate"]
    private, public = kept_in(migrate, "TAKEBACK_KEYS_DIR"), kept_in(migrate, "TAKEBACK_PUBLIC_KEYS_DIR")
    assert private != public
    for service in TAKEBACK:
        [mount] = service.mounts
        if service.target == "recorder":
            assert (mount.source, mount.read_only) == (private, False)
            assert Path(service.environment["TAKEBACK_KEYS_DIR"]).parent == Path(mount.target)
        else:
            assert (kept_in(service, "TAKEBACK_KEYS_DIR"), mount.source, mount.read_only) == (public, public, True)


async def test_the_public_folder_holds_what_checks_a_token_and_nothing_that_signs(tmp_path: Path) -> None:
    ensure_keys(tmp_path / "keys")
    publish_keys(tmp_path / "keys", tmp_path / "public")
    publish_keys(tmp_path / "keys", tmp_path / "public")
    texts = [path.read_text() for path in (tmp_path / "public").iterdir()]
    assert len(texts) == 2
    assert not [text for text in texts if "PRIVATE" in text]
    settings = settings_of("planner").of({**PLANNER.environment, "TAKEBACK_KEYS_DIR": str(tmp_path / "public")})
    token = issue_token(tmp_path / "keys" / TOKEN_KEY, "gm", "human")
    assert (await settings.verifier().caller(f"Bearer {token}")).sub == "gm"


def test_the_image_asks_a_path_that_every_service_answers_on_the_port_that_it_serves() -> None:
    for service in TAKEBACK:
        check = DOCKERFILE.healthcheck(str(service.target))
        assert check is not None
        [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", check[-1])
        assert path in OWN_PATHS
        assert [port] == DOCKERFILE.stages["runtime"].of("EXPOSE")
        assert service.command[-2:] == ("--port", port)
    assert DOCKERFILE.healthcheck("migrate") is None


def test_every_file_that_the_dockerfile_copies_exists_and_reaches_the_engine() -> None:
    copied = DOCKERFILE.copied("build")
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for path in copied:
        assert (ROOT / path).exists()
        assert any(fnmatch(path, pattern) for pattern in let_in), path
    assert set(let_in) == set(copied)


def test_the_image_installs_exactly_the_hashed_requirements_and_they_are_enough() -> None:
    installs = [run for run in DOCKERFILE.stages["build"].of("RUN") if "pip install" in run]
    assert "--require-hashes -r requirements.txt" in installs[0]
    assert all("--no-deps" in run and "--no-build-isolation" in run for run in installs[1:])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {_name(line) for line in wanted} <= _pinned("requirements.txt")
    [version] = {stage.base for stage in DOCKERFILE.stages.values() if stage.base not in DOCKERFILE.stages}
    assert version.removeprefix("python:").startswith(project["project"]["requires-python"].split(",")[0].strip(">="))


def test_the_command_line_needs_nothing_that_the_image_does_not_have() -> None:
    """The servers, tools and test libraries of a developer's machine are not in it."""
    absent = _pinned("requirements-dev.txt") - _pinned("requirements.txt")
    modules = {
        module
        for module, found in importlib.metadata.packages_distributions().items()
        if {_name(d) for d in found} <= absent
    }
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(modules)!r}))\n"
        "from takeback.cli import app\n"
        "app(['--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "migrate" in done.stdout


def test_the_page_makes_an_env_file_with_every_variable_that_must_be_set(tmp_path: Path) -> None:
    """docs/deployment.md: what it tells a reader to run, run."""
    [snippet] = [block for block in _snippets() if "> .env" in block]
    subprocess.run(["sh", "-euc", snippet], cwd=tmp_path, check=True)
    made = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    assert set(made) >= Compose.required()
    assert len(set(made.values())) == len(made)
    for name, value in made.items():
        assert re.fullmatch(r"[a-z][a-z0-9]{20,}", value), f"{name}: nats.conf reads what looks like a number as one"


def test_the_page_names_services_variables_and_files_that_exist() -> None:
    page = PAGE.read_text()
    for line in chain.from_iterable(block.splitlines() for block in _snippets()):
        if found := re.search(r"docker compose (?:run --rm|exec|logs|restart) (?:-\S+ )*([\w-]+)", line):
            assert found[1] in COMPOSE.services, line
        if found := re.search(r"takeback (\w+)", line):
            assert found[1] in {"migrate", "token", "fsck", "rebuild", "verify", "serve"}, line
    known = (
        Compose.required() | set(Compose.optional()) | set(chain(*(s.environment for s in COMPOSE.services.values())))
    )
    settings = {f"TAKEBACK_{name.upper()}" for service in services() for name in settings_of(service).model_fields}
    known |= settings
    named = {name for name in re.findall(r"\b(?:TAKEBACK_\w+|\w+_PASSWORD)\b", page) if not name.endswith("_")}
    assert settings <= named, "a setting that the page does not tell of"
    assert {name for name in named if not name.startswith(("TAKEBACK_SECRET_", "TAKEBACK_ORIGINS_"))} <= known
    for path in re.findall(r"`((?:deploy|docs)/[\w./-]+)`|\]\((?!http)([\w./-]+)\)", page):
        assert (ROOT / path[0]).exists() if path[0] else (PAGE.parent / path[1]).exists(), path


def test_compose_itself_can_read_the_file() -> None:
    command = next((words for words in (["docker", "compose"], ["docker-compose"]) if _runs([*words, "version"])), None)
    if command is None:
        pytest.skip("neither the compose plugin nor docker-compose is installed here")
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", **dict.fromkeys(Compose.required(), "p1")}
    done = subprocess.run(
        [*command, "-f", str(COMPOSE_FILE), "config"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _runs(command: list[str]) -> bool:
    found = shutil.which(command[0])
    return found is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _snippets() -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _pinned(file: str) -> set[str]:
    return {_name(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)==", (ROOT / file).read_text())}


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=! ;]", requirement)[0]).lower()
