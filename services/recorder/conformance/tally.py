"""What the cases of one or more servers showed, as a table, and in one line at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recorder.conformance.exercise import TRIALS, Result


@dataclass(slots=True)
class Tally:
    """Counts cases: one passed when each of its trials held."""

    passed: int = 0
    failed: int = 0
    _results: list[tuple[str, Sequence[Result]]] = field(default_factory=list)

    def add(self, server: str, results: Sequence[Result]) -> None:
        """Count the *results* of *server*."""
        self._results.append((server, results))
        self.passed += sum(result.passed for result in results)
        self.failed += sum(not result.passed for result in results)

    def show(self, console: Console) -> None:
        """A table of each server's cases, what was wrong with them, and how many passed and failed."""
        for server, results in self._results:
            table = Table(title=server, title_justify="left", title_style="bold", box=None, pad_edge=False)
            for heading in ("operation", "case", *TRIALS):
                table.add_column(heading, overflow="fold")
            for result in results:
                marks = [_mark(result, trial) for trial in TRIALS]
                table.add_row(result.operation, result.case, *marks)
            console.print(table)
            for result in results:
                for text in result.told:
                    console.print(Text(f"Said before {result.operation}, {result.case}: {text}"), soft_wrap=True)
            for result in results:
                for trial, wrong in result.trials.items():
                    if wrong is not None:
                        console.print(
                            Text(f"{result.operation}, {result.case}, {trial}: {wrong}", style="red"), soft_wrap=True
                        )
            console.print()
        console.print(f"{self.passed} passed, {self.failed} failed")


def _mark(result: Result, trial: str) -> str:
    if trial not in result.trials:
        return "-"
    return "ok" if result.trials[trial] is None else "FAILED"


def proven(results: Sequence[Result]) -> list[str]:
    """The operations whose undo held in every case, and in one at least."""
    names = dict.fromkeys(result.operation for result in results if result.trials.get("undo", "") is None)
    return [name for name in names if all(result.passed for result in results if result.operation == name)]
