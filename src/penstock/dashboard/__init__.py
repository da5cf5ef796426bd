"""The live page of a running pipeline: a small read-only server and a self-contained page."""

from penstock.dashboard.board import Board
from penstock.dashboard.recording import follow, write_line
from penstock.dashboard.server import Dashboard

__all__ = ["Board", "Dashboard", "follow", "write_line"]
