"""@modelcontextprotocol/server-filesystem behind the shipped manifest, through the recorder (E3, G8)."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from tests.real_servers.bench import Bench
from tests.real_servers.conftest import Opened

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filesystem")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(opened: Opened, place: Path) -> Bench:
    return await opened("filesystem", place)


@pytest.fixture
def root(bench: Bench, place: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own below the server's."""
    folder = place / "root" / f"{request.node.name[:50]}{len(list((place / 'root').iterdir()))}"
    folder.mkdir()
    return folder


ODD = "one\r\nzwei ✓\n\n\ttrailing  \n\ufeff no newline"


async def test_an_overwritten_file_comes_back_byte_for_byte_once(bench: Bench, root: Path) -> None:
    """E3: write_file; undo twice changes nothing."""
    file = root / "a b.txt"
    file.write_bytes(ODD.encode())
    entry = await bench.call("write_file", path=str(file), content="rubbish")
    assert file.read_text() == "rubbish"
    assert await bench.back(entry) == ["reverted"]
    assert file.read_bytes() == ODD.encode()
    assert await bench.back(entry) == ["already_reverted"]
    assert file.read_bytes() == ODD.encode()
    assert [path.name for path in root.iterdir()] == [file.name]


async def test_an_edited_file_comes_back_with_the_line_ends_that_the_server_had_normalized(
    bench: Bench, root: Path
) -> None:
    """E3: edit_file; a dry run is a read."""
    file = root / "a.txt"
    file.write_bytes(ODD.encode())
    edits = [{"oldText": "one", "newText": "two"}]
    dry = (await bench.ask("edit_file", path=str(file), edits=edits, dryRun=True)).json()["entry"]
    assert dry["kind"] == "read"
    entry = await bench.call("edit_file", path=str(file), edits=edits)
    assert b"\r" not in file.read_bytes()
    assert await bench.back(entry) == ["reverted"]
    assert file.read_bytes() == ODD.encode()


async def test_a_new_file_is_moved_aside_and_the_plan_says_that_it_stays(bench: Bench, root: Path) -> None:
    """E3, J8: what cannot be given back is said before approval."""
    file = root / "new.txt"
    entry = await bench.call("write_file", path=str(file), content="draft")
    plan = await bench.plan(entry)
    assert "this server deletes nothing" in str(plan["sideEffects"])
    assert await bench.approve(plan) == {entry: "reverted"}
    assert not file.exists()
    assert (root / ".taken-back.new.txt.1").read_text() == "draft"
    again = await bench.call("write_file", path=str(file), content="draft")
    assert await bench.back(again) == ["reverted"]
    assert (root / ".taken-back.new.txt.2").read_text() == "draft"


async def test_a_new_directory_is_moved_aside_unless_somebody_put_something_into_it(bench: Bench, root: Path) -> None:
    """E3: create_directory."""
    first = await bench.alone("create_directory", path=str(root / "one"))
    second = await bench.alone("create_directory", path=str(root / "two"))
    (root / "two" / "theirs.txt").write_text("theirs")
    assert await bench.back(first) == ["reverted"]
    assert await bench.back(second) == ["conflict"]
    assert not (root / "one").exists()
    assert (root / "two" / "theirs.txt").read_text() == "theirs"


async def test_an_edit_a_move_and_another_move_of_a_file_come_back_in_one_plan(bench: Bench, root: Path) -> None:
    """S11: they are no conflict with each other."""
    file = root / "a.txt"
    file.write_bytes(ODD.encode())
    edit = await bench.call("edit_file", path=str(file), edits=[{"oldText": "zwei", "newText": "drei"}])
    first = await bench.call("move_file", source=str(file), destination=str(root / "b.txt"))
    second = await bench.call("move_file", source=str(root / "b.txt"), destination=str(root / "c.txt"))
    plan = await bench.plan(edit, first, second)
    assert [step["entry"] for step in plan["steps"]] == [second, first, edit]
    assert [step["conflict"] for step in plan["steps"]] == [None, None, None]
    assert set((await bench.approve(plan)).values()) == {"reverted"}
    assert file.read_bytes() == ODD.encode()
    assert sorted(path.name for path in root.iterdir()) == ["a.txt"]


async def test_what_somebody_else_wrote_in_between_is_a_conflict_and_survives(bench: Bench, root: Path) -> None:
    """G8, for each write tool that leaves a file."""
    names = ["written", "edited", "moved", "new"]
    files = {name: root / f"{name}.txt" for name in names}
    for name in names[:3]:
        files[name].write_bytes(ODD.encode())
    entries = {
        "written": await bench.alone("write_file", path=str(files["written"]), content="rubbish"),
        "edited": await bench.alone(
            "edit_file", path=str(files["edited"]), edits=[{"oldText": "one", "newText": "rubbish"}]
        ),
        "moved": await bench.alone("move_file", source=str(files["moved"]), destination=str(root / "elsewhere.txt")),
        "new": await bench.alone("write_file", path=str(files["new"]), content="new"),
    }
    files["moved"] = root / "elsewhere.txt"
    for file in files.values():
        file.write_text("by hand")
    for entry in entries.values():
        assert await bench.back(entry) == ["conflict"]
    assert {file.read_text() for file in files.values()} == {"by hand"}


