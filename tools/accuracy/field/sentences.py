"""sentence-transformers: a small BERT with pooling, trained on pairs with a loss over all of a batch."""
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses, models
from texts import LINES, folder, tokenizer
from transformers import BertConfig, BertModel

place = folder()
BertModel(BertConfig(vocab_size=1024, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024)).save_pretrained(place)
tokenizer().save_pretrained(place)
words = models.Transformer(place, max_seq_length=64)
model = SentenceTransformer(modules=[words, models.Pooling(256)])
args = SentenceTransformerTrainingArguments(output_dir=folder(), num_train_epochs=2, per_device_train_batch_size=32, report_to="none", save_strategy="no", logging_steps=5)
SentenceTransformerTrainer(model, args, train_dataset=Dataset.from_dict({"anchor": LINES, "positive": LINES[::-1]}), loss=losses.MultipleNegativesRankingLoss(model)).train()
print(model.encode(LINES[:64]).shape)
