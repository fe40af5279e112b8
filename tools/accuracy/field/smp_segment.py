"""segmentation-models-pytorch: a Unet with the statistics of its metrics."""
import segmentation_models_pytorch as smp
import torch

model = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=1).cuda()
loss_of, optimizer = smp.losses.DiceLoss("binary", from_logits=True), torch.optim.Adam(model.parameters(), 1e-4)
data = torch.utils.data.TensorDataset(torch.rand(48, 3, 128, 128), (torch.rand(48, 1, 128, 128) > 0.5).float())
train, valid = torch.utils.data.DataLoader(data, 8, shuffle=True), torch.utils.data.DataLoader(data, 8)
for epoch in range(3):
    model.train()
    for x, y in train:
        loss = loss_of(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    stats = []
    with torch.no_grad():
        for x, y in valid:
            found = (model(x.cuda()).sigmoid() > 0.5).long()
            stats.append(smp.metrics.get_stats(found, y.cuda().long(), mode="binary"))
    tp, fp, fn, tn = (torch.cat(s) for s in zip(*stats))
    print(epoch, loss.item(), smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro-imagewise").item())
