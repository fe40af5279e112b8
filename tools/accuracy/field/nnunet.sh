#!/bin/sh
# nnU-Net v2 on volumes that are made here: preprocessing, then its trainer of few epochs.
set -eu
place=$(mktemp -d)
export nnUNet_raw="$place/raw" nnUNet_preprocessed="$place/preprocessed" nnUNet_results="$place/results" nnUNet_n_proc_DA=1 nnUNet_compile=f
"$PYTHON" - <<'P'
import json, os
import numpy as np, SimpleITK
place = os.environ["nnUNet_raw"] + "/Dataset001_Made"
os.makedirs(place + "/imagesTr"), os.makedirs(place + "/labelsTr")
rng = np.random.default_rng(0)
for i in range(6):
    label = np.zeros((40, 48, 48), "uint8")
    label[10:30, 12:30, 12:30] = 1
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(rng.random((40, 48, 48)).astype("float32") + label), place + "/imagesTr/c_%03d_0000.nii.gz" % i)
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(label), place + "/labelsTr/c_%03d.nii.gz" % i)
json.dump({"channel_names": {"0": "CT"}, "labels": {"background": 0, "organ": 1}, "numTraining": 6, "file_ending": ".nii.gz"}, open(place + "/dataset.json", "w"))
P
nnUNetv2_plan_and_preprocess -d 1 -c 3d_fullres -np 1 -npfp 1 --no_pbar
exec env nnUNet_n_proc_DA=0 nnUNetv2_train 1 3d_fullres 0 -tr nnUNetTrainer_1epoch --disable_checkpointing
