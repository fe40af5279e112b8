#!/bin/bash
# A 124 M parameter GPT, batch 7 x 1024 tokens: asks for an 80 GB card, fits on 12 GB.
#SBATCH --job-name=medium
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu80g
#SBATCH --cpus-per-task=2
#SBATCH --mem=3G
#SBATCH --time=15
#SBATCH --output=medium-%j.out
set -eu
python train_gpt.py --size 124M --batch-size 7
