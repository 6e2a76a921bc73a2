"""The differences from Apache Kafka that the raw comparison may find: each is in docs/deviations.

What is found and not listed here fails the comparison, and so does what is listed and not found.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bradbury.tests.compatibility.raw.raw_comparison import Difference

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "deviations.md"
OLD = "Produce 0-2, Fetch 0-3, ListOffsets 0, OffsetCommit 1"
INSIDE = "Requests on which Kafka fails inside"
MARKERS = "WriteTxnMarkers 2"
NOBODY = "WriteTxnMarkers with a producer id, or an epoch, below 0"


@dataclass(frozen=True, slots=True)
class Known:
    """All are searched for, so that an empty one stands for anything.

    row: the first column of a row of docs/deviations.
    request, path, kafka, ours: patterns of what a Difference says.
    """

    row: str
    request: str
    path: str = ""
    kafka: str = ""
    ours: str = ""

    def explains(self, found: Difference) -> bool:
        return all(
            re.search(pattern, text)
            for pattern, text in (
                (self.request, found.request),
                (self.path, found.path),
                (self.kafka, repr(found.kafka)),
                (self.ours, repr(found.ours)),
            )
        )


KNOWN = (
    Known("Texts of errors", "", r"error_message$", "None|'a text'", "None|'a text'"),
    Known(OLD, r"^(Produce [0-2]|Fetch [0-3]|ListOffsets 0|OffsetCommit 1):", "^$", "is closed"),
    Known("Records inside a batch", "", r"configs\.bradbury\.validate\.records$", "absent"),
    Known("A damaged closed segment", "", r"configs\.bradbury\.damaged\.segment$", "absent"),
    Known(OLD, "^ApiVersions", r"^api_keys\.[128]\.min_version$"),
    Known("APIs of what is not there", "^ApiVersions", r"^api_keys\.\d+$", "", "absent"),
    Known(
        "APIs of what is not there",
        "^ApiVersions",
        r"features\.(group|share|streams)\.version$",
        "",
        "absent",
    ),
    Known(
        "Features: metadata.version, kraft.version, eligible.leader.replicas.version, transaction.version",
        "^ApiVersions",
        r"features\.(metadata|kraft|eligible\.leader\.replicas)\.version",
    ),
    Known(
        "A timeout of 0 ms or less in CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, "
        "AlterPartitionReassignments",
        r"timeout_ms (-1|0|lowest)$",
    ),
    Known(
        "A timeout of 0 ms or less in CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, "
        "AlterPartitionReassignments",
        "(topics null|topics empty|as it should be)$",
        r"topics$|^config_resources$",
        ours="t-made-",  # so these were made
    ),
    Known(
        "The same topic or partition more than once in a Fetch, ListOffsets or DeleteRecords",
        r"^(Fetch|ListOffsets|DeleteRecords) .*(twice|partition 1|partition_index 1)$",
    ),
    Known("A topic without partitions in a request", r"partition(s|_data) empty$", "", r"\[\]"),
    Known(
        "A topic without partitions in a request",
        "^WriteTxnMarkers .*(topics|partition_indexes) empty$",
    ),
    Known(INSIDE, r"^Fetch .*: session_id (highest|lowest)$"),
    Known(INSIDE, r"^Fetch .*: topics.topic_id zero$"),
    Known(INSIDE, r"^\w+Acls .* 0$", "^$", "is closed", "SECURITY_DISABLED"),
    Known(INSIDE, r"^(CreatePartitions|CreateTopics) ", "error_code$", "UNKNOWN_SERVER", "POLICY"),
    Known(INSIDE, "^IncrementalAlterConfigs .*config_operation", "error_code$", "UNKNOWN_SERVER"),
    Known(INSIDE, r"^DescribeTopicPartitions .*name ''$", "error_code|operations$"),
    Known(
        "Metadata that asks by name and by id, or by neither",
        r"^Metadata .*: topics\.(name null|topic_id unknown)$",
    ),
    Known(
        "Metadata that makes a topic (`auto.create.topics.enable`)",
        r"^Metadata [0-3]: topics.name 'no-such-name'$",
    ),
    Known(MARKERS, "^WriteTxnMarkers 2:", "^$", "is closed"),
    Known(MARKERS, "^ApiVersions", r"^api_keys\.27\.max_version$"),
    Known(NOBODY, "^WriteTxnMarkers .*: markers.(producer_id|producer_epoch) (lowest|-1)$"),
    Known(NOBODY, "^WriteTxnMarkers .*: markers.coordinator_epoch lowest$"),
    Known(
        "`min.insync.replicas` as a default of all brokers",
        "",
        r"min\.insync\.replicas|^results(\[\]|\.4/)\.configs$",
        "min.insync|3",
    ),
    Known(
        "Synonyms of a topic's setting that brokers have in several units",
        "^DescribeConfigs",
        r"(flush\.ms|retention\.ms|segment\.ms|segment\.jitter\.ms)\.synonyms$",
    ),
    Known(
        "DescribeQuorum: listeners and directories of voters",
        "^DescribeQuorum",
        r"listeners\.|replica_directory_id$",
    ),
    Known(
        "AddRaftVoter, RemoveRaftVoter without a directory", "^(Add|Remove)RaftVoter", "error_code"
    ),
    Known("ElectLeaders for all partitions", "^ElectLeaders .*: topic_partitions null$"),
    Known(
        "A consumer's last fetched epoch that the log knows nothing of",
        "^Fetch .*: topics.partitions.last_fetched_epoch ",
    ),
    Known(
        "A follower's fetch that is refused, as it is no replica",
        r"^Fetch .*: (replica_state\.)?replica_id (0|1|highest)$",
        "current_leader|node_endpoints",
    ),
    Known("A JoinGroup that is refused, to a group that is not there", "^ListGroups", "^groups"),
    Known(
        "A JoinGroup with a protocol without a name",
        "^JoinGroup .*: protocols.name ''$",
        "protocol_name",
    ),
    Known(
        "ListConfigResources: groups whose settings were all taken back",
        "^ListConfigResources .*: groups with settings again$",
    ),
    Known(
        "Settings that a broker does not act on (`remote.*`, `num.io.threads`, ...)",
        "^IncrementalAlterConfigs .*: background.threads=5 ",
    ),
)


def rows() -> set[str]:
    """The first columns of docs/deviations."""
    lines = DOCUMENT.read_text().splitlines()
    return {line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")}
