"""The live page of a running pipeline: a small server that only tells, and a page that needs nothing else."""

from penstock.dashboard.board import Board
from penstock.dashboard.recording import follow, write_line
from penstock.dashboard.server import Dashboard

__all__ = ["Board", "Dashboard", "follow", "write_line"]
