"""The files of `examples/deploy`: the dashboard and the alerts ask for what a scrape of a real query has.

Nothing here starts a container. That the files fit together is checked as far as their text says so.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import promql_parser
import pyarrow as pa
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import penstock as ps
from penstock.queues import QueueClient, QueueServer
from penstock.spark import PipelineMonitor, bounded_join, lookup_join, register_queue_source
from tests.spark.conftest import write_files
from tests.spark.support import ROOT, pieces, until

DEPLOY = ROOT / "examples" / "deploy"
OF_THE_SCRAPE = {"job", "instance"}  # labels that Prometheus itself adds


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "dashboards" / "penstock.json").read_text())


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return group["rules"]


def expression(text: str) -> Any:
    """A parsed expression, with Grafana's variables as Grafana would fill them in."""
    return promql_parser.parse(text.replace("$__rate_interval", "1m").replace("$join", "penstock|ads"))


def parts(node: Any) -> Iterator[Any]:
    """An expression and all that it is made of."""
    yield node
    inner = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for each in [*inner, *getattr(node, "args", ())]:
        if each is not None:
            yield from parts(each)


def asked(node: Any) -> tuple[set[str], set[str]]:
    """The metrics of an expression, and the labels that it names."""
    metrics, labels = set(), set()
    for each in parts(node):
        if isinstance(each, promql_parser.VectorSelector):
            metrics.add(each.name)
            labels |= {matcher.name for matcher in each.matchers.matchers}
        elif isinstance(each, promql_parser.AggregateExpr) and each.modifier is not None:
            labels |= set(each.modifier.labels)
    return metrics, labels


def expressions(dashboard: dict[str, Any], rules: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Every expression, with the template of its legend."""
    found = [
        (each["expr"], each["legendFormat"]) for panel in dashboard["panels"] for each in panel["targets"]
    ]
    return found + [(rule["expr"], rule["annotations"]["summary"]) for rule in rules]


def labels_shown(template: str) -> set[str]:
    """The labels in a legend of Grafana or in an annotation of an alert."""
    return set(re.findall(r"{{\s*(?:\$labels\.)?([a-z]+)\s*}}", template))


@pytest.fixture(scope="module")
def scrape(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What Prometheus gets from a join in little memory behind a queue and a lookup: labels per metric."""
    folder = tmp_path_factory.mktemp("scrape")
    lefts, rights = (pieces(seed, 2, 100, name) for seed, name in enumerate("lr"))
    register_queue_source(spark)
    write_files(folder / "right", rights)
    schema = spark.read.parquet(str(folder / "right")).schema
    with QueueServer(folder / "queues") as server, QueueClient(server.location) as client:
        batches = [pa.RecordBatch.from_pandas(each, preserve_index=False) for each in lefts]
        producer = client.producer("left", batches[0].schema)
        for batch in batches:
            producer.put(batch)
        queue = spark.readStream.format("penstock_queue").option("location", server.location)
        left = queue.option("queue", "left").option("maxRowsPerTrigger", 100).load()
        names = {"name": pa.string()}
        named = lookup_join(left, names_of, on="k", budget=4, buckets=2, schema=names, name="names")
        right = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "right"))
        join = {"on": "k", "time": "ts", "within": "1 minute", "budget": ps.Tuples(40), "buckets": 2}
        joined = bounded_join(named, right, **join)
        with PipelineMonitor(spark, console=False, prometheus_port=0) as monitor:
            assert monitor.url is not None
            query = joined.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
            query.trigger(availableNow=True).start().awaitTermination()
            until(lambda: len(monitor.history) == 2)
            with urllib.request.urlopen(monitor.url, timeout=10) as answer:
                text = answer.read().decode()
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def names_of(keys: list[Any]) -> dict[Any, dict[str, str]]:
    return {key: {"name": f"item {key}"} for key in keys}


@pytest.mark.spark
def test_every_metric_and_label_exists(
    scrape: dict[str, set[str]], dashboard: dict[str, Any], rules: list[dict[str, Any]]
) -> None:
    shown = set()
    for text, template in expressions(dashboard, rules):
        metrics, labels = asked(expression(text))
        assert metrics
        for metric in metrics:
            assert metric in scrape, text
        known = set.union(*(scrape[metric] for metric in metrics)) | OF_THE_SCRAPE
        assert labels | labels_shown(template) <= known, text
        shown |= metrics
    assert {name for name in scrape if name.startswith("penstock_")} - shown == set(), "not shown anywhere"


def test_the_check_finds_what_is_missing() -> None:
    metrics, labels = asked(
        expression('sum by (stram) (rate(penstock_evicted_row_total{join=~"$join"}[1m]))')
    )
    assert metrics == {"penstock_evicted_row_total"}
    assert labels == {"stram", "join"}


def test_aggregations_keep_the_labels_of_their_legends(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            tree = expression(target["expr"])
            aggregations = [each for each in parts(tree) if isinstance(each, promql_parser.AggregateExpr)]
            for each in aggregations:
                if each.modifier is not None:
                    assert labels_shown(target["legendFormat"]) <= set(each.modifier.labels)


def test_the_dashboard_is_whole(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["description"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used == variables | {"__rate_interval"}


def test_files_fit_together() -> None:
    """Ports, folders, commands and file names that one file says and another one uses."""
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    services = compose["services"]
    metrics = next(word for word in services["pipeline"]["command"] if word.startswith("--metrics="))
    target = f"pipeline:{metrics.partition('=')[2]}"
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    collector = yaml.safe_load((DEPLOY / "otel-collector.yml").read_text())
    for config in (prometheus, collector["receivers"]["prometheus"]["config"]):
        assert [each["static_configs"] for each in config["scrape_configs"]] == [[{"targets": [target]}]]
    (pipeline,) = collector["service"]["pipelines"].values()
    for kind, names in pipeline.items():
        assert set(names) == set(collector[kind])
    mounted = {
        inside: source
        for service in services.values()
        for source, inside, *_ in (each.split(":") for each in service.get("volumes", ()))
    }
    for source in mounted.values():
        assert source in compose["volumes"] or (DEPLOY / source).exists(), source
    for name in prometheus["rule_files"]:
        assert mounted[f"/etc/prometheus/{name}"] == f"./{name}"
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/penstock.yml").read_text())[
        "providers"
    ]
    assert (DEPLOY / mounted[provider["options"]["path"]] / "penstock.json").exists()
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    for name in ("producer", "pipeline"):
        build, command = services[name]["build"], services[name]["command"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).exists()
        assert (ROOT / command[1]).exists()
        assert command[2].startswith("kafka:")
        assert set(services[name]["depends_on"]) <= set(services)


INSTRUCTIONS = {"FROM", "RUN", "ARG", "WORKDIR", "COPY", "USER", "ENV"}


def test_the_image_copies_what_is_there() -> None:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    assert lines[0].startswith("FROM ")
    for line in lines:
        instruction, *words = shlex.split(line)
        assert instruction in INSTRUCTIONS, line
        if instruction == "COPY":
            assert all((ROOT / word).exists() for word in words[:-1])
    versions = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert [f"ARG SPARK={version}" for version in versions] == [
        line for line in lines if line.startswith("ARG ")
    ]


@pytest.mark.parametrize("program", ["kafka_join", "kafka_producer"])
def test_programs_say_how_they_are_used(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"examples.{program}")
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert "the brokers, as host:port" in capsys.readouterr().out
