"""The loops that feed arrivals to an index and a policy, and the structures they use.

`store` is the memory of an operator and `hooks` are what a policy can hook into. `join_loop` processes
arrivals one by one; its indexes are `pair_join`, `pair_join_late`, `many_join` and `many_join_late`.
`tick_loop`, `triple_join` and `cache_loop` are loops of their own. `policy_race` and
`policy_switch` let an operator follow the best policy.
"""
