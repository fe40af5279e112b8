"""torch_geometric: a network on one graph, or on batches of graphs: pyg.py gcn|gat|sage|topk|gin."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, TopKPooling, global_add_pool, global_mean_pool

name = sys.argv[1]
torch.manual_seed(0)
if name in ("gcn", "gat", "sage"):
    kinds = {"gcn": lambda a, b: GCNConv(a, b), "gat": lambda a, b: GATConv(a, b // 4 if b > 8 else b, heads=4, concat=b > 8), "sage": lambda a, b: SAGEConv(a, b)}
    data = Data(x=torch.randn(3000, 128), edge_index=torch.randint(3000, (2, 20000)), y=torch.randint(7, (3000,)))
    data.train_mask = torch.rand(3000) < 0.2
    data.test_mask = ~data.train_mask
    data = data.to("cuda")
    one, two = kinds[name](128, 64).cuda(), kinds[name](64, 7).cuda()
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], 0.01, weight_decay=5e-4)
    run = lambda: two(F.dropout(F.relu(one(data.x, data.edge_index)), 0.5), data.edge_index)
    for epoch in range(20):
        optimizer.zero_grad()
        out = run()
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            found = run().argmax(-1)
            accuracy = int((found[data.test_mask] == data.y[data.test_mask]).sum()) / int(data.test_mask.sum())
        print(epoch, float(loss), accuracy)
else:
    graphs = [Data(x=torch.randn(n, 32), edge_index=torch.randint(n, (2, 4 * n)), y=torch.randint(2, (1,))) for n in torch.randint(20, 60, (256,)).tolist()]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            mlp = lambda a: nn.Sequential(nn.Linear(a, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128))
            self.one, self.two = (GINConv(mlp(32)), GINConv(mlp(128))) if name == "gin" else (SAGEConv(32, 128), SAGEConv(128, 128))
            self.pool = TopKPooling(128, ratio=0.8) if name == "topk" else None
            self.head = nn.Linear(128, 2)

        def forward(self, batch):
            x, edges, where = self.one(batch.x, batch.edge_index).relu(), batch.edge_index, batch.batch
            if self.pool is not None:
                x, edges, _, where, _, _ = self.pool(x, edges, None, where)
            x = self.two(x, edges).relu()
            return self.head(global_mean_pool(x, where) + global_add_pool(x, where))

    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)
    for epoch in range(4):
        total = 0
        for batch in DataLoader(graphs, 32, shuffle=True):
            batch = batch.to("cuda")
            loss = F.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs
        print(epoch, total / len(graphs))
