"""The strategies of the NEEL paper, event by event: `iterative`, `object` and `semantic`."""
