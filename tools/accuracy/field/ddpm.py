"""denoising-diffusion-pytorch: its Trainer, which saves and samples now and then."""
import tempfile

import numpy as np
from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet
from PIL import Image

folder = tempfile.mkdtemp()
for i in range(120):
    Image.fromarray(np.random.default_rng(i).integers(0, 255, (32, 32, 3), dtype="uint8")).save("%s/%d.png" % (folder, i))
diffusion = GaussianDiffusion(Unet(dim=32, dim_mults=(1, 2, 4), flash_attn=False), image_size=32, timesteps=100, sampling_timesteps=10)
Trainer(diffusion, folder, train_batch_size=16, train_lr=8e-5, train_num_steps=24, gradient_accumulate_every=2, save_and_sample_every=12, num_samples=16, calculate_fid=False, amp=True, results_folder=tempfile.mkdtemp()).train()
