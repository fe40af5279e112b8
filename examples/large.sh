#!/bin/bash
# A 774 M parameter GPT, batch 12 x 1024 tokens: needs the large card that it asks for.
#SBATCH --job-name=large
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu80g
#SBATCH --cpus-per-task=2
#SBATCH --mem=3G
#SBATCH --time=15
#SBATCH --output=large-%j.out
set -eu
python train_gpt.py --size 774M --batch-size 12
