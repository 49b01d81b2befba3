# A training loop that can be stopped at any time. It reports its progress, and writes a checkpoint every hour
# and when Nomad stops it. Its next run continues from the checkpoint. checkpoint.nomad.hcl runs it.
#
# Without PyTorch the loop only counts, on the CPU, so that you can try the rest:
#
#   CHECKPOINT=/tmp/c python3 checkpoint.py     # press Ctrl-C, and run it again
import os
import pickle
import signal
import sys
import time

try:
    import torch
except ImportError:
    torch = None

PATH = os.environ.get("CHECKPOINT", "checkpoint.pt")  # on storage that every node shares
EVERY = float(os.environ.get("CHECKPOINT_EVERY", "3600"))  # seconds; as in pal_checkpoint
STEPS = int(os.environ.get("STEPS", "100000"))

stopped = False


def stop(*_):
    # Only set a flag. The current step ends first, so no checkpoint contains half a step.
    global stopped
    stopped = True


def save(state):
    # Write a new file, then rename it. If the task is killed meanwhile, the previous checkpoint stays intact.
    with open(PATH + ".new", "wb") as f:
        torch.save(state, f) if torch else pickle.dump(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(PATH + ".new", PATH)


def report(step):
    # The placer reads this file, because the job sets pal_progress.
    if "NOMAD_ALLOC_DIR" in os.environ:
        path = os.path.join(os.environ["NOMAD_ALLOC_DIR"], "pal-progress")
        with open(path + ".new", "w") as f:
            f.write(f"{step}/{STEPS}\n")
        os.replace(path + ".new", path)


def load():
    try:
        with open(PATH, "rb") as f:
            return torch.load(f) if torch else pickle.load(f)
    except FileNotFoundError:
        return None


def train():
    """Yields the contents of a checkpoint after each step."""
    state = load()
    if torch is None:
        state = state or {"step": 0, "sum": 0}
        while state["step"] < STEPS:
            state = {"step": state["step"] + 1, "sum": state["sum"] + state["step"]}
            time.sleep(0.01)
            yield state
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(64, 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    step = 0
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while step < STEPS:
        x = torch.randn(256, 64, device=device)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        yield {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}


def main():
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    saved, state, first = time.monotonic(), None, True
    told = saved - 30
    for state in train():
        if first:
            print(f"runs from step {state['step']}", flush=True)
            first = False
        if time.monotonic() - told >= 30:
            report(state["step"])
            told = time.monotonic()
        if stopped or time.monotonic() - saved >= EVERY:
            save(state)
            saved = time.monotonic()
        if stopped:
            print(f"stopped after step {state['step']}", flush=True)
            sys.exit(143)  # not 0, because its work is not done
    if state:
        save(state)
    print("done", flush=True)


main()
