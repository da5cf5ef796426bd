"""`penstock plan`: how much memory a join of two files needs, and under which policy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.files import parse_times, read_table
from penstock.cli.output import (
    Json,
    JsonOut,
    errors_in_one_line,
    parts_of,
    picture,
    progress_bar,
    recall_table,
)
from penstock.cli.signs import speaks

if TYPE_CHECKING:
    from penstock.joins import Plan


How = Annotated[str, typer.Option(help="Kind of join: inner, left, right, full, left_semi or left_anti.")]
Matches = Annotated[str, typer.Option(help="Partners of a row: all, once (a left row one), or one-to-one.")]
Where = Annotated[
    str | None,
    typer.Option(help="A condition beyond the keys: 'left.price < right.price'.", show_default=False),
]


@errors_in_one_line
@speaks("reading")
def plan(
    left: Annotated[Path, typer.Argument(help="The left stream: a CSV or Parquet file.", show_default=False)],
    right: Annotated[Path, typer.Argument(help="The right stream.", show_default=False)],
    on: Annotated[
        list[str], typer.Option(help="Key columns: a,b; or a=b if the names differ.", show_default=False)
    ],
    time: Annotated[str, typer.Option(help="Time column; or a=b if the names differ.", show_default=False)],
    within: Annotated[
        str,
        typer.Option(
            help="The window: a number in the unit of the time column, '10 minutes', '0 s..10 minutes' "
            "(right before..after left), or '100 rows'.",
            show_default=False,
        ),
    ],
    budgets: Annotated[
        list[str] | None,
        typer.Option(help="20%, 2000 (tuples), '64 MiB', ...; default: shares from 5% to 100% of the need."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            help="Policies, optionally with options, or 'all' that can run; default: a few that run fast.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[float | None, typer.Option(help="Recall to reach, such as 0.95.")] = None,
    allocation: Annotated[
        str | None,
        typer.Option(help="unified, equal or proportional; default: unified if the policy supports it."),
    ] = None,
    step: Annotated[
        str, typer.Option(help="Process rows one by one (arrival) or by timestamp (tick).")
    ] = "arrival",
    seed: Annotated[int, typer.Option(help="Seed for randomised policies.")] = 0,
    how: How = "inner",
    matches: Matches = "all",
    where: Where = None,
    unit: Annotated[str, typer.Option(help="Unit of numeric time columns.")] = "ms",
    json: Json = None,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the curve to this PNG file.", show_default="plan.png")
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Do not plot the curve.")] = False,
) -> None:
    """Compute the recall of every policy and budget, and the smallest budget that reaches the target."""
    sink = JsonOut(json)
    drawing = picture(plot, "plan.png", wanted=not no_plot)
    names = pair_of_names(time)
    with progress_bar() as report, warnings.catch_warnings():
        import penstock as ps
        from penstock.errors import ShortSampleWarning, UnitWarning
        from penstock.policies.registry import starters

        sides = (read_table(left), read_table(right))
        texts = parse_times(sides, names)
        for kind in (ShortSampleWarning, UnitWarning):  # printed below as notes of the plan
            warnings.simplefilter("ignore", kind)
        found = ps.plan(
            *sides,
            on=[pair_of_names(name) for name in parts_of(on)],
            time=names,
            within=window_of_text(within, unit if texts else None),
            budgets=None if budgets is None else [budget_of_text(text) for text in parts_of(budgets)],
            policies=starters() if policies is None else policies_of(policies),
            target=target,
            allocation=allocation,
            step=step,
            seed=seed,
            how=how,
            matches=matches,
            where=where,
            unit=unit,
            progress=report,
        )
    sink.write(found.to_json())
    if drawing is not None:
        found.plot(drawing)
    _show(found, len(sides[0]), len(sides[1]), sink.screen)
    if policies is None:
        sink.screen.print("These policies run fast. To compare all of them: [bold]--policies all[/]")
    written = [str(path) for path in (drawing, sink.file) if path]
    if written:
        from rich.markup import escape

        sink.screen.print(f"[dim]Written: {escape(', '.join(written))}[/]")


def _show(found: Plan, left: int, right: int, out: Any) -> None:
    from rich.markup import escape

    from penstock.units import unit_word

    exact = found.rows[0].exact
    out.print(f"{left:,} rows joined with {right:,}: {exact:,} results in the exact join.")
    if found.need:
        out.print(f"It keeps {found.need:,} tuples at the average rate: 100 % in budgets given as shares.")
    out.print(f"At its peak it keeps {found.peak_need:,}.")
    out.print(f"Times are read as {unit_word(found.unit)}.")
    for warning in found.warnings:
        out.print(f"[yellow]Warning:[/] {escape(warning)}")
    out.print()
    out.print("[bold]Recall in %, by policy and budget (* best of its column)[/]")
    bounds = {row.policy for row in found.rows if row.bound}
    table = found.table
    out.print(recall_table(table, bounds, _in_tuples(found, list(table.columns))))
    if bounds:
        out.print(
            f"[dim]{', '.join(sorted(bounds))}: upper bound, computed with knowledge of the whole stream.[/]"
        )
    for note in found.notes:
        out.print(f"[yellow]Note:[/] {escape(note)}")
    for policy, reason in found.skipped.items():
        out.print(f"[yellow]Left out:[/] {escape(policy)}: {escape(reason)}")
    if found.target is not None:
        out.print(answer_sentence(found))


def _in_tuples(found: Plan, budgets: list[str]) -> dict[str, list[str]]:
    """Return each budget in tuples and as a share of the average and peak need, for the foot of the table."""
    sizes = {row.budget: row.tuples for row in found.rows}
    foot = {"tuples": [f"{size:,}" if (size := sizes[each]) else "–" for each in budgets]}
    for name, need in (("% of need", found.need), ("% of peak", found.peak_need)):
        if need and any(sizes.values()):
            foot[name] = [f"{100 * size / need:.0f}" if (size := sizes[each]) else "–" for each in budgets]
    return foot if any(sizes.values()) else {}


def answer_sentence(found: Plan) -> str:
    """Return the answer to the target as a sentence.

    >>> import penstock as ps
    >>> from penstock.cli.plan import answer_sentence
    >>> data = {"key": [1, 2], "ts": [0, 9]}
    >>> plan = ps.plan(
    ...     data, data, on="key", time="ts", within=5, budgets=["4 tuples"], policies=["lru"], target=1
    ... )
    >>> "2 tuples" in answer_sentence(plan)
    True
    """
    aim, answer = f"{100 * (found.target or 0):g} %", found.answer
    if answer is None:
        best = max(found.rows, key=lambda row: (not row.bound, row.recall))
        of_need = " of the need" if best.budget.endswith("%") else ""
        return (
            f"No policy reaches {aim} of the results in these budgets; the best is {100 * best.recall:.1f} %"
            f", by {best.policy} with {best.budget}{of_need}."
        )
    share = f", {100 * answer.tuples / found.need:.3g} % of the need" if answer.tuples and found.need else ""
    return (
        f"{aim} of the results need [bold]{answer.budget}[/] with [bold]{answer.policy}[/]{share}; "
        f"a run with this budget reached {100 * answer.recall:.2f} %."
    )


def pair_of_names(text: str) -> tuple[str, str]:
    """Parse `a` (a column of that name on both sides) or `a=b` (two names).

    >>> from penstock.cli.plan import pair_of_names
    >>> pair_of_names("ad"), pair_of_names("ad=ad_id")
    (('ad', 'ad'), ('ad', 'ad_id'))
    """
    left, equals, right = (part.strip() for part in text.partition("="))
    return left, right if equals else left


def window_of_text(text: str, unit: str | None = None) -> Any:
    """Parse a window from the command line; bare numbers are in `unit` if one is given.

    >>> from penstock.cli.plan import window_of_text
    >>> (
    ...     window_of_text("600"),
    ...     window_of_text("600", "s"),
    ...     window_of_text("0 s..10 minutes"),
    ...     window_of_text("5 rows"),
    ... )
    (600, '600 s', ('0 s', '10 minutes'), Rows(n=5))
    """
    before, dots, after = (part.strip() for part in text.partition(".."))
    if dots:
        return window_of_text(before, unit), window_of_text(after, unit)
    if before.endswith("rows") and before.removesuffix("rows").strip().isdigit():
        from penstock.window import Rows

        return Rows(int(before.removesuffix("rows")))
    try:
        number = float(before)
    except ValueError:
        return before
    if unit is not None:
        return f"{before} {unit}"
    return int(number) if number.is_integer() else number


def budget_of_text(text: str) -> Any:
    """Parse a budget from the command line: a whole number is tuples, a decimal is a share.

    >>> from penstock.cli.plan import budget_of_text
    >>> budget_of_text("2000"), budget_of_text("0.2"), budget_of_text("20%")
    (Tuples(n=2000), Fraction(share=0.2), Fraction(share=0.2))
    """
    from penstock.budget import Fraction, Tuples, budget_of

    if text.isdigit():
        return Tuples(int(text))
    try:
        share = float(text)
    except ValueError:
        return budget_of(text)
    return Fraction(share)


def policies_of(given: list[str]) -> list[str]:
    """Split policies from the command line; a part that is an option belongs to the policy before it.

    >>> from penstock.cli.plan import policies_of
    >>> policies_of(["fifo,gdj:initial=0.8,method=3", "lru"])
    ['fifo', 'gdj:initial=0.8,method=3', 'lru']
    """
    found: list[str] = []
    for part in parts_of(given):
        if found and "=" in part and ":" not in part:
            found[-1] += "," + part
        else:
            found.append(part)
    return found
