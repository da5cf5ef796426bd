"""Run operators on Spark: rows packed per bucket, states in the state store, results unpacked."""
