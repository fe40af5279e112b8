"""More workloads, in the manner of workload.py: added to its table W."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from workload import DEV, GPT2, LLAMA1B, Train, W, ce, hf, images, lm, tm, tokens, tv


def keep(m, x):
    """Like lm, but the caller's loop keeps the model's output alive through backward."""
    m.kept = m(input_ids=x, labels=x)
    return m.kept.loss


def hfk(*a, **kw):
    t = hf(*a, **kw)
    t.loss = keep
    return t


class Infer:
    def __init__(self, model, batch, fn, dtype=None, mode=torch.inference_mode):
        self.model, self.batch, self.fn, self.mode = model.eval().to(DEV, dtype), batch, fn, mode

    def step(self, i):
        data = [t.to(DEV) for t in self.batch(i)]
        with self.mode():
            self.fn(self.model, *data)


def generate(m, x):
    return m.generate(x, max_new_tokens=24, do_sample=False, pad_token_id=0)


def model_hf(cls, conf, **kw):
    import transformers
    return getattr(transformers, cls)(getattr(transformers, conf)(**kw))


def lora():
    import peft
    base = model_hf("LlamaForCausalLM", "LlamaConfig", **LLAMA1B[1]).to(torch.bfloat16)
    m = peft.get_peft_model(base, peft.LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    return Train(m, tokens(2, 2048, 32000), lm)


def vit_mae():
    m = model_hf("ViTMAEForPreTraining", "ViTMAEConfig")
    return Train(m, images(32), lambda m, x, y: m(pixel_values=x).loss, amp="bf16")


def whisper():
    m = model_hf("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=51865, num_mel_bins=80, encoder_layers=4, decoder_layers=4, d_model=384, encoder_attention_heads=6,
                 decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)
    g = torch.Generator().manual_seed(0)
    return Train(m, lambda i: [torch.randn(8, 80, 3000, generator=g), torch.randint(0, 50000, (8, 100), generator=g)], lambda m, x, y: m(input_features=x, labels=y).loss, amp="fp16", scaler=True)


def wav2vec():
    m = model_hf("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", num_labels=10, mask_time_prob=0.0)
    g = torch.Generator().manual_seed(0)
    return Train(m, lambda i: [torch.randn(8, 80000, generator=g), torch.randint(0, 10, (8,), generator=g)], lambda m, x, y: m(input_values=x, labels=y).loss)


def segformer():
    m = model_hf("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=19)
    g = torch.Generator().manual_seed(0)
    return Train(m, lambda i: [torch.randn(4, 3, 512, 512, generator=g), torch.randint(0, 19, (4, 512, 512), generator=g)], lambda m, x, y: m(pixel_values=x, labels=y).loss)


def deeplab():
    import torchvision
    m = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)
    g = torch.Generator().manual_seed(0)
    return Train(m, lambda i: [torch.randn(4, 3, 513, 513, generator=g), torch.randint(0, 21, (4, 513, 513), generator=g)], lambda m, x, y: F.cross_entropy(m(x)["out"], y), optim="sgdm")


def dcgan():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            up = lambda i, o, s, p: [nn.ConvTranspose2d(i, o, 4, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
            down = lambda i, o: [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]
            self.g = nn.Sequential(*up(100, 512, 1, 0), *up(512, 256, 2, 1), *up(256, 128, 2, 1), *up(128, 64, 2, 1), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
            self.d = nn.Sequential(*down(3, 64), *down(64, 128), *down(128, 256), *down(256, 512), nn.Conv2d(512, 1, 4))

        def forward(self, x, z):
            fake = self.g(z)
            return (self.d(x) - self.d(fake)).mean()
    return Train(Both(), lambda i: [torch.randn(128, 3, 64, 64), torch.randn(128, 100, 1, 1)], lambda m, x, z: m(x, z), "adam")


def r3d():
    import torchvision
    return Train(torchvision.models.video.r3d_18(weights=None), lambda i: [torch.randn(8, 3, 16, 112, 112), torch.randint(0, 400, (8,))], ce, "sgdm")


def graphed():
    class T:
        def __init__(self):
            self.m = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))

        def step(self, i):
            if i == 0:
                self.m = torch.cuda.make_graphed_callables(self.m.to(DEV), (torch.randn(256, 1024, device=DEV, requires_grad=True),))
                self.o = torch.optim.SGD(self.m.parameters(), lr=0.1)
            self.o.zero_grad()
            self.m(torch.randn(256, 1024, device=DEV, requires_grad=True)).sum().backward()
            self.o.step()
    return T()


NEO = ("GPTNeoConfig", dict(hidden_size=768, num_layers=12, attention_types=[[["global", "local"], 6]], num_heads=12, max_position_embeddings=2048))
W.update({
    "resnet101_b200_86_adam": lambda: tv("resnet101", 200, 86, optim="adam"),
    "vgg16_b200_86_sgd": lambda: tv("vgg16", 200, 86, optim="sgd"),
    "vgg19_b500_86_rmsprop": lambda: tv("vgg19", 500, 86, optim="rmsprop"),
    "mobilenet_v2_b300_86_adam": lambda: tv("mobilenet_v2", 300, 86, optim="adam"),
    "mobilenet_v2_b500_86_adamw": lambda: tv("mobilenet_v2", 500, 86, optim="adamw"),
    "mobilenet_v3_large_b300_86_adam": lambda: tv("mobilenet_v3_large", 300, 86, optim="adam"),
    "mnasnet_b300_86_adam": lambda: tv("mnasnet1_0", 300, 86, optim="adam"),
    "regnet_x_400mf_b400_86_sgd": lambda: tv("regnet_x_400mf", 400, 86, optim="sgd"),
    "convnext_tiny_b300_86_adamw": lambda: tv("convnext_tiny", 300, 86),
    "convnext_tiny_b64_bf16_cl": lambda: tv("convnext_tiny", 64, amp="bf16", channels_last=True),
    "efficientnet_v2_s_b32_fp16": lambda: tv("efficientnet_v2_s", 32, amp="fp16", scaler=True),
    "resnet50_b64_bf16": lambda: tv("resnet50", 64, optim="sgdm", amp="bf16"),
    "wide_resnet50_2_b64_sgdm": lambda: tv("wide_resnet50_2", 64, optim="sgdm"),
    "shufflenet_b256_sgdm": lambda: tv("shufflenet_v2_x1_0", 256, optim="sgdm"),
    "squeezenet_b128_sgdm": lambda: tv("squeezenet1_1", 128, optim="sgdm"),
    "alexnet_b512_sgdm": lambda: tv("alexnet", 512, optim="sgdm"),
    "timm_deit_small_b64_bf16": lambda: tm("deit_small_patch16_224", 64, amp="bf16"),
    "distilgpt2_b40_s128_keep_adam": lambda: hfk("GPT2LMHeadModel", ("GPT2Config", dict(n_layer=6)), 40, 128, optim="adam"),
    "gpt2_b20_s128_keep_adamw": lambda: hfk("GPT2LMHeadModel", GPT2, 20, 128),
    "gpt_neo125m_b20_s128_keep_adam": lambda: hfk("GPTNeoForCausalLM", NEO, 20, 128, optim="adam"),
    "opt350m_b16_s128_keep_adamw": lambda: hfk("OPTForCausalLM", ("OPTConfig", dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False)), 16, 128),
    "roberta_base_b32_s128_adam_bf16": lambda: hf("RobertaForMaskedLM", ("RobertaConfig", {}), 32, 128, optim="adam", amp="bf16"),
    "qwen2_05b_b2_s2048_ckpt_bf16": lambda: hf("Qwen2ForCausalLM", ("Qwen2Config", dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2)), 2, 2048, dtype=torch.bfloat16, checkpoint=True),
    "mixtral_tiny_b2_s512_bf16": lambda: hf("MixtralForCausalLM", ("MixtralConfig", dict(vocab_size=32000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, num_local_experts=8)), 2, 512, dtype=torch.bfloat16),
    "llama1b_lora_b2_s2048_bf16": lora,
    "vitmae_b32_bf16": vit_mae, "whisper_tiny_b8_fp16": whisper, "wav2vec2_b8": wav2vec, "segformer_b4_512": segformer, "deeplabv3_b4_513": deeplab, "dcgan_b128": dcgan, "r3d18_b8": r3d,
    "resnet50_b256_infer_fp16": lambda: Infer(tv("resnet50", 256, optim="sgd").model, lambda i: [torch.randn(256, 3, 224, 224).half()], lambda m, x: m(x), torch.float16),
    "gpt2_b8_generate": lambda: Infer(model_hf("GPT2LMHeadModel", "GPT2Config"), tokens(8, 200, 50257), generate),
    "mlp_cuda_graph": graphed,
})
if os.environ.get("GPUTRUTH_SMALL"):  # a check of the scripts on a small machine
    W.update({k: W["mlp_adam"] for k in W if k not in ("resnet18_b64_sgd", "gpt2_b20_s128_keep_adamw", "mlp_cuda_graph", "dcgan_b128")})
