"""What Python's garbage collector looks at in the process of a node, and how often."""

import subprocess
import sys
from textwrap import dedent


def run(script: str) -> None:
    """In a process of its own: the collector is the process's, and other tests have nodes."""
    head = """
        import gc
        from bradbury.actors.loop import heap as heaps

        class Clock:
            now, step = 0.0, 0.0
            def __call__(self):
                Clock.now += self.step
                return Clock.now

        SLOW, FAST = 2 * heaps.SLOW_S, heaps.SLOW_S / 2
        heap = heaps.Heap(Clock())
        heap.own_process()

        def full_collection(seconds):
            Clock.step = seconds
            gc.collect()

        def more():
            return [[] for _ in range(1000)]
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(head) + dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_what_a_node_has_when_it_begins_to_serve_is_not_looked_at_again() -> None:
    run("""
        there = more()
        heap.open()
        assert gc.get_freeze_count() > 1000
        heap.close()
        assert gc.get_freeze_count() == 0
        assert not gc.callbacks
    """)


def test_only_the_survivors_of_a_slow_collection_join_it() -> None:
    run("""
        heap.open()
        before = gc.get_freeze_count()
        there = more()
        full_collection(FAST)
        assert gc.get_freeze_count() < before + 100
        full_collection(SLOW)
        assert gc.get_freeze_count() > before + 900
    """)


def test_dead_cycles_that_were_frozen_go_when_all_are_thawed() -> None:
    run("""
        import weakref
        class Connection: pass
        connection = Connection()
        connection.itself = connection
        heap.open()
        gone = weakref.ref(connection)
        del connection
        full_collection(SLOW)
        assert gone() is not None
        Clock.now += heaps.THAW_S
        full_collection(SLOW)
        assert gone() is not None and gc.get_freeze_count() == 0
        full_collection(SLOW)
        assert gone() is None and gc.get_freeze_count() > 0
    """)


def test_the_last_node_of_a_process_gives_the_collector_back() -> None:
    run("""
        heap.open()
        heap.open()
        heap.close()
        assert gc.get_freeze_count() > 0 and gc.callbacks
        heap.close()
        assert gc.get_freeze_count() == 0 and not gc.callbacks
    """)


def test_in_somebodys_process_full_collections_are_rarer_and_find_everything() -> None:
    run("""
        gc.set_threshold(700, 10, 10)
        heap = heaps.Heap(Clock())
        heap.open()
        heap.open()
        assert gc.get_threshold() == (700, 10, heaps.OLD)
        full_collection(SLOW)
        assert gc.get_freeze_count() == 0 and not gc.callbacks
        heap.close()
        assert gc.get_threshold() == (700, 10, heaps.OLD)
        heap.close()
        assert gc.get_threshold() == (700, 10, 10)
        heap.open()
        gc.set_threshold(0)
        heap.close()
        assert gc.get_threshold()[0] == 0
    """)
