"""Additions of `bradbury up --secure` to a cluster: settings, certificates, a user, a client file.

    $XDG_STATE_HOME/bradbury/secure-<namespace>/     on the machine where it is run, 0700
        ca.key, ca.pem         the cluster's authority
        client.properties      for clients: the admin's name and password, and whom to trust
    <data directory>/tls/                            on every node, 0700
        node.pem, ca.pem       the node's key and certificate, and whom it trusts
        client.properties      the same, for tasks and actors that run there

Listener CLIENT requires a password (SASL_SSL, SCRAM-SHA-512); listener INTERNAL, for connections
between nodes, requires a certificate of the authority. A repeated run adds what is missing.

NodeCertifier does so while the cluster is up: it makes certificates for nodes that join, and
replaces those that expire soon. The controller's actor calls it; it runs in a Ray task on the
machine with the authority's key.
"""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray

from ...actors.ray.placement import PIN, ActorPlan
from ...actors.ray.ray_nodes import living_nodes
from ...actors.ray.secure_folder import AUTHORITY_FILE, CLIENT_FILE, FOLDER, NODE_FILE
from ...cluster.control.access.scram_control import AlterUserScramCredentials, ScramUpsertion
from ...discovery.ray_errors import UpError
from ...discovery.state_file import secure_directory
from ...protocol.security.scram import MECHANISM_TYPES, ScramCredential
from .certificate_authority import KEY_FILE, NODE_NAME, CertificateAuthority
from .node_certificate import install, request_if_needed
from .private_file import make_private_folder, write_private

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 8192
PASSWORD_BYTES: Final = 24
TASK_SECONDS: Final = 120.0


