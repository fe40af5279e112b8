"""Ignite: a trainer with an evaluator of accuracy and a confusion matrix after each epoch."""
import torch
import torchvision
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, ConfusionMatrix, Loss

model = torchvision.models.resnet18(num_classes=10).cuda()
optimizer, loss_of = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), torch.nn.CrossEntropyLoss()
data = torch.utils.data.TensorDataset(torch.rand(128, 3, 64, 64), torch.randint(10, (128,)))
trainer = create_supervised_trainer(model, optimizer, loss_of, device="cuda", amp_mode="amp", scaler=True)
evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "nll": Loss(loss_of), "table": ConfusionMatrix(10)}, device="cuda")


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    print(engine.state.epoch, evaluator.run(torch.utils.data.DataLoader(data, 32)).metrics["accuracy"])


trainer.run(torch.utils.data.DataLoader(data, 16, shuffle=True), max_epochs=3)
