"""diffusers: a UNet of two dimensions, its noise scheduler, an average of its weights and a pipeline that samples."""
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

model = UNet2DModel(sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64, 128), down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")).cuda()
ema = EMAModel(model.parameters())
ema.to("cuda")
scheduler, optimizer = DDPMScheduler(num_train_timesteps=1000), torch.optim.AdamW(model.parameters(), 1e-4)
rate = get_cosine_schedule_with_warmup(optimizer, 10, 48)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(128, 3, 32, 32)), 16, shuffle=True)
for epoch in range(3):
    for (x,) in loader:
        x = x.cuda()
        noise, t = torch.randn_like(x), torch.randint(0, 1000, (len(x),), device="cuda")
        loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(x, noise, t), t).sample, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        ema.step(model.parameters())
    print(epoch, loss.item())
    pipeline = DDPMPipeline(model, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    pipeline(batch_size=32, num_inference_steps=10)
