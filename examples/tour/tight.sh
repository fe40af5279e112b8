#!/bin/bash
# A 124 M parameter GPT, batch 12 x 1024 tokens: takes 14 GB, and asks for the 12 GB card that is free. With GRESIZE it runs there.
#SBATCH --job-name=tight
#SBATCH --comment=gresize:off
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu12g
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=15
#SBATCH --output=tight-%j.out
set -eu
${GRESIZE-} python train_gpt.py --size 124M --batch-size 12 --steps 4
