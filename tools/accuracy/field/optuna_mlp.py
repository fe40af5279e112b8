"""A study of Optuna over the widths and depths of a perceptron, with pruning, as in its examples."""
import optuna
import torch
from torch import nn

x = torch.randn(2048, 128)
y = (x[:, 0] > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 128, shuffle=True)


def objective(trial):
    layers, width = [], 128
    for i in range(trial.suggest_int("layers", 1, 3)):
        out = trial.suggest_int("units_%d" % i, 128, 2048, step=128)
        layers += [nn.Linear(width, out), nn.ReLU(), nn.Dropout(trial.suggest_float("dropout_%d" % i, 0.1, 0.5))]
        width = out
    model = nn.Sequential(*layers, nn.Linear(width, 2)).cuda()
    optimizer = getattr(torch.optim, trial.suggest_categorical("optimizer", ["Adam", "SGD"]))(model.parameters(), lr=1e-3)
    for epoch in range(3):
        model.train()
        for a, b in loader:
            loss = nn.functional.cross_entropy(model(a.cuda()), b.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        correct = 0
        with torch.no_grad():
            for a, b in loader:
                correct += (model(a.cuda()).argmax(1) == b.cuda()).sum().item()
        trial.report(correct / len(x), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return correct / len(x)


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=8)
print(study.best_params)
