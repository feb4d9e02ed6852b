"""Runs of a sweep on a Ray cluster, all of them spending through one ledger: that of the home where the command was started.

Two things live on the cluster. The *desk*, an actor on the machine of the command, owns its home: runs ask it before each block of steps
(`halfmask.privacy.remote` says what crosses), and a run that gets no answer stops before it tosses a coin. And a *task* for each attempt at
a run, with the threads and GPUs that it asks for; it is a guest of the desk's home, whatever home its own machine has.

Nothing is tried again by Ray itself: a payment that may or may not have arrived is paid again by a run that goes on, not by a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from halfmask.errors import HalfmaskError
from halfmask.privacy.code import code_digest
from halfmask.privacy.fingerprints import key
from halfmask.privacy.guest import Host, Unreachable, visiting
from halfmask.privacy.home import home
from halfmask.privacy.remote import Answer, Desk
from halfmask.training.sweep_jobs import Crew, Ending, Job, News, Outcome, Telling, attempt, marker

# Seconds. To compare thousands of photographs for the first time takes a desk a while; whoever waits longer waits for nobody.
PATIENCE = 300.0
_MOMENT = 0.3
# What a run that is told to stop may take to write down what it did.
_TO_STOP = 120.0


class RayCrew(Crew):
    """A Ray cluster.

    Args:
        address: of the cluster's head, `auto` for the one that this machine belongs to, `local` for one that is made here and ends with
            the sweep.
        out: the sweep's folder, which every machine must see under this path.
        at_once: runs at the same time, at most; by default as many as the cluster has room for.
        threads: that each run asks for.
        gpus: that each run asks for; by default one where the cluster has any and the recipe does not say otherwise.
    """

    def __init__(self, address: str, out: Path, at_once: int | None = None, threads: int | None = None, gpus: float | None = None):
        self.ray = _ray()
        self.address, self.out, self.at_once, self.threads, self.gpus = address, out.resolve(), at_once, threads or 1, gpus
        self._at_work: dict[Any, tuple[Job, str]] = {}
        self._not_begun: list[Outcome] = []
        self._stopping_since: float | None = None

    def __enter__(self) -> RayCrew:
        ray = self.ray
        self._connect()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        own = {"env_vars": {"HALFMASK_HOME": str(home())}}
        # Never restarted, no question asked twice. A desk that is gone is a sweep that stops, and the same command goes on.
        beside = {"num_cpus": 0, "scheduling_strategy": here, "max_restarts": 0, "max_task_retries": 0, "runtime_env": own}
        self.desk = ray.remote(RayDesk).options(**beside).remote()
        if ray.get(self.desk.check.remote(), timeout=PATIENCE) != _names(key()):
            raise HalfmaskError(f"the ledger's actor does not see the home {home()}: start the sweep where its ledgers are")
        self._gpus = self.gpus if self.gpus is not None else float(ray.cluster_resources().get("GPU", 0) > 0)
        self._sign = secrets.token_hex(16)
        marker(self.out).parent.mkdir(parents=True, exist_ok=True)
        marker(self.out).write_text(self._sign)
        self._task = ray.remote(_attempt_as_guest)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        marker(self.out).unlink(missing_ok=True)
        if self._own:
            self.ray.shutdown()
        else:
            self.ray.kill(self.desk)

    def _connect(self) -> None:
        ray = self.ray
        if self.address.startswith("ray://"):
            raise HalfmaskError(
                f"--ray {self.address} is a client's connection, and the ledger must be on a machine of the cluster: start the sweep "
                "there, with --ray auto"
            )
        self._own = not ray.is_initialized()
        if not self._own:
            # A program that uses Ray already: its connection serves, and stays.
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self.address == "local":
            cores = (self.at_once or max(1, (os.cpu_count() or 1) // self.threads)) * self.threads
            quiet |= {"num_cpus": cores, "include_dashboard": False}
        try:
            ray.init(address=self.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise HalfmaskError(
                f"no Ray cluster at '{self.address}' ({' '.join(str(error).split())[:200]}): start one with 'ray start --head', join it "
                "from the others, or use --ray local"
            ) from None

    @property
    def warnings(self) -> list[str]:
        """What the user should know about this cluster."""
        addresses = {node["NodeManagerAddress"] for node in self.ray.nodes() if node["Alive"]}
        if len(addresses) < 2 or os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return []
        return [
            f"this cluster has {len(addresses)} machines and no TLS (RAY_USE_TLS): the key that people are named by, and their "
            "fingerprints, cross its network as they are"
        ]

    @property
    def free(self) -> bool:  # noqa: D102
        # Without a limit, all of them: who waits for whom is Ray's business.
        return self.at_once is None or len(self._at_work) < self.at_once

    @property
    def busy(self) -> bool:  # noqa: D102
        return bool(self._at_work or self._not_begun)

    def start(self, job: Job) -> None:  # noqa: D102
        lease = secrets.token_hex(16)
        answer = self._ask_desk(self.desk.lend.remote(lease, job.run.folder.resolve()))
        try:
            answer.opened()
        except HalfmaskError as error:
            self._not_begun.append(Outcome(job.number, Ending.WRONG, str(error)))
            return
        wants = {"num_cpus": self.threads, "num_gpus": 0 if job.run.config.device == "cpu" else self._gpus, "max_retries": 0}
        given = (job, lease, self.desk, self.threads, self.out, self._sign, code_digest(), _environment())
        self._at_work[self._task.options(**wants).remote(*given)] = (job, lease)

    def wait(self, hear: Callable[[News], None]) -> list[Outcome]:  # noqa: D102
        ray = self.ray
        ended, self._not_begun = self._not_begun, []
        ready, _ = ray.wait(list(self._at_work), timeout=_MOMENT, num_returns=len(self._at_work)) if self._at_work else ([], [])
        for news in self._ask_desk(self.desk.collect.remote()):
            hear(news)
        for task in ready:
            job, lease = self._at_work.pop(task)
            ended.append(self._outcome(task, job))
            self._ask_desk(self.desk.take_back.remote(lease))
        if self._stopping_since is not None and time.monotonic() - self._stopping_since > _TO_STOP:
            ended += [Outcome(job.number, Ending.STOPPED) for job, _ in self._at_work.values()]
            self._at_work.clear()
        return ended

    def stop(self) -> None:  # noqa: D102
        self._stopping_since = time.monotonic()
        for task in self._at_work:
            with contextlib.suppress(Exception):
                self.ray.cancel(task, force=False, recursive=False)

    def _outcome(self, task: Any, job: Job) -> Outcome:
        try:
            outcome: Outcome = self.ray.get(task)
            return outcome
        except self.ray.exceptions.TaskCancelledError:
            return Outcome(job.number, Ending.STOPPED)
        except Exception as error:  # a worker or a machine that died, out of memory, code that could not be sent
            if self._stopping_since is not None:
                return Outcome(job.number, Ending.STOPPED)
            return Outcome(job.number, Ending.FAILED, f"its worker ended: {_first_line(error)}")

    def _ask_desk(self, reference: Any) -> Any:
        """What the desk says; without it, the sweep is over."""
        try:
            return self.ray.get(reference, timeout=PATIENCE)
        except (self.ray.exceptions.RayError, self.ray.exceptions.GetTimeoutError) as error:
            raise HalfmaskError(
                f"the ledger's actor is gone ({_first_line(error)}): the sweep stops, because nothing may be spent without it. The same "
                "command goes on where it stands"
            ) from None


class RayDesk(Desk):
    """The desk as an actor: one question at a time, on the machine whose home it owns. What runs tell of themselves passes here, too."""

    def __init__(self) -> None:
        super().__init__()
        self._news: list[News] = []

    def tell(self, news: News) -> None:
        """Of a run at work."""
        self._news.append(news)

    def collect(self) -> list[News]:
        """What was told since the last time."""
        news, self._news = self._news, []
        return news

    def check(self) -> str:
        """Names the key of this home, so that whoever started the desk can tell that it is in the right one."""
        return _names(key())


def _attempt_as_guest(
    job: Job, lease: str, desk: Any, threads: int, out: Path, sign: str, digest: str, environment: dict[str, str]
) -> Outcome:
    """What runs on a machine of the cluster."""
    ray, where = _ray(), socket.gethostname()

    def ask(question: str, *about: Any) -> Any:
        try:
            answer: Answer = ray.get(desk.answer.remote(lease, question, *about), timeout=PATIENCE)
        except Exception as error:
            raise Unreachable(
                f"the ledger cannot be reached from {where} ({_first_line(error)}): the run stopped before it drew anybody for a step that "
                "is not paid for"
            ) from None
        return answer.opened()

    try:
        _check_machine(where, out, sign, digest)
        _settle(environment, threads)
        visited = Host(ask("key"), ask)
        with visiting(visited):
            return attempt(job, Telling(job.number, desk.tell.remote))
    except Unreachable as error:
        return Outcome(job.number, Ending.FAILED, str(error))
    except HalfmaskError as error:
        return Outcome(job.number, Ending.WRONG, str(error))
    except KeyboardInterrupt:
        return Outcome(job.number, Ending.STOPPED)


def _check_machine(where: str, out: Path, sign: str, digest: str) -> None:
    """Refuse to work where results would be lost, or where other code would make them."""
    path = marker(out)
    if not path.is_file() or path.read_text() != sign:
        raise HalfmaskError(
            f"the sweep's folder {out} is not on the machine {where} as it is where the sweep was started: choose an --out that all "
            "machines of the cluster share under the same path"
        )
    if code_digest() != digest:
        raise HalfmaskError(
            f"the machine {where} has other code of Halfmask than the one where the sweep was started: install the same everywhere"
        )


def _environment() -> dict[str, str]:
    names = {"HALFMASK_DATA": os.environ.get("HALFMASK_DATA", ""), "PWD": os.getcwd()}
    return {name: value for name, value in names.items() if value}


def _settle(environment: dict[str, str], threads: int) -> None:
    """Names of data are looked up, and paths are read, as where the sweep was started."""
    torch.set_num_threads(threads)
    if "HALFMASK_DATA" in environment:
        os.environ["HALFMASK_DATA"] = environment["HALFMASK_DATA"]
    if os.path.isdir(environment["PWD"]):
        os.chdir(environment["PWD"])


def _names(secret: bytes) -> str:
    return hashlib.sha256(b"whose home" + secret).hexdigest()


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise HalfmaskError(
            "--ray needs Ray, which is not installed: pip install 'halfmask[ray]', or use --workers on this machine"
        ) from None
    return ray
