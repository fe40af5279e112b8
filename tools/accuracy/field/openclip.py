"""open_clip: contrastive training of a small ViT and a text tower, with a validation of its retrieval."""
import open_clip
import torch

model = open_clip.create_model("ViT-S-32-alt", pretrained=None, device="cuda")
tokens = open_clip.get_tokenizer("ViT-S-32-alt")(["a picture of number %d" % i for i in range(64)])
pictures = torch.rand(64, 3, 224, 224)
loss_of, optimizer = open_clip.ClipLoss(), torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.2)
for epoch in range(3):
    model.train()
    for i in range(0, 64, 16):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            image, text, scale = model(pictures[i:i + 16].cuda(), tokens[i:i + 16].cuda())
            loss = loss_of(image, text, scale)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6)
    model.eval()
    with torch.no_grad():
        image, text, scale = model(pictures.cuda(), tokens.cuda())
        ranking = torch.argsort(scale * image @ text.T, descending=True)
        where = torch.where(ranking == torch.arange(64, device="cuda").view(-1, 1))[1]
        print(epoch, loss.item(), where.cpu().numpy().mean())
