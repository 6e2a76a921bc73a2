"""Key sets from files and URLs: read in time, and kept while they cannot be read."""

import asyncio
import json
from pathlib import Path

import pytest

from bradbury.actors.security import jwks_reader
from bradbury.actors.security.jwks_reader import JwksReader, read_url
from bradbury.protocol.errors import InvalidConfig

SETS = [
    {
        "keys": [
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "kid": name,
                "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            }
        ]
    }
    for name in ("one", "two")
]


def ids(reader: JwksReader) -> list[object]:
    return [key.key_id for key in reader.keys().keys]


async def until(reader: JwksReader, expected: list[str]) -> None:
    async with asyncio.timeout(20):
        while ids(reader) != expected:
            await asyncio.sleep(0.01)


def test_a_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "key set.json"
    file.write_text(json.dumps(SETS[0]))

    async def run() -> None:
        reader = JwksReader(file.as_uri(), refresh_ms=20, retry_backoff_ms=10)
        await reader.open()
        assert ids(reader) == ["one"]
        file.write_text("{")
        await asyncio.sleep(0.2)
        assert ids(reader) == ["one"]
        file.write_text(json.dumps(SETS[1]))
        await until(reader, ["two"])
        await reader.close()
        await reader.close()

    asyncio.run(run())


def test_a_key_that_is_not_known_is_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_reader, "SOONEST_SECONDS", 0.05)
    answers = iter([json.dumps(SETS[0]).encode(), json.dumps(SETS[1]).encode()])

    async def run() -> None:
        reader = JwksReader("https://issuer/keys", read=lambda url: next(answers))
        await reader.open()
        reader.expedite()
        await until(reader, ["two"])
        await reader.close()

    asyncio.run(run())


def test_an_issuer_that_comes_later_is_waited_for() -> None:
    tries = []

    def read(url: str) -> bytes:
        tries.append(url)
        if len(tries) < 4:
            raise OSError("refused")
        return json.dumps(SETS[0]).encode()

    async def run() -> None:
        reader = JwksReader("http://issuer/keys", retry_backoff_ms=1, read=read)
        await reader.open()
        assert ids(reader) == []
        await until(reader, ["one"])
        await reader.close()

    asyncio.run(run())


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="use a file:, http: or https: URL"):
        JwksReader("ftp://issuer/keys")
    absent = (tmp_path / "absent").as_uri()
    with pytest.raises(InvalidConfig, match="absent cannot be used"):
        asyncio.run(JwksReader(absent).open())
    monkeypatch.setattr(jwks_reader, "MOST_BYTES", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than a mebibyte"):
        read_url((tmp_path / "large").as_uri())
