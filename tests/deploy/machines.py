"""Several machines in one: namespaces of Linux, each with its own processes, host name, /tmp, home,
disk and sshd. Only the network is shared, in which each has its own loopback address.

    with Lab() as lab:
        machine = lab.machine("n1", "127.0.0.1")
        machine.start()
        machine.kill()      # as a power cut: every process of it, at once; its files stay
        machine.start()
        lab.laptop.run(["ray", "up", ...])

What it needs of this machine: Linux, root, `unshare`, and sshd and rsync, which are installed where
apt can do so. What it leaves behind: those two. Nothing of the user's is touched: keys, ssh
configuration, homes and Ray's temporary files are the machines' own, in one folder that goes.

A machine has the Python environment of this process without Bradbury, as an image would have it:
Bradbury comes as a wheel. It is a copy of its own at a path that is the same on all of them, which
is what Spark asks for; Java is this machine's.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from bradbury.tests.support.ray.ray_nodes import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = "/var/tmp"  # not /tmp: each machine has another one
DISK = Path("/var/lib/bradbury")
PACKAGES = {"sshd": "openssh-server", "rsync": "rsync", "ssh": "openssh-client"}
UNSHARE = ("unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--mount-proc")
PRIVATE = ("/tmp", "/run")
START_SECONDS = 20
NO_DAEMON = Path("/usr/sbin/policy-rc.d")

INIT = """\
set -e
hostname {name}
mount --bind {folder}/tmp /tmp
mount --bind {folder}/disk {disk}
mount --bind {folder}/venv {venv}
mount --bind {ssh_config} /etc/ssh/ssh_config
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
{sshd}
touch {folder}/is-up
set +e
while true; do sleep 3600 & wait; done
"""
SSHD = "/usr/sbin/sshd -D -e -f {folder}/sshd_config 2>{folder}/sshd.log &"
SSHD_CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {base}/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
PrintMotd no
SetEnv NODE_IP={address}
"""
SSH_CONFIG = """\
Host *
    Port {port}
    BatchMode yes
    LogLevel ERROR
"""
BASHRC = """\
export PATH={venv}/bin:$PATH
export PYTHONPYCACHEPREFIX={cache} RAY_USAGE_STATS_ENABLED=0 PIP_NO_INDEX=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore NO_COLOR=1
cd ~
"""
SCRIPT = """\
#!{python}
import sys
from {module} import main
sys.exit(main())
"""


class NotHere(Exception):
    """Machines cannot be made on this one. One line: why."""


class Lab:
    """Where the machines live. Use as a context manager."""

    def __init__(self, *, ssh_port: int) -> None:
        self.ssh_port = ssh_port
        self.machines: list[Machine] = []
        self._made_disk = False

    def __enter__(self) -> Self:
        _check()
        self.base = Path(tempfile.mkdtemp(prefix="bradbury-lab-", dir=BASE))
        try:
            self.base.chmod(0o755)
            self._made_disk = not DISK.exists()
            DISK.mkdir(parents=True, exist_ok=True)  # only a place for mounts; nothing is written
            self.packages = _link_packages(self.base / "packages")
            self.venv = self.base / "venv"  # a place for mounts, too
            self.venv.mkdir()
            self.key = _make_key(self.base / "key")
            (self.base / "authorized_keys").write_text(
                self.key.with_suffix(".pub").read_text(encoding="ascii"), encoding="ascii"
            )
            (self.base / "ssh_config").write_text(SSH_CONFIG.format(port=self.ssh_port))
            self.laptop = self.machine("laptop", None)
            self.laptop.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.kill()
        shutil.rmtree(self.base, ignore_errors=True)
        if self._made_disk:
            with suppress(OSError):
                DISK.rmdir()

    def machine(self, name: str, address: str | None) -> "Machine":
        """A new one, which is off. Without an address it has no sshd."""
        machine = Machine(self, name, address)
        self.machines.append(machine)
        return machine


