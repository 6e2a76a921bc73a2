"""How far behind are groups, what is asked for that, and what if somebody does not answer?"""

from bradbury.groups.offsets.lag_query import (
    EARLIEST,
    LATEST,
    PARTITIONS_AT_ONCE,
    GroupPosition,
    LagQuery,
    written_at,
)
from bradbury.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from bradbury.protocol.records.record_batch import HEADER
from bradbury.protocol.records.records import encode_records

NOW_MS = 100_000


def batch(*times: int, base_offset: int = 0) -> bytes:
    made = bytearray(encode_records([(time, None, b"x", ()) for time in times]))
    made[:8] = base_offset.to_bytes(8, "big")
    return bytes(made)


def offsets(request: ListOffsetsRequest, found: dict[tuple[str, int], int]) -> ListOffsetsResponse:
    """A partition that is not in `found` answers with an error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        offset=found.get((topic.name, one.partition_index), -1),
                        error_code=0 if (topic.name, one.partition_index) in found else 6,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def look_at(
    positions: list[GroupPosition],
    ends: dict[tuple[str, int], int],
    starts: dict[tuple[str, int], int],
    records: dict[tuple[str, int, int], bytes],
) -> LagQuery:
    look = LagQuery(positions, lambda key: 1)
    for _, request in look.ends():
        look.on_ends(offsets(request, ends))
    for _, request in look.starts():
        look.on_starts(offsets(request, starts))
    for _, asked in look.times():
        look.on_times(asked, fetched(asked, records))
    return look


def fetched(request: FetchRequest, records: dict[tuple[str, int, int], bytes]) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=one.partition,
                        records=records.get((topic.topic, one.partition, one.fetch_offset), b""),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_records_up_to_the_high_watermark_and_the_age_of_the_first() -> None:
    look = look_at(
        [GroupPosition("g", "t", 0, 3), GroupPosition("g", "t", 1, 9)],
        ends={("t", 0): 5, ("t", 1): 9},
        starts={("t", 0): 0},
        records={("t", 0, 3): batch(40_000, 50_000, base_offset=3)},
    )
    assert look.lags(NOW_MS) == [("g", "t", 0, 2, 60.0), ("g", "t", 1, 0, 0.0)]


def test_deleted_records_count_and_the_first_that_is_left_says_the_age() -> None:
    look = look_at(
        [GroupPosition("g", "t", 0, 3)],
        ends={("t", 0): 50},
        starts={("t", 0): 40},
        records={("t", 0, 40): batch(90_000, base_offset=40)},
    )
    assert look.lags(NOW_MS) == [("g", "t", 0, 47, 10.0)]


def test_groups_at_different_places_of_a_partition_each_have_their_own_age() -> None:
    look = look_at(
        [GroupPosition("slow", "t", 0, 0), GroupPosition("quick", "t", 0, 1)],
        ends={("t", 0): 2},
        starts={("t", 0): 0},
        records={("t", 0, 0): batch(10_000), ("t", 0, 1): batch(99_000, base_offset=1)},
    )
    assert look.lags(NOW_MS) == [("slow", "t", 0, 2, 90.0), ("quick", "t", 0, 1, 1.0)]


def test_a_group_that_is_ahead_of_a_truncated_log_is_not_behind() -> None:
    look = look_at([GroupPosition("g", "t", 0, 7)], {("t", 0): 5}, {}, {})
    assert look.lags(NOW_MS) == [("g", "t", 0, 0, 0.0)]


def test_what_is_not_answered_is_left_out_and_a_time_that_is_not_known_is_none() -> None:
    positions = [GroupPosition("g", "t", 0, 0), GroupPosition("g", "gone", 0, 0)]
    look = look_at(positions, {("t", 0): 5}, {("t", 0): 0}, records={})
    assert look.lags(NOW_MS) == [("g", "t", 0, 5, None)]


def test_partitions_without_a_leader_are_asked_of_nobody() -> None:
    look = LagQuery([GroupPosition("g", "t", 0, 0)], lambda key: None)
    assert list(look.ends()) == list(look.starts()) == list(look.times()) == []


def test_questions_go_to_each_leader_in_pieces() -> None:
    count = 2 * PARTITIONS_AT_ONCE
    look = LagQuery((GroupPosition("g", "t", n, 0) for n in range(count)), lambda key: key[1] % 2)
    asked = list(look.ends())
    assert [node for node, _ in asked] == [0, 1]
    more = LagQuery((GroupPosition("g", "t", n, 0) for n in range(count + 1)), lambda key: 1)
    sizes = [len(request.topics[0].partitions) for _, request in more.ends()]
    assert sizes == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 1]
    assert {one.timestamp for _, each in asked for one in each.topics[0].partitions} == {LATEST}
    for _, request in look.ends():
        look.on_ends(offsets(request, {("t", n): 1 for n in range(5)}))
    starts = [request.topics[0].partitions for _, request in look.starts()]
    assert sum(map(len, starts)) == 5
    assert {one.timestamp for each in starts for one in each} == {EARLIEST}


def test_the_time_of_a_record_inside_a_batch_lies_between_its_first_and_last() -> None:
    records = batch(1_000, 1_500, 3_000, base_offset=10)
    assert [written_at(records, offset) for offset in (9, 10, 11, 12)] == [
        1_000,
        1_000,
        2_000,
        3_000,
    ]


def test_the_header_is_enough_and_less_says_nothing() -> None:
    records = batch(1_000, 3_000)
    assert written_at(records[: HEADER.size], 0) == 1_000
    assert written_at(records[: HEADER.size - 1], 0) is None
    older = bytearray(records)
    older[16] = 1  # the magic of a message set
    assert written_at(older, 0) is None
