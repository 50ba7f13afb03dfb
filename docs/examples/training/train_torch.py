"""train_torch.py SHARDS CHECKPOINT: plain torch; start it again and it goes on."""

import os
import sys

import torch

from shardproof import ShuffledDataLoader


def save(parts, step, path):
    """Write the old checkpoint or the new one, never half of one."""
    states = {name: part.state_dict() for name, part in parts.items()}
    with open(path + ".tmp", "wb") as file:
        torch.save({**states, "step": step}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def train(shards_dir, checkpoint, n_epochs=2, save_every=5):
    """Train, and return the number of steps and the model."""
    torch.manual_seed(0)
    loader = ShuffledDataLoader(shards_dir, layer=6, batch_size=4, seed=17, framework="torch")
    model = torch.nn.Linear(loader.d_model, loader.d_model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    parts, step = {"model": model, "optimizer": optimizer, "loader": loader}, 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        step = saved.pop("step")
        for name, state in saved.items():
            parts[name].load_state_dict(state)
    for _epoch in loader.epochs(n_epochs):
        for batch in loader:
            act = batch["act"] / 1000
            loss = (model(act) - act).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % save_every == 0:
                save(parts, step, checkpoint)
    save(parts, step, checkpoint)
    return step, model


if __name__ == "__main__":
    steps, trained = train(*sys.argv[1:])
    print(f"{steps} steps, weight {float(trained.weight.sum()):.6f}")
