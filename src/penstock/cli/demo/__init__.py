"""`penstock demo`: one burst, one memory limit, and two joins: Spark's own and the bounded one."""

from penstock.cli.demo.command import demo

__all__ = ["demo"]
