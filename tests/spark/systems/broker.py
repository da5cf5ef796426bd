"""A Kafka broker of one node that listens on this machine only."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.spark.support import running, until

CLUSTER = "4L6g3nShT-eMCtK--X86sw"  # any identifier of a cluster
JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with contextlib.ExitStack() as opened:
        held = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def properties(folder: Path, port: int, controller: int, partitions: int) -> str:
    """The configuration of a broker that is its own controller."""
    return f"""
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=127.0.0.1:{controller}
        listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
        advertised.listeners=PLAINTEXT://127.0.0.1:{port}
        controller.listener.names=CONTROLLER
        inter.broker.listener.name=PLAINTEXT
        log.dirs={folder / "topics"}
        num.partitions={partitions}
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        group.initial.rebalance.delay.ms=0
    """


@contextlib.contextmanager
def broker(jars: list[Path], folder: Path, partitions: int = 2) -> Iterator[str]:
    """A broker that ends with the block; its address. Topics are created by the first message to them."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(properties(folder, port, controller, partitions))
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    run = [java, *JAVA, "-cp", os.pathsep.join(map(str, jars))]
    prepare = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings), "--standalone"]
    subprocess.run(prepare, check=True, capture_output=True, timeout=120)

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    with running([*run, "kafka.Kafka", str(settings)], folder / "broker.log") as process:
        until(answers, 120, process)
        yield f"127.0.0.1:{port}"
