"""How pictures of the site look: transparent, with grey letters, so that they suit light and dark pages."""

from __future__ import annotations

import io
from typing import Any

GREY = "#808488"
STYLE: dict[str, Any] = {
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "none",
    "figure.figsize": (8.4, 3.2),
    "grid.color": GREY,
    "legend.framealpha": 0.0,
    "savefig.facecolor": "none",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def png(figure: Any) -> bytes:
    """A figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, facecolor="none", metadata={"Software": None})
    return buffer.getvalue()
