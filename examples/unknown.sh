#!/bin/bash
# Trains on the samples that it got wrong: the memory depends on values, so the job is left alone.
#SBATCH --job-name=unknown
#SBATCH --gres=gpu:1
#SBATCH --constraint=gpu80g
#SBATCH --cpus-per-task=2
#SBATCH --mem=3G
#SBATCH --time=15
#SBATCH --output=unknown-%j.out
set -eu
python train_hard_examples.py
