"""SpeechBrain's Brain: spectral features, a CRDNN and CTC."""
import speechbrain as sb
import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.nnet.linear import Linear


class Recogniser(sb.Brain):
    def compute_forward(self, batch, stage):
        wavs, lengths, _, _ = (b.to(self.device) for b in batch)
        return self.modules.out(self.modules.net(self.modules.features(wavs))).log_softmax(-1), lengths

    def compute_objectives(self, predictions, batch, stage):
        log_probs, lengths = predictions
        return sb.nnet.losses.ctc_loss(log_probs, batch[2].to(self.device), lengths, batch[3].to(self.device), blank_index=0)


data = [(torch.randn(16000), torch.tensor(1.0), torch.randint(1, 40, (12,)), torch.tensor(1.0)) for _ in range(48)]
modules = {"features": Fbank(n_mels=40), "net": CRDNN(input_size=40, cnn_channels=(16, 32), rnn_layers=1, rnn_neurons=128, dnn_neurons=128), "out": Linear(n_neurons=40, input_size=128)}
brain = Recogniser(modules, lambda p: torch.optim.Adam(p, 1e-3), run_opts={"device": "cuda:0"})
brain.fit(sb.utils.epoch_loop.EpochCounter(2), torch.utils.data.DataLoader(data, 8), torch.utils.data.DataLoader(data[:16], 8), progressbar=False)
