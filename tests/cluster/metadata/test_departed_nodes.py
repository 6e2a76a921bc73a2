"""A node that was fenced a moment ago is listed, and no longer than that."""

from dataclasses import replace

from bradbury.cluster.metadata.departed_nodes import LISTED_MS, DepartedNodes
from bradbury.cluster.metadata.metadata_image import MetadataImage, NodeImage


def image(**fenced: bool) -> MetadataImage:
    """n1=True: node 1 is fenced."""
    nodes = {
        int(name[1:]): replace(
            NodeImage(int(name[1:]), "d", "life", ("broker",), "h", 1, None, 5), fenced=is_fenced
        )
        for name, is_fenced in fenced.items()
    }
    return MetadataImage(nodes=nodes)


def ids(departed: DepartedNodes, now: MetadataImage, now_ms: int) -> list[int]:
    return [node.node_id for node in departed.listed(now, now_ms=now_ms)]


def test_a_node_is_listed_for_a_moment_after_it_was_fenced() -> None:
    departed, before, after = DepartedNodes(), image(n1=False, n2=False), image(n1=True, n2=False)
    assert ids(departed, before, 0) == [1, 2]
    departed.on_metadata(before, after, now_ms=50)
    assert ids(departed, after, 50) == [1, 2]
    assert ids(departed, after, 50 + LISTED_MS - 1) == [1, 2]
    assert ids(departed, after, 50 + LISTED_MS) == [2]


def test_later_metadata_does_not_make_it_longer() -> None:
    departed, gone = DepartedNodes(), image(n1=True, n2=False)
    departed.on_metadata(image(n1=False, n2=False), gone, now_ms=0)
    departed.on_metadata(gone, image(n1=True, n2=False, n3=False), now_ms=LISTED_MS - 1)
    assert ids(departed, gone, LISTED_MS) == [2]


def test_one_that_comes_back_and_goes_again_is_listed_again() -> None:
    departed, here, gone = DepartedNodes(), image(n1=False), image(n1=True)
    departed.on_metadata(here, gone, now_ms=0)
    departed.on_metadata(gone, here, now_ms=10)
    assert ids(departed, here, LISTED_MS * 2) == [1]
    departed.on_metadata(here, gone, now_ms=LISTED_MS * 2)
    assert ids(departed, gone, LISTED_MS * 3 - 1) == [1]


def test_one_that_was_never_seen_in_service_or_is_unregistered_is_not_listed() -> None:
    departed = DepartedNodes()
    departed.on_metadata(MetadataImage(), image(n1=True, n2=False), now_ms=0)
    assert ids(departed, image(n1=True, n2=False), 1) == [2]
    departed.on_metadata(image(n1=True, n2=False), image(n1=True, n2=True), now_ms=1)
    assert ids(departed, image(n1=True), 2) == []
