"""HEEB: eviction by the expected benefit of a tuple, from a model of the stream that it joins with.

`join` is the policy and `histograms` the one that learns its models; `state` and `hooks` are what runs, and
`cache` is the same for the caching problem.
"""