class SecureCluster:
    """Secrets and settings of a secured cluster.

    folder: the folder of its keys; by default that of this user.

    Raises UpError: the folder cannot be used.
    """

    def __init__(self, namespace: str, folder: Path | None = None) -> None:
        self._folder = folder or secure_directory(namespace)
        self._now = dt.datetime.fromtimestamp(time.time(), dt.UTC)
        try:
            make_private_folder(self._folder)
            self._authority = CertificateAuthority.open(
                self._folder, f"bradbury cluster {namespace}", now=self._now
            )
            self._password = self._known_password() or secrets.token_urlsafe(PASSWORD_BYTES)
            write_private(self._folder / AUTHORITY_FILE, self._authority.certificate)
            write_private(self.client_file, self._client_settings(str(self._folder)))
        except (OSError, ValueError) as error:
            raise UpError(
                f"the keys of the cluster in {self._folder} cannot be used ({error}); fix that, "
                "or move the folder away: then all nodes and clients get new ones"
            ) from None

    @property
    def client_file(self) -> Path:
        return self._folder / CLIENT_FILE

    def config(self, data_dir: str, given: Mapping[str, str]) -> dict[str, str]:
        """Settings of all nodes: those of a secured cluster, overridden by `given`."""
        folder = f"{data_dir}/{FOLDER}"
        return {
            "listeners": "CLIENT://:0,INTERNAL://:0",
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{folder}/{NODE_FILE}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/{AUTHORITY_FILE}",
            "listener.name.internal.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:CN={NODE_NAME}",
            # The metrics endpoint has no authentication, so it is off unless asked for.
            "bradbury.metrics.port": "-1",
            **given,
        }

    def certify(
        self,
        plans: Sequence[ActorPlan],
        data_dir: str,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Give every node that the brokers of `plans` run on a valid certificate.

        data_dir: data directory of the cluster, on each node.

        Raises:
            UpError: a node does not answer, or cannot store its key.
        """
        on_progress("waiting for the nodes' keys")
        authority = self._authority.certificate
        # Two nodes of one machine share the folder, and so its certificate.
        machines = {plan.config.ray_address: plan for plan in plans}
        requested = {
            address: _on_node(plan, request_if_needed).remote(
                data_dir,
                _hosts(plan),
                authority,
                self._now,
                sorted(
                    path
                    for each in plans
                    if each.config.ray_address == address
                    for path in each.config.more_data_dirs
                ),
            )
            for address, plan in machines.items()
        }
        installed = {}
        for address, plan in machines.items():
            request = _answer(requested[address], address, data_dir)
            certificate = None
            if request is not None:
                certificate = self._authority.sign(request, _hosts(plan), now=self._now)
            settings = self._client_settings(f"{data_dir}/{FOLDER}")
            task = _on_node(plan, install)
            installed[address] = task.remote(data_dir, certificate, authority, settings)
        for address, done in installed.items():
            _answer(done, address, data_dir)

    def certifier(self, namespace: str, data_dir: str) -> NodeCertifier:
        """Make a certifier for nodes that join later; `data_dir`: see `certify`."""
        address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return NodeCertifier(namespace, str(self._folder), address, data_dir)

    def admin_user(self) -> AlterUserScramCredentials:
        """Change that creates the admin user with the password of the client file."""
        salt = secrets.token_bytes(32)
        number = next(each for each, name in MECHANISM_TYPES.items() if name == MECHANISM)
        credential = ScramCredential.of_password(
            MECHANISM, self._password, salt=salt, iterations=ITERATIONS
        )
        admin = ScramUpsertion(name=ADMIN, mechanism=number, credential=credential)
        return AlterUserScramCredentials(deletions=(), upsertions=(admin,))

    # --- client file -----------------------------------------------------------------------------

    def _client_settings(self, folder: str) -> str:
        return (
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={folder}/{AUTHORITY_FILE}\n"
            f"sasl.mechanism={MECHANISM}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{ADMIN}" password="{self._password}";\n'
        )

    def _known_password(self) -> str | None:
        try:
            text = self.client_file.read_text()
        except FileNotFoundError:
            return None
        _, _, rest = text.partition('password="')
        password, found, _ = rest.partition('"')
        return password if found and password else None


@dataclass(frozen=True, slots=True)
class NodeCertifier:
    """Certifies nodes from any node of the Ray cluster; the authority's key is not moved.

    address: the Ray node whose machine has that key, in `folder`.
    """

    namespace: str
    folder: str
    address: str
    data_dir: str

    def __call__(self, plans: Sequence[ActorPlan]) -> None:
        """Certify; see SecureCluster.certify. Raises UpError, also if the key is out of reach."""
        if all(node.address != self.address for node in living_nodes().values()):
            raise UpError(
                f"the machine {self.address}, which has the key of the cluster's certificate "
                f"authority ({self.folder}), is not in the Ray cluster; `bradbury up --secure` "
                "there gives nodes their certificates"
            )
        task: Any = ray.remote(_certify_here).options(
            num_cpus=0,
            max_retries=0,
            enable_task_events=False,
            resources={f"node:{self.address}": PIN},
        )
        running = task.remote(self.namespace, self.folder, self.data_dir, tuple(plans))
        try:
            ray.get(running, timeout=2 * TASK_SECONDS)
        except Exception as error:  # noqa: BLE001 -- any failure of the task is reported
            raise UpError(f"{getattr(error, 'cause', None) or error}") from None


def _certify_here(namespace: str, folder: str, data_dir: str, plans: tuple[ActorPlan, ...]) -> None:
    """Certify in a Ray task, on the machine of the authority. Raises UpError."""
    if not (Path(folder) / KEY_FILE).exists():  # a new authority must not be made here
        raise UpError(
            f"{folder} has no key of the cluster's certificate authority; `bradbury up --secure` "
            "on the machine that has it gives nodes their certificates"
        )
    SecureCluster(namespace, Path(folder)).certify(plans, data_dir)


def _hosts(plan: ActorPlan) -> list[str]:
    """Names and addresses at which clients and other nodes reach the node. Raises UpError."""
    config = plan.config
    advertised = {each.host for each in config.server.security.advertised()}
    if any("${" in host for host in advertised):
        raise UpError(
            "advertised.listeners: with --secure hosts go into the nodes' certificates, so they "
            "must not be references; a port may be one that each node looks up"
        )
    hosts = {config.advertised_host or config.host, config.host, config.ray_address, *advertised}
    hosts -= {"", "0.0.0.0", "::"}  # noqa: S104 -- not bound: removed, as no host has them
    return sorted(hosts | {"localhost", "127.0.0.1"})


def _on_node(plan: ActorPlan, function: Callable[..., Any]) -> Any:
    """Make a Ray task that runs on the node of the plan's broker."""
    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0, "enable_task_events": False}
    if plan.label_selector:
        options["label_selector"] = dict(plan.label_selector)
    if plan.resources:
        options["resources"] = dict(plan.resources)
    return ray.remote(function).options(**options)


def _answer(task: Any, address: str, data_dir: str) -> Any:
    try:
        return ray.get(task, timeout=TASK_SECONDS)
    except Exception as error:  # noqa: BLE001 -- any failure is reported with its node
        cause = getattr(error, "cause", None) or error
        raise UpError(
            f"the node at {address} cannot store its key in {data_dir}/{FOLDER}: {cause}"
        ) from None
