"""The functions that delays.yaml and scores.yaml name."""


def with_models(late, planes):
    """Step of Spark: two DataFrames in, one out."""
    return late.join(planes.select("tail", "model"), "tail", "left")


def scores(batch):
    """Step of Ray Data: a batch in, a batch out."""
    delay = batch["value"].astype(float)
    return {"key": batch["key"].astype(str), "score": delay / (1.0 + abs(delay))}
