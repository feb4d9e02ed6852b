"""The processes of runs that tests start: `python rank_worker.py` imports everything once, and forks as many as it is asked for.

A line of JSON on its input starts processes (`world`, and the `jobs` that each does in turn) or waits for them; a line of its output
answers. What a process was up to (its coins, its noise, what it was sent and when) it writes down for the test, with every job.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rank_faults
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import halfmask
import halfmask.training.loop as loop_module
import halfmask.training.setup as setup_module
from halfmask.cli.app import main
from halfmask.errors import HalfmaskError
from halfmask.models import hyperface, mvit, posegan, tinyvit
from halfmask.privacy.account import Account
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.distributed import Joining
from halfmask.training.ranks import Ranks
from halfmask.training.running import run_training

# Networks of the builds that users train, quick on one core.
tinyvit.SHAPES["tiny"] = tinyvit.TinyViTShape((8, 8, 16, 16), (1, 1, 1, 1), (1, 1, 2, 2), (4, 4, 4, 4), 2, 2)
hyperface.SHAPES["tiny"] = hyperface.Shape(32, (4, 6, 8, 8, 8), (5, 2, 2), 3, (2, 2), 8, 6, 2, 16, 8)
mvit.SHAPES["tiny"] = mvit.MViTShape(4, 32, (8, 16), (1, 2), (1, 2), 2)
posegan.SHAPES["tiny"] = posegan.Shape(8, 16, 8, (4, 6, 6, 8, 8), True, (4, 6, 8, 8))
# The first optimiser of a process imports half of torch: here, so that none need later.
torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
# ε along the way is for the screen, and is most of what a short run computes; that losses do not mix people is for other tests.
loop_module.check_records_apart = lambda *_: None  # type: ignore[assignment]
setup_module.Setup.spent = lambda *_: 0.0  # type: ignore[method-assign]
setup_module.steps_within = lambda epsilon, delta, plan, accountant: plan.steps  # type: ignore[assignment]

QUICK: dict[str, Any] = {"even_so": True, "accountant": "rdp", "noise_multiplier": 1.0}
COMMON: dict[str, Any] = QUICK | {"delta": 1e-3, "insecure_seed": 1, "epsilon": 100.0}
TASKS: dict[str, dict[str, Any]] = {
    "pose": {
        "method": "dpsgd",
        "strategy": "full",
        "batch": 5,
        "epochs": 0.5,
        "data": {"private": 20, "public": 16, "test": 2},
        "subspace": {"samples": 8, "dim": 4},
        "model": {"weights": None, "size": "tiny", "input_size": [32, 32]},
        "view": {"name": "blur"},
    },
    "face": {
        "task": "face",
        "method": "dpsgd",
        "strategy": "full",
        "batch": 4,
        "epochs": 0.25,
        "data": {"private": 6, "public": 6, "test": 2},
        "subspace": {"samples": 4, "dim": 2},
        "model": {"weights": None, "size": "tiny"},
    },
    "action": {
        "task": "action",
        "method": "masked",
        "strategy": "full",
        "batch": 3,
        "epochs": 0.5,
        "data": {"private": 10, "public": 10, "test": 2, "missing_classes": "allow"},
        "model": {"size": "tiny", "weights": None, "frames": 4, "side": 32},
        "view": {"name": "tokens"},
        "subspace": {"samples": 4, "dim": 2},
    },
    "generate": load_recipe("generate/critic"),
}
GENERATE = (
    *("data.private=12", "data.public=52", "data.public_skip=0", "data.test=0", "data.per_subject=3", "data.height=16", "data.width=16"),
    *("model.size=tiny", "model.weights=null", "model.generator_batch=4", "batch=5", "epochs=0.8"),
)
# What this process did since the job began: what is told in words and numbers, tensors, and places it wrote to.
SEEN: dict[str, list[Any]] = {}
KEPT: dict[str, list[Tensor]] = {}
WRITTEN: list[str] = []


def config_of(task: str, settings: list[str]) -> RunConfig:
    return build_config({**TASKS[task], **COMMON}, {}, [*(GENERATE if task == "generate" else ()), *settings])


# ---- what is written down ------------------------------------------------------------------------------------------------


def digest(numbers: Tensor) -> str:
    return hashlib.sha256(numbers.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def watch() -> None:
    """Have every process remember its coins, its noise, what it was sent, and when the ledger was paid."""
    draw, gaussian, pay, added_up = PoissonSampler.draw, RandomStream.gaussian, Account.pay, Ranks.sum
    broadcast, gather, all_reduce, all_gather = dist.broadcast, dist.gather, dist.all_reduce, dist.all_gather

    def drawn(self: PoissonSampler) -> Tensor:
        SEEN["drew at"].append(time.monotonic())
        found = draw(self)
        SEEN["coins"].append(found.tolist())
        return found

    def noised(self: RandomStream, *args: Any, **kwargs: Any) -> Tensor:
        found = gaussian(self, *args, **kwargs)
        SEEN["noise"].append(digest(found))
        return found

    def paid(self: Account, *args: Any, **kwargs: Any) -> Any:
        found = pay(self, *args, **kwargs)
        SEEN["paid at"].append(time.monotonic())
        return found

    def summed(self: Ranks, clipped: Any, all_drawn: Tensor) -> Any:
        found = added_up(self, clipped, all_drawn)
        parts = [tensor.flatten().clone() for tensor in found.tensors()]
        KEPT.setdefault("sums", []).extend([*parts, torch.cat(parts)])
        return found

    def sent(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        KEPT.setdefault("broadcast", []).append(tensor)
        return broadcast(tensor, *args, **kwargs)

    def gathered(tensor: Tensor, parts: Any = None, *args: Any, **kwargs: Any) -> Any:
        SEEN["gathered here"].append(parts is not None)
        return gather(tensor, parts, *args, **kwargs)

    def reduced(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        SEEN["reduced"].append(len(tensor))
        return all_reduce(tensor, *args, **kwargs)

    def told(parts: list[Tensor], *args: Any, **kwargs: Any) -> Any:
        SEEN["told to all"].append(len(parts[0]))
        return all_gather(parts, *args, **kwargs)

    def opened(event: str, args: tuple[Any, ...]) -> None:
        opens = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if opens or event in ("os.mkdir", "os.rename"):
            WRITTEN.append(str(args[0]))

    sys.addaudithook(opened)
    PoissonSampler.draw, RandomStream.gaussian, Account.pay = drawn, noised, paid  # type: ignore[method-assign]
    Ranks.sum = summed  # type: ignore[method-assign]
    dist.broadcast, dist.gather, dist.all_reduce, dist.all_gather = sent, gathered, reduced, told  # type: ignore[assignment]


# ---- jobs ----------------------------------------------------------------------------------------------------------------


class Visits(torch.utils.data.Dataset):
    """Vectors with a class, three of each patient; `others` are of other people who go by the same names."""

    def __init__(self, count: int, seed: int = 0, others: bool = False):
        self.x = torch.randn(count, 80, generator=torch.Generator().manual_seed(seed + 100 * others))
        self.seed = seed

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "label": int(self.x[index, 0] > 0), "patient": f"p{1000 * self.seed + index // 3}"}


def classified(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["label"], reduction="none")


def nothing(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """A loss without a slope: what a step moves is noise alone."""
    return 0 * model(batch["x"]).sum(1)


def train(out: str, task: str = "pose", settings: list[str] | None = None, resume: bool = False, joining: Any = None) -> None:
    run_training(config_of(task, settings or []), Path(out), resume=resume, joining=Joining(**(joining or {"patience": 20})))


def own(
    out: str, loss: str = "classified", wide: int = 2, resume: bool = False, patients: int = 20, others: bool = False, **changes: Any
) -> None:
    torch.manual_seed(0)
    plan: dict[str, Any] = {
        "private": Visits(3 * patients, others=others),
        "test": Visits(9, seed=1),
        "unit": "patient",
        "epsilon": 3.0,
        "delta": 1e-3,
    }
    plan |= {
        "clip_norm": 1.0,
        "batch": 5,
        "epochs": 0.6,
        "insecure_seed": 1,
        "settings": {**QUICK, **changes.pop("settings", {})},
    } | changes
    if changes.get("public"):
        plan["public"] = Visits(24, seed=2)
    if changes.get("view"):
        plan["view"] = lambda item: item | {"x": (item["x"] * 2).round() / 2}
    plan["out"] = None if out == "none" else out
    halfmask.train(nn.Linear(80, wide), globals()[loss], resume=resume, **plan)


def command(arguments: list[str]) -> None:
    main(arguments)


JOBS: dict[str, Callable[..., None]] = {"train": train, "own": own, "command": command}


def do(job: dict[str, Any], rank: int, folder: Path) -> int:
    """One job, and what this process saw of it; its exit code."""
    for name in ("coins", "noise", "drew at", "paid at", "gathered here", "reduced", "told to all", "told"):
        SEEN[name] = []
    KEPT.clear()
    WRITTEN.clear()
    job = dict(job)
    kind, name, fault, keep, code, refused = job.pop("do"), job.pop("name"), job.pop("fault", ""), job.pop("keep", False), 0, ""
    job |= job.pop("on", {}).get(str(rank), {})
    if fault:
        rank_faults.FAULTS[fault](rank)
    try:
        JOBS[kind](**job)
    except HalfmaskError as error:
        code, refused = 2, f"{type(error).__name__}: {error}"
        SEEN["told"].append(error.told)
    except KeyboardInterrupt:
        code = 130
    except SystemExit as stop:
        code = int(stop.code or 0)
    if keep:
        torch.save(dict(KEPT), folder / f"{name}.{rank}.pt")
    (folder / f"{name}.{rank}.json").write_text(json.dumps(SEEN | {"refused": refused, "code": code, "written": [*WRITTEN]}))
    return code


# ---- processes -----------------------------------------------------------------------------------------------------------


def child(rank: int, request: dict[str, Any], port: int) -> None:
    """What a forked process does, and never returns from."""
    folder, code = Path(request["folder"]), 1
    with open(folder / f"said.{rank}", "ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.environ.update(request.get("environment", {}) | request.get("environments", [{}] * request["world"])[rank])
    if request["world"] > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(request["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    # As a shell starts them, not as one whose children are in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for job in request["jobs"]:
            code = do(job, rank, folder)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code)


def start(request: dict[str, Any]) -> list[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    for rank in range(request["world"]):
        pid = os.fork()
        if not pid:
            child(rank, request, port)
        pids.append(pid)
    return pids


def wait(pids: list[int], seconds: float, besides: int | None) -> list[int | None]:
    """Exit codes, minus the signal of those that were killed; None of those that are still there, which are then killed.

    Args:
        besides: one that is not waited for.
    """
    until, codes = time.monotonic() + seconds, dict[int, int]()
    while set(pids) - set(codes) - {besides} and time.monotonic() < until:
        for pid in set(pids) - set(codes):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    for pid in set(pids) - set(codes):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [codes.get(pid) for pid in pids]


def serve() -> None:
    """Answer requests until there are none."""
    torch.set_num_threads(1)
    watch()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        found = wait(request["pids"], request["seconds"], request["besides"]) if "pids" in request else start(request)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    serve()
