"""Warn about late rows."""

from __future__ import annotations

from penstock.errors import LateRowsWarning, warn_user

MOST_LATE = 0.02  # tolerated share of late rows in a batch
FEWEST = 100  # rows; smaller batches are combined, because one late row of ten means little


class LateWatch:
    """Warns once: when more than 2 % of the rows of a batch were late, or recall is unknown because of fewer.

    >>> import warnings
    >>> from penstock.joins.late import LateWatch
    >>> watch = LateWatch()
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     watch.see(arrived=99, late=99)  # too few to judge
    ...     watch.see(arrived=200, late=100)
    ...     watch.see(arrived=1_000, late=900)
    >>> [str(each.message)[:39] for each in caught]
    ['50 % of the rows since row 0 came late,']
    """

    def __init__(self) -> None:
        self._arrived = self._late = 0  # up to the last check
        self._warned = False

    def see(self, *, arrived: int, late: int, unestimated: int = 0, unknown: bool = False) -> None:
        """Take the totals after a batch, and whether recall is unknown because of `unestimated` rows."""
        came = arrived - self._arrived
        if self._warned or came < FEWEST:
            return
        share = (late - self._late) / came
        if share > MOST_LATE:
            self._warned = True
            warn_user(
                f"{100 * share:.0f} % of the rows since row {self._arrived:,} came late, after partners "
                "may have expired, so results may be missing. Give the rows in order of time, or raise "
                "lateness=.",
                LateRowsWarning,
            )
        elif unknown and unestimated:
            self._warned = True
            rows = "row came" if unestimated == 1 else "rows came"
            warn_user(
                f"{unestimated:,} {rows} too late to know what was missed, with keys that have many results, "
                "so recall is unknown. Give the rows in order of time, or raise lateness=.",
                LateRowsWarning,
            )
        self._arrived, self._late = arrived, late

    def skip(self, *, arrived: int, late: int) -> None:
        """Take the totals as already checked: another state has counted the rows it hands over."""
        self._arrived, self._late = arrived, late
