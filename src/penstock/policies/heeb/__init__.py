"""HEEB: evicts by expected benefit, from a model of the stream that a tuple joins with.

`join` is the policy and `histograms` the variant that learns its models; `state` and `hooks` run them, and
`cache` is the same for the caching problem.
"""
