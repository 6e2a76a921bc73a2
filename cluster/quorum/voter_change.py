"""Rules for adding and removing voters of the metadata, one at a time.

A new voter must have the committed entries before it counts, or the next commit would wait for it.
A voter is removed only if a majority of the others is caught up, or nothing could be committed
afterwards. metadata_quorum ensures that majorities before and after a change share a voter.

Source: raft/.../internals/AddVoterHandler.java, RemoveVoterHandler.java in apache/kafka (KIP-853).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.errors import DuplicateVoter, InvalidRequest, RequestTimedOut, VoterNotFound
from ..metadata.metadata_image import MetadataImage, NodeImage


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChange:
    """A request to the controller to add or remove a voter.

    node_id: of the broker that has the directory; for a removal -1 if no broker has it any more.
    directory_id: of its metadata; "": the broker's present one.
    is_repeated: an earlier attempt was sent and its answer lost; it may have been carried out.
    """

    is_addition: bool
    node_id: int = -1
    directory_id: str = ""
    is_repeated: bool = False

    def directory(self, image: MetadataImage) -> str:
        """Directory that the request is about; "" if there is nothing left to do.

        Raises:
            InvalidRequest: no broker in service has this directory, or no voter would stay.
            DuplicateVoter: it votes already.
            VoterNotFound: it does not vote.
        """
        if self.is_addition:
            return self._directory_to_add(image)
        return self._directory_to_remove(image)

    def _directory_to_add(self, image: MetadataImage) -> str:
        node = self._node(image)
        if node is None or not node.metadata_directory_id or node.fenced:
            raise InvalidRequest(f"there is no broker {self.node_id} in service")
        found = node.metadata_directory_id
        if self.directory_id not in ("", found):
            raise InvalidRequest(f"broker {self.node_id} now has metadata directory {found}")
        if found in image.voters:
            if self.is_repeated:
                return ""
            raise DuplicateVoter(f"broker {self.node_id} is already a voter")
        return found

    def _directory_to_remove(self, image: MetadataImage) -> str:
        node = self._node(image)
        found = self.directory_id or (node.metadata_directory_id if node is not None else "")
        if node is not None and self.directory_id not in ("", node.metadata_directory_id):
            # Its disk was replaced: the former directory belongs to no broker.
            node = None
        owner = next(
            (each for each in image.nodes.values() if each.metadata_directory_id == found), None
        )
        if found not in image.voters or (owner is not None and owner is not node):
            if self.is_repeated and found:
                return ""
            raise VoterNotFound(f"broker {self.node_id}, directory {found or '?'}, is not a voter")
        if len(image.voters) == 1:
            raise InvalidRequest(f"{found} is the only voter: add another one first")
        return found

    def _node(self, image: MetadataImage) -> NodeImage | None:
        return image.nodes.get(self.node_id)

    def voters(self, image: MetadataImage, has: Mapping[str, int], target: int) -> tuple[str, ...]:
        """Voters after the change; unchanged if there is nothing left to do.

        Args:
            image: the newest.
            has: the log end offset that each voter, and the new one, is known to have.
            target: the end of an entry that was committed after the request arrived. A voter that
                has it was caught up a moment ago. While the metadata changes, the newest
                committed entry may be on a bare majority only.

        Raises what `directory` raises, and:
            RequestTimedOut: the new voter has not caught up yet.
            InvalidRequest: too few of the voters that stay are caught up.
        """
        name = self.directory(image)
        if not name:
            return image.voters
        if self.is_addition:
            if has.get(name, 0) < target:
                raise RequestTimedOut(f"broker {self.node_id} has not caught up yet; try again")
            return (*image.voters, name)
        rest = tuple(voter for voter in image.voters if voter != name)
        whole = sum(has.get(voter, 0) >= target for voter in rest)
        if whole <= len(rest) // 2:
            raise InvalidRequest(
                f"only {whole} of the {len(rest)} voters that stay are caught up; wait for them, "
                "or add another one first"
            )
        return rest


def successor(
    image: MetadataImage, machine: str, leaving: frozenset[str] = frozenset()
) -> tuple[int, int] | None:
    """Replacement for the voter on a machine that is removed for good: (new node, voter) by node
    id.

    leaving: machines that are removed, too. None: its broker does not vote, or no broker in service
    could take its place.
    """
    brokers = image.live_nodes("broker")
    voters = {each.machine_name: each.node_id for each in brokers if _votes(image, each)}
    newcomers = [
        each.node_id
        for each in brokers
        if each.metadata_directory_id
        and not _votes(image, each)
        and each.machine_name not in {machine, *leaving, *image.draining}
    ]
    if machine not in voters or not newcomers:
        return None
    return newcomers[0], voters[machine]


def _votes(image: MetadataImage, broker: NodeImage) -> bool:
    return broker.metadata_directory_id in image.voters
