"""Reference locality of a stream: popularity over long time scales, correlation over short ones.

They tell which policy will do well on it before any join is run.

>>> from penstock import locality
>>> from penstock.workloads import gdj_stream
>>> print(locality.summary(gdj_stream(alpha=1.0).key))
14400 references to 100 keys: popularity and short-term correlation both matter.
Hit rate from popularity +0.27, from correlation +0.17.
Policies to try: gdj, clock-exp, clock, lru
"""

from penstock.locality.gaps import inter_arrival
from penstock.locality.plots import plot_inter_arrival, plot_locality, plot_popularity, plot_stack_distance
from penstock.locality.popularity import Popularity, popularity
from penstock.locality.stack import StackDistance, stack_distance
from penstock.locality.summary import Summary, summary

__all__ = [
    "Popularity",
    "StackDistance",
    "Summary",
    "inter_arrival",
    "plot_inter_arrival",
    "plot_locality",
    "plot_popularity",
    "plot_stack_distance",
    "popularity",
    "stack_distance",
    "summary",
]