class Machine:
    """One. Its files are in `folder`, and outlive its processes."""

    def __init__(self, lab: Lab, name: str, address: str | None) -> None:
        self.name = name
        self.address = address
        self.folder = lab.base / name
        self._lab = lab
        self._process: psutil.Popen | None = None
        for part in ("tmp", "home", "disk"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "tmp").chmod(0o1777)
        bashrc = BASHRC.format(venv=lab.venv, cache=ROOT / ".cache" / "pycache")
        (self.folder / "home" / ".bashrc").write_text(bashrc)
        _make_venv(self.folder / "venv", lab.packages, seen_as=lab.venv)
        if address is not None:
            _make_key(self.folder / "host_key")
            config = SSHD_CONFIG.format(
                address=address, port=lab.ssh_port, folder=self.folder, base=lab.base
            )
            (self.folder / "sshd_config").write_text(config)
        # Spark asks for the address of the host's own name.
        (self.folder / "hosts").write_text(
            f"127.0.0.1 localhost\n{address or '127.0.0.1'} {name}\n"
        )
        (self.folder / "passwd").write_text(_passwd(home=self.folder / "home"))
        sshd = "" if address is None else SSHD.format(folder=self.folder)
        (self.folder / "init.sh").write_text(
            INIT.format(
                name=name,
                folder=self.folder,
                disk=DISK,
                venv=lab.venv,
                ssh_config=lab.base / "ssh_config",
                sshd=sshd,
            )
        )

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def start(self) -> None:
        (self.folder / "is-up").unlink(missing_ok=True)
        init = str(self.folder / "init.sh")
        self._process = psutil.Popen(
            # It ends with this process, and everything in the machine with it.
            ["setpriv", "--pdeathsig", "KILL", *UNSHARE, "--kill-child", "bash", init],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )
        wait_for((self.folder / "is-up").exists, START_SECONDS, f"{self.name} does not start")

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_running()

    def kill(self) -> None:
        """kill -9 of its first process, with which the kernel ends all others of it."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for init in self._process.children():
                init.kill()
        self._process.wait(START_SECONDS)
        self._process = None

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine, as a user. Raises CalledProcessError, TimeoutExpired."""
        assert self._process is not None
        (init,) = self._process.children()
        inside = ["nsenter", "-t", str(init.pid), "-p", "-m", "-u", "-i", "--"]
        process = subprocess.Popen(
            [*inside, "bash", "-c", 'source ~/.bashrc; exec "$@"', "bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
                "HOME": str(self.home),
                **(env or {}),
            },
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if check and process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(command), output)
        return subprocess.CompletedProcess(list(command), process.returncode, output)

    def tree(self) -> list[psutil.Process]:
        """All processes that run in it; some may have ended."""
        return [] if self._process is None else self._process.children(recursive=True)

    def processes(self) -> list[str]:
        """Names of those that run in it."""
        names = []
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                names.append(process.name())
        return sorted(names)


def _check() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotHere("machines in one need root on Linux (namespaces, sshd)")
    if private := next((path for path in PRIVATE if ROOT.is_relative_to(path)), None):
        raise NotHere(
            f"each machine has a {private} of its own, and this checkout is in it: {ROOT}; "
            "take one elsewhere"
        )
    try:
        subprocess.run(
            [*UNSHARE, "true"],
            check=True,
            capture_output=True,
            timeout=START_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        raise NotHere("this machine does not let `unshare` make namespaces") from None
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [package for tool, package in PACKAGES.items() if not shutil.which(tool, path=path)]
    if missing:
        _install(missing)


def _install(packages: list[str]) -> None:
    """Install packages from Debian, without starting their services."""
    if not shutil.which("apt-get"):
        raise NotHere(f"{' and '.join(packages)} are not installed here, and there is no apt-get")
    made = not NO_DAEMON.exists()
    if made:
        NO_DAEMON.write_text("#!/bin/sh\nexit 101\n")
        NO_DAEMON.chmod(0o755)
    try:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, timeout=300
        )
    finally:
        if made:
            NO_DAEMON.unlink()
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotHere(f"apt-get cannot install {' and '.join(packages)}: {' '.join(said)}")


def _passwd(home: Path) -> str:
    """A passwd file with another home for this user: ssh and sshd ignore HOME."""
    lines = Path("/etc/passwd").read_text().splitlines()
    mine = pwd.getpwuid(os.geteuid())
    before = f":{mine.pw_gecos}:{mine.pw_dir}:"
    return "".join(
        line.replace(before, f":{mine.pw_gecos}:{home}:", 1) + "\n"
        if line.startswith(f"{mine.pw_name}:")
        else line + "\n"
        for line in lines
    )


def _make_key(path: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bradbury lab", "-f", str(path)],
        check=True,
        timeout=START_SECONDS,
    )
    return path


def _link_packages(folder: Path) -> Path:
    """Everything that is installed here, but Bradbury."""
    folder.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "bradbury" not in entry.name.lower():
            (folder / entry.name).symlink_to(entry)
    return folder


def _make_venv(folder: Path, packages: Path, *, seen_as: Path) -> None:
    """An environment of its own; pip installs into it and leaves `packages` alone."""
    base = f"{sys.base_prefix}/bin/python3"
    command = [base, "-m", "venv", "--without-pip", "--symlinks", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site_packages = folder / "lib" / version / "site-packages"
    (site_packages / "image.pth").write_text(f"{packages}\n")
    for name, module in {"ray": "ray.scripts.scripts", "pip": "pip._internal.cli.main"}.items():
        script = folder / "bin" / name
        script.write_text(SCRIPT.format(python=seen_as / "bin" / "python", module=module))
        script.chmod(0o755)
