"""Eviction policies: which tuple is evicted when memory is full. One file each; `registry` lists them.

>>> from penstock import policies
>>> policies.get("lru").summary
'evicts the tuple whose last match is longest ago'
"""

from penstock.policies.age import Age
from penstock.policies.auto import Auto
from penstock.policies.base import Policy
from penstock.policies.clock import Clock
from penstock.policies.clock_exp import ClockExp
from penstock.policies.fifo import Fifo
from penstock.policies.flowexpect import FlowExpect
from penstock.policies.gdj import GreedyDualJoin
from penstock.policies.heeb.histograms import HeebHist
from penstock.policies.heeb.join import Heeb
from penstock.policies.learned import Learned
from penstock.policies.lfd import Lfd
from penstock.policies.lfu import Lfu
from penstock.policies.life import Life
from penstock.policies.lru import Lru
from penstock.policies.opt import Opt
from penstock.policies.prob import Prob
from penstock.policies.python import Item, PythonPolicy
from penstock.policies.rand import Rand
from penstock.policies.registry import caching_names, get, names, register, registered, unregister

__all__ = [
    "Age",
    "Auto",
    "Clock",
    "ClockExp",
    "Fifo",
    "FlowExpect",
    "GreedyDualJoin",
    "Heeb",
    "HeebHist",
    "Item",
    "Learned",
    "Lfd",
    "Lfu",
    "Life",
    "Lru",
    "Opt",
    "Policy",
    "Prob",
    "PythonPolicy",
    "Rand",
    "caching_names",
    "get",
    "names",
    "register",
    "registered",
    "unregister",
]
