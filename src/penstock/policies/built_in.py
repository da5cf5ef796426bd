"""The built-in policies, one line each, in the order in which lists of policies show them.

To add one, write its file and add its line: the registry, its page, the table of the README, the candidates
of `auto` and the contract tests follow from the class.
"""

# ruff: isort: skip_file
# fmt: off
from penstock.policies.fifo import Fifo as Fifo
from penstock.policies.rand import Rand as Rand
from penstock.policies.lru import Lru as Lru
from penstock.policies.lfu import Lfu as Lfu
from penstock.policies.prob import Prob as Prob
from penstock.policies.life import Life as Life
from penstock.policies.age import Age as Age
from penstock.policies.gdj import GreedyDualJoin as GreedyDualJoin
from penstock.policies.clock import Clock as Clock
from penstock.policies.clock_exp import ClockExp as ClockExp
from penstock.policies.heeb.join import Heeb as Heeb
from penstock.policies.heeb.histograms import HeebHist as HeebHist
from penstock.policies.flowexpect import FlowExpect as FlowExpect
from penstock.policies.opt import Opt as Opt
from penstock.policies.sample import Sample as Sample
from penstock.policies.learned import Learned as Learned
from penstock.policies.auto import Auto as Auto
from penstock.policies.lfd import Lfd as Lfd
