"""The register of planted faults: what each one is called, and how it is planted and undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

Patch = Callable[..., Any]


@dataclass(frozen=True)
class PlantedFault:
    """`seen_by`: settings of a Swarm without which it cannot show, or hardly."""

    name: str
    says: str
    plant: Callable[[Patch], None]
    seen_by: Mapping[str, Any] = field(default_factory=dict)


FAULTS: dict[str, PlantedFault] = {}


def fault(
    among: dict[str, PlantedFault] = FAULTS, /, **seen_by: Any
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", " ")
        among[name] = PlantedFault(name, plant.__doc__ or "", plant, seen_by)
        return plant

    return register


@contextmanager
def planted(name: str, among: Mapping[str, PlantedFault] = FAULTS) -> Iterator[None]:
    patches: list[Any] = []

    def patch(owner: object, attribute: str, value: object) -> None:
        one = mock.patch.object(owner, attribute, value)
        one.start()
        patches.append(one)

    try:
        among[name].plant(patch)
        yield
    finally:
        for one in reversed(patches):
            one.stop()
