"""The demo's voice. It is handed what the API answered, and prints nothing that is not in there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table

from examples.client import Answer

_OUTCOMES = {"reverted": "green", "already_reverted": "green", "left_out": "yellow"}
_NOTHING = "—"
_WHOLE = {"step", "outcome", "record", "expects", "expected"}  # columns that are never broken


class Names:
    """What a reader calls an entry: its label and operation, and whose it is where it is another run's."""

    def __init__(self, entries: Iterable[Answer], run: str | None = None) -> None:
        self._entries = {entry["id"]: entry for entry in entries}
        self._run = run

    def __getitem__(self, entry_id: str) -> str:
        entry = self._entries[entry_id]
        name = f"{entry['label']} {entry['server']}/{entry['operation']}"
        return name if entry["run"] == self._run else f"{entry['agent']}'s {name}"


class Telling:
    """Prints a story to *console*."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, text: str) -> None:
        """A story begins."""
        self._console.print()
        self._console.print(Rule(f"[bold]{escape(text)}", align="left"))

    def scene(self, text: str) -> None:
        """A part of the story begins."""
        self._console.print(f"\n[bold cyan]{escape(text)}")

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        self._console.print(
            Padding(f"[{style}]{escape(text)}[/]" if style else escape(text), (0, 0, 0, 2), expand=False)
        )

    def entry(self, entry: Answer) -> None:
        """One entry of the journal: what was done, what it changed, and whether it can be taken back."""
        effect = entry.get("effect") or {}
        colour = {"committed": "green", "awaiting_approval": "yellow", "reverted": "magenta"}.get(
            entry["status"], "red"
        )
        self._console.print(
            f"  [bold]{entry['label']} {entry['server']}/{entry['operation']}[/]  [{colour}]{entry['status']}[/]"
            f"[dim], {entry['tier']}, by {escape(entry['agent'])} for {escape(entry['principal'])}[/]"
        )
        if entry["kind"] != "read" and effect.get("changes"):
            self._changes(effect)
        if entry["kind"] == "read":
            self._under(f"read {', '.join(effect.get('uses', []))}")
        else:
            self._under(can_be_taken_back(entry), "dim")

    def plan(self, plan: Answer, names: Names) -> None:
        """A Reversal Plan, section by section; an empty section is not shown."""
        self.line(f"Plan {plan['id']}, {plan['status']}, digest {plan['digest'][:20]}…")
        self._steps(plan, names)
        for step in plan["steps"]:
            if step.get("conflict"):
                self._conflict(step, names)
        self._section("Cannot be taken back", [f"{names[n['entry']]}: {n['detail']}" for n in plan["notReversible"]])
        self._section("Not decided yet", [f"{names[u['entry']]}: {u['reason']}" for u in plan["unresolved"]])
        self._section(
            "Others have read it since",
            [f"{names[r['entry']]} read {r['resource']}" for r in plan["readSince"]],
        )
        self._section(
            "There the list may be incomplete",
            [f"{r['agent']}: memory through the recorder: {r['throughRecorder']}" for r in plan["readSinceIncomplete"]],
        )
        self._section(
            "What taking it back also does", [f"{names[s['entry']]}: {s['text']}" for s in plan["sideEffects"]]
        )
        self._section("Suggested afterwards", [f"{s['kind']}: {s['text']}" for s in plan["suggestions"]], "dim")

    def consequences(self, plan: Answer, entry: str, names: Names, *, left_out: bool) -> None:
        """What the plan says follows from a choice about *entry*."""
        for consequence in plan["consequences"]:
            if consequence["entry"] == entry:
                texts = consequence["ifLeftOut"] if left_out else consequence["ifOverridden"]
                for text in texts:
                    self.line(f"{names[entry]}: {text}", "dim")

    def receipts(self, record: Answer, names: Names) -> None:
        """A Reversal Record: what became of each step."""
        self.line(
            f"Approved by {record['approvedBy']} as {record['authority']}"
            + (f", because: {record['reason']}" if record.get("reason") else "")
        )
        table = _table("step", "outcome", "expected", "seen", "left", "side effects")
        for receipt in record["receipts"]:
            colour = _OUTCOMES.get(receipt["outcome"], "red")
            fields = receipt.get("fields")
            outcome = receipt["outcome"] + (f" ({', '.join(fields)} only)" if fields else "")
            table.add_row(
                names[receipt["entry"]],
                f"[{colour}]{outcome}",
                *(_version(receipt.get(key)) for key in ("expectedVersion", "versionBefore", "versionAfter")),
                escape(" ".join(receipt.get("sideEffects") or []) or _NOTHING),
            )
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))

    def review(self, review: Answer, names: Names) -> None:
        """What can still be taken back, the earliest deadline first."""
        for item in review["open"]:
            self.line(f"{names[item['entry']]} until {when(item['undoBy'])}")

    def _changes(self, effect: Answer) -> None:
        if effect.get("before") is None:
            fields = ", ".join(f"{change['field']} {short(change['new'])}" for change in effect["changes"])
            self._under(f"new: {effect['resource']}")
            self._under(fields)
            return
        for change in effect["changes"]:
            self._under(f"{change['field']}: {short(change['old'])} → {short(change['new'])}")

    def _steps(self, plan: Answer, names: Names) -> None:
        table = _table("step", "record", "expects", "now", "because of")
        for step in plan["steps"]:
            state = "[yellow]conflict" if step.get("conflict") else _version(step.get("observedVersion"))
            because = sorted({reason["source"] for reason in step["because"]})
            table.add_row(
                names[step["entry"]],
                escape(step.get("resource") or _NOTHING),
                _version(step.get("ifVersion")),
                state,
                ", ".join(because) or _NOTHING,
            )
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))

    def _conflict(self, step: Answer, names: Names) -> None:
        self.line(f"Somebody changed {step['resource']} since ({names[step['entry']]}):", "yellow")
        table = _table("field", "before the agent", "the agent wrote", "now")
        for field in step["conflict"]["fields"]:
            table.add_row(field["field"], *(escape(short(field.get(key))) for key in ("was", "wrote", "now")))
        self._console.print(Padding(table, (0, 0, 0, 4), expand=False))

    def _section(self, title: str, lines: list[str], style: str = "") -> None:
        if lines:
            self.line(title, "bold")
            for text in lines:
                self._under(text, style)

    def _under(self, text: str, style: str = "") -> None:
        self._console.print(
            Padding(f"[{style}]{escape(text)}[/]" if style else escape(text), (0, 0, 0, 5), expand=False)
        )


def can_be_taken_back(entry: Answer) -> str:
    """Whether an entry can be taken back, and until when, in words."""
    undo: Mapping[str, Any] = entry["undo"]
    if undo["kind"] != "compensate":
        return "cannot be taken back" if undo["kind"] == "none" else f"undo unknown: {undo.get('why') or _NOTHING}"
    return f"can be taken back until {when(undo['undoBy'])}" if undo.get("undoBy") else "can be taken back"


def when(instant: str) -> str:
    """An instant, short, in UTC."""
    return f"{datetime.fromisoformat(instant):%a %d %b %H:%M} UTC"


def short(value: Any) -> str:
    """A value of a record, on a line."""
    if value is None:
        return _NOTHING
    if isinstance(value, list):
        return ", ".join(short(item) for item in value) or "none"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _version(version: str | None) -> str:
    if not version:
        return _NOTHING
    return f"v{version}" if version.isdigit() else version[:12]


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    return table
