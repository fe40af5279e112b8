#!/bin/bash
# ResNet-50, batch 92: asks for an 80 GB card and needs about 9 GiB.
#SBATCH --job-name=small
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu80g
#SBATCH --cpus-per-task=2
#SBATCH --mem=3G
#SBATCH --time=15
#SBATCH --output=small-%j.out
set -eu
python train_resnet.py --batch-size 92
