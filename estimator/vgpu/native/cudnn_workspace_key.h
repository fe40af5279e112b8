/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a convolution: one line of numbers, equal for equal
 * convolutions. It is the request to gresize-cudnn-plan and the key of the
 * table of answers. */
#ifndef GRESIZE_CUDNN_KEY_H
#define GRESIZE_CUDNN_KEY_H

#include "cudnn_workspace.h"

/* 9.8.0 is the first cuDNN that plans for a described device. */
#define GV_CUDNN_FIRST_DEVICELESS 90800
#define GV_CONV_KEY_MAX_BYTES 1536

/* Writes the key with a final newline; returns its length, or 0 when the
 * convolution is malformed. */
int gv_conv_key(const struct gv_conv *conv, char *line, int room);

/* Reads what gv_conv_key wrote; 1 when the line is a well-formed convolution. */
int gv_conv_parse_key(const char *line, struct gv_conv *conv);

/* 1 when ranks, sizes and strides are in the range that a tensor can have. */
int gv_conv_well_formed(const struct gv_conv *conv);

#endif
