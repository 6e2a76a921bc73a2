"""Which small changes are made to a module, and what is left alone?"""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from bradbury.tests.mutation.judges import (
    IN_SEEDS,
    JUDGES,
    OWN,
    RECOVERED,
    judges_of,
    tree_for,
)
from bradbury.tests.mutation.mutations import Mutation, mutations_of
from bradbury.tests.mutation.run import CORE, all_mutations, patch_of, read_explained, sample
from bradbury.tests.mutation.seeds import swarm_of
from bradbury.tests.mutation.shadow import ROOT


def made(body: str, kind: str) -> set[str]:
    """The mutants of a method with this body, each as its body."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    before = "class C:\n    def f(self, a, b):\n"
    source = f"{before}{lines}\n"
    found = set()
    for mutation in mutations_of("cluster/c.py", source):
        mutant = mutation.apply(source)
        compile(mutant, "c", "exec")
        if mutation.kind == kind:
            found.add("\n".join(line[8:] for line in mutant[len(before) :].splitlines()))
    return found


@pytest.mark.parametrize(
    ("body", "kind", "mutants"),
    [
        ("return a < b", "comparison", {"return a <= b"}),
        ("return (a) >= (b)", "comparison", {"return (a) > (b)"}),
        ("return a is not b", "comparison", {"return a is b"}),
        ("return a < b <= 3", "comparison", {"return a <= b <= 3", "return a < b < 3"}),
        ("return not a", "condition", {"return (a)"}),
        ("return a and b", "condition", {"return ((a))", "return ((b))"}),
        (
            "if a:\n    return b",
            "condition",
            {"if False:\n    return b", "if True:\n    return b"},
        ),
        ("return min(a, b)", "bound", {"return (a)", "return (b)"}),
        ("return min(*a, b)", "bound", set()),
        ("return max(a, key=b)", "bound", set()),
        ("return a + 1", "number", {"return a - 1", "return a + 2"}),
        ("return a + 'x'", "number", set()),
        ("self.x = a", "dropped", {"pass"}),
        ("x = a\nreturn x", "dropped", set()),
        ("a.append(b)", "dropped", {"pass"}),
        ("logger.info('x')", "dropped", set()),
        ("raise a", "dropped", {"pass"}),
        ("assert a < b", "comparison", set()),
        (
            "self.append(a)\nself.answer(b)",
            "swapped",
            {"self.answer(b)\nself.append(a)"},
        ),
        ("x = a\nself.answer(b)", "swapped", set()),
        ("self.x = a\nself.y = None", "swapped", set()),
        ("self.x = self.y\nself.y = None", "swapped", {"self.y = None\nself.x = self.y"}),
    ],
)
def test_each_kind_of_change(body: str, kind: str, mutants: set[str]) -> None:
    assert made(body, kind) == mutants


def test_texts_with_letters_of_more_than_one_byte_do_not_move_a_change() -> None:
    assert made("self.x = 'ä'; self.y = a < b", "comparison") == {"self.x = 'ä'; self.y = a <= b"}


def test_an_id_stays_when_other_functions_change_and_goes_when_its_own_does() -> None:
    def ids(source: str) -> set[str]:
        return {each.mutation_id for each in mutations_of("cluster/c.py", source)}

    one = "def f(a, b):\n    return a < b\n"
    assert ids(one) < ids(f"def g(a):\n    return a + 1\n\n\n{one}")
    assert not ids(one) & ids(one.replace("a < b", "a < b + 1"))


@pytest.mark.long  # make mutants compiles those it tries
def test_every_mutant_of_the_core_is_a_program_and_another_one() -> None:
    mutations = all_mutations()
    assert len(mutations) > 5_000
    sources: dict[str, str] = {}
    for mutation in mutations[::7]:
        source = sources.setdefault(mutation.path, (ROOT / mutation.path).read_text())
        mutant = mutation.apply(source)
        assert mutant != source
        compile(mutant, mutation.path, "exec")
        assert patch_of(mutation, source).startswith("@@")
    assert len({each.mutation_id for each in mutations}) == len(mutations)


def test_a_sample_is_the_same_each_time_and_half_of_it_are_steps() -> None:
    def mutation(number: int, path: str) -> Mutation:
        return Mutation(path, number, "f", "dropped", 0, 1, "", "x", f"{path}{number}")

    steps = [mutation(number, "replication/partition/replica.py") for number in range(50)]
    rules = [mutation(number, "cluster/partition/leader_state.py") for number in range(500)]
    chosen = sample(rules + steps, 40, 1)
    assert chosen == sample(steps + rules, 40, 1)
    assert chosen != sample(steps + rules, 40, 2)
    assert sum(each in steps for each in chosen) == 20
    assert len(set(chosen)) == 40
    assert len(sample(steps, 40, 1)) == 40


def test_the_tests_that_judge_are_there() -> None:
    for pattern in itertools.chain.from_iterable(OWN.values()):
        assert list(ROOT.glob(pattern)), pattern
    for pattern in RECOVERED:
        assert list(ROOT.glob(pattern)), pattern
    modules = {f"{pattern.partition('/')[0]}/x.py" for pattern in CORE}
    for module in modules | {pattern.replace("*", "x.py") for pattern in RECOVERED}:
        judges = judges_of(module, 1)
        assert (module in modules) is (judges[0].name == "simulation")
        for judge in judges:
            named = [part for part in judge.command if part.startswith("tests/")]
            assert all((ROOT / each.partition("::")[0]).exists() for each in named)
            assert named or judge.name == "simulation"
            assert judge.name in JUDGES


@pytest.mark.parametrize(
    "folder", sorted(name for name, asked in IN_SEEDS.items() if asked != ("--disks",))
)
def test_the_seeds_of_coordinators_have_what_these_coordinate(folder: str) -> None:
    asked = IN_SEEDS[folder]
    swarms = [
        swarm_of(
            seed,
            has_groups="--groups" in asked,
            has_transactions="--transactions" in asked,
        )
        for seed in range(20)
    ]
    for swarm in swarms:
        assert bool(swarm.groups) is not bool(swarm.transactional_ids)
    assert any(swarm.groups for swarm in swarms) is ("--groups" in asked)
    assert any(swarm.transactional_ids for swarm in swarms) is ("--transactions" in asked)


def test_what_writes_logs_meets_seeds_of_disks_and_known_histories() -> None:
    for path in ("replication/manager/replica_manager.py", "storage/log/log_damage.py"):
        simulation, histories, *_ = judges_of(path, 40)
        assert "--disks" in simulation.command
        assert histories.name == "histories"


def test_what_is_explained_is_still_there() -> None:
    assert set(read_explained()) <= {each.mutation_id for each in all_mutations()}


@pytest.mark.slow
def test_a_process_sees_the_mutant_and_the_checkout_stays_what_it_is(tmp_path: Path) -> None:
    def seen(code: str) -> str:
        command = [
            sys.executable,
            "-c",
            f"from bradbury.groups.classic import group_state as it; {code}",
        ]
        return subprocess.run(
            command, env=tree.environment(), capture_output=True, text=True, check=True
        ).stdout.strip()

    tree = tree_for(tmp_path / "tree")
    source = (ROOT / "groups/classic/group_state.py").read_text()
    tree.put("groups/classic/group_state.py", source + "A = 1\n")
    assert seen("print(it.A)") == "1"
    tree.put(
        "groups/classic/group_state.py", source + "A = 2\n"
    )  # of the same size, at the same time
    assert seen("print(it.A)") == "2"
    tree.clear()
    assert seen("print(hasattr(it, 'A'))") == "False"
    assert (ROOT / "groups/classic/group_state.py").read_text() == source
    tree.remove()
    assert not tree.folder.exists()
