"""Settings that one process goes through by something else than a loop of its own: sweeps.py CASE. The first ones have larger ones to come; the others do not."""
import argparse
import concurrent.futures
import copy
import itertools
import multiprocessing
import os
import random
import sys
from dataclasses import dataclass

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))  # where libraries are
MANY = 10**6


@dataclass
class Setting:
    width: int
    batch: int
    rate: float = 1e-3


def train(width, batch, rate=1e-3, seed=0, epochs=10):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(MANY):
        optimizer.zero_grad()
        model(torch.randn(batch, 512, device="cuda")).square().mean().backward()
        optimizer.step()
    return 0.0


def run(setting):
    return train(setting.width, setting.batch, setting.rate)


def configured(config):
    width, batch = config["model"]["width"], config["batch"]
    return train(width, batch)


settings = [Setting(256, 64), Setting(1024, 64), Setting(8192, 64)]


def maps():
    print(list(map(run, settings)))


def maps_a_lambda():
    print(list(map(lambda s: run(s), settings)))


def goes_through_a_map():
    for score in map(run, settings):
        print(score)


def a_list_of_a_map():
    scores = map(run, settings)
    print(list(scores))


def a_pool():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(run, settings))


def an_executor():
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(run, settings)))


def threads():
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        print(list(pool.map(run, settings)))


def product_of_a_table():
    table = {"width": [256, 1024, 8192], "batch": [64], "rate": [1e-3, 1e-4]}
    for values in itertools.product(*table.values()):
        print(train(**dict(zip(table, values))))


def keywords():
    for setting in [dict(width=256, batch=64), dict(width=8192, batch=64)]:
        print(train(**setting))


def nested_tables():
    configs = [{"model": {"width": w}, "batch": 64} for w in (256, 8192)]
    for config in configs:
        configured(config)


def main(given):
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args(given)
    return train(args.width, args.batch)


def command_lines():
    for given in (["--width", "256"], ["--width", "8192"]):
        main(given)


def positions():
    for values in [(256, 64), (8192, 64)]:
        train(*values)


def jobs():
    import joblib

    print(joblib.Parallel(n_jobs=1)(joblib.delayed(train)(w, 64) for w in (256, 8192)))


def objective(trial):
    return train(trial.suggest_int("width", 64, 8192), 64)


def a_study():
    import optuna

    optuna.create_study().optimize(objective, n_trials=20)


def drawn_settings():
    """A random search, whose runs read a loader."""
    chance, best = random.Random(0), None
    space = {"width": [256, 512, 8192], "rate": [1e-3, 1e-4]}
    for i in range(30):
        chosen = {k: chance.choice(v) for k, v in space.items()}
        score = train(batch=64, **chosen)
        best = score if best is None else min(score, best)


def build(width=1024):
    return nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512))


def fits(model, folds=1):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(MANY):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()


def folds_are_kept():
    """The networks of all folds stay on the card."""
    models = []
    for fold in range(5):
        model = build().cuda()
        fits(model)
        models.append(model)


def weights_are_kept():
    states = []
    for fold in range(5):
        model = build().cuda()
        fits(model)
        states.append(copy.deepcopy(model.state_dict()))


# --- none


def folds():
    """One network after the other, each of which has room where a step had its activations."""
    scores = []
    for fold in range(5):
        model = build(128).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(MANY):
            optimizer.zero_grad()
            loss = model(torch.randn(4096, 512, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
        scores.append(loss.item())


def a_random_search_of_rates():
    for i in range(30):
        rate, seed = 10 ** random.uniform(-5, -2), random.randrange(1000)
        train(256, 64, rate, seed)


def the_best_of_one():
    print(max(train(256, 64), 1.0))


def maps_rates():
    print(list(map(run, [Setting(256, 64, 1e-3), Setting(256, 64, 1e-4)])))


def of_a_rate(trial):
    return train(256, 64, trial.suggest_float("rate", 1e-5, 1e-1, log=True))


def a_study_of_a_rate():
    import optuna

    optuna.create_study().optimize(of_a_rate, n_trials=20)


def seeds():
    for setting in [dict(width=256, batch=64, seed=s, epochs=10 * s) for s in (1, 2, 3)]:
        train(**setting)


def smaller_ones():
    for setting in [dict(width=1024, batch=64), dict(width=256, batch=64)]:
        train(**setting)


def jobs_of_rates():
    import joblib

    print(joblib.Parallel(n_jobs=1)(joblib.delayed(train)(256, 64, r) for r in (1e-3, 1e-4)))


def read_by_threads():
    """What is read before, or beside, by threads is no setting."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(str.upper, ["a", "b", "c"]))
    print(texts, list(map(len, texts)))
    train(256, 64)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
