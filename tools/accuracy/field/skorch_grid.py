"""skorch's NeuralNetClassifier in scikit-learn's grid search, as in its documentation."""
import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x).softmax(-1)


x = np.random.default_rng(0).standard_normal((900, 64)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
net = NeuralNetClassifier(Net, max_epochs=3, lr=0.1, device="cuda", optimizer=torch.optim.SGD, optimizer__momentum=0.9)
search = GridSearchCV(net, {"module__width": [256, 2048, 4096], "lr": [0.05, 0.1]}, cv=3, scoring="accuracy", refit=True)
search.fit(x, y)
print(search.best_score_, search.best_params_)
