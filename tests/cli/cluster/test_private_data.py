"""Whose are the data directories of a secured cluster?"""

from __future__ import annotations

import datetime as dt
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bradbury.launch.secure.certificate_authority import CertificateAuthority
from bradbury.launch.secure.node_certificate import request_if_needed

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOBODY = 65_534


@pytest.fixture
def authority(tmp_path: Path) -> str:
    return CertificateAuthority.open(tmp_path / "ca", "test", now=NOW).certificate


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everybody may write to, as a group may to a volume in Kubernetes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o777)
        yield path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_those_of_this_user_become_private(tmp_path: Path, authority: str) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.mkdir(mode=0o755)
    assert request_if_needed(str(there), ["localhost"], authority, NOW, [str(new)])
    assert [mode(each) for each in (there, there / "tls", new)] == [0o700] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")
def test_one_of_another_user_keeps_its_mode_and_is_named(
    shared: Path, authority: str, caplog: pytest.LogCaptureFixture
) -> None:
    os.seteuid(NOBODY)
    try:
        request = request_if_needed(str(shared), ["localhost"], authority, NOW)
    finally:
        os.seteuid(0)
    assert request is not None
    assert (mode(shared), mode(shared / "tls")) == (0o777, 0o700)
    assert f"{shared} is owned by another user" in caplog.text
