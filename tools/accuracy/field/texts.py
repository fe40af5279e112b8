"""A tokenizer, a language model and texts that the programs of language share; nothing is fetched."""
import os
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

WORDS = "the quick brown fox jumps over a lazy dog while seven green cats sleep under an old tree and sing".split()
LINES = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 4 + i % 40)) for i in range(200)]


def tokenizer():
    model = Tokenizer(models.WordLevel(unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    model.train_from_iterator(LINES, trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>", "<s>", "</s>"]))
    made = PreTrainedTokenizerFast(tokenizer_object=model, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left")
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return made


def llama(vocabulary=1024, inner=688):
    return AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=vocabulary, hidden_size=256, intermediate_size=inner, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, pad_token_id=1, bos_token_id=2, eos_token_id=3))


def texts():
    return Dataset.from_dict({"text": LINES})


def folder():
    return tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/tmp"))
