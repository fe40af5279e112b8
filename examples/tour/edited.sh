#!/bin/bash
# A 124 M parameter GPT whose batch size stands in a file: who changes that file while the job waits in the queue gets another job than the one that was tried out.
#SBATCH --job-name=edited
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu80g
#SBATCH --cpus-per-task=2
#SBATCH --mem=3G
#SBATCH --time=15
#SBATCH --output=edited-%j.out
set -eu
python train_gpt.py --size 124M --batch-size "$(cat batch.txt)"
