"""Streams to experiment with: the generators of the papers, and simple ones for benchmarks and demos.

All are deterministic by seed and give pandas data frames sorted by time.

>>> from penstock.workloads import gdj_pair
>>> left, right = gdj_pair(keys=20, rate=1, seed=7)
>>> left.equals(gdj_pair(keys=20, rate=1, seed=7).left)
True
"""

from penstock.workloads.bursty import bursty_pair
from penstock.workloads.clock import ViewerGuide, sensor_bursts, viewers_and_guide
from penstock.workloads.gdj import gdj_attributes, gdj_pair, gdj_stream
from penstock.workloads.heeb import floor, roof, tower, trends, walk
from penstock.workloads.zipf import StreamPair, zipf_pair, zipf_probabilities

__all__ = [
    "StreamPair",
    "ViewerGuide",
    "bursty_pair",
    "floor",
    "gdj_attributes",
    "gdj_pair",
    "gdj_stream",
    "roof",
    "sensor_bursts",
    "tower",
    "trends",
    "viewers_and_guide",
    "walk",
    "zipf_pair",
    "zipf_probabilities",
]
