# Distributed training with PyTorch that can be stopped at any time: it writes checkpoints, and when
# it starts again, on any nodes, it continues with the next step. Replace Model and batch, keep the rest.
#
#   python3 train.py                                                        # one process, on this machine
#   nomad-pal run -var ranks=8 ranks.nomad.hcl                              # or torchrun.nomad.hcl, mpi.nomad.hcl
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def env(*names, default):
    return next((os.environ[name] for name in names if os.environ.get(name)), default)


# Jobspec, torchrun or mpirun set rank and size. MASTER_ADDR and MASTER_PORT are rank 0's address.
RANK = int(env("RANK", "OMPI_COMM_WORLD_RANK", default=0))
SIZE = int(env("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", default=1))
LOCAL = int(env("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", default=0))  # which of the GPUs that it sees
BACKEND = env("BACKEND", default="nccl" if torch.cuda.is_available() else "gloo")
CHECKPOINT = env("CHECKPOINT", default="checkpoint.pt")  # on storage that every node shares
EVERY = float(env("CHECKPOINT_EVERY", default=3600))  # seconds
STEPS = int(env("STEPS", default=1000))
STEP_SECONDS = float(env("STEP_SECONDS", default=0))  # makes steps as slow as those of a large model

stopped = False


def stop(*_):
    # Only set a flag. The step ends first, so no checkpoint contains half a step.
    global stopped
    stopped = True


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))

    def forward(self, x, y):
        return (self.layers(x) - y).square().mean()


def batch(step, device):
    # Depends only on step and rank, so a step that is done again sees the same data.
    random = torch.Generator().manual_seed(step * SIZE + RANK)
    x = torch.randn(256, 64, generator=random)
    return x.to(device), x[:, :8].sum(1, keepdim=True).sin().to(device)


def write(path, to):
    # A new file that then gets the name: if the task is killed meanwhile, the old file stays intact.
    with open(path + ".new", "wb") as f:
        to(f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def read(path, device):
    try:
        return torch.load(path, map_location=device)
    except Exception as e:
        sys.exit(f"cannot read the checkpoint {path} (to train from the start, delete it): {e}")


def main():
    if RANK == 0:
        open(CHECKPOINT + ".new", "ab").close()  # fails now, not at the first checkpoint
    device = "cpu"
    if BACKEND == "nccl":
        device = f"cuda:{LOCAL}"
        torch.cuda.set_device(device)
    if SIZE > 1:
        dist.init_process_group(BACKEND, rank=RANK, world_size=SIZE)
    # Until here a signal ends the process at once: there is nothing to save, and other ranks may never come.
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):  # SIGUSR1 comes through mpirun
        signal.signal(name, stop)
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first = 1
    if os.path.exists(CHECKPOINT):
        state = read(CHECKPOINT, device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    parallel = model if SIZE == 1 else DistributedDataParallel(model)
    if RANK == 0:
        print(f"{SIZE} ranks, {BACKEND}: runs from step {first} of {STEPS}", flush=True)
        if first > STEPS:
            print(f"nothing to do: {CHECKPOINT} is after step {first - 1}; to train from the start, delete it", flush=True)
    saved = time.monotonic()
    stop_now = False
    for step in range(first, STEPS + 1):
        loss = parallel(*batch(step, device))
        optimizer.zero_grad()
        loss.backward()
        time.sleep(STEP_SECONDS)
        optimizer.step()
        # All ranks must stop after the same step, so they tell each other. Rank 0's clock decides about checkpoints.
        now = time.monotonic()
        said = torch.tensor([loss.item() / SIZE, stopped, RANK == 0 and now - saved >= EVERY], device=device)
        if SIZE > 1:
            dist.all_reduce(said)
        loss, stop_now, save_now = said.tolist()
        if RANK == 0:
            print(f"step {step} of {STEPS}: loss {loss:.6f}", flush=True)
            if stop_now or save_now or step == STEPS:
                write(CHECKPOINT, lambda f: torch.save(
                    {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f))
                saved = time.monotonic()
                print(f"checkpoint after step {step}", flush=True)
        if stop_now:
            break
    if SIZE > 1:
        dist.barrier()  # rank 0 has written the checkpoint
    if stop_now:
        sys.exit(143)  # not 0, because the work is not done


main()
