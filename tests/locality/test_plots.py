"""Plots: drawn without a display, labelled, and on the axes they are given."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from penstock.errors import PenstockError
from penstock.locality import (
    plot_inter_arrival,
    plot_locality,
    plot_popularity,
    plot_stack_distance,
    popularity,
    stack_distance,
)
from penstock.workloads import gdj_stream

KEYS = gdj_stream(rate=1).key


@pytest.mark.parametrize("plot", [plot_popularity, plot_stack_distance, plot_inter_arrival])
@pytest.mark.parametrize("keys", [KEYS, "aab", "aa"], ids=["stream", "two", "one"])
def test_plots_are_labelled_and_render(plot, keys) -> None:
    ax = plot(keys)
    assert ax.get_title()
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_legend() is not None
    ax.figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize("plot", [plot_popularity, plot_stack_distance, plot_inter_arrival])
def test_plots_draw_on_the_axes_they_are_given(plot) -> None:
    ax = Figure().add_subplot()
    assert plot(KEYS, ax=ax) is ax


def test_plots_take_what_was_measured_already() -> None:
    profile, found = popularity(KEYS), stack_distance(KEYS)
    counted, fit = plot_popularity(profile).get_lines()
    assert counted.get_ydata().tolist() == profile.counts.tolist()
    assert f"{profile.slope:.3f}" in fit.get_label()
    original, permuted = plot_stack_distance(found).get_lines()
    assert original.get_ydata().max() == pytest.approx(found.hit_rate(found.distinct))
    assert permuted.get_label() == "permuted"


def test_gaps_are_shown_as_the_share_that_is_longer() -> None:
    original, _ = plot_inter_arrival("aab", times=[0, 4, 9], ax=None).get_lines()
    assert original.get_xydata().tolist() == [[2.0, 1.0]]
    original, _ = plot_inter_arrival("aaaa", times=[0, 0, 4, 12]).get_lines()
    assert original.get_xydata().tolist() == pytest.approx(np.array([[2.0, 2 / 3], [4.0, 1 / 3]]))


def test_gaps_between_datetimes_are_in_seconds() -> None:
    times = pd.to_datetime(np.arange(len(KEYS)) * 1_000, unit="ms")
    assert plot_inter_arrival(KEYS, times).get_xlabel() == "gap x, in seconds"


def test_all_three_stand_side_by_side() -> None:
    figure = plot_locality(KEYS, np.arange(len(KEYS)))
    assert len(figure.axes) == 3
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize(("keys", "times"), [("abc", None), ("aba", [5, 5, 5])])
def test_nothing_to_plot_is_said(keys, times) -> None:
    with pytest.raises(PenstockError, match="nothing to plot"):
        plot_inter_arrival(keys, times)


def test_importing_the_package_does_not_import_matplotlib() -> None:
    code = "import sys, penstock.locality, penstock.workloads; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