async def test_what_is_no_text_is_moved_and_moved_back_exactly_and_asked_about_before_it_is_overwritten(
    bench: Bench, root: Path
) -> None:
    """E3: the server's own reading of text would corrupt it."""
    file, image = root / "data.bin", root / "pixel.png"
    for path in (file, image):
        path.write_bytes(b"\xff\x00\xfe\x80")
    moved = [
        await bench.call("move_file", source=str(path), destination=str(path.with_suffix(".old")))
        for path in (file, image)
    ]
    assert await bench.back(*moved) == ["reverted", "reverted"]
    assert file.read_bytes() == image.read_bytes() == b"\xff\x00\xfe\x80"
    asked = await bench.asked("write_file", path=str(file), content="text")
    assert "no UTF-8 text" in asked["undo"]["why"]
    assert file.read_bytes() == b"\xff\x00\xfe\x80"


async def test_a_write_and_a_move_through_a_link_are_taken_back_where_they_really_happened(
    bench: Bench, root: Path
) -> None:
    """E3: the server follows links, and moves what they lead to."""
    (root / "real").mkdir()
    file, link = root / "real" / "ein file.txt", root / "link.txt"
    file.write_bytes(ODD.encode())
    link.symlink_to(file)
    written = await bench.call("write_file", path=str(link), content="rubbish")
    moved = await bench.call("move_file", source=str(link), destination=str(root / "away.txt"))
    assert not file.exists()
    assert (await bench.entry(written))["effect"]["resource"] == f"file://{file}".replace(" ", "%20")
    assert await bench.back(moved, written) == ["reverted", "reverted"]
    assert file.read_bytes() == ODD.encode()
    assert link.is_symlink()


async def test_a_path_in_a_home_directory_is_asked_about_and_a_relative_one_is_the_same_file(
    bench: Bench, root: Path
) -> None:
    """J10: the server reads ~ and relative paths in its own way."""
    await bench.asked("write_file", path="~/a.txt", content="x")
    relative = f"{root.name}/./inner/../a.txt"
    entry = await bench.call("write_file", path=relative, content="x")
    assert (await bench.entry(entry))["effect"]["resource"] == f"file://{root}/a.txt"
    again = await bench.call("write_file", path=str(root / "a.txt"), content="y")
    assert await bench.back(entry, again) == ["reverted", "reverted"]
    assert not (root / "a.txt").exists()


@pytest.mark.parametrize("held", ["a.txt", "b.txt"])
async def test_a_move_is_told_when_either_of_its_files_is_being_taken_back(bench: Bench, root: Path, held: str) -> None:
    """J19: source and destination."""
    (root / "a.txt").write_text("a")
    async with bench.held(f"file://{root}/{held}"):
        refused = await bench.ask("move_file", source=str(root / "a.txt"), destination=str(root / "b.txt"))
        assert (refused.status_code, refused.json()["title"]) == (409, "reversal running"), refused.text
        assert [path.name for path in root.iterdir()] == ["a.txt"]
    await bench.call("move_file", source=str(root / "a.txt"), destination=str(root / "b.txt"))


async def test_a_moved_directory_comes_back_with_all_that_is_in_it(bench: Bench, root: Path) -> None:
    """E3: with what others changed inside of a file, which moved along."""
    (root / "from" / "inner").mkdir(parents=True)
    (root / "from" / "inner" / "a.bin").write_bytes(b"\xff\x00")
    entry = await bench.call("move_file", source=str(root / "from"), destination=str(root / "to"))
    assert await bench.back(entry) == ["reverted"]
    assert (root / "from" / "inner" / "a.bin").read_bytes() == b"\xff\x00"
    assert not (root / "to").exists()


async def test_a_call_that_changed_nothing_has_nothing_to_take_back(bench: Bench, root: Path) -> None:
    """E3: create_directory "succeeds" for what is there; a failed move is a failure."""
    (root / "there").mkdir()
    asked = await bench.asked("create_directory", path=str(root / "there"))
    assert "was there before" in asked["undo"]["why"]
    (root / "a.txt").write_text("a")
    failed = await bench.ask("move_file", source=str(root / "none.txt"), destination=str(root / "b.txt"))
    assert failed.status_code in (202, 502)
    assert (root / "a.txt").read_text() == "a"
