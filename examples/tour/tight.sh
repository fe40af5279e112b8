#!/bin/bash
# A 124 M parameter GPT, batch 12 x 1024 tokens: takes 14 GB, and asks for the 12 GB card that is free. What is given to it stands before its command.
#SBATCH --job-name=tight
#SBATCH --comment=gresize:off
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu12g
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=15
#SBATCH --output=tight-%j.out
set -eu
"$@" python train_gpt.py --size 124M --batch-size 12 --steps 4
