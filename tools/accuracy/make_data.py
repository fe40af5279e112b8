"""Makes the data and the random models that public programs would download: make_data.py KIND ARGUMENT...

    images DIR SPLIT CLASSES EACH       DIR/SPLIT/CLASS/N.jpg, random pictures of photo size
    coco DIR                            DIR/{train,val}2017 with annotations of boxes and masks
    voc DIR                             DIR/VOCdevkit/VOC2012 for segmentation
    gpt2-tokenizer DIR TEXT...          a byte-level tokenizer trained on the files
    bert DIR TEXT...                    a BERT-base with random weights, and a tokenizer trained on the files
    jsonl FILE TEXT...                  one {"text": ...} a paragraph of the files
    metric DIR                          the share of right answers, as evaluate.load("DIR") finds it
    vision-weights NAME WEIGHTS         random weights of a model of torchvision, where it looks for those that it has fetched
"""
import json
import os
import random
import sys

SIDES = ((500, 375), (375, 500), (640, 480))
BERT_VOCABULARY, GPT2_VOCABULARY = 30522, 50257


def picture(number):
    from PIL import Image

    width, height = SIDES[number % len(SIDES)]
    return Image.effect_noise((width, height), 64).convert("RGB")


def images(place, split, classes, each):
    for label in range(int(classes)):
        folder = os.path.join(place, split, "class%03d" % label)
        os.makedirs(folder)
        for i in range(int(each)):
            picture(i).save(os.path.join(folder, "%d.jpg" % i))


def coco(place):
    os.makedirs(os.path.join(place, "annotations"))
    for split, count in (("train2017", 48), ("val2017", 8)):
        folder = os.path.join(place, split)
        os.makedirs(folder)
        content = {"images": [], "annotations": [], "categories": [{"id": i, "name": "c%d" % i} for i in range(1, 91)]}
        for i in range(count):
            image = picture(i)
            image.save(os.path.join(folder, "%012d.jpg" % i))
            content["images"].append({"id": i, "file_name": "%012d.jpg" % i, "width": image.width, "height": image.height})
            for _ in range(random.randint(3, 8)):
                w, h = random.randint(40, 200), random.randint(40, 200)
                x, y = random.randint(0, image.width - w), random.randint(0, image.height - h)
                content["annotations"].append({
                    "id": len(content["annotations"]) + 1, "image_id": i, "category_id": random.randint(1, 90), "bbox": [x, y, w, h], "area": w * h,
                    "iscrowd": 0, "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                })
        with open(os.path.join(place, "annotations", "instances_%s.json" % split), "w") as file:
            json.dump(content, file)


def voc(place):
    from PIL import Image

    base = os.path.join(place, "VOCdevkit", "VOC2012")
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        os.makedirs(os.path.join(base, folder))
    for split, count in (("train", 48), ("val", 8)):
        names = ["%s_%06d" % (split, i) for i in range(count)]
        for i, name in enumerate(names):
            image = picture(i)
            image.save(os.path.join(base, "JPEGImages", name + ".jpg"))
            mask = Image.effect_noise(image.size, 64).point(lambda v: v % 21)
            mask.save(os.path.join(base, "SegmentationClass", name + ".png"))
        with open(os.path.join(base, "ImageSets", "Segmentation", split + ".txt"), "w") as file:
            file.write("\n".join(names) + "\n")


def gpt2_tokenizer(place, *texts):
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(list(texts), vocab_size=GPT2_VOCABULARY, special_tokens=["<|endoftext|>"])
    end = "<|endoftext|>"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=end, bos_token=end, unk_token=end).save_pretrained(place)


def bert(place, *texts):
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForPreTraining, PreTrainedTokenizerFast

    tokenizer = BertWordPieceTokenizer()
    tokenizer.train(list(texts), vocab_size=BERT_VOCABULARY)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", unk_token="[UNK]",
        model_max_length=512, padding_side="right",
    ).save_pretrained(place)
    BertForPreTraining(BertConfig()).save_pretrained(place)


def jsonl(path, *texts):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        for text in texts:
            with open(text, encoding="utf8", errors="replace") as file:
                for paragraph in file.read().split("\n\n"):
                    if len(paragraph) > 200:
                        out.write(json.dumps({"text": paragraph}) + "\n")


METRIC = '''import datasets
import evaluate


class Accuracy(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int32"), "references": datasets.Value("int32")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(int(p == r) for p, r in zip(predictions, references)) / max(1, len(references))}
'''


def metric(place):
    os.makedirs(place)
    with open(os.path.join(place, os.path.basename(place) + ".py"), "w") as file:
        file.write(METRIC)


def vision_weights(name, weights):
    import torch
    import torchvision

    url = getattr(torchvision.models.get_model_weights(name), weights).url
    place = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(url))
    os.makedirs(os.path.dirname(place))
    torch.save(torchvision.models.get_model(name, weights=None).state_dict(), place)


if __name__ == "__main__":
    random.seed(0)
    kinds = {"images": images, "coco": coco, "voc": voc, "gpt2-tokenizer": gpt2_tokenizer, "bert": bert, "jsonl": jsonl, "metric": metric, "vision-weights": vision_weights}
    if len(sys.argv) < 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](*sys.argv[2:])
