"""Cost of TLS and SASL in Bradbury and in Apache Kafka 4.1.1, compared. Run by hand:

    python -m bradbury.benchmarks.security [--rounds 5] [--only TLS] [--json figures.json]
        [--records 400000]      of 1 KB, of each round
        [--seconds 5]           of log-ins, of each round
        [--processes 3]         processes that log in again and again
                [--touch-memory 2]      GB, written to and freed before each measurement: rounds.py
                [--attack 10]           seconds of measurement under attack in each round

Both are started and ended here and take turns as in versus_kafka.py, whose engine this is: a ratio
is the median of the ratios of the rounds. Records go over a listener with TLS, by librdkafka; a
log-in is a new connection, a whole TLS handshake, SCRAM-SHA-512, and the connection's end. Keys are
of the same kind (P-256), and the cipher negotiated with OpenSSL's client is printed. The attack of
hostile_clients.py is on the two ports with TLS; the client whose latency is measured produces 1,000
records a second on the port without. The decision about one request with 10,000 rules is
measured by access.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bradbury.cli.terminal.output import table_console
from bradbury.tests.support.certificates import CertificateAuthority

from .support.contestants import Arena, Contestant
from .support.hostile_clients import attacked
from .support.librdkafka import drain_library
from .support.measures import BIG_BATCHES, Goal, Throughput, consume, produce, produce_latency
from .support.rounds import Figures, Measure, compare, json_of, show
from .support.secured_contestants import (
    LOGIN,
    TLS,
    Clients,
    SecuredBradbury,
    SecuredKafka,
    cipher_of,
    tls_settings,
)

SIZE = 1_000
PRODUCE, CONSUME, LOG_IN = "TLS produce 1 KB", "TLS consume 1 KB", "SASL log-in"
QUIET, ATTACKED = "produce, p99 ms", "produce under attack, p99 ms"
GOALS = {
    f"{PRODUCE}, MB/s": Goal(">=", 1.2),
    f"{CONSUME}, MB/s": Goal(">=", 1.0),
    f"{PRODUCE}, broker CPU s/GB": Goal("<=", 0.7),
    f"{CONSUME}, broker CPU s/GB": Goal("<=", 0.7),
    f"{LOG_IN}, a second": Goal(">=", 1.0),
}


def measures(
    authority: CertificateAuthority,
    clients: Clients,
    *,
    records: int,
    seconds: float,
    attack_seconds: float,
) -> dict[str, Measure]:
    """Measures by name; each is called with a new topic."""

    def note(figures: Figures, name: str, found: Throughput) -> dict[str, float]:
        figures.client_cpu.setdefault(name, []).append(found.client_cpu)
        return {
            f"{name}, MB/s": found.megabytes_per_second,
            f"{name}, broker CPU s/GB": found.broker_cpu,
        }

    def in_and_out(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        secured = tls_settings(broker, authority)
        sent = produce(broker, topic, SIZE, records, BIG_BATCHES | secured)
        read = consume(broker, topic, SIZE, records, secured)
        return {**note(figures, PRODUCE, sent), **note(figures, CONSUME, read)}

    def log_in(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        found = clients.log_in(broker, seconds)
        figures.client_cpu.setdefault(LOG_IN, []).append(found.client_cpu)
        return {f"{LOG_IN}, a second": found.rate, f"{LOG_IN}, broker CPU ms": found.broker_cpu}

    def attack(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        quiet = produce_latency(broker, topic, attack_seconds).p99
        with attacked(broker.listeners[TLS], broker.listeners[LOGIN]):
            beset = produce_latency(broker, topic, attack_seconds).p99
        return {QUIET: quiet, ATTACKED: beset, f"{ATTACKED}, times as long": beset / quiet}

    return {"TLS 1 KB": in_and_out, LOG_IN: log_in, "attack": attack}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=400_000, help="records of each round")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of log-ins in each round"
    )
    parser.add_argument("--processes", type=int, default=3, help="number of processes that log in")
    parser.add_argument(
        "--attack", type=float, default=10.0, help="seconds of attack in each round"
    )
    parser.add_argument(
        "--touch-memory", type=float, default=0.0, help="GB written before each measurement"
    )
    parser.add_argument("--only", default="", help="run only measures with this word")
    parser.add_argument("--dir", help="directory for the data of both")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    options = parser.parse_args()
    console, figures = table_console(), Figures()
    drain_library()
    with Arena(options.dir) as folder:
        authority = CertificateAuthority(folder)
        with (
            SecuredBradbury(folder, authority) as ours,
            SecuredKafka(folder, authority) as theirs,
            Clients(options.processes, authority) as clients,
        ):
            brokers: list[Contestant] = [ours, theirs]
            for broker in brokers:
                console.print(f"{broker.name}: {cipher_of(broker, authority)}")
            known = measures(
                authority,
                clients,
                records=options.records,
                seconds=options.seconds,
                attack_seconds=options.attack,
            )
            chosen = {name: measure for name, measure in known.items() if options.only in name}
            if not chosen:
                parser.error(f"--only {options.only!r}: there are {', '.join(known)}")
            compare(
                brokers,
                chosen,
                options.rounds,
                figures,
                touch_gigabytes=options.touch_memory,
            )
    show(figures, GOALS, console)
    if options.json is not None:
        options.json.write_text(json.dumps(json_of(figures, GOALS), indent=1))


if __name__ == "__main__":
    main()
